"""Leader epochs: when they rise, what carries them, and what a reader of another line of the log is told."""

from __future__ import annotations

import pytest

from coordinator_protocol.batch import verify_batch
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.incarnation import FIRST, Incarnation, LineCause, first_epoch, next_incarnation
from coordinator_runtime.shard_table import ShardState
from coordinator_runtime.store import CommitGroup, Family
from partition_log.epoch_rows import epoch_key
from partition_log.state import LeaderEpoch
from tests.log.log_room import COMMIT, TOPIC, UNCOMMITTED, Batch, LogRoom, code, transactional

TX = transactional()
NOW_S = 58_000_000
"""Seconds since 2025, when these tests play."""


@pytest.fixture
def room(room: LogRoom) -> LogRoom:
    room.clock.step_wall(1_735_689_600_000 + NOW_S * 1_000 - room.clock.wall_ms())
    return room


def epochs_of_batches(room: LogRoom) -> list[tuple[int, int]]:
    """First offset and leader epoch of every batch, markers too."""
    result = room.read(isolation=UNCOMMITTED, is_raw=True)
    for _header, encoded in result.batches:
        verify_batch(encoded)
    return [(header.base_offset, header.leader_epoch) for header, _encoded in result.batches]


def test_a_restart_that_lost_nothing_stays_in_its_epoch(room: LogRoom) -> None:
    room.append(Batch())
    room.append(Batch(TX, 0))
    room.end(TX, COMMIT)
    restarted = room.crash()
    restarted.append(Batch())
    assert epochs_of_batches(restarted) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert restarted.head().leadership == room.head().leadership
    assert [epoch.epoch for epoch in restarted.head().leadership.history] == [0]


def test_another_line_begins_in_a_new_epoch_before_it_serves(room: LogRoom) -> None:
    room.append(Batch(count=3))
    backup = room.backup()
    room.append(Batch(count=2))
    restored = room.restore(backup)
    leadership = restored.head().leadership
    assert (leadership.epoch, leadership.incarnation) == (NOW_S, NOW_S)
    assert leadership.history[1:] == (LeaderEpoch(NOW_S, 3, restored.clock.wall_ms(), LineCause.RESTORE),)
    restored.append(Batch(TX, 0))
    restored.end(TX, COMMIT)
    assert epochs_of_batches(restored) == [(0, 0), (3, NOW_S), (4, NOW_S)]


def test_the_new_epoch_is_durable_and_begins_once(room: LogRoom) -> None:
    room.append(Batch())
    restored = room.restore(room.backup())
    again = restored.crash().crash()
    assert again.head().leadership == restored.head().leadership


def test_nobody_is_served_before_the_new_epoch_is_durable(room: LogRoom) -> None:
    """Otherwise what a reader was told in it would be gone with the next crash."""
    room.append(Batch())
    store = room.backup()
    store.begin_line(LineCause.DATA_LOSS, room.clock.wall_ms())
    cut_short = LogRoom(store, room.clock)
    assert code(cut_short.read()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cut_short = cut_short.crash()
    assert code(cut_short.read()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cut_short.flush()
    assert cut_short.head().leadership.history[-1] == LeaderEpoch(NOW_S, 1, room.clock.wall_ms(), LineCause.DATA_LOSS)


def test_a_backup_that_is_restored_twice_begins_two_lines(room: LogRoom) -> None:
    room.append(Batch())
    backup = room.backup()
    first = room.restore(backup)
    first.clock.step_wall(5_000)
    assert first.restore(backup).head().leadership.epoch == NOW_S + 5
    assert first.head().leadership.epoch == NOW_S


def test_what_is_created_in_a_later_line_is_in_no_epoch_of_an_earlier_one(room: LogRoom) -> None:
    restored = room.restore(room.backup())
    restored.create("later")
    assert restored.head(topic="later").leadership.history[0].epoch == NOW_S
    assert restored.crash().head(topic="later").leadership == restored.head(topic="later").leadership


def test_a_head_without_its_epochs_fails_its_shard(room: LogRoom) -> None:
    room.append(Batch())
    key = epoch_key(room.ordinal(), 0)
    room.store.write([CommitGroup(room.store.version() + 1, [(Family.PARTITIONS, key, None)])])
    room.store.sync()
    restarted = room.crash()
    shard = restarted.catalog.place(TOPIC, b"", 0).shard
    assert restarted.runtime.table.state(shard) is ShardState.FAILED


def test_an_incarnation_is_the_second_of_its_beginning_and_always_grows() -> None:
    def next_at(before: Incarnation, seconds: int) -> int:
        wall_ms = 1_735_689_600_000 + seconds * 1_000
        return next_incarnation(before, LineCause.RESTORE, wall_ms).number

    assert next_at(FIRST, NOW_S) == NOW_S
    assert next_at(Incarnation(NOW_S, LineCause.RESTORE), NOW_S) == NOW_S + 1
    assert next_at(Incarnation(NOW_S, LineCause.RESTORE), -1) == NOW_S + 1
    assert first_epoch(3, Incarnation(NOW_S, LineCause.RESTORE)) == NOW_S
    assert first_epoch(NOW_S + 7, Incarnation(NOW_S, LineCause.RESTORE)) == NOW_S + 8
    assert first_epoch(3, FIRST) == 4
