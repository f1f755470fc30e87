"""The rules of a share partition as tables: acquiring, acknowledging, releasing, and the start offset.

A share partition is one line, see `pictures.picture`.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, RenewalForbidden
from group_coordinator.share_partitions import acquiring, rules
from group_coordinator.share_partitions.acquiring import AcquiredRange, Content, LogPosition, Read, Span, Terms
from group_coordinator.share_partitions.draft import Archived, ArchiveReason, LetterEnd
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.state import (
    FIRST_STATES,
    LEGAL_STEPS,
    NUMBER_MAX,
    TERMINAL,
    UNRESOLVED,
    RecordState,
    SharePartition,
    restored,
)
from tests.groups.share_partitions.pictures import TERMS, code_of, fresh, picture, released_by, spans, taken, told

OK, BAD, NOT_HELD = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE
ONCE = Terms(delivery_count_limit=1)
NOTHING, ABORTED = Content.NOTHING, Content.ABORTED


def test_nothing_leaves_a_state_that_is_done() -> None:
    assert all(not LEGAL_STEPS[state] for state in TERMINAL)
    assert LEGAL_STEPS.keys() == set(RecordState)
    assert LEGAL_STEPS.keys() > FIRST_STATES


# Acquiring


def acquired(before: SharePartition, read: Read, terms: Terms = TERMS, *, log_start: int = 0, most: int = 500) -> str:
    change = acquiring.acquire(before, "b", read, terms, max_records=most, log=LogPosition(log_start)).change
    return picture(change.partition)


@pytest.mark.parametrize(
    ("most", "after"),
    [(1, "0: b1 b1 b1"), (3, "0: b1 b1 b1"), (4, "0: b1 b1 b1 b1 b1"), (9, "0: b1 b1 b1 b1 b1 b1")],
)
def test_batches_are_acquired_whole(most: int, after: str) -> None:
    assert acquired(fresh(), Read(0, spans(3, 2, 1, first_offset=0)), most=most) == after


def test_a_batch_with_a_hole_is_one_batch() -> None:
    holed = (Span(0, 1, ends_batch=False), Span(2, 3, NOTHING, ends_batch=False), Span(4, 4), Span(5, 5))
    assert acquired(fresh(), Read(0, holed), most=1) == "0: b1 b1 x0 x0 b1"
    assert acquired(fresh(), Read(0, holed), Terms(in_flight_max=1)) == "0: b1 b1 x0 x0 b1"


@pytest.mark.parametrize(
    ("read", "after"),
    [
        (Read(0, (Span(0, 1, NOTHING), Span(2, 2))), "2: b1"),
        (Read(0, (Span(2, 2),)), "2: b1"),
        (Read(0, (Span(0, 0), Span(1, 1, ABORTED), Span(4, 4))), "0: b1 x0 x0 x0 b1"),
        (Read(0, (Span(0, 10**12, NOTHING),)), f"{10**12 + 1}:"),
        (Read(0, ()), "0:"),
        (Read(1, (Span(1, 2),)), "0:"),
    ],
    ids=["a marker first", "a gap first", "gaps behind", "a large gap", "nothing read", "a part that was not read"],
)
def test_what_is_no_record_is_passed_over(read: Read, after: str) -> None:
    assert acquired(fresh(), read) == after


def test_a_large_gap_behind_a_held_record_waits_for_it() -> None:
    before = taken(fresh(), "a", 2)
    read = Read(2, (Span(10**9, 10**9),))
    assert acquired(before, read, Terms(in_flight_max=5)) == "0: a1 a1 x0 x0 x0"
    settled = told(taken(before, "b", first_offset=2), "a", (0, 1, "1"))
    assert acquired(settled, read, Terms(in_flight_max=5)) == f"{10**9}: b1"


def test_only_what_is_available_is_acquired_again() -> None:
    before = told(taken(fresh(), "a", 6), "a", (1, 1, "1"), (2, 3, "2"))
    change = acquiring.acquire(before, "b", Read(0, spans(8, first_offset=0)), TERMS, max_records=9, log=LogPosition(0))
    assert picture(change.change.partition) == "0: a1 +1 b2 b2 a1 a1 b1 b1"
    assert change.ranges == (AcquiredRange(2, 3, 2), AcquiredRange(6, 7, 1))


@pytest.mark.parametrize(
    ("in_flight_max", "after"),
    [
        (4, "0: a1 b2 a1 a1"),
        (5, "0: a1 b2 a1 a1 b1 b1"),
        (6, "0: a1 b2 a1 a1 b1 b1"),
        (7, "0: a1 b2 a1 a1 b1 b1 b1 b1"),
    ],
)
def test_new_batches_are_begun_while_there_is_room(in_flight_max: int, after: str) -> None:
    before = told(taken(fresh(), "a", 4), "a", (1, 1, "2"))
    assert acquired(before, Read(0, spans(4, 2, 2, first_offset=0)), Terms(in_flight_max=in_flight_max)) == after


@pytest.mark.parametrize(
    ("told_types", "in_flight_max", "available"),
    [
        ("3222", 9, 1),
        ("1232", 9, 1),
        ("1111", 9, 4),
        ("1111", 4, 4),
        ("4444", 4, None),
        ("4444", 5, 4),
        ("4422", 4, 2),
    ],
)
def test_what_may_be_acquired_next(told_types: str, in_flight_max: int, available: int | None) -> None:
    partition = told(taken(fresh(), "a", 4), "a", (0, 3, told_types))
    assert partition.first_available(in_flight_max) == available


@pytest.mark.parametrize(
    ("first_offset", "count", "end_offset"), [(1, 1, 2), (1, 2, 4), (1, 3, 5), (2, 1, 4), (4, 2, 6), (9, 2, 11)]
)
def test_a_read_ends_behind_as_many_available_records_as_are_wanted(
    first_offset: int, count: int, end_offset: int
) -> None:
    partition = told(taken(fresh(), "a", 4), "a", (0, 3, "1232"))
    assert partition.end_of_available(first_offset, count) == end_offset


def test_a_lower_limit_archives_what_was_delivered_that_often() -> None:
    before = told(taken(fresh(), "a", 2), "a", (0, 0, "2"))
    change = acquiring.acquire(before, "b", Read(0, spans(2, first_offset=0)), ONCE, max_records=9, log=LogPosition(0))
    assert picture(change.change.partition) == "1: a1"
    assert change.change.archived == (Archived(0, 1, ArchiveReason.DELIVERY_LIMIT, 1, LetterEnd.NO_TOPIC),)
    assert change.ranges == ()


def test_aborted_records_that_were_delivered_before_are_archived() -> None:
    """A group whose setting changed from uncommitted to committed."""
    before = told(taken(fresh(), "a", 2), "a", (0, 1, "2"))
    change = acquiring.acquire(before, "b", Read(0, (Span(0, 1, ABORTED),)), TERMS, max_records=9, log=LogPosition(0))
    assert picture(change.change.partition) == "2:"
    assert change.change.archived == (Archived(0, 2, ArchiveReason.ABORTED, 1),)
    assert change.change.is_stored


def test_an_acquisition_of_records_alone_is_not_stored() -> None:
    change = acquiring.acquire(
        fresh(), "a", Read(0, spans(3, first_offset=0)), TERMS, max_records=9, log=LogPosition(0)
    )
    assert not change.change.is_stored
    assert change.change.begun == 1


def test_numbers_of_acquisitions_are_used_again_only_once_they_are_free() -> None:
    before = replace(taken(taken(fresh(), "a", 1), "b", 1), last_number=NUMBER_MAX)
    after = taken(before, "c", 1)
    assert sorted(after.acquisitions) == [1, 2, 3]
    assert picture(after) == "0: a1 b1 c1"


# Acknowledging


@pytest.mark.parametrize(
    ("batches", "after"),
    [
        ([(0, 3, "1")], "4:"),
        ([(0, 3, "1234")], "1: .1 x1 a1"),
        ([(0, 0, "1"), (3, 3, "0")], "1: a1 a1 x1"),
        ([(1, 2, "1")], "0: a1 +1 +1 a1"),
        ([(1, 2, "4")], "0: a1 a1 a1 a1"),
    ],
)
def test_each_type_has_its_outcome(batches: list[tuple[int, int, str]], after: str) -> None:
    assert picture(told(taken(fresh(), "a", 4), "a", *batches)) == after


@pytest.mark.parametrize(
    ("member", "batches", "code"),
    [
        ("a", [], OK),
        ("a", [(2, 3, "1")], OK),
        ("a", [(2, 3, "12")], OK),
        ("b", [(2, 3, "1")], NOT_HELD),
        ("a", [(2, 4, "1")], NOT_HELD),
        ("a", [(5, 5, "1")], NOT_HELD),
        ("a", [(6, 6, "1")], NOT_HELD),
        ("b", [(4, 4, "1")], OK),
        ("a", [(0, 1, "1")], NOT_HELD),
        ("a", [(0, 2, "1")], OK),
        ("a", [(2, 7, "1")], BAD),
        ("a", [(9, 10**15, "1")], BAD),
        ("a", [(-1, 2, "1")], BAD),
        ("a", [(3, 2, "1")], BAD),
        ("a", [(2, 3, "111")], BAD),
        ("a", [(2, 3, "")], BAD),
        ("a", [(2, 3, "15")], BAD),
        ("a", [(2, 2, "1"), (2, 3, "1")], BAD),
        ("a", [(3, 3, "1"), (2, 2, "1")], BAD),
        ("a", [(2, 2, "1"), (4, 4, "1")], NOT_HELD),
    ],
)
def test_what_is_refused(member: str, batches: list[tuple[int, int, str]], code: ErrorCode) -> None:
    """Offsets 0 and 1 are done, "a" holds 2 and 3, "b" holds 4, 5 is acknowledged, 6 is available."""
    partition = taken(told(taken(fresh(), "a", 4), "a", (0, 1, "1")), "b", 3)
    partition = told(partition, "b", (5, 6, "12"))
    assert picture(partition) == "2: a1 a1 b1 +1 .1"
    assert code_of(lambda: told(partition, member, *batches)) is code


def test_locks_are_renewed_only_where_the_group_allows_it() -> None:
    partition = taken(fresh(), "a", 2)
    with pytest.raises(RenewalForbidden):
        rules.acknowledge(partition, "a", [AckBatch(0, 1, [4])], TERMS)
    assert code_of(lambda: rules.acknowledge(partition, "a", [AckBatch(0, 1, [1, 4])], TERMS)) is BAD
    renewed = rules.acknowledge(partition, "a", [AckBatch(0, 0, [4])], TERMS, allows_renewal=True)
    assert (renewed.begun, renewed.ended, renewed.is_stored) == (2, (), False)
    again = rules.acknowledge(renewed.partition, "a", [AckBatch(0, 1, [4])], TERMS, allows_renewal=True)
    assert (again.begun, again.ended) == (3, (2, 1))
    assert picture(rules.release_acquisitions(again.partition, (2,)).partition) == "0: a1 a1"
    assert picture(rules.release_acquisitions(again.partition, (3,)).partition) == "0: .1 .1"


def test_what_was_archived_and_why_is_told() -> None:
    partition = taken(fresh(), "a", 4, terms=ONCE)
    change = rules.acknowledge(partition, "a", [AckBatch(0, 3, [1, 3, 0, 2])], TERMS)
    assert [(each.first_offset, each.reason) for each in change.archived] == [
        (1, ArchiveReason.REJECTED),
        (2, ArchiveReason.GAP),
        (3, ArchiveReason.DELIVERY_LIMIT),
    ]
    assert (change.made_available, change.has_moved, change.ended, change.is_stored) == (0, True, (1,), True)


# Releasing


def test_a_member_that_goes_releases_what_it_holds() -> None:
    partition = taken(taken(taken(fresh(), "a", 2), "b", 2), "a", 2)
    change = released_by(told(partition, "a", (0, 0, "1")), "a")
    assert picture(change.partition) == "1: .1 b1 b1 .1 .1"
    assert (change.made_available, change.ended, change.is_stored) == (3, (1, 3), True)
    assert released_by(change.partition, "a").partition == change.partition


def test_records_at_the_limit_are_archived_when_they_are_released() -> None:
    partition = told(taken(fresh(), "a", 2), "a", (0, 0, "2"))
    partition = taken(partition, "a", 1, first_offset=0, terms=Terms(delivery_count_limit=2))
    change = released_by(partition, "a")
    assert picture(change.partition) == "1: .1"
    assert change.archived == (Archived(0, 1, ArchiveReason.DELIVERY_LIMIT, 2, LetterEnd.NO_TOPIC),)


def test_the_end_of_an_acquisition_releases_its_records_alone() -> None:
    partition = told(taken(taken(fresh(), "a", 2), "a", 2), "a", (0, 0, "2"))
    partition = taken(partition, "a", 1, first_offset=0)
    assert picture(rules.release_acquisitions(partition, (1,)).partition) == "0: a2 .1 a1 a1"
    assert rules.release_acquisitions(partition, (9,)).partition == partition


# The start offset


@pytest.mark.parametrize(
    ("log_start", "after"),
    [(0, "0: a1 .1 a1 .1"), (1, "0a1 1: .1 a1 .1"), (2, "0a1 2: a1 .1"), (4, "0a1 2a1 4:"), (9, "0a1 2a1 9:")],
)
def test_the_start_offset_follows_the_log_start(log_start: int, after: str) -> None:
    before = told(taken(fresh(), "a", 4), "a", (1, 1, "2"), (3, 3, "2"))
    assert picture(rules.move_log_start(before, log_start).partition) == after


def test_held_records_before_the_log_start_are_archived_when_they_are_released() -> None:
    before = rules.move_log_start(taken(fresh(), "a", 4), 3).partition
    before = rules.move_log_start(taken(before, "b", 1), 4).partition
    assert picture(before) == "0a1 1a1 2a1 3a1 4: b1"
    assert code_of(lambda: told(before, "b", (0, 4, "1"))) is OK
    assert picture(told(before, "b", (0, 4, "1"))) == "0a1 1a1 2a1 3a1 5:"
    assert picture(told(before, "a", (1, 2, "1"))) == "0a1 3a1 4: b1"
    change = released_by(before, "a")
    assert picture(change.partition) == "4: b1"
    assert {each.reason for each in change.archived} == {ArchiveReason.LOG_START}
    assert change.made_available == 0
    assert not change.is_stored


def test_nothing_before_the_log_start_is_acquired() -> None:
    assert acquired(fresh(), Read(0, spans(2, 2, first_offset=0)), log_start=2) == "2: b1 b1"
    before = told(taken(fresh(), "a", 4), "a", (0, 3, "2"))
    assert acquired(before, Read(0, spans(4, first_offset=0)), log_start=3) == "3: b2"


def test_the_start_is_resolved_once() -> None:
    new = SharePartition(state_epoch=1)
    assert (new.is_resolved, new.start_offset) == (False, UNRESOLVED)
    change = rules.resolve_start(new, 7)
    assert (picture(change.partition), change.is_stored) == ("7:", True)
    again = rules.resolve_start(change.partition, 9)
    assert (picture(again.partition), again.is_stored) == ("7:", False)
    assert rules.move_log_start(new, 9).partition == new


def test_an_administrator_lets_a_group_begin_anew() -> None:
    change = rules.alter_start(taken(fresh(), "a", 4), 2)
    assert (picture(change.partition), change.partition.state_epoch, change.ended) == ("2:", 2, (1,))


# After a restart


def test_a_restart_releases_everything_and_counts_no_delivery() -> None:
    partition = told(taken(taken(fresh(), "a", 5), "b", 2), "a", (0, 2, "121"), (4, 4, "3"))
    partition = taken(partition, "a", 1, first_offset=1)
    assert picture(partition) == "1: a2 +1 a1 x1 b1 b1"
    assert picture(restored(partition.durable_form)) == "1: .1 +1 .0 x1"


def test_the_records_that_are_done_are_counted() -> None:
    assert told(taken(fresh(), "a", 5), "a", (1, 3, "132")).delivery_complete_count == 2


def test_a_log_older_than_what_was_read_of_it_is_refused() -> None:
    """A check of Kafka's persister (spec groups 6.4), for a log that was restored without the state beside it."""

    def read_in(leader_epoch: int, before: SharePartition) -> SharePartition:
        log = LogPosition(0, leader_epoch)
        return acquiring.acquire(before, "a", Read(0, ()), TERMS, max_records=1, log=log).change.partition

    later = read_in(3, fresh())
    assert later.leader_epoch == 3
    assert code_of(lambda: read_in(3, later)) is OK
    assert code_of(lambda: read_in(2, later)) is ErrorCode.FENCED_LEADER_EPOCH
