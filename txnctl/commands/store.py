"""`txnctl store`: checks of the directory of a stopped server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from coordinator_server.exits import ExitStatus
from txnctl.commands.options import Output
from txnctl.commands.work import progress_of
from txnctl.output import (
    Column,
    OutputFormat,
    Row,
    Value,
    marked_if,
    print_document,
    print_facts,
    print_list,
    print_note,
    shown,
)
from txnctl.tables import CellMark

if TYPE_CHECKING:
    from coordinator_runtime.engine import StoppedStore
    from txnctl.stopped.store_verify import Check
    from txnctl.stopped.stored import StoredRows

app = typer.Typer(
    name="store", help="Check the directory of a stopped server.", no_args_is_help=True, rich_markup_mode=None
)

SHOWN_MAX = 20
"""Largest number of violations that a table shows for each check."""


@app.command()
def verify(
    data_dir: Annotated[Path, typer.Argument(metavar="DIR", help="Data directory of a stopped server.")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Read everything in a store, and check that it is consistent.

    Compares every checksum, and all rows with each other. Takes as long as reading all of it. Changes nothing. Ends
    with status 1 if a check fails, 3 if the directory cannot be read.
    """
    from txnctl.commands.stopped import opened
    from txnctl.stopped.counted_rows import CountedRows
    from txnctl.stopped.store_verify import durable_check, verify_store

    with opened(data_dir) as store:
        with progress_of("verified", "offsets") as progress:
            rows: StoredRows = store
            if progress.is_shown:
                rows = counted = CountedRows(store, progress.reach)
                progress.total = counted.total
            checks = [durable_check(store), *verify_store(rows)]
        facts = _facts(store)
    violations = sum(check.violation_count for check in checks)
    if output is OutputFormat.TABLE:
        _print_table(checks)
        verdict = f"{violations} violations" if violations else "every promise holds"
        print_note(f"{data_dir}: {verdict}")
        print_note(f"store {facts['store_id']}, written by {facts['writer']}, features {shown(facts['features'])}")
    else:
        found: list[Value] = [_row(check) for check in checks]
        document: Row = {"directory": str(data_dir), "store": facts, "violations": violations, "checks": found}
        print_document(document, output)
    if violations:
        raise typer.Exit(ExitStatus.PROBLEM)


@app.command()
def inspect(
    data_dir: Annotated[Path, typer.Argument(metavar="DIR", help="Data directory of a stopped server.")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the identity of a store, and the programs that can open it.

    Shows the program that wrote it and the features that a program needs to open it. Changes nothing. Ends with status
    3 if the directory cannot be read, or only by a newer program.
    """
    from txnctl.commands.stopped import opened

    with opened(data_dir) as store:
        facts = _facts(store)
    if output is OutputFormat.TABLE:
        print_facts(facts, _FACTS)
    else:
        print_document(facts, output)


def _facts(store: StoppedStore) -> Row:
    """Return the facts that the META rows give about the store."""
    from coordinator_runtime.identity import uuid_text

    identity = store.identity
    return {
        "store_id": uuid_text(identity.store_id),
        "format_version": store.format_version,
        "writer": identity.writer,
        "features": list(identity.features),
        "incarnation": {"number": identity.incarnation.number, "cause": identity.incarnation.cause.name.lower()},
        "shard_count": store.shard_count,
        "group_version": store.version(),
        "loss": store.loss,
    }


_FACTS: Final = (
    Column("STORE ID", "store_id"),
    Column("FORMAT", "format_version"),
    Column("WRITER", "writer"),
    Column("FEATURES", "features"),
    Column("INCARNATION", "incarnation"),
    Column("SHARDS", "shard_count"),
    Column("GROUP VERSION", "group_version"),
    Column("LOSS", "loss"),
)


def _print_table(checks: list[Check]) -> None:
    columns = (
        Column("CHECK", "check"),
        Column("PROMISE", "promise"),
        Column("EXAMINED", "examined", is_number=True),
        Column("", "unit"),
        Column("VIOLATIONS", "violation_count", is_number=True, mark=marked_if(CellMark.BAD)),
    )
    print_list([_row(check) for check in checks], columns, OutputFormat.TABLE, empty="")
    for check in checks:
        for violation in check.violations[:SHOWN_MAX]:
            print_note(f"{check.name}: {violation}")
        if check.violation_count > SHOWN_MAX:
            print_note(f"{check.name}: and {check.violation_count - SHOWN_MAX} more; -o json has them")


def _row(check: Check) -> Row:
    return {
        "check": check.name,
        "promise": check.promise,
        "examined": check.examined,
        "unit": check.unit,
        "violation_count": check.violation_count,
        "violations": list(check.violations),
    }
