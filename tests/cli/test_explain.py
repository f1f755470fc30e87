"""The output of `txnctl explain` for everything that can block committed readers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator_client import BlockingTransaction, Identity, NextEvent, PartitionExplanation, TransactionDescription
from txnctl.commands.explained_partition import row_of

OWNER = TransactionDescription(
    transactional_id="billing",
    state="Ongoing",
    transaction_timeout_ms=60_000,
    start_ms=1_000,
    producer_id=7,
    producer_epoch=2,
    partitions=(("orders", 0),),
    groups=(),
    shares=(),
    csn=0,
    last_update_ms=1_000,
    age_ms=15_000,
    two_phase=False,
    prepared_ms=None,
    history=(),
    is_history_complete=True,
)
BLOCKING = BlockingTransaction(
    start_offset=4,
    start_ms=1_000,
    age_ms=15_000,
    identity=Identity(7, 2),
    transaction=OWNER,
    is_owner_hidden=False,
    time_left_ms=45_000,
    hanging_reason="",
    transactional_id="",
    owner_unknown_reason="",
)
EXPLAINED = PartitionExplanation(
    topic="orders",
    topic_id=b"i" * 16,
    partition=0,
    log_start_offset=0,
    last_stable_offset=4,
    high_watermark=9,
    undecided_offsets=5,
    open_transactions=1,
    next_event=NextEvent.CLIENT_OR_TIMEOUT,
    blocking=BLOCKING,
)
DECIDED = replace(BLOCKING, time_left_ms=None, transaction=replace(OWNER, state="PrepareCommit"))
HIDDEN = replace(BLOCKING, transaction=None, is_owner_hidden=True)
UNOWNED = replace(BLOCKING, transaction=None, time_left_ms=None)


@pytest.mark.parametrize(
    ("event", "blocking", "state", "said"),
    [
        (NextEvent.CLIENT_OR_TIMEOUT, BLOCKING, "Ongoing", "aborts it in 45.0s; `txnctl abort billing` does it now"),
        (NextEvent.OUTSIDE_DECISION, BLOCKING, "Ongoing", "`txnctl abort billing` breaks the promise"),
        (NextEvent.MARKER_BEING_WRITTEN, DECIDED, "PrepareCommit", "the commit is decided and its marker being"),
        (NextEvent.CLIENT_OR_TIMEOUT, HIDDEN, "hidden", "aborts it in 45.0s; `txnctl abort` with its id does it now"),
        (NextEvent.OUTSIDE_DECISION, HIDDEN, "hidden", "`txnctl abort` with its id breaks the promise"),
        (NextEvent.MARKER_BEING_WRITTEN, HIDDEN, "hidden", "the outcome is decided and its marker being written"),
        (NextEvent.HANGING, UNOWNED, "hanging", "`txnctl abort --partition orders-0 --producer-id 7` ends it"),
        (NextEvent.HANGING, replace(UNOWNED, identity=None), "hanging", "`txnctl abort --partition orders-0` ends it"),
        (
            NextEvent.OWNER_UNKNOWN,
            replace(UNOWNED, owner_unknown_reason="shard 3 is away"),
            "unknown",
            "shard 3 is away",
        ),
        (NextEvent.UNSPECIFIED, UNOWNED, "unknown", "this txnctl does not know"),
    ],
)
def test_what_happens_next_is_said_in_words(
    event: NextEvent, blocking: BlockingTransaction, state: str, said: str
) -> None:
    row = row_of(replace(EXPLAINED, next_event=event, blocking=blocking))
    found = row["blocking"]
    assert isinstance(found, dict)
    assert said in str(row["next_event"])
    assert found["next_event"] == row["next_event"]
    assert (found["state"], found["start_offset"]) == (state, 4)
    assert found["producer_id"] == (None if blocking.identity is None else 7)


def test_a_partition_with_nothing_in_the_way_says_so() -> None:
    row = row_of(replace(EXPLAINED, next_event=NextEvent.NOTHING_IN_THE_WAY, blocking=None))
    assert row["blocking"] is None
    assert row["next_event"] == "nothing is in the way: readers get up to the end"
