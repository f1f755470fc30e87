"""Appends through the whole log: what is answered when, and what a crash leaves."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode, Refused, UnknownOutcome
from coordinator_runtime.ports import CallContext, PartitionName
from partition_log.requests import Produce, ProduceResult
from partition_log.rules import appending
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    CONTEXT,
    TOPIC,
    UNCOMMITTED,
    VERSION_1,
    Batch,
    DrivenLog,
    Producer,
    code,
    membership_of,
    transactional,
)

IDEMPOTENT = Producer()
TX = transactional()


def produce(driven: DrivenLog, *batches: tuple[int, Batch], transactional_id: str | None = None) -> list[ProduceResult]:
    items = tuple(batch.item(PartitionName(TOPIC, b"", partition)) for partition, batch in batches)
    sent = driven.log.produce(Produce(transactional_id, items), CONTEXT)
    driven.flush()
    return sent.result()


# Answers wait for the disk


def test_a_batch_is_answered_once_it_is_durable(driven: DrivenLog) -> None:
    sent = driven.send(Batch(count=3))
    assert not sent.is_settled
    driven.flush()
    assert [result.base_offset for result in sent.result()] == [0]
    assert driven.append(Batch()).base_offset == 3


def test_a_batch_is_readable_once_it_is_durable(driven: DrivenLog) -> None:
    driven.send(Batch(count=3))
    assert driven.head().log_end_offset == 0
    assert driven.read_all(UNCOMMITTED) == []
    driven.flush()
    assert driven.read_all(UNCOMMITTED) == [0, 1, 2]


@pytest.mark.parametrize("partitions", [(0,), (0, 1)], ids=["one batch", "several batches"])
def test_a_defect_is_no_result_and_appends_nothing(
    partitions: tuple[int, ...], driven: DrivenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_arguments: Any, **_more: Any) -> None:
        raise KeyError("a bug of ours")

    before = driven.state()
    with monkeypatch.context() as patched:
        patched.setattr(appending, "judge_append", broken)
        with pytest.raises(KeyError, match="a bug of ours"):
            produce(driven, *((partition, Batch()) for partition in partitions))
    assert driven.state() == before
    assert [result.base_offset for result in produce(driven, *((each, Batch()) for each in partitions))] == [
        0 for _each in partitions
    ]


def test_a_duplicate_is_answered_with_its_first_offset_and_appends_nothing(driven: DrivenLog) -> None:
    driven.append(Batch(count=2))
    driven.append(Batch(IDEMPOTENT, 0, 3))
    again = driven.append(Batch(IDEMPOTENT, 0, 3))
    assert (again.base_offset, again.is_duplicate, again.error) == (2, True, None)
    assert driven.head().log_end_offset == 5


def test_a_duplicate_waits_until_the_first_one_is_durable(driven: DrivenLog) -> None:
    driven.send(Batch(IDEMPOTENT, 0))
    again = driven.send(Batch(IDEMPOTENT, 0))
    assert not again.is_settled
    driven.flush()
    assert again.result()[0].is_duplicate


def test_a_refusal_waits_for_what_it_rests_on(driven: DrivenLog) -> None:
    driven.send(Batch(IDEMPOTENT.at(2), 0))
    stale = driven.send(Batch(IDEMPOTENT.at(1), 0))
    assert not stale.is_settled
    driven.flush()
    assert code(stale.result()[0]) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_what_the_disk_never_saw_is_appended_again_after_a_crash(driven: DrivenLog) -> None:
    driven.append(Batch(IDEMPOTENT, 0))
    driven.send(Batch(IDEMPOTENT, 1))
    driven = driven.crash()
    again = driven.append(Batch(IDEMPOTENT, 1))
    assert (again.base_offset, again.is_duplicate) == (1, False)


def test_what_the_disk_saw_is_recognised_after_a_crash_even_without_an_answer(driven: DrivenLog) -> None:
    driven.send(Batch(IDEMPOTENT, 0))
    driven = driven.crash(kept_groups=1)
    assert driven.append(Batch(IDEMPOTENT, 0)).is_duplicate


def test_the_window_of_five_survives_a_crash(driven: DrivenLog) -> None:
    for sequence in range(7):
        driven.append(Batch(IDEMPOTENT, sequence))
    driven = driven.crash()
    assert [driven.append(Batch(IDEMPOTENT, sequence)).base_offset for sequence in range(2, 7)] == [2, 3, 4, 5, 6]
    assert code(driven.append(Batch(IDEMPOTENT, 1))) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_beyond_the_window_is_called_a_duplicate_of_unknown_offset(driven: DrivenLog) -> None:
    for sequence in range(6):
        driven.append(Batch(IDEMPOTENT, sequence))
    result = driven.append(Batch(IDEMPOTENT, 0))
    assert (result.base_offset, result.is_duplicate, code(result)) == (-1, True, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


def test_an_unknown_producer_is_told_where_the_log_starts(driven: DrivenLog) -> None:
    result = driven.append(Batch(IDEMPOTENT, 5))
    assert (code(result), result.log_start_offset) == (ErrorCode.UNKNOWN_PRODUCER_ID, 0)


def test_sequences_are_counted_per_partition(driven: DrivenLog) -> None:
    driven.append(Batch(IDEMPOTENT, 0), partition=0)
    assert driven.append(Batch(IDEMPOTENT, 0), partition=1).error is None


def test_batches_in_flight_are_appended_in_the_order_sent(driven: DrivenLog) -> None:
    sent = [driven.send(Batch(IDEMPOTENT, sequence)) for sequence in range(4)]
    driven.flush()
    assert [pending.result()[0].base_offset for pending in sent] == [0, 1, 2, 3]


def test_a_failed_disk_leaves_the_outcome_unknown(driven: DrivenLog) -> None:
    sent = driven.send(Batch())
    driven.runtime.fail(OSError("no space left"))
    (result,) = sent.result()
    assert isinstance(result.error, UnknownOutcome)


# One request, several partitions


def test_each_partition_of_a_request_is_appended_or_refused_by_itself(driven: DrivenLog) -> None:
    good, bad, missing = produce(driven, (0, Batch()), (1, Batch(IDEMPOTENT, 4)), (9, Batch()))
    assert good.error is None
    assert (code(bad), code(missing)) == (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_partition_named_twice_gets_nothing(driven: DrivenLog) -> None:
    results = produce(driven, (0, Batch()), (1, Batch()), (0, Batch()))
    assert [code(result) for result in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert driven.head(0).log_end_offset == 0


def test_one_partition_by_name_and_by_id_is_named_twice(driven: DrivenLog) -> None:
    topic_id = driven.catalog.resolve(TOPIC, b"", 0).topic_id
    items = (Batch().item(PartitionName(TOPIC, b"", 0)), Batch().item(PartitionName("", topic_id, 0)))
    sent = driven.log.produce(Produce(None, items), CONTEXT)
    assert [code(result) for result in sent.result()] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_request_without_batches_is_answered_without_results(driven: DrivenLog) -> None:
    assert produce(driven) == []


# Transactions


def test_the_first_batch_of_version_2_adds_its_partition_in_the_same_operation(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.append(Batch(TX, 1))
    assert [(question, ordinal) for question, _, ordinal in driven.transactions.questions] == [
        ("add", driven.ordinal())
    ]
    assert driven.head().open_transactions == 1


def test_the_partitions_of_a_request_join_the_transaction_together(driven: DrivenLog) -> None:
    produce(driven, (0, Batch(TX, 0)), (1, Batch(TX, 0)), transactional_id=TX.transactional_id)
    asked = [(question, ordinal) for question, _, ordinal in driven.transactions.questions]
    assert sorted(asked) == sorted([("add", driven.ordinal(0)), ("add", driven.ordinal(1))])
    assert driven.transactions.additions == [{driven.ordinal(0), driven.ordinal(1)}], (
        "one record of the coordinator for all"
    )


def test_a_refused_batch_keeps_no_other_partition_out_of_the_transaction(driven: DrivenLog) -> None:
    bad, good = produce(driven, (0, Batch(TX, 4)), (1, Batch(TX, 0)), transactional_id=TX.transactional_id)
    assert code(bad) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert good.error is None
    assert driven.head(1).open_transactions == 1


def test_version_1_is_refused_unless_the_partition_was_added_before(driven: DrivenLog) -> None:
    assert code(driven.append(Batch(TX, 0), context=VERSION_1)) is ErrorCode.INVALID_TXN_STATE
    assert [question for question, _, _ in driven.transactions.questions] == ["verify"]
    assert driven.head().log_end_offset == 0


def test_a_refused_admission_writes_nothing(driven: DrivenLog) -> None:
    driven.transactions.refusal = Refused(ErrorCode.INVALID_PRODUCER_EPOCH, "fenced")
    assert code(driven.append(Batch(TX, 0))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert driven.head().log_end_offset == 0
    assert driven.entry() is None


def test_a_refused_batch_takes_its_admission_back(driven: DrivenLog) -> None:
    assert code(driven.append(Batch(TX, 4))) is ErrorCode.UNKNOWN_PRODUCER_ID
    members = driven.runtime.shard(driven.transactions.add(None, frozenset()).shard).members  # type: ignore[arg-type]  # only its shard
    assert list(members.items()) == []


def test_a_newer_epoch_waits_for_the_marker_of_the_older_one(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    newer = TX.at(1)
    waiting = [driven.send(Batch(newer, 0)), driven.send(Batch(newer, 1))]
    driven.flush()
    assert len(driven.runtime.parking) == 2
    driven.end(TX, COMMIT)
    driven.unpark(TX)
    assert [pending.result()[0].base_offset for pending in waiting] == [2, 3]
    assert driven.head().last_stable_offset == 2


def test_a_caller_that_wants_no_wait_is_told_at_once(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    result = driven.append(Batch(TX.at(1), 0), context=CallContext(refuse_concurrent=True))
    assert code(result) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_plain_batch_inside_the_transaction_of_its_producer_is_refused(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    assert code(driven.append(Batch(Producer(7), 1))) is ErrorCode.INVALID_TXN_STATE


def test_after_a_marker_that_raised_the_epoch_sequences_start_at_0(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 5))
    driven.end(TX, COMMIT)
    assert code(driven.append(Batch(TX, 5))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(driven.append(Batch(TX.at(1), 5))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert driven.append(Batch(TX.at(1), 0)).error is None


def test_after_a_marker_that_kept_the_epoch_sequences_run_on(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 5))
    driven.end(TX, COMMIT, next_epoch=0)
    assert code(driven.append(Batch(TX, 6))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert driven.append(Batch(TX, 5)).error is None


def test_a_late_batch_after_an_abort_is_fenced_and_opens_nothing(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0))
    driven.end(TX, ABORT)
    assert code(driven.append(Batch(TX, 1))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert driven.head().open_transactions == 0


# Sequences of an ended transaction, used again in the next one of the same epoch (client version 1)


def begin(driven: DrivenLog, partition: int = 0) -> None:
    """AddPartitionsToTxn."""
    adding = driven.transactions.add(membership_of(TX), frozenset({driven.ordinal(partition)}))
    assert driven.perform(adding) is None


def abort(driven: DrivenLog) -> None:
    driven.end(TX, ABORT, next_epoch=0)
    assert driven.perform(driven.transactions.leave(membership_of(TX))) is None


def send(driven: DrivenLog, sequence: int, count: int = 2) -> ProduceResult:
    return driven.append(Batch(TX, sequence, count), context=VERSION_1)


@pytest.fixture
def aborted(driven: DrivenLog) -> DrivenLog:
    """Two batches of a transaction that was aborted, at the offsets 0 and 2."""
    begin(driven)
    assert [send(driven, 0).base_offset, send(driven, 2).base_offset] == [0, 2]
    abort(driven)
    return driven


@pytest.mark.parametrize(("sequence", "count"), [(0, 2), (2, 2), (1, 2), (0, 4)])
def test_the_next_transaction_does_not_have_the_batches_of_the_aborted_one(
    aborted: DrivenLog, sequence: int, count: int
) -> None:
    begin(aborted)
    before = aborted.state()
    refused = send(aborted, sequence, count)
    assert code(refused) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert not refused.is_duplicate
    assert aborted.state() == before


def test_it_does_not_have_them_either_once_a_later_batch_was_appended(aborted: DrivenLog) -> None:
    begin(aborted)
    assert code(send(aborted, 2)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert send(aborted, 4).base_offset == 5
    assert code(send(aborted, 2)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert send(aborted, 4).is_duplicate


def test_a_new_epoch_goes_on(aborted: DrivenLog) -> None:
    begin(aborted)
    send(aborted, 0)
    aborted.end(TX, ABORT)
    assert aborted.append(Batch(TX.at(1), 0, 2)).error is None


def test_a_late_retransmission_is_a_duplicate_while_nothing_is_open(aborted: DrivenLog) -> None:
    late = send(aborted, 2)
    assert (late.base_offset, late.is_duplicate, late.error) == (2, True, None)


def test_a_late_retransmission_is_a_duplicate_while_another_partition_is_written(aborted: DrivenLog) -> None:
    begin(aborted, partition=1)
    late = send(aborted, 2)
    assert (late.base_offset, late.is_duplicate, late.error) == (2, True, None)


def test_the_coordinator_is_not_asked_about_repetitions_in_an_open_transaction(driven: DrivenLog) -> None:
    begin(driven)
    send(driven, 0)
    driven.transactions.questions.clear()
    driven.transactions.refusal = Refused(ErrorCode.INVALID_PRODUCER_EPOCH, "fenced")
    assert send(driven, 0).is_duplicate
    assert driven.transactions.questions == []


def test_a_repetition_without_transactions_is_a_duplicate_as_ever(aborted: DrivenLog) -> None:
    plain = Producer(8)
    aborted.append(Batch(plain, 0, 2))
    begin(aborted)
    assert aborted.append(Batch(plain, 0, 2)).is_duplicate


def refused_whole(driven: DrivenLog, *batches: Batch, transactional_id: str | None) -> ErrorCode:
    items = tuple(batch.item(PartitionName(TOPIC, b"", place)) for place, batch in enumerate(batches))
    with pytest.raises(Refused) as refused:
        driven.log.produce(Produce(transactional_id, items), CONTEXT)
    assert driven.head(0).log_end_offset == 0
    return refused.value.code


@pytest.mark.parametrize(
    ("batches", "transactional_id", "expected"),
    [
        ([Batch(TX, 0)], None, ErrorCode.INVALID_REQUEST),
        ([Batch(TX, 0)], "", ErrorCode.INVALID_REQUEST),
        ([Batch(TX, 0)], "a\0b", ErrorCode.INVALID_REQUEST),
        ([Batch(TX, 0), Batch(Producer(7), 0)], "tx-7", ErrorCode.INVALID_REQUEST),
        ([Batch(TX, 0), Batch(transactional(8), 0)], "tx-7", ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
    ids=["no id", "empty id", "NUL in the id", "a plain batch", "two producers"],
)
def test_a_request_that_is_no_transaction_is_refused_as_a_whole(
    driven: DrivenLog, batches: list[Batch], transactional_id: Any, expected: ErrorCode
) -> None:
    assert refused_whole(driven, *batches, transactional_id=transactional_id) is expected
