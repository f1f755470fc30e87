"""The rules of acknowledgements in a transaction, as tables: holding records for it, and settling them by a marker.

A share partition is one line, see `pictures.picture`: `?` is acknowledged in an open transaction.

Source: spec groups 6.5.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.ports import OutcomeNumber
from group_coordinator.share_partitions import acquiring, rules
from group_coordinator.share_partitions.acquiring import LogPosition, Read, Terms
from group_coordinator.share_partitions.codec import share_codec
from group_coordinator.share_partitions.draft import Archived, ArchiveReason, LetterEnd, ShareChange
from group_coordinator.share_partitions.records import ShareKey, SharePartitionChanged
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.state import (
    NUMBER_MAX,
    AcknowledgingTransaction,
    DurableForm,
    SharePartition,
    restored,
)
from tests.groups.share_partitions.pictures import TERMS, code_of, fresh, picture, released_by, spans, taken, told

OK, BAD, NOT_HELD = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE
COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT
TRANSACTION = AcknowledgingTransaction("worker", 7, 3, OutcomeNumber(2, 40))
OTHER = AcknowledgingTransaction("other", 8, 0, OutcomeNumber(5, 41))


def held(
    before: SharePartition,
    member_id: str,
    *batches: tuple[int, int, str],
    transaction: AcknowledgingTransaction = TRANSACTION,
) -> ShareChange:
    """The change by a member's acknowledgements: first and last offset, and digits of types."""
    asked = [AckBatch(first, last, tuple(map(int, types))) for first, last, types in batches]
    return rules.acknowledge_in_transaction(before, member_id, asked, transaction)


def marker(
    outcome: Outcome = COMMIT, *, csn: int = 42, epoch: int = 3, producer_id: int = 7, coordinator_shard: int = 2
) -> Marker:
    return Marker(
        producer_id=producer_id,
        txn_epoch=epoch,
        next_epoch=epoch + 1,
        coordinator_shard=coordinator_shard,
        coordinator_epoch=1,
        outcome=outcome,
        csn=csn,
    )


def stored(partition: SharePartition) -> SharePartition:
    """The share partition after it was written and read back."""
    name = ShareKey("g", 4)
    encoded = share_codec().encode(SharePartitionChanged(name, partition, is_stored=True))
    assert encoded is not None
    assert encoded.value is not None
    decoded = share_codec().decode(encoded.record_type, encoded.key, encoded.value)
    assert isinstance(decoded, SharePartitionChanged)
    assert decoded.key == name
    return decoded.partition


# Holding records for a transaction


@pytest.mark.parametrize(
    ("batches", "after"),
    [
        ([(0, 5, "1")], "0: ?1 ?1 ?1 ?1 b1 b1"),
        ([(0, 3, "1")], "0: ?1 ?1 ?1 ?1 b1 b1"),
        ([(1, 2, "3")], "0: a1 ?1 ?1 a1 b1 b1"),
        ([(0, 2, "131"), (3, 3, "1")], "0: ?1 ?1 ?1 ?1 b1 b1"),
        ([], "0: a1 a1 a1 a1 b1 b1"),
    ],
)
def test_records_of_the_member_wait_all_or_none(batches: list[tuple[int, int, str]], after: str) -> None:
    before = taken(taken(fresh(), "a", 4), "b", 2)
    if batches == [(0, 5, "1")]:
        assert code_of(lambda: held(before, "a", *batches)) is NOT_HELD
        return
    assert picture(held(before, "a", *batches).partition) == after


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([(0, 0, "2")], BAD),
        ([(0, 0, "4")], BAD),
        ([(0, 0, "0")], BAD),
        ([(0, 0, "5")], BAD),
        ([(0, 1, "12")], BAD),
        ([(0, 2, "11")], BAD),
        ([(1, 0, "1")], BAD),
        ([(1, 1, "1"), (0, 0, "1")], BAD),
        ([(0, 4, "1")], BAD),
        ([(0, 3, "1")], NOT_HELD),
    ],
)
def test_bad_acknowledgements_are_refused(batches: list[tuple[int, int, str]], code: ErrorCode) -> None:
    before = taken(taken(fresh(), "a", 3), "b", 1)
    assert code_of(lambda: held(before, "a", *batches)) is code


