"""Offsets of a stream: the present ones, the ones that may follow, and the ones that are a loss."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_txnlog.bounds import Position
from pyspark_txnlog.options import SourceOptions, Topics
from pyspark_txnlog.read.ranges import DataLoss, Positions
from pyspark_txnlog.read.stream_offsets import (
    InvalidCheckpoint,
    Line,
    StreamPosition,
    as_positions,
    beginnings,
    behind_hidden,
    changed_incarnations,
    from_json,
    go_on,
    still_standing,
    to_json,
)

ID, OTHER_ID = bytes(16), bytes([1] * 16)
STRICT = SourceOptions(endpoint="h:1", topics=Topics(names=("t",)))
LENIENT = SourceOptions(endpoint="h:1", topics=Topics(names=("t",)), is_loss_fatal=False)


def at(
    earliest: int,
    end: int,
    *,
    partition: int = 0,
    topic_id: bytes = ID,
    epoch: int = 0,
    parted_at: Mapping[Position, int] | None = None,
) -> Positions:
    return Positions(
        topic="t",
        topic_id=topic_id,
        partition=partition,
        earliest=earliest,
        end=end,
        leader_epoch=epoch,
        parted_at=parted_at or {},
    )


def test_the_shape_is_that_of_kafka_with_ids_and_epochs_beside_it() -> None:
    assert to_json({("t", 1): StreamPosition(ID, 7, 2), ("t", 0): StreamPosition(ID, 5, None)}) == {
        "t": {"0": 5, "1": 7},
        "$topicIds": {"t": ID.hex()},
        "$leaderEpochs": {"t": {"1": 2}},
    }


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 20)),
        st.tuples(st.integers(0, 2**63 - 1), st.none() | st.integers(0, 9)),
    )
)
def test_offsets_come_back_from_a_checkpoint_as_they_were(found: dict[tuple[str, int], tuple[int, int | None]]) -> None:
    vector = {key: StreamPosition(key[0][:1].encode() * 16, *standing) for key, standing in found.items()}
    assert from_json(json.loads(json.dumps(to_json(vector)))) == vector


@pytest.mark.parametrize("strange", [{"t": {"0": 5}}, {"$topicIds": {}, "$leaderEpochs": {}, "t": {"0": 1}}, {"x": 1}])
def test_a_checkpoint_of_another_source_is_refused(strange: dict[str, Any]) -> None:
    with pytest.raises(InvalidCheckpoint, match="checkpointLocation of its own"):
        from_json(strange)


def test_the_end_of_a_micro_batch_says_where_that_began() -> None:
    begun = {("t", 0): StreamPosition(ID, 2, 0, {7: 1}), ("t", 1): StreamPosition(ID, 3, 0)}
    stands = {("t", 0): StreamPosition(ID, 5, 1), ("t", 1): StreamPosition(ID, 3, 0)}
    end = to_json(stands, begun)
    assert (from_json(end), beginnings(end)) == (stands, begun)
    assert beginnings(to_json(stands)) == stands, "offsets that begin a stream end nothing"


@pytest.mark.parametrize(
    ("now", "looked", "offset"),
    [
        (at(7, 9), 7, 7),
        (at(7, 9), 8, 7),
        (at(7, 9), 6, 5),
        (at(5, 9), 9, 5),
        (at(7, 9, topic_id=OTHER_ID), 9, 5),
        (at(7, 9, epoch=1), 9, 5),
    ],
)
def test_what_was_deleted_is_no_loss_where_it_was_seen_that_all_of_it_was_hidden(
    now: Positions, looked: int, offset: int
) -> None:
    stands = behind_hidden({("t", 0): StreamPosition(ID, 5, 0)}, [now], {Line(ID, 0, 5, 0): looked})
    assert stands == {("t", 0): StreamPosition(ID, offset, 0)}


def test_a_stream_still_stands_where_it_did_unless_the_log_is_another_one() -> None:
    before = {("t", 0): StreamPosition(ID, 5, 0)}
    assert still_standing(before, go_on(STRICT, before, [at(0, 9, epoch=1)])) == before
    with pytest.warns(RuntimeWarning, match="created again"):
        moved = go_on(LENIENT, before, [at(0, 9, topic_id=OTHER_ID, epoch=1), at(0, 4, partition=1)])
    assert still_standing(before, moved) == {("t", 0): StreamPosition(OTHER_ID, 0), ("t", 1): StreamPosition(ID, 0)}
    assert still_standing({("t", 0): StreamPosition(ID, 0, 3)}, moved[:1]) == {("t", 0): StreamPosition(OTHER_ID, 0)}


def test_a_new_partition_begins_at_its_beginning() -> None:
    ranges = go_on(STRICT, {("t", 0): StreamPosition(ID, 5, 0)}, [at(0, 9), at(0, 4, partition=1)])
    assert [(found.start_offset, found.end_offset) for found in ranges] == [(5, 9), (0, 4)]


@pytest.mark.parametrize(
    ("now", "message", "goes_on"),
    [
        (at(7, 9), "begins at 7 and the stream at 5", (7, 9)),
        (at(0, 3), "ends at 3 and the stream is at 5 already", (5, 5)),
        (at(0, 3, topic_id=OTHER_ID), "deleted and created again, or the checkpoint is of another cluster", (0, 3)),
        (at(0, 9, epoch=1, parted_at={Position(5, 0): 2}), "another way from offset 2 on", (2, 9)),
    ],
)
def test_a_loss_fails_the_stream_or_is_warned_of(now: Positions, message: str, goes_on: tuple[int, int]) -> None:
    before = {("t", 0): StreamPosition(ID, 5, 0)}
    with pytest.raises(DataLoss, match=message):
        go_on(STRICT, before, [now])
    with pytest.warns(RuntimeWarning, match=message):
        (found,) = go_on(LENIENT, before, [now])
    assert (found.start_offset, found.end_offset) == goes_on


def test_a_topic_that_is_gone_is_a_loss() -> None:
    with pytest.raises(DataLoss, match="t-0 is gone, and the stream was at 5 there"):
        go_on(STRICT, {("t", 0): StreamPosition(ID, 5, 0)}, [])


def test_a_new_leader_epoch_alone_is_no_loss_but_is_asked_about() -> None:
    before = {("t", 0): StreamPosition(ID, 5, 0)}
    now = at(0, 9, epoch=1)
    assert changed_incarnations(before, [now]) == [(now, Position(5, 0))]
    assert [found.start_offset for found in go_on(STRICT, before, [now])] == [5]
    assert (
        changed_incarnations(before, [at(0, 9)])
        == changed_incarnations(before, [at(0, 9, topic_id=OTHER_ID, epoch=1)])
        == []
    )
    assert changed_incarnations({("t", 0): StreamPosition(ID, 5, None)}, [now]) == []


@given(st.integers(0, 50), st.integers(0, 50))
def test_what_is_planned_from_both_ends_is_what_lies_between_them(start: int, count: int) -> None:
    end = {("t", 0): StreamPosition(ID, start + count, 0), ("t", 1): StreamPosition(ID, count, 0)}
    ranges = go_on(STRICT, {("t", 0): StreamPosition(ID, start, 0)}, as_positions(end))
    assert [(found.start_offset, found.end_offset) for found in ranges] == [(start, start + count), (0, count)]
