"""Work of tasks: about the same bytes each, never more records than asked for, and together exactly the ranges."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pyspark_txnlog.read.ranges import OffsetRange
from pyspark_txnlog.read.splitting import SplitStep, gathered, split_ranges


def a_range(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(
        topic="t", topic_id=bytes(16), partition=partition, start_offset=start, end_offset=end, leader_epoch=7
    )


def bounds(pieces: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(found.partition, found.start_offset, found.end_offset) for found in pieces]


def even(start: int, end: int, size_bytes: int = 1) -> list[SplitStep]:
    """A step for each ten offsets; each record has as many bytes."""
    return [SplitStep(at, at + 10, 10, 10 * size_bytes) for at in range(start, end, 10)]


def test_ranges_with_more_bytes_are_cut_into_more_pieces() -> None:
    ranges = [a_range(0, 100), a_range(0, 10, 1), a_range(50, 350, 2)]
    pieces = bounds(split_ranges(ranges, [even(0, 100), even(0, 10), even(50, 350)], 8, 0))
    assert pieces == [
        (0, 0, 50),
        (0, 50, 100),
        (1, 0, 10),
        *((2, 50 + 50 * number, 100 + 50 * number) for number in range(6)),
    ]


def test_large_records_count_for_what_they_weigh_and_hidden_ones_for_nothing() -> None:
    steps = [*even(0, 40, 1_000), SplitStep(900, 1_000, 100, 40_000)]
    assert bounds(split_ranges([a_range(0, 1_000)], [steps], 4, 0)) == [
        (0, 0, 20),
        (0, 20, 40),
        (0, 40, 950),
        (0, 950, 1_000),
    ]


def test_a_range_of_hidden_records_alone_is_one_piece() -> None:
    assert bounds(split_ranges([a_range(0, 500)], [[]], 9, 3)) == [(0, 0, 500)]


def test_a_piece_keeps_the_epoch_in_which_its_end_was_planned() -> None:
    assert {piece.leader_epoch for piece in split_ranges([a_range(0, 100)], [even(0, 100)], 3, 7)} == {7}


def test_no_piece_shows_more_records_than_asked_for() -> None:
    steps = [SplitStep(0, 10, 4, 40), SplitStep(10, 20, 10, 100), SplitStep(90, 100, 3, 30)]
    assert bounds(split_ranges([a_range(0, 100)], [steps], 0, 5)) == [
        (0, 0, 11),
        (0, 11, 16),
        (0, 16, 90),
        (0, 90, 100),
    ]


def test_a_part_ends_before_a_thin_step_that_is_too_much_for_it() -> None:
    compacted = [SplitStep(at, at + 1_000, 4, 40) for at in range(0, 4_000, 1_000)]
    assert bounds(split_ranges([a_range(0, 4_000)], [compacted], 0, 9)) == [(0, 0, 2_000), (0, 2_000, 4_000)]


measured = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(1, 30), st.integers(1, 5_000)), max_size=8
)


@given(st.lists(measured, max_size=4), st.integers(0, 40), st.integers(0, 20))
def test_pieces_cover_each_range_once_without_gaps_and_within_the_limit(
    all_steps: list[list[tuple[int, int, int, int]]], min_partitions: int, records_max: int
) -> None:
    ranges, steps = [], []
    for number, parts in enumerate(all_steps):
        at, found = 7, []
        for gap, length, records, size in parts:
            found.append(SplitStep(at + gap, at + gap + length, min(records, length), size))
            at += gap + length
        ranges.append(a_range(7, at + 1, number))
        steps.append(found)
    pieces = split_ranges(ranges, steps, min_partitions, records_max)
    assert all(piece.offset_count > 0 for piece in pieces)
    for whole, found in zip(ranges, steps, strict=True):
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        assert mine[0].start_offset == whole.start_offset
        assert mine[-1].end_offset == whole.end_offset
        assert all(one.end_offset == other.start_offset for one, other in itertools.pairwise(mine))
        for piece in mine if records_max else ():
            shown = [
                min(step.records, min(step.end_offset, piece.end_offset) - max(step.first_offset, piece.start_offset))
                for step in found
            ]
            assert sum(records for records in shown if records > 0) <= records_max


def test_small_ranges_share_tasks_up_to_a_size() -> None:
    ranges = [a_range(0, 10, partition) for partition in range(6)]
    tasks = gathered(ranges, [40, 60, 1, None, 0, 250], 100)
    assert [[found.partition for found in task] for task in tasks] == [[0, 1], [2], [3], [4], [5]]


@given(st.lists(st.none() | st.integers(0, 150), max_size=12))
def test_every_range_is_the_work_of_one_task_and_no_task_shares_too_much(sizes: list[int | None]) -> None:
    ranges = [a_range(0, 10, partition) for partition in range(len(sizes))]
    tasks = gathered(ranges, sizes, 100)
    assert [found for task in tasks for found in task] == ranges
    of = dict(zip(range(len(sizes)), sizes, strict=True))
    for task in tasks:
        sharing = [of[found.partition] for found in task]
        assert len(sharing) == 1 or (None not in sharing and sum(size or 0 for size in sharing) <= 100)