def test_a_pending_record_is_not_acknowledged_handed_out_or_released() -> None:
    before = held(taken(fresh(), "a", 3), "a", (0, 1, "1")).partition
    assert code_of(lambda: told(before, "a", (0, 0, "1"))) is NOT_HELD
    assert code_of(lambda: held(before, "a", (0, 0, "1"), transaction=OTHER)) is NOT_HELD
    assert picture(released_by(before, "a").partition) == "0: ?1 ?1 .1"
    released = released_by(before, "a").partition
    assert picture(taken(released, "b", 3, first_offset=0)) == "0: ?1 ?1 b2"
    done = told(before, "a", (2, 2, "1"))
    assert (picture(done), done.delivery_complete_count) == ("0: ?1 ?1 +1", 1)


def test_the_acquisition_ends_with_its_last_record() -> None:
    before = taken(fresh(), "a", 3)
    (number,) = before.acquisitions
    some = held(before, "a", (0, 1, "1"))
    assert (some.ended, some.partition.acquisitions[number].held_count) == ((), 1)
    assert picture(rules.release_acquisitions(some.partition, (number,)).partition) == "0: ?1 ?1 .1"
    rest = held(some.partition, "a", (2, 2, "1"))
    assert (rest.ended, dict(rest.partition.acquisitions)) == ((number,), {})
    assert (rest.partition.held_count, rest.partition.pending_count) == (0, 3)


def test_the_same_transaction_may_acknowledge_again() -> None:
    before = held(taken(fresh(), "a", 3), "a", (0, 2, "1")).partition
    again = held(before, "a", (0, 2, "1"))
    assert (again.partition, again.is_stored) == (before, False)
    changed = held(before, "b", (1, 1, "3")).partition
    assert rules.settle(changed, marker()).archived == (Archived(1, 2, ArchiveReason.REJECTED, 1),)
    assert sorted(each.record_count for each in changed.pending.values()) == [1, 2]


def test_a_record_that_the_log_start_has_passed_is_archived() -> None:
    passed = rules.move_log_start(taken(fresh(), "a", 4), 2).partition
    change = held(passed, "a", (0, 2, "1"))
    assert picture(change.partition) == "2: ?1 a1"
    assert change.archived == (Archived(0, 2, ArchiveReason.LOG_START, 1),)


def test_the_log_start_archives_what_is_pending() -> None:
    before = held(taken(fresh(), "a", 4), "a", (0, 1, "1"), (3, 3, "1")).partition
    change = rules.move_log_start(before, 3)
    assert picture(change.partition) == "2a1 3: ?1"
    assert change.archived == (Archived(0, 2, ArchiveReason.LOG_START, 1),)
    assert change.partition.pending_count == 1
    assert picture(rules.settle(change.partition, marker()).partition) == "2a1 4:"


def test_a_group_that_begins_anew_waits_for_its_transactions() -> None:
    before = held(taken(fresh(), "a", 1), "a", (0, 0, "1")).partition
    assert code_of(lambda: rules.alter_start(before, 0)) is ErrorCode.NON_EMPTY_GROUP
    assert rules.alter_start(rules.settle(before, marker()).partition, 0).partition.pending_count == 0


# Settling


@pytest.mark.parametrize(
    ("outcome", "after", "archived", "available"),
    [
        (COMMIT, "3: a1", [Archived(1, 2, ArchiveReason.REJECTED, 1)], 0),
        (ABORT, "0: .1 .1 .1 a1", [], 3),
    ],
)
def test_a_marker_settles_the_records(outcome: Outcome, after: str, archived: list[Archived], available: int) -> None:
    before = held(taken(fresh(), "a", 4), "a", (0, 2, "131")).partition
    for partition in (before, restored(before.durable_form)):
        change = rules.settle(partition, marker(outcome))
        assert change.archived == tuple(archived)
        assert change.made_available == available
        assert change.partition.pending_count == 0
        assert change.is_stored
    assert picture(rules.settle(before, marker(outcome)).partition) == after


def test_the_start_offset_waits_for_pending_records() -> None:
    before = taken(fresh(), "a", 4)
    waiting = told(held(before, "a", (0, 0, "1"), (2, 2, "3")).partition, "a", (1, 1, "1"), (3, 3, "1"))
    assert picture(waiting) == "0: ?1 +1 ?1 +1"
    settled = rules.settle(waiting, marker())
    assert (picture(settled.partition), settled.has_moved) == ("4:", True)
    assert picture(rules.settle(waiting, marker(ABORT)).partition) == "0: .1 +1 .1 +1"


def test_an_abort_at_the_limit_archives() -> None:
    before = taken(fresh(), "a", 2, terms=Terms(delivery_count_limit=1))
    change = rules.settle(held(before, "a", (0, 1, "1")).partition, marker(ABORT))
    assert picture(change.partition) == "2:"
    assert change.archived == (Archived(0, 2, ArchiveReason.DELIVERY_LIMIT, 1, LetterEnd.NO_TOPIC),)


