"""Reads of a micro-batch of snapshots, and its offsets in the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from coordinator_protocol.snapshots import SnapshotFilter
from pyspark_txnlog.options import SourceOptions, Topics
from pyspark_txnlog.read.ranges import DataLoss, OffsetRange, Positions
from pyspark_txnlog.read.stream_offsets import (
    InvalidCheckpoint,
    StreamPosition,
    Vector,
    as_positions,
    from_json,
    go_on,
    standings,
    to_json,
)
from pyspark_txnlog.read.stream_snapshots import delta_ranges

STRICT = SourceOptions(endpoint="h:1", topics=Topics(names=("t",)), isolation="snapshot")
LENIENT = replace(STRICT, is_loss_fatal=False)
BEFORE: Vector = {("t", 0): StreamPosition(b"i" * 16, 10, 0, {1: 4, 2: 7})}


def at(
    earliest: int, end: int, excluded: Mapping[int, int], *, topic_id: bytes = b"i" * 16, epoch: int = 0
) -> Positions:
    return Positions(
        topic="t", topic_id=topic_id, partition=0, earliest=earliest, end=end, leader_epoch=epoch, excluded=excluded
    )


def delta(options: SourceOptions, found: Positions) -> list[OffsetRange]:
    return delta_ranges(options, BEFORE, [found], go_on(options, BEFORE, [found]))


def test_what_was_excluded_and_is_finished_comes_beside_what_the_log_has_grown_by() -> None:
    finished, grown = delta(STRICT, at(0, 20, {2: 7, 3: 15}, epoch=1))
    assert (finished.start_offset, finished.end_offset, finished.leader_epoch) == (4, 10, 0)
    assert finished.shown == SnapshotFilter(only={1: 4})
    assert (grown.start_offset, grown.end_offset, grown.leader_epoch) == (10, 20, 1)
    assert grown.shown == SnapshotFilter({2: 7, 3: 15})


def test_a_micro_batch_is_planned_from_its_two_ends_alone() -> None:
    found = at(3, 20, {2: 7})
    end = from_json(json.loads(json.dumps(to_json(standings(go_on(STRICT, BEFORE, [found]), is_end=True)))))
    assert end == {("t", 0): StreamPosition(b"i" * 16, 20, 0, {2: 7})}
    (repeated,) = as_positions(end, is_snapshot=True)
    assert delta(STRICT, repeated) == delta(STRICT, found)


def test_a_stream_that_begins_at_the_end_still_gets_what_was_open_there() -> None:
    range_ = OffsetRange(
        topic="t",
        topic_id=b"i" * 16,
        partition=0,
        start_offset=10,
        end_offset=10,
        leader_epoch=0,
        shown=SnapshotFilter({1: 4}),
    )
    assert standings([range_])["t", 0].excluded == {1: 4}
    assert not standings([replace(range_, start_offset=3)])["t", 0].excluded


def test_records_of_a_transaction_that_was_waited_for_are_gone() -> None:
    with pytest.raises(DataLoss, match="waited for at 4"):
        delta(STRICT, at(6, 20, {2: 7}))
    with pytest.warns(RuntimeWarning, match="records of it are gone"):
        finished, _ = delta(LENIENT, at(6, 20, {2: 7}))
    assert finished.start_offset == 6


def test_records_of_a_transaction_that_is_still_waited_for_are_gone() -> None:
    """It begins where the log does by now, and something of it lay before."""
    found = at(6, 20, {1: 6, 2: 7})
    with pytest.raises(DataLoss, match="waited for at 4"):
        delta(STRICT, found)
    with pytest.warns(RuntimeWarning, match="records of it are gone"):
        (grown,) = delta(LENIENT, found)
    assert standings([grown], is_end=True)["t", 0].excluded == {1: 6, 2: 7}


def test_of_another_topic_nothing_is_waited_for() -> None:
    with pytest.warns(RuntimeWarning, match="deleted and created again"):
        (grown,) = delta(LENIENT, at(0, 5, {}, topic_id=b"o" * 16))
    assert grown.start_offset == 0


def test_a_checkpoint_that_waits_is_of_streams_of_snapshots_only() -> None:
    with pytest.raises(InvalidCheckpoint, match="set isolationLevel to snapshot"):
        go_on(replace(STRICT, isolation="read_committed"), BEFORE, [at(0, 20, {})])
