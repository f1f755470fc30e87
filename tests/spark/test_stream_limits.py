"""The size of a micro-batch, and the moments when there is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_txnlog.options import TriggerLimits
from pyspark_txnlog.read.ranges import OffsetRange
from pyspark_txnlog.read.splitting import SplitStep
from pyspark_txnlog.read.stream_limits import is_held_back, is_measured, limited


def spread(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(
        topic="t", topic_id=bytes(16), partition=partition, start_offset=start, end_offset=end, leader_epoch=0
    )


def test_offsets_are_shared_by_size() -> None:
    ranges = [spread(0, 0, 100), spread(1, 50, 350), spread(2, 7, 7)]
    found = limited(TriggerLimits(offsets_max=40), ranges, [[], [], []])
    assert [each.offset_count for each in found] == [10, 30, 0]


def test_records_are_counted_as_they_are_shown() -> None:
    ranges = [spread(0, 0, 1_000)]
    steps = [[SplitStep(10, 20, 10, 100), SplitStep(900, 910, 10, 100)]]
    (found,) = limited(TriggerLimits(records_max=15), ranges, steps)
    assert found.end_offset == 905


def test_a_micro_batch_ends_before_a_thin_step_that_is_too_much_for_it() -> None:
    """A cut inside it would take as many offsets as records are allowed, with almost no record."""
    steps = [[SplitStep(at, at + 1_000, 4, 40) for at in range(0, 4_000, 1_000)]]
    (found,) = limited(TriggerLimits(records_max=9), [spread(0, 0, 4_000)], steps)
    assert found.end_offset == 2_000
    (found,) = limited(TriggerLimits(records_max=3), [spread(0, 0, 4_000)], steps)
    assert found.end_offset == 3, "a limit below the first step is still kept"


def test_bytes_are_cut_inside_a_step() -> None:
    steps = [[SplitStep(0, 10, 10, 1_000)]]
    (found,) = limited(TriggerLimits(bytes_max=500), [spread(0, 0, 10)], steps)
    assert found.end_offset == 5


def test_a_record_larger_than_the_limit_is_read_all_the_same() -> None:
    steps = [[SplitStep(0, 1, 1, 1_000)]]
    (found,) = limited(TriggerLimits(bytes_max=10), [spread(0, 0, 1)], steps)
    assert found.offset_count == 1


@pytest.mark.parametrize(
    ("offsets", "waited_ms", "is_held"),
    [(9, 5, True), (10, 5, False), (9, 100, False), (9, None, False), (0, 5, True)],
)
def test_a_minimum_holds_back_but_not_for_ever(offsets: int, waited_ms: int | None, *, is_held: bool) -> None:
    limits = TriggerLimits(offsets_min=10, delay_ms_max=100)
    assert is_held_back(limits, [spread(0, 0, offsets)], waited_ms) is is_held


def test_without_a_minimum_nothing_is_held_back() -> None:
    assert not is_held_back(TriggerLimits(), [spread(0, 0, 1)], 0)


def test_a_partition_is_looked_at_until_it_shows_as_much_as_a_micro_batch_may_have() -> None:
    assert not is_measured(TriggerLimits(), [])
    assert is_measured(TriggerLimits(), [SplitStep(0, 1, 1, 1)])
    assert not is_measured(TriggerLimits(records_max=2), [SplitStep(0, 1, 1, 1)])
    assert not is_measured(TriggerLimits(bytes_max=2), [SplitStep(0, 1, 1, 1)])


@st.composite
def measured_ranges(draw: st.DrawFn) -> tuple[OffsetRange, list[SplitStep]]:
    """A range with records at every offset of its steps, and none between them."""
    at = start = draw(st.integers(0, 50))
    steps: list[SplitStep] = []
    for gap, count, size in draw(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(1, 9)), max_size=4)
    ):
        at += gap
        steps.append(SplitStep(at, at + count, count, count * size))
        at += count
    return spread(0, start, at + draw(st.integers(0, 5))), steps


def shown(end: int, steps: list[SplitStep]) -> int:
    return sum(max(0, min(step.end_offset, end) - step.first_offset) for step in steps)


@given(st.lists(measured_ranges(), max_size=4), st.integers(1, 50), st.integers(0, 50), st.integers(0, 200))
def test_limits_hold_and_a_stream_always_comes_to_its_end(
    found: list[tuple[OffsetRange, list[SplitStep]]], records_max: int, offsets_max: int, bytes_max: int
) -> None:
    ranges, steps = [each[0] for each in found], [each[1] for each in found]

    taken = limited(TriggerLimits(records_max=records_max, offsets_max=offsets_max, bytes_max=bytes_max), ranges, steps)

    assert sum(shown(each.end_offset, measured) for each, measured in zip(taken, steps, strict=True)) <= records_max
    assert not offsets_max or sum(each.offset_count for each in taken) <= offsets_max
    assert all(0 <= one.offset_count <= all_.offset_count for one, all_ in zip(taken, ranges, strict=True))
    assert [each.start_offset for each in taken] == [each.start_offset for each in ranges]
    if any(each.offset_count for each in ranges):
        assert any(each.offset_count for each in taken)
