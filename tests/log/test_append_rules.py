"""Rules of an append, in the order of spec log-and-runtime 1.3."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.producers import SEQUENCE_MAX
from partition_log.rules.appending import (
    AppendVerdict,
    check_last_sequence,
    entry_after_append,
    judge_append,
    refusal_if_open,
)
from partition_log.state import CachedBatch, ForgottenProducers, OpenTransaction, ProducerEntry

PRODUCER_ID = 7
NOW_MS = 5_000


def batch(sequence: int, count: int = 1, *, epoch: int = 0, is_transactional: bool = False) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        record_count=count,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=PRODUCER_ID,
        producer_epoch=epoch,
        base_sequence=sequence,
        encoding=Encoding.RECORDS_V1,
        is_transactional=is_transactional,
    )


def appended(*batches: BatchHeader) -> ProducerEntry:
    """The entry after these batches, at the offsets 0, 100, 200, ..."""
    entry = None
    for place, header in enumerate(batches):
        entry = entry_after_append(
            entry, header, base_offset=100 * place, now_ms=NOW_MS, forgotten=ForgottenProducers(), coordinator_shard=-1
        )
    assert entry is not None
    return entry


def judge(entry: ProducerEntry | None, header: BatchHeader, *, is_admitted: bool = True) -> AppendVerdict | CachedBatch:
    return judge_append(entry, header, is_admitted=is_admitted, log_start_offset=3)


def refusal(entry: ProducerEntry | None, header: BatchHeader, *, is_admitted: bool = True) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        judge(entry, header, is_admitted=is_admitted)
    return refused.value.code


def test_a_batch_of_no_producer_is_appended_without_questions() -> None:
    plain = BatchHeader(
        base_offset=0, record_count=1, base_timestamp_ms=0, max_timestamp_ms=0, encoding=Encoding.RECORDS_V1
    )
    assert judge(None, plain) is AppendVerdict.APPEND


# Duplicates (step 2)


@pytest.mark.parametrize("age", range(5))
def test_each_of_the_last_five_batches_is_recognised_when_it_comes_again(age: int) -> None:
    entry = appended(*(batch(2 * n, 2) for n in range(7)))
    cached = judge(entry, batch(2 * (6 - age), 2))
    assert isinstance(cached, CachedBatch)
    assert cached.base_offset == 100 * (6 - age)


def test_a_duplicate_is_recognised_before_membership_is_asked() -> None:
    ended = replace(appended(batch(0, is_transactional=True)), open_transaction=None)
    assert isinstance(judge(ended, batch(0, is_transactional=True), is_admitted=False), CachedBatch)


def test_the_same_sequences_in_another_epoch_are_no_duplicate() -> None:
    entry = appended(batch(0))
    assert judge(entry, batch(0, epoch=1)) is AppendVerdict.APPEND


# Sequences of an ended transaction, used again in the next one (step 2)


def in_transaction(sequence: int, count: int = 1, *, epoch: int = 0) -> BatchHeader:
    return batch(sequence, count, epoch=epoch, is_transactional=True)


def ended_with(*batches: BatchHeader) -> ProducerEntry:
    """The entry once the transaction of these batches has ended, and its epoch goes on."""
    return replace(appended(*batches), open_transaction=None)


ENDED = ended_with(in_transaction(0, 3), in_transaction(3, 3))
NEXT_OPEN = entry_after_append(
    ENDED,
    in_transaction(6, 3),
    base_offset=300,
    now_ms=NOW_MS,
    forgotten=ForgottenProducers(),
    coordinator_shard=-1,
)
"""The next transaction has a batch here, too."""


@pytest.mark.parametrize(
    ("entry", "header", "is_refused"),
    [
        (ENDED, in_transaction(0, 3), True),
        (ENDED, in_transaction(3, 3), True),
        (ENDED, in_transaction(1, 4), True),
        (NEXT_OPEN, in_transaction(6, 3), False),
        (appended(in_transaction(0)), in_transaction(0), False),
        (appended(batch(0)), batch(0), False),
        (None, in_transaction(0), False),
    ],
    ids=[
        "the first batch",
        "the last batch",
        "other bounds",
        "a batch of the open transaction",
        "the only batch of the open transaction",
        "no transactions",
        "an unknown producer",
    ],
)
def test_a_repetition_is_refused_if_its_producer_has_opened_a_transaction_without_records_here(
    entry: ProducerEntry | None, header: BatchHeader, *, is_refused: bool
) -> None:
    refused = refusal_if_open(entry, header)
    assert (refused is not None) is is_refused
    if refused is not None:
        assert refused.code is ErrorCode.UNKNOWN_PRODUCER_ID
        assert "get a new epoch with InitProducerId" in refused.message


@pytest.mark.parametrize(
    ("sequence", "count"),
    [(0, 3), (3, 3), (0, 6), (1, 1), (5, 2)],
    ids=["the first batch", "the last batch", "both in one", "a part of one", "a part of both transactions"],
)
def test_an_open_transaction_takes_nothing_of_the_ended_one_for_its_own(sequence: int, count: int) -> None:
    assert refusal(NEXT_OPEN, in_transaction(sequence, count)) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_an_open_transaction_still_recognises_its_own_batches() -> None:
    cached = judge(NEXT_OPEN, in_transaction(6, 3))
    assert isinstance(cached, CachedBatch)
    assert cached.base_offset == 300
    assert refusal(NEXT_OPEN, in_transaction(7, 2)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_that_nobody_remembers_may_be_of_the_open_transaction() -> None:
    entry = NEXT_OPEN
    for number in range(5):
        entry = entry_after_append(
            entry,
            in_transaction(9 + number),
            base_offset=400 + number,
            now_ms=NOW_MS,
            forgotten=ForgottenProducers(),
            coordinator_shard=-1,
        )
    assert refusal(entry, in_transaction(6, 3)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_the_ended_transaction_may_lie_across_the_wrap() -> None:
    ended = ended_with(in_transaction(SEQUENCE_MAX - 1, 1), in_transaction(SEQUENCE_MAX, 3))
    entry = entry_after_append(
        ended,
        in_transaction(2, 2),
        base_offset=300,
        now_ms=NOW_MS,
        forgotten=ForgottenProducers(),
        coordinator_shard=-1,
    )
    assert refusal(entry, in_transaction(SEQUENCE_MAX, 3)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert refusal(entry, in_transaction(SEQUENCE_MAX - 1, 1)) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert isinstance(judge(entry, in_transaction(2, 2)), CachedBatch)


# Stale epochs (step 3)


def test_an_old_epoch_is_refused() -> None:
    assert refusal(appended(batch(0, epoch=3)), batch(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_old_epoch_is_refused_before_membership_is_asked() -> None:
    stale = batch(1, epoch=2, is_transactional=True)
    assert refusal(ProducerEntry(epoch=3), stale, is_admitted=False) is ErrorCode.INVALID_PRODUCER_EPOCH


# Membership (step 4)


def test_the_first_transactional_batch_asks_for_admission() -> None:
    assert judge(None, batch(0, is_transactional=True), is_admitted=False) is AppendVerdict.ADMIT


def test_admission_is_asked_before_the_sequence_is_checked() -> None:
    assert judge(None, batch(9, is_transactional=True), is_admitted=False) is AppendVerdict.ADMIT


def test_later_batches_of_the_transaction_need_no_admission() -> None:
    entry = appended(batch(0, is_transactional=True))
    assert judge(entry, batch(1, is_transactional=True), is_admitted=False) is AppendVerdict.APPEND


@pytest.mark.parametrize("is_admitted", [False, True])
def test_a_newer_epoch_waits_while_the_older_transaction_is_open_here(*, is_admitted: bool) -> None:
    entry = appended(batch(0, is_transactional=True))
    newer = batch(0, epoch=1, is_transactional=True)
    assert refusal(entry, newer, is_admitted=is_admitted) is ErrorCode.CONCURRENT_TRANSACTIONS


# Sequences (step 5)


def test_an_unknown_producer_starts_at_sequence_0() -> None:
    assert judge(None, batch(0)) is AppendVerdict.APPEND


def test_an_unknown_producer_that_starts_elsewhere_is_told_where_the_log_starts() -> None:
    with pytest.raises(Refused, match="starts at offset 3") as refused:
        judge(None, batch(1))
    assert refused.value.code is ErrorCode.UNKNOWN_PRODUCER_ID


def test_the_next_sequence_is_appended() -> None:
    assert judge(appended(batch(0, 3)), batch(3)) is AppendVerdict.APPEND


@pytest.mark.parametrize(("sequence", "count"), [(4, 1), (2, 2), (1, 9)])
def test_a_gap_or_an_overlap_is_out_of_order(sequence: int, count: int) -> None:
    assert refusal(appended(batch(0, 3)), batch(sequence, count)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_starts_at_sequence_0() -> None:
    entry = appended(batch(0))
    assert judge(entry, batch(0, epoch=1)) is AppendVerdict.APPEND
    assert refusal(entry, batch(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_old_batch_beyond_the_window_is_known_to_be_in_the_log() -> None:
    entry = appended(*(batch(n) for n in range(6)))
    assert refusal(entry, batch(0)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_part_of_an_appended_batch_is_known_to_be_in_the_log() -> None:
    assert refusal(appended(batch(0, 5)), batch(1, 2)) is ErrorCode.DUPLICATE_SEQUENCE_NUMBER


def test_a_batch_from_before_the_wrap_is_not_called_a_duplicate() -> None:
    entry = ProducerEntry(epoch=0, batches=(CachedBatch(0, 3, 900),))
    before = batch(SEQUENCE_MAX - 1, 2)
    assert refusal(entry, before) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_across_the_wrap_is_a_gap_although_its_sequences_are_small() -> None:
    entry = ProducerEntry(epoch=0, batches=(CachedBatch(0, SEQUENCE_MAX - 2, 900),))
    assert refusal(entry, batch(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_0() -> None:
    entry = ProducerEntry(epoch=0, batches=(CachedBatch(SEQUENCE_MAX - 3, SEQUENCE_MAX - 1, 900),))
    wrapping = batch(SEQUENCE_MAX, 3)
    assert judge(entry, wrapping) is AppendVerdict.APPEND
    after = entry_after_append(
        entry, wrapping, base_offset=903, now_ms=NOW_MS, forgotten=ForgottenProducers(), coordinator_shard=-1
    )
    assert after.last_sequence == 1
    assert isinstance(judge(after, wrapping), CachedBatch)
    assert judge(after, batch(2)) is AppendVerdict.APPEND


# Plain batches of a transactional producer (step 6)


def test_a_plain_batch_is_refused_while_its_producer_has_a_transaction_open_here() -> None:
    entry = appended(batch(0, is_transactional=True))
    assert refusal(entry, batch(1)) is ErrorCode.INVALID_TXN_STATE


def test_the_sequence_of_such_a_batch_is_checked_first() -> None:
    entry = appended(batch(0, is_transactional=True))
    assert refusal(entry, batch(5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# The entry afterwards (step 7)


def test_the_window_holds_five_batches() -> None:
    entry = appended(*(batch(n) for n in range(8)))
    assert [cached.base_sequence for cached in entry.batches] == [3, 4, 5, 6, 7]


def test_a_new_epoch_empties_the_window_and_keeps_what_fences() -> None:
    before = replace(appended(batch(0), batch(1)), coordinator_epoch=4)
    after = entry_after_append(
        before, batch(0, epoch=1), base_offset=9, now_ms=NOW_MS, forgotten=ForgottenProducers(), coordinator_shard=-1
    )
    assert after == replace(before, epoch=1, batches=(CachedBatch(0, 0, 9),))


def test_the_first_transactional_batch_opens_the_transaction_and_later_ones_do_not_move_it() -> None:
    entry = appended(batch(0), batch(1, is_transactional=True), batch(2, is_transactional=True))
    assert entry.open_transaction == OpenTransaction(100, NOW_MS)


# The check before a commit


def test_a_commit_names_the_last_sequence_that_the_log_holds() -> None:
    entry = appended(batch(0, 3, is_transactional=True))
    check_last_sequence(entry, producer_id=PRODUCER_ID, producer_epoch=0, last_sequence=2)


@pytest.mark.parametrize(
    ("entry", "epoch", "last_sequence"),
    [
        (None, 0, 0),
        (appended(batch(0, 3)), 0, 2),
        (appended(batch(0, 3, is_transactional=True)), 0, 3),
        (appended(batch(0, 3, is_transactional=True)), 0, 1),
        (appended(batch(0, 3, is_transactional=True)), 1, 2),
    ],
    ids=["nothing here", "no transaction open", "a batch is missing", "another batch came", "another epoch"],
)
def test_a_commit_is_refused_where_the_log_holds_something_else(
    entry: ProducerEntry | None, epoch: int, last_sequence: int
) -> None:
    with pytest.raises(Refused) as refused:
        check_last_sequence(entry, producer_id=PRODUCER_ID, producer_epoch=epoch, last_sequence=last_sequence)
    assert refused.value.code is ErrorCode.TRANSACTION_ABORTABLE
