"""`txnctl cluster`: checks of what servers share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.options import Output
from txnctl.commands.work import progress_of
from txnctl.output import Column, OutputFormat, Row, print_list, print_note

app = typer.Typer(
    name="cluster",
    help="Check that an object store can keep a store safe.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_COLUMNS: Final = (
    Column("CHECK", "check"),
    Column("PROMISE", "promise"),
    Column("ROUNDS", "rounds", is_number=True),
    Column("VIOLATIONS", "violations", is_number=True),
)


@app.command("check-store")
def check_store(
    address: Annotated[
        str, typer.Argument(metavar="s3://BUCKET/PREFIX", help="Place in object storage; also gs:// and az://.")
    ],
    rounds: Annotated[int, typer.Option(min=1, help="Number of races of each kind.")] = 200,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Check that an object store can keep a store safe.

    Eight writers race for one object, and exactly one must win, each time. Writes below PREFIX/check, and removes what
    it wrote. Ends with status 1 if the store is not safe, 3 if it cannot be used.
    """
    from coordinator_runtime.store import StoreRefused
    from coordinator_server.engines import object_store_check

    try:
        with progress_of("checked", "rounds", rounds) as progress:
            results = object_store_check(address, rounds, progress.advance)
    except StoreRefused as refusal:
        raise CommandFailed(ExitStatus.STORE_REFUSED, str(refusal)) from refusal
    rows: list[Row] = [
        {"check": each.name, "promise": each.promise, "rounds": each.rounds, "violations": each.violations}
        for each in results
    ]
    print_list(rows, _COLUMNS, output, empty="")
    violations = sum(each.violations for each in results)
    if output is OutputFormat.TABLE:
        print_note(f"{address}: {'not safe: use another object store' if violations else 'safe'}")
    if violations:
        raise typer.Exit(ExitStatus.PROBLEM)