def test_each_record_keeps_the_terms_of_its_acquisition_in_a_transaction() -> None:
    """The settings of the group changed between the acquisitions: a limit of one delivery, then a dead-letter topic."""
    before = taken(fresh(), "a", 1)
    for terms in (Terms(delivery_count_limit=1), Terms(delivery_count_limit=1, has_letters=True)):
        before = taken(before, "a", 1, terms=terms)
    change = rules.settle(held(before, "a", (0, 2, "1")).partition, marker(ABORT))
    assert picture(change.partition) == "0: .1 x1 !1"
    assert change.archived == (Archived(1, 2, ArchiveReason.DELIVERY_LIMIT, 1, LetterEnd.NO_TOPIC),)


@pytest.mark.parametrize(
    "late",
    [
        marker(csn=40),
        marker(csn=39),
        marker(epoch=2),
        marker(epoch=4),
        marker(producer_id=9),
        marker(producer_id=9, coordinator_shard=5),
    ],
)
@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_marker_of_another_transaction_changes_nothing(late: Marker, outcome: Outcome) -> None:
    before = held(taken(fresh(), "a", 2), "a", (0, 1, "1")).partition
    change = rules.settle(before, replace(late, outcome=outcome))
    assert (change.partition, change.is_stored) == (before, False)


def test_a_marker_of_another_coordinator_shard_is_a_defect() -> None:
    before = held(taken(fresh(), "a", 2), "a", (0, 1, "1")).partition
    assert code_of(lambda: rules.settle(before, marker(coordinator_shard=3))) is ErrorCode.INVALID_TXN_STATE


def test_a_repeated_marker_changes_nothing() -> None:
    before = rules.settle(held(taken(fresh(), "a", 2), "a", (1, 1, "1")).partition, marker()).partition
    for outcome in Outcome:
        assert rules.settle(before, marker(outcome)).partition == before


def test_each_transaction_settles_its_own_records() -> None:
    before = taken(taken(fresh(), "a", 2), "b", 2)
    both = held(held(before, "a", (0, 1, "1")).partition, "b", (2, 3, "1"), transaction=OTHER).partition
    assert picture(rules.settle(both, marker(ABORT)).partition) == "0: .1 .1 ?1 ?1"
    other = marker(producer_id=8, epoch=0, coordinator_shard=5)
    assert picture(rules.settle(both, other).partition) == "0: ?1 ?1 +1 +1"


# Storing


def test_what_is_pending_is_stored() -> None:
    before = taken(taken(fresh(3), "a", 4), "b", 3)
    both = held(held(before, "a", (4, 6, "113")).partition, "b", (7, 7, "1"), transaction=OTHER).partition
    again = stored(both)
    assert picture(again) == "3: .0 ?1 ?1 ?1 ?1"
    assert again.durable_form == both.durable_form
    assert again.pending_count == both.pending_count == 4
    for each in (marker(), marker(ABORT), marker(producer_id=8, epoch=0, coordinator_shard=5)):
        kept = rules.settle(both, each).partition.durable_form
        assert rules.settle(again, each).partition.durable_form == kept
    assert picture(rules.settle(again, marker()).partition) == "3: .0 +1 +1 x1 ?1"


def test_new_acquisitions_get_other_numbers_than_what_is_pending() -> None:
    again = stored(held(taken(fresh(), "a", 3), "a", (0, 2, "131")).partition)
    for turn in range(3):
        again = taken(again, "b", 1)
        assert not again.acquisitions.keys() & again.pending.keys()
        assert picture(again) == "0: ?1 ?1 ?1" + " b1" * (turn + 1)
    assert picture(rules.settle(again, marker(ABORT)).partition) == "0: .1 .1 .1 b1 b1 b1"


def test_numbers_that_are_used_up_refuse_an_acknowledgement() -> None:
    partition = held(taken(fresh(), "a", 4), "a", (0, 0, "1"), transaction=OTHER).partition
    (pending,) = partition.pending.values()
    full = replace(partition, pending=dict.fromkeys(range(2, NUMBER_MAX + 1), pending), last_number=4)
    read = Read(4, spans(1, first_offset=4))
    assert acquiring.acquire(full, "b", read, TERMS, max_records=1, log=LogPosition(0)).ranges == ()
    assert code_of(lambda: held(full, "a", (1, 1, "1"))) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_a_share_partition_without_pending_records_has_a_short_row() -> None:
    form = taken(fresh(), "a", 3).durable_form
    assert form == DurableForm(1, 0, 0, b"")
