"""Ranges: fixed once, exact, and refused where they cannot be kept."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from coordinator_client.errors import Rejected
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.snapshots import CompactionProgress, SnapshotFilter
from pyspark_txnlog.bounds import FROM_EARLIEST, TO_LATEST, InvalidOption, Position
from pyspark_txnlog.options import SourceOptions, Topics
from pyspark_txnlog.read.ranges import DataLoss, OffsetRange, Positions, plan_ranges
from pyspark_txnlog.read.reading import advised

TOPIC_ID = bytes(16)


def options(
    starting: Mapping[int, int | Position] | None = None,
    ending: Mapping[int, int | Position] | None = None,
    *,
    is_loss_fatal: bool = True,
) -> SourceOptions:
    return SourceOptions(
        endpoint="h:1",
        topics=Topics(names=("t",)),
        starting=FROM_EARLIEST if starting is None else {"t": places(starting)},
        ending=TO_LATEST if ending is None else {"t": places(ending)},
        is_loss_fatal=is_loss_fatal,
    )


def places(given: Mapping[int, int | Position]) -> dict[int, Position]:
    return {partition: Position(place) if isinstance(place, int) else place for partition, place in given.items()}


def positions(*bounds: tuple[int, int]) -> list[Positions]:
    return [
        Positions(topic="t", topic_id=TOPIC_ID, partition=number, earliest=earliest, end=end)
        for number, (earliest, end) in enumerate(bounds)
    ]


def bounds(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(found.partition, found.start_offset, found.end_offset) for found in ranges]


def test_a_read_goes_from_the_first_offset_there_is_to_the_end() -> None:
    assert bounds(plan_ranges(options(), positions((0, 10), (5, 5), (7, 20)))) == [(0, 0, 10), (1, 5, 5), (2, 7, 20)]


def test_a_batch_read_carries_the_progress_of_compaction() -> None:
    (found,) = positions((0, 10))
    snapped = replace(found, excluded={1: 4}, compaction=CompactionProgress(9, 2))
    (planned,) = plan_ranges(options(), [snapped])
    assert planned.shown == SnapshotFilter({1: 4}, compaction=CompactionProgress(9, 2))


def test_a_snapshot_of_which_records_are_gone_is_to_be_taken_anew() -> None:
    (found,) = positions((0, 10))
    (planned,) = plan_ranges(options(), [replace(found, excluded={})])

    def rows() -> Iterator[pa.RecordBatch]:
        raise Rejected(ErrorCode.OFFSET_OUT_OF_RANGE, ErrorClass.REJECTED, "compacted")
        yield

    with pytest.raises(Rejected, match="Load the DataFrame again"):
        list(advised(planned, rows()))


def test_offsets_can_be_chosen_for_each_partition() -> None:
    asked = options({0: 3, 1: -2}, {0: 9, 1: -1})
    assert bounds(plan_ranges(asked, positions((0, 10), (5, 8)))) == [(0, 3, 9), (1, 5, 8)]


def test_offsets_that_miss_a_partition_are_refused() -> None:
    with pytest.raises(InvalidOption, match="startingOffsets must name every partition that is read; it lacks t-1"):
        plan_ranges(options({0: 3}), positions((0, 10), (0, 10)))


def test_offsets_for_a_partition_that_is_not_read_are_refused() -> None:
    with pytest.raises(InvalidOption, match="endingOffsets names partitions that are not read: t-4"):
        plan_ranges(options(ending={0: 3, 4: 1}), positions((0, 10)))


def test_an_end_that_is_not_decided_yet_is_refused_and_never_waited_for() -> None:
    with pytest.raises(InvalidOption, match=r"t-0 up to 11, and for read_committed it ends at 10"):
        plan_ranges(options(ending={0: 11}), positions((0, 10)))


def test_a_start_behind_the_chosen_end_is_refused() -> None:
    with pytest.raises(InvalidOption, match="the read begins t-0 at 8, behind its end 5"):
        plan_ranges(options({0: 8}, {0: 5}), positions((0, 10)))


def test_records_that_are_gone_fail_the_read() -> None:
    with pytest.raises(DataLoss, match="t-0 begins at 5 and the read at 3"):
        plan_ranges(options({0: 3}), positions((5, 10)))


def test_records_that_are_gone_are_passed_over_on_request() -> None:
    asked = options({0: 3}, is_loss_fatal=False)
    with pytest.warns(RuntimeWarning, match="records before it are gone"):
        assert bounds(plan_ranges(asked, positions((5, 10)))) == [(0, 5, 10)]


def test_a_start_behind_the_end_of_the_log_means_that_records_are_gone() -> None:
    with pytest.raises(DataLoss, match="t-0 ends at 10 for read_committed and the read would begin at 30"):
        plan_ranges(options({0: 30}), positions((0, 10)))


START, END = Position(6, leader_epoch=1), Position(9, leader_epoch=1)


def parted(parted_at: Mapping[Position, int]) -> list[Positions]:
    return [
        Positions(topic="t", topic_id=TOPIC_ID, partition=0, earliest=0, end=20, leader_epoch=7, parted_at=parted_at)
    ]


def test_a_range_keeps_the_epoch_in_which_its_end_was_planned() -> None:
    planned = plan_ranges(options({0: START}, {0: END}), parted({}))
    assert bounds(planned) == [(0, 6, 9)]
    assert {piece.leader_epoch for piece in planned} == {7}


@pytest.mark.parametrize(
    ("parted_at", "what"),
    [
        (
            {START: 4},
            "startingOffsets is of a log of t-0 that had more: .* offset 6 in leader epoch 1 .* from offset 4 on",
        ),
        ({END: 8}, "endingOffsets is of a log of t-0 that had more: .* offset 9 in leader epoch 1 .* from offset 8 on"),
    ],
)
def test_an_offset_of_another_log_fails_the_read(parted_at: Mapping[Position, int], what: str) -> None:
    with pytest.raises(DataLoss, match=what):
        plan_ranges(options({0: START}, {0: END}), parted(parted_at))


@pytest.mark.parametrize(
    ("parted_at", "left"),
    [({START: 4}, (0, 4, 9)), ({END: 8}, (0, 6, 8)), ({START: 4, END: 4}, (0, 4, 4)), ({END: 5}, (0, 5, 5))],
)
def test_what_both_logs_have_and_what_is_new_is_read_on_request(
    parted_at: Mapping[Position, int], left: tuple[int, int, int]
) -> None:
    with pytest.warns(RuntimeWarning, match="it went another way from offset|the read would begin at 6"):
        assert bounds(plan_ranges(options({0: START}, {0: END}, is_loss_fatal=False), parted(parted_at))) == [left]


def test_a_range_travels_to_the_workers() -> None:
    (found,) = plan_ranges(options(), positions((0, 10)))
    assert pickle.loads(pickle.dumps(found)) == found
