"""Rows of a commit group, on their way to the store."""

from __future__ import annotations

from functools import partial

import pytest

from coordinator_runtime.decision import Coordinator, Record, ShardEpoch, ShardKey, Turn
from coordinator_runtime.rows import StagedRows, StateRows
from coordinator_runtime.store import Family
from tests.harness.memory_store import MemoryStore
from tests.harness.staged import counted_bytes
from txn_coordinator.codec import CountersRows, TransactionCodec
from txn_coordinator.records import CsnGiven, ProducerIdGiven, TransactionChanged, TransactionForgotten
from txn_coordinator.state import Identity, InitAnswer, Transaction

INIT = InitAnswer(b"0123456789abcdef", Identity(7, 0))
KNOWN = Transaction(transactional_id="orders-1", producer_id=7, txn_timeout_ms=1_000, last_update_ms=5, init=INIT)
STATE, LOG = Family.COORDINATOR_STATE, Family.LOG


def test_the_newest_row_of_a_key_counts_and_what_is_added_stays() -> None:
    group = StagedRows()
    for number in range(3):
        operation = StagedRows()
        operation.added.append((LOG, b"%d" % number, b"batch"))
        operation.newest[STATE, b"key"] = b"%d" % number
        operation.newest[STATE, b"gone"] = b"there"
        operation.size_bytes = 18
        group.merge(operation)
    forgetting = StagedRows()
    forgetting.newest[STATE, b"gone"] = None
    forgetting.size_bytes = 4
    group.merge(forgetting)
    assert group.size_bytes == 3 * 18 + 4
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


@pytest.mark.parametrize(
    ("rows", "value"),
    [
        (StateRows(TransactionCodec()), TransactionChanged(KNOWN)),
        (StateRows(TransactionCodec()), TransactionForgotten("orders-1")),
        (StateRows(TransactionCodec()), ShardEpoch(3)),
        (CountersRows(), CsnGiven(9)),
        (CountersRows(), ProducerIdGiven(9)),
    ],
)
def test_who_stages_counts_the_bytes_of_state_and_history(rows: StateRows, value: object) -> None:
    key, staged = ShardKey(Coordinator.TRANSACTIONS, 3), StagedRows()
    assert not list(rows.load(key)(MemoryStore()))
    rows.stage(Record(key, value, cause="client"), Turn(now_ms=5, client_id="c", host="h"), staged)
    assert staged.size_bytes == counted_bytes(staged)
