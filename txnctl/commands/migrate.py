"""`txnctl migrate`: a store from a directory into a bucket, and back."""

from __future__ import annotations

from typing import Annotated

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.output import print_note


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
        count, incarnation = migrate_store(source, target, ClientClock().pause)
    except (StoreFailed, StoreRefused, StoreUnreadable) as refusal:
        raise CommandFailed(ExitStatus.STORE_REFUSED, str(refusal)) from refusal
    print_note(f"{count} rows copied and compared; {target} begins line {incarnation.number}")
