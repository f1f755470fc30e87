"""`txnctl migrate`: a store from a directory into a bucket, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, TypeVar

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.work import progress_of
from txnctl.output import print_note

_Row = TypeVar("_Row")


def migrate(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Data directory of a stopped server, or address in object storage.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The other one: a place where no store is, or an empty directory.")
    ],
) -> None:
    """Copy a store from a directory into a bucket, or back.

    Every row is copied, read back and compared. The original is not changed, but a server of a bucket is fenced, so
    that it acknowledges nothing more. The copy begins another incarnation, as a restored backup does. Ends with status
    3 if one of the two is refused.
    """
    from coordinator_client.clock import SystemClock as ClientClock
    from coordinator_runtime.store import StoreFailed, StoreRefused, StoreUnreadable
    from coordinator_server.engines import migrate_store

    try:
        count, incarnation = migrate_store(source, target, ClientClock().pause, _watched)
    except (StoreFailed, StoreRefused, StoreUnreadable) as refusal:
        raise CommandFailed(ExitStatus.STORE_REFUSED, str(refusal)) from refusal
    print_note(f"{count} rows copied and compared; {target} begins line {incarnation.number}")


def _watched(verb: str, rows: Iterator[_Row], total: int | None) -> Iterator[_Row]:
    """Yield the rows, and show how far the work on them is."""
    with progress_of(verb, "rows", total) as progress:
        for row in rows:
            yield row
            progress.advance(1)
