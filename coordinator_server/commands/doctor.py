"""`txnctl doctor`: whether this machine can run a server well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from coordinator_server.commands.options import Output
from coordinator_server.exit_status import ExitStatus
from coordinator_server.output import Column, OutputFormat, Row, print_list


def doctor(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Where the data will lie; its disk is measured. [default: TXN_DATA_DIR, else the current directory]",
        ),
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Look at clock, disk, limits and versions, and say what to repair. Takes a second; leaves nothing behind.

    Ends with status 1 if something would keep a server from running or from keeping its promises.
    """
    from coordinator_runtime.clock import SystemClock
    from coordinator_server.machine import Verdict, look_at_machine

    place = data_dir or Path(os.environ.get("TXN_DATA_DIR", "."))
    findings = list(look_at_machine(place, SystemClock()))
    rows: list[Row] = [
        {
            "subject": finding.subject,
            "verdict": finding.verdict,
            "found": finding.found,
            "advice": finding.advice or None,
        }
        for finding in findings
    ]
    columns = (
        Column("SUBJECT", "subject"),
        Column("VERDICT", "verdict"),
        Column("FOUND", "found"),
        Column("WHAT TO DO", "advice"),
    )
    print_list(rows, columns, output, empty="")
    if any(finding.verdict is Verdict.PROBLEM for finding in findings):
        raise typer.Exit(ExitStatus.PROBLEM)
