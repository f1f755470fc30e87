"""Measures of visible records: every one of them in a step, with as many bytes as its batch has, and nothing
between."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.snapshots import SnapshotFilter
from coordinator_runtime.ports import PartitionName
from partition_log.measuring import Commits, Measured, MeasuredRange, ShownPart, committed_in, measure
from partition_log.reading import SEEK_COST_BATCHES, ReadBudget
from partition_log.requests import MeasureQuery, MeasureRecords, MeasureResult
from partition_log.state import Isolation
from tests.log.driven_log import COMMIT, CONTEXT, TOPIC, Batch, DrivenLog, code, transactional
from tests.log.test_counting import SHORT_STRETCHES, CountedLog, commands

ORDERS_0 = PartitionName(TOPIC, b"", 0)
MIXED = [
    *[("append", 1, 3), ("commit", 1, 1)] * 5,
    *[("append", 2, 2), ("abort", 2, 1)] * 9,
    *[("plain", 1, 1)] * 9,
    *[("append", 1, 1), ("append", 2, 2), ("abort", 2, 1), ("commit", 1, 1)] * 3,
]


def measured(
    counted: CountedLog,
    start: int,
    end: int,
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
    step_bytes: int = 200,
    batches_max: int = 10_000,
) -> Measured:
    """Return the whole measure, asked for in turns that may read no more than so much."""
    steps: list[ShownPart] = []
    at = start
    while True:
        found = measure(
            counted.driven.store,
            counted.driven.ordinal(),
            counted.driven.head(),
            MeasuredRange(at, end, isolation, step_bytes),
            ReadBudget(0, batches=batches_max),
        )
        steps += found.steps
        assert found.next_offset > at or found.next_offset >= end or not found.steps
        if found.next_offset in (at, end):
            return Measured(tuple(steps), found.next_offset)
        at = found.next_offset


def performed(given_commands: list[tuple[str, int, int]]) -> CountedLog:
    counted = CountedLog()
    for command in given_commands:
        counted.perform(*command)
    return counted


@given(commands, st.integers(0, 60), st.integers(0, 60), st.sampled_from(Isolation), st.sampled_from((9, 10_000)))
@settings(max_examples=80, deadline=None)
def test_every_visible_record_lies_in_a_step_and_steps_count_nothing_else(
    given_commands: list[tuple[str, int, int]], start: int, length: int, isolation: Isolation, batches_max: int
) -> None:
    counted = performed(given_commands)
    found = measured(counted, start, start + length, isolation=isolation, batches_max=batches_max)
    visible = counted.naive.visible(is_committed=isolation is Isolation.READ_COMMITTED, start=start)
    wanted = {offset for offset in visible if start <= offset < start + length}
    shown = [{offset for offset in wanted if step.first_offset <= offset < step.end_offset} for step in found.steps]
    assert [len(offsets) for offsets in shown] == [step.records for step in found.steps]
    assert set().union(*shown) == wanted
    assert all(offsets and step.size_bytes > 0 for offsets, step in zip(shown, found.steps, strict=True))
    assert list(found.steps) == sorted(found.steps)


def test_what_lies_in_whole_stretches_is_told_without_reading_it() -> None:
    counted = performed([("plain", 1, 1)] * 400)
    budget = ReadBudget(0)
    before = budget.batches
    whole = MeasuredRange(0, 400, Isolation.READ_COMMITTED, 1 << 30)
    found = measure(counted.driven.store, counted.driven.ordinal(), counted.driven.head(), whole, budget)
    assert (found.steps[0].first_offset, found.steps[0].end_offset, found.steps[0].records) == (0, 400, 400)
    stretch_count = 400 // SHORT_STRETCHES.index_interval_batches
    assert stretch_count <= before - budget.batches <= stretch_count + 4 * SHORT_STRETCHES.index_interval_batches


def test_a_stretch_of_aborted_records_and_markers_is_no_step() -> None:
    counted = performed([("append", 1, 2), ("commit", 1, 1), *[("append", 2, 2), ("abort", 2, 1)] * 9])
    assert [(step.first_offset, step.end_offset, step.records) for step in measured(counted, 0, 30).steps] == [
        (0, 2, 2)
    ]
    assert measured(counted, 3, 30) == Measured((), 30)


def test_steps_have_about_the_bytes_that_were_asked_for_and_all_of_them() -> None:
    counted = performed(MIXED)
    (whole,) = measured(counted, 0, counted.naive.end, step_bytes=1 << 30).steps
    steps = measured(counted, 0, counted.naive.end, step_bytes=whole.size_bytes // 4).steps
    assert 2 <= len(steps) <= 4
    assert sum(step.records for step in steps) == whole.records
    assert sum(step.size_bytes for step in steps) == whole.size_bytes


@pytest.mark.parametrize("place", range(8, 12))
def test_a_stretch_in_which_a_snapshot_hides_something_is_no_whole_one(place: int) -> None:
    counted = performed([*[("plain", 1, 1)] * place, ("append", 1, 1), *[("plain", 1, 1)] * (20 - place)])
    hidden = SnapshotFilter(excluded={1: place})
    asked = MeasuredRange(0, 21, Isolation.READ_COMMITTED, 1, hidden)
    found = measure(counted.driven.store, counted.driven.ordinal(), counted.driven.head(), asked, ReadBudget(0))
    assert sum(step.records for step in found.steps) == 20
    assert not any(step.first_offset <= place < step.end_offset for step in found.steps)


def commits(counted: CountedLog, start: int, end: int, *, batches_max: int = 10_000) -> list[tuple[int, int, int]]:
    """Producers of what was committed, where it begins and where it ends, asked for in turns."""
    found: list[tuple[int, int, int]] = []
    while start < end:
        budget = ReadBudget(0, batches=batches_max)
        part = committed_in(counted.driven.store, counted.driven.ordinal(), counted.driven.head(), start, end, budget)
        assert part.next_offset > start
        found += [(each.producer_id, each.first_offset, each.marker_offset) for each in part.transactions]
        start = part.next_offset
    return found


def test_commits_are_found_wherever_the_budget_ends() -> None:
    counted = performed(
        [*MIXED, ("append", 1, 2), ("append", 2, 2), ("append", 1, 1), ("commit", 1, 1), ("commit", 2, 1)]
    )
    end = counted.naive.end
    whole = commits(counted, 0, end)
    first, last = whole[0], whole[-2]
    assert len(whole) == 10
    assert first[1:] == (0, 3)
    assert last[1:] == (end - 7, end - 2), "it begins with its first batch and not with the last one"
    assert all(begin < marker for _, begin, marker in whole)
    assert commits(counted, 0, end, batches_max=SEEK_COST_BATCHES + 1) == whole
    assert commits(counted, 3, end - 1) == whole[:-1]
    assert commits(counted, 4, end) == whole[1:]


def test_within_a_long_stretch_a_measurement_ends_with_its_budget() -> None:
    driven = DrivenLog()
    driven.create()
    for _ in range(20):
        driven.append(Batch())
    asked = MeasuredRange(0, 20, Isolation.READ_COMMITTED, 1)
    found = measure(driven.store, driven.ordinal(), driven.head(), asked, ReadBudget(0, batches=SEEK_COST_BATCHES + 5))
    assert found.next_offset == sum(step.records for step in found.steps) == 5


def test_whole_stretches_cost_some_of_the_budget_too() -> None:
    counted = performed([("plain", 1, 1)] * 80)
    asked = MeasuredRange(0, 80, Isolation.READ_COMMITTED, 1)
    found = measure(
        counted.driven.store, counted.driven.ordinal(), counted.driven.head(), asked, ReadBudget(0, batches=12)
    )
    assert 4 < found.next_offset < 40
    assert sum(step.records for step in found.steps) == found.next_offset


def test_a_transaction_that_only_left_its_marker_is_not_listed() -> None:
    driven = DrivenLog()
    driven.create()
    driven.end(transactional(), COMMIT)
    assert committed_in(driven.store, driven.ordinal(), driven.head(), 0, 1, ReadBudget(0)) == Commits((), 1)


def test_a_list_of_commits_goes_no_further_than_its_range_ends_inside_a_batch() -> None:
    counted = performed([("append", 1, 3), ("commit", 1, 1)])
    budget = ReadBudget(0, batches=SEEK_COST_BATCHES + 1)
    assert committed_in(counted.driven.store, counted.driven.ordinal(), counted.driven.head(), 0, 2, budget) == Commits(
        (), 2
    )


def test_payloads_that_are_not_read_have_their_bytes_all_the_same() -> None:
    """A large batch lies in a segment, and only its header is read."""
    driven = DrivenLog(config=SHORT_STRETCHES)
    driven.create()
    assert driven.append(Batch(count=1, payload=b"x" * 300_000)).error is None
    found = measure(
        driven.store, driven.ordinal(), driven.head(), MeasuredRange(0, 1, Isolation.READ_COMMITTED, 1), ReadBudget(0)
    )
    assert found.steps[0].size_bytes > 300_000


def asked(driven: DrivenLog, start: int, end: int, *, step_bytes: int = 1) -> MeasureResult:
    (result,) = driven.ranges.measure_records(
        MeasureRecords([MeasureQuery(ORDERS_0, start, end)], step_bytes), CONTEXT
    ).result()
    return result


def test_what_lies_before_the_log_start_or_behind_the_end_is_not_measured(driven: DrivenLog) -> None:
    driven.append(Batch(count=3))
    assert asked(driven, 0, 90).measured.next_offset == 3
    assert asked(driven, 7, 90).measured == Measured((), 7)


def test_a_range_that_is_none_is_refused(driven: DrivenLog) -> None:
    for start, end in ((-1, 3), (4, 3)):
        with pytest.raises(Refused, match=f"start_offset is {start} and end_offset {end}"):
            asked(driven, start, end)
    with pytest.raises(Refused, match="step_bytes is 0 and must be positive"):
        asked(driven, 0, 1, step_bytes=0)
    unknown = MeasureRecords([MeasureQuery(ORDERS_0._replace(partition=9), 0, 1)], 1)
    (result,) = driven.ranges.measure_records(unknown, CONTEXT).result()
    assert code(result) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_stretch_of_markers_alone_is_no_step_and_a_step_begins_inside_a_batch_where_the_range_does() -> None:
    producers = range(1, 5)
    counted = performed([*(("append", each, 3) for each in producers), *(("commit", each, 1) for each in producers)])
    for _ in range(4):
        counted.perform("plain", 1, 1)
    found = measured(counted, 1, 20, step_bytes=1).steps
    assert [(step.first_offset, step.end_offset, step.records) for step in found] == [
        (1, 3, 2),
        (3, 6, 3),
        (6, 9, 3),
        (9, 12, 3),
        (16, 20, 4),
    ]
