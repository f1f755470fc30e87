"""`txnctl doctor`: checks of this machine, or of a running server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import remote
from txnctl.commands.options import DEFAULT_PATIENCE_MS, Output, Patience
from txnctl.output import Column, OutputFormat, Row, marked_words, print_list

if TYPE_CHECKING:
    from txnctl.machine import Finding


def doctor(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Directory for the data; its disk is measured. [default: TXN_DATA_DIR, else the current directory]",
        ),
    ] = None,
    server: Annotated[
        str | None,
        typer.Option("--server", "-s", metavar="HOST:PORT", help="Check this running server instead of the machine."),
    ] = None,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Check this machine, or a running server, and say what to repair.

    The checks of the machine cover clock, disk, limits and versions. They take a second and leave nothing behind.

    Ends with status 1 if a problem would keep a server from running or from keeping its promises.
    """
    from txnctl.machine import Severity

    if server is not None and data_dir is not None:
        raise CommandFailed(ExitStatus.USAGE, "--data-dir is about this machine and --server about a server: give one")
    findings = _of_machine(data_dir) if server is None else _of_server(server, timeout_ms)
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
        Column("VERDICT", "verdict", mark=marked_words(bad=["problem"], warning=["warning"])),
        Column("FOUND", "found"),
        Column("WHAT TO DO", "advice"),
    )
    print_list(rows, columns, output, empty="")
    if any(finding.verdict is Severity.PROBLEM for finding in findings):
        raise typer.Exit(ExitStatus.PROBLEM)


def _of_machine(data_dir: Path | None) -> list[Finding]:
    from coordinator_runtime.clock import SystemClock
    from txnctl.machine import look_at_machine

    return list(look_at_machine(data_dir or Path(os.environ.get("TXN_DATA_DIR", ".")), SystemClock()))


def _of_server(server: str, timeout_ms: int) -> list[Finding]:
    """Return the findings about a running server. Raises CommandFailed if no server answers."""
    from coordinator_runtime.clock import SystemClock
    from txnctl.commands.server_findings import look_at_server

    with remote.connected(server) as connection:
        return list(look_at_server(connection, SystemClock(), timeout_ms))
