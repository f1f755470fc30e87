"""Leases on the records of a snapshot while tasks read them.

Spark does not tell its Python sources when a query ends. So each task renews the lease while it reads, and reports at
its end which part of the snapshot was read. The last part releases the snapshot. If a query ends early (a limit, a
failure, a plan that is only explained), the lease expires. Spark may read a plan again, because it kept it or lost the
result of a task. Then there is no lease, and the read goes on without one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from coordinator_client.calls import Deadlines
from coordinator_client.errors import TransactionError
from coordinator_client.reading.snapshots import release_lease, renew_lease
from coordinator_client.transport.connection import Connection
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.limits import LEASE_PARTS_MAX
from pyspark_txnlog.options import SourceOptions
from pyspark_txnlog.read.ranges import OffsetRange

_Item = TypeVar("_Item")


def numbered(pieces: list[OffsetRange]) -> list[OffsetRange]:
    """Return the work of the tasks of a query, each numbered as a part of its snapshot if it has one."""
    if not 0 < len(pieces) <= LEASE_PARTS_MAX:
        return pieces
    return [replace(piece, part=number, parts=len(pieces)) for number, piece in enumerate(pieces)]


def while_held(
    connection: Connection, options: SourceOptions, scanned: OffsetRange, items: Iterable[_Item]
) -> Iterator[_Item]:
    """Yield the items, and renew the lease before the first of them and after each third of its time. After the last
    item, report this part of the snapshot as done.

    An expired lease causes a warning. The read goes on, and fails if records are gone."""
    snapshot_id = scanned.snapshot_id
    clock, pause_ms = connection.clock, options.lease_ms // 3
    renewed_ms: int | None = None
    for item in _after_nothing(items):
        now_ms = clock.monotonic_ms()
        if snapshot_id and (renewed_ms is None or now_ms - renewed_ms >= pause_ms):
            renewed_ms = now_ms
            snapshot_id = _renewed(connection, options, snapshot_id)
        if item is not None:
            yield item
    if snapshot_id and scanned.parts:
        _done(connection, options, scanned)


def give_up(connection: Connection, options: SourceOptions, planned: Iterable[OffsetRange]) -> None:
    """Release the snapshot of a query that has nothing to read."""
    for found in planned:
        if found.snapshot_id:
            _done(connection, options, found)
            return


def _done(connection: Connection, options: SourceOptions, scanned: OffsetRange) -> None:
    deadlines = Deadlines(total_ms=min(options.rpc_timeout_ms, options.lease_ms))
    try:
        release_lease(connection, scanned.snapshot_id, part=scanned.part, parts=scanned.parts, deadlines=deadlines)
    except TransactionError as error:
        # If the lease is over, another attempt of this task was the last to end.
        if error.code != ErrorCode.SNAPSHOT_NOT_FOUND:
            _warn(f"the snapshot stays held until its lease runs out: {error}")


def _after_nothing(items: Iterable[_Item]) -> Iterator[_Item | None]:
    """Yield None first, so that the lease is renewed before anything is fetched."""
    yield None
    yield from items


def _renewed(connection: Connection, options: SourceOptions, snapshot_id: bytes) -> bytes:
    """Renew a lease. Returns its id, or an empty id if it is over."""
    deadlines = Deadlines(total_ms=min(options.rpc_timeout_ms, max(options.lease_ms // 3, 1)))
    try:
        renew_lease(connection, snapshot_id, lease_ms=options.lease_ms, deadlines=deadlines)
    except TransactionError as error:
        _warn(f"the snapshot is not held any longer ({error}): the read goes on, and fails where records are gone")
        return b"" if error.code == ErrorCode.SNAPSHOT_NOT_FOUND else snapshot_id
    return snapshot_id


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)
