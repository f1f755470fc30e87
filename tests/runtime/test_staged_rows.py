"""Rows of a commit group, on their way to the store."""

from __future__ import annotations

from functools import partial

from coordinator_runtime.rows import StagedRows
from coordinator_runtime.store import Family

STATE, LOG = Family.COORDINATOR_STATE, Family.LOG


def test_the_newest_row_of_a_key_counts_and_what_is_added_stays() -> None:
    group = StagedRows()
    for number in range(3):
        operation = StagedRows()
        operation.added.append((LOG, b"%d" % number, b"batch"))
        operation.newest[STATE, b"key"] = b"%d" % number
        operation.newest[STATE, b"gone"] = b"there"
        assert group.merge(operation) == len(b"0batch" + b"key0" + b"gonethere")
    forgetting = StagedRows()
    forgetting.newest[STATE, b"gone"] = None
    assert group.merge(forgetting) == len(b"gone")
    assert group.mutations() == [
        (LOG, b"0", b"batch"),
        (LOG, b"1", b"batch"),
        (LOG, b"2", b"batch"),
        (STATE, b"key", b"2"),
        (STATE, b"gone", None),
    ]


def test_what_may_wait_is_encoded_once_per_group() -> None:
    encoded: list[int] = []

    def encode(number: int) -> bytes:
        encoded.append(number)
        return b"%d" % number

    group = StagedRows()
    for number in range(3):
        operation = StagedRows()
        operation.encoded_later[STATE, b"key"] = partial(encode, number)
        group.merge(operation)
    assert group.mutations() == [(STATE, b"key", b"2")]
    assert encoded == [2]
    assert group.size_bytes == 3 * len(b"key")
