"""Rules of markers: the table of spec log-and-runtime 1.5, with csn in place of the `last_marker` rows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker, Outcome
from partition_log.rules.appending import entry_after_append
from partition_log.rules.marking import MarkerVerdict, entry_after_marker, judge_marker
from partition_log.rules.removing import head_after_forgetting
from partition_log.state import (
    CachedBatch,
    ForgottenProducers,
    LastMarker,
    OpenTransaction,
    PartitionHead,
    ProducerEntry,
)

NOW_MS = 5_000
WINDOW = (CachedBatch(0, 4, 10),)
OPEN = ProducerEntry(epoch=3, coordinator_epoch=2, batches=WINDOW, open_transaction=OpenTransaction(10, 1))
CLOSED = replace(OPEN, open_transaction=None)
SEEN = replace(CLOSED, last_marker=LastMarker(3, Outcome.COMMIT, 50))
OPEN_AGAIN = replace(SEEN, open_transaction=OpenTransaction(20, 1))


def marker(
    epoch: int = 3, *, bumps: bool = True, coordinator_epoch: int = 2, csn: int = 60, commits: bool = True
) -> Marker:
    return Marker(
        producer_id=7,
        txn_epoch=epoch,
        next_epoch=epoch + bumps,
        coordinator_shard=0,
        coordinator_epoch=coordinator_epoch,
        outcome=Outcome.COMMIT if commits else Outcome.ABORT,
        csn=csn,
    )


def judged(entry: ProducerEntry | None, sent: Marker, *, forgotten_csn: int = 0) -> MarkerVerdict:
    """Another coordinator shard has forgotten much newer ones, which says nothing."""
    forgotten = ForgottenProducers(9, ((0, forgotten_csn), (5, 1_000)))
    return judge_marker(entry, sent, forgotten=forgotten)


def refusal(entry: ProducerEntry | None, sent: Marker) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        judged(entry, sent)
    return refused.value.code


def test_a_marker_for_an_unknown_producer_is_appended_because_it_may_be_the_only_fence() -> None:
    assert judged(None, marker()) is MarkerVerdict.APPEND
    entry = entry_after_marker(None, marker(), now_ms=NOW_MS)
    assert entry == ProducerEntry(
        epoch=4,
        coordinator_epoch=2,
        last_append_ms=NOW_MS,
        last_marker=LastMarker(3, Outcome.COMMIT, 60),
        coordinator_shard=0,
    )


@pytest.mark.parametrize("entry", [OPEN, CLOSED, SEEN])
def test_a_marker_of_an_older_coordinator_is_refused_whatever_it_says(entry: ProducerEntry) -> None:
    assert refusal(entry, marker(coordinator_epoch=1, csn=50)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_equal_and_higher_coordinator_epochs_are_fine() -> None:
    assert judged(OPEN, marker(coordinator_epoch=2)) is MarkerVerdict.APPEND
    assert judged(OPEN, marker(coordinator_epoch=9)) is MarkerVerdict.APPEND


@pytest.mark.parametrize("entry", [SEEN, OPEN_AGAIN])
def test_a_marker_that_was_written_before_is_done(entry: ProducerEntry) -> None:
    assert judged(entry, marker(csn=50)) is MarkerVerdict.REPEATED


def test_a_repetition_by_a_restarted_coordinator_is_done_too() -> None:
    assert judged(SEEN, marker(csn=50, coordinator_epoch=9)) is MarkerVerdict.REPEATED


@pytest.mark.parametrize("entry", [SEEN, OPEN_AGAIN])
def test_a_marker_with_a_smaller_csn_is_stale_even_where_the_epoch_would_fit(entry: ProducerEntry) -> None:
    assert judged(entry, marker(csn=49)) is MarkerVerdict.STALE


@pytest.mark.parametrize("other", [marker(csn=50, commits=False), marker(2, csn=50)])
def test_one_csn_with_two_meanings_is_a_defect_of_the_coordinator(other: Marker) -> None:
    assert refusal(SEEN, other) is ErrorCode.INVALID_TXN_STATE


def test_the_marker_of_the_open_transaction_closes_it() -> None:
    assert judged(OPEN, marker()) is MarkerVerdict.APPEND
    entry = entry_after_marker(OPEN, marker(), now_ms=NOW_MS)
    assert (entry.open_transaction, entry.last_marker) == (None, LastMarker(3, Outcome.COMMIT, 60, first_offset=10))


def test_a_client_of_version_1_ends_its_next_transaction_at_the_same_epoch() -> None:
    assert judged(OPEN_AGAIN, marker(bumps=False)) is MarkerVerdict.APPEND


def test_the_marker_of_an_older_epoch_does_not_close_the_open_transaction() -> None:
    assert judged(OPEN, marker(2)) is MarkerVerdict.STALE


def test_a_marker_from_the_future_means_that_one_was_lost() -> None:
    assert refusal(OPEN, marker(4)) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("epoch", [3, 4])
def test_without_an_open_transaction_the_marker_of_this_epoch_or_a_later_one_is_appended_to_fence(epoch: int) -> None:
    assert judged(CLOSED, marker(epoch)) is MarkerVerdict.APPEND


def test_without_an_open_transaction_the_marker_of_an_older_epoch_says_nothing_new() -> None:
    assert judged(CLOSED, marker(2)) is MarkerVerdict.STALE


def test_a_marker_that_raises_the_epoch_starts_sequences_anew() -> None:
    entry = entry_after_marker(OPEN, marker(), now_ms=NOW_MS)
    assert (entry.epoch, entry.batches) == (4, ())


def test_a_marker_that_keeps_the_epoch_lets_sequences_run_on() -> None:
    entry = entry_after_marker(OPEN, marker(bumps=False), now_ms=NOW_MS)
    assert (entry.epoch, entry.batches) == (3, WINDOW)


def test_a_marker_never_lowers_the_epoch() -> None:
    ahead = replace(CLOSED, epoch=9)
    assert entry_after_marker(ahead, replace(marker(), next_epoch=4), now_ms=NOW_MS).epoch == 9


def test_a_marker_renews_the_age_of_the_entry_and_the_epoch_of_the_coordinator() -> None:
    entry = entry_after_marker(OPEN, marker(coordinator_epoch=9), now_ms=NOW_MS)
    assert (entry.last_append_ms, entry.coordinator_epoch) == (NOW_MS, 9)


# Forgotten producers (the newest of their markers: csn 60)


@pytest.mark.parametrize(("csn", "verdict"), [(60, MarkerVerdict.STALE), (61, MarkerVerdict.APPEND)])
def test_a_marker_that_was_forgotten_with_its_producer_is_not_written_again(csn: int, verdict: MarkerVerdict) -> None:
    assert judged(None, marker(csn=csn), forgotten_csn=60) is verdict


RETURNED = replace(OPEN, coordinator_epoch=-1, forgotten_csn=60, coordinator_shard=0)


@pytest.mark.parametrize(("csn", "verdict"), [(60, MarkerVerdict.STALE), (61, MarkerVerdict.APPEND)])
def test_it_does_not_end_what_its_producer_has_begun_since(csn: int, verdict: MarkerVerdict) -> None:
    assert judged(RETURNED, marker(csn=csn, bumps=False), forgotten_csn=90) is verdict


def test_what_is_forgotten_later_keeps_no_open_transaction_from_its_end() -> None:
    """A marker may be on its way for longer than another producer is remembered."""
    assert judged(OPEN, marker(csn=60), forgotten_csn=90) is MarkerVerdict.APPEND


def test_the_first_marker_takes_the_place_of_what_was_forgotten() -> None:
    entry = entry_after_marker(RETURNED, marker(csn=61), now_ms=NOW_MS)
    assert (entry.last_marker, entry.forgotten_csn) == (LastMarker(3, Outcome.COMMIT, 61, first_offset=10), 0)


def test_the_newest_marker_that_is_forgotten_stays_known() -> None:
    head = PartitionHead(log_end_offset=9)
    seen = replace(SEEN, coordinator_shard=4)
    newer, elsewhere = replace(seen, last_marker=LastMarker(3, Outcome.COMMIT, 70)), replace(seen, coordinator_shard=2)
    steps = (
        ((CLOSED,), ()),
        ((CLOSED, seen), ((4, 50),)),
        ((CLOSED,), ((4, 50),)),
        ((elsewhere,), ((2, 50), (4, 50))),
        ((newer, seen), ((2, 50), (4, 70))),
        ((seen,), ((2, 50), (4, 70))),
    )
    for entries, csns in steps:
        head = head_after_forgetting(head, entries)
        assert head == PartitionHead(log_end_offset=9, forgotten=ForgottenProducers(9, csns))
    assert [head.forgotten.csn_of(shard) for shard in (-1, 2, 3, 4)] == [0, 50, 0, 70]


@pytest.mark.parametrize("entry", [SEEN, OPEN, OPEN_AGAIN, RETURNED])
@pytest.mark.parametrize("csn", [1, 50, 1_000])
def test_a_marker_of_another_coordinator_shard_is_refused_and_not_compared(entry: ProducerEntry, csn: int) -> None:
    known = replace(entry, coordinator_shard=3)
    assert refusal(known, marker(csn=csn, coordinator_epoch=1)) is ErrorCode.INVALID_TXN_STATE


def test_an_unknown_producer_takes_over_what_is_forgotten_of_its_own_coordinator_shard() -> None:
    header = BatchHeader(
        base_offset=0,
        record_count=1,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        encoding=Encoding.RECORDS_V1,
        is_transactional=True,
    )
    forgotten = ForgottenProducers(9, ((2, 40), (4, 50)))
    for shard, csn in ((2, 40), (3, 0), (4, 50), (-1, 0)):
        entry = entry_after_append(
            None, header, base_offset=9, now_ms=NOW_MS, forgotten=forgotten, coordinator_shard=shard
        )
        assert (entry.coordinator_shard, entry.forgotten_csn) == (shard, csn)


def test_no_open_transaction_is_forgotten() -> None:
    with pytest.raises(AssertionError, match="until its marker"):
        head_after_forgetting(PartitionHead(), (OPEN,))
