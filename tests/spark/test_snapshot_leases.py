"""Tasks hold the snapshot that they read, and no longer."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator_client.calls import RELEASE_SNAPSHOT
from coordinator_client.errors import rejected
from coordinator_client.transport.connection import Connection
from coordinator_protocol.errors import ErrorCode
from pyspark_txnlog.options import parse_options
from pyspark_txnlog.read.ranges import OffsetRange
from pyspark_txnlog.read.snapshot_leases import give_up, numbered, while_held

OPTIONS = parse_options(
    {"endpoint": "h:1", "subscribe": "t", "isolationLevel": "snapshot", "snapshotLease": "3s", "rpcTimeoutMs": "500"}
)


class Renewals:
    """A connection that notes when a lease is renewed, and refuses it from some renewal on."""

    def __init__(self, known: int = 100) -> None:
        self.now_ms = 0
        self.at_ms: list[int] = []
        self._known = known
        self.released: list[tuple[int, int]] = []
        self.refuses_release: Exception | None = None
        self.clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)

    def header(self) -> None:
        return None

    def ask(self, method: Any, request: Any, *, deadlines: Any, items: Any) -> None:
        if method is RELEASE_SNAPSHOT:
            self.released.append((request.part, request.part_count))
            if self.refuses_release is not None:
                raise self.refuses_release
            return
        assert (request.snapshot_id, request.lease_ms, deadlines.total_ms) == (b"id", 3_000, 500)
        self.at_ms.append(self.now_ms)
        if len(self.at_ms) > self._known:
            raise rejected(ErrorCode.SNAPSHOT_NOT_FOUND, "it is over")


def piece(snapshot_id: bytes, part: int) -> OffsetRange:
    return OffsetRange(
        topic="t", topic_id=b"", partition=0, start_offset=0, end_offset=9, snapshot_id=snapshot_id, part=part, parts=7
    )


def read(renewals: Renewals, snapshot_id: bytes = b"id") -> list[int]:
    """Return the items yielded by a task that takes 400 ms for each of ten."""

    def items() -> Any:
        for number in range(10):
            renewals.now_ms += 400
            yield number

    return list(while_held(cast("Connection", renewals), OPTIONS, piece(snapshot_id, 2), items()))


def test_a_lease_is_renewed_before_a_third_of_it_is_over_twice() -> None:
    renewals = Renewals()
    assert read(renewals) == list(range(10))
    assert renewals.at_ms == [0, 1_200, 2_400, 3_600]
    assert renewals.released == [(2, 7)], "with the last item its part is done"


def test_what_has_no_lease_is_not_renewed() -> None:
    renewals = Renewals()
    assert read(renewals, b"") == list(range(10))
    assert not renewals.at_ms
    assert not renewals.released


def test_a_task_reads_on_when_its_lease_is_over() -> None:
    renewals = Renewals(known=1)
    with pytest.warns(RuntimeWarning, match="not held any longer"):
        assert read(renewals) == list(range(10))
    assert renewals.at_ms == [0, 1_200]
    assert not renewals.released


def test_a_task_that_does_not_read_to_its_end_gives_nothing_up() -> None:
    renewals = Renewals()
    reading = while_held(cast("Connection", renewals), OPTIONS, piece(b"id", 2), iter(range(10)))
    assert next(reading) == 0
    reading.close()
    assert not renewals.released


@pytest.mark.parametrize("code", [ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_release_that_fails_does_not_fail_the_task(code: ErrorCode) -> None:
    renewals = Renewals()
    renewals.refuses_release = rejected(code, "no")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert read(renewals) == list(range(10))
    assert len(told) == (code is not ErrorCode.SNAPSHOT_NOT_FOUND)


def test_the_tasks_of_a_query_are_the_parts_of_its_snapshot() -> None:
    pieces = [piece(b"id", 0)] * 3
    assert [(each.part, each.parts) for each in numbered(pieces)] == [(0, 3), (1, 3), (2, 3)]
    assert numbered([]) == []


def test_a_query_without_anything_to_read_gives_its_snapshot_up() -> None:
    renewals = Renewals()
    give_up(cast("Connection", renewals), OPTIONS, [replace(piece(b"id", 0), parts=0)] * 2)
    give_up(cast("Connection", renewals), OPTIONS, [piece(b"", 0)])
    assert renewals.released == [(0, 0)]
