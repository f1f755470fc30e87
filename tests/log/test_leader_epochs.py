"""Leader epochs: their rises, the answers that carry them, and the refusals to a reader of another line of the log."""

from __future__ import annotations

from random import Random

import pytest

from coordinator_protocol.batch import BatchHeader, payload_of, verify_batch
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.incarnation import FIRST, Incarnation, IncarnationCause, first_epoch, next_incarnation
from coordinator_runtime.ports import AllowAll, CallContext, PartitionName, Permission, ResourceType
from coordinator_runtime.shard_table import ShardState
from coordinator_runtime.store import CommitGroup, Family
from partition_log.catalog.shard import ORDINALS_SKIPPED
from partition_log.epoch_rows import encode_epoch, epoch_key
from partition_log.leadership import Diverged, Divergence
from partition_log.requests import EpochEndResult, EpochQuery, ListOffsets, OffsetForLeaderEpoch, OffsetQuery
from partition_log.state import LeaderEpoch
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    CONTEXT,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    code,
    offsets_of,
    transactional,
)

TX = transactional()
NOW_S = 58_000_000
"""Seconds since 2025, when these tests play."""


@pytest.fixture
def driven(driven: DrivenLog) -> DrivenLog:
    driven.clock.step_wall(1_735_689_600_000 + NOW_S * 1_000 - driven.clock.wall_ms())
    return driven


def epochs_of_batches(driven: DrivenLog) -> list[tuple[int, int]]:
    """First offset and leader epoch of every batch, markers too."""
    result = driven.read(isolation=UNCOMMITTED, is_raw=True)
    for _header, encoded in result.batches:
        verify_batch(encoded)
    return [(header.base_offset, header.leader_epoch) for header, _encoded in result.batches]


def test_a_restart_that_lost_nothing_stays_in_its_epoch(driven: DrivenLog) -> None:
    driven.append(Batch())
    driven.append(Batch(TX, 0))
    driven.end(TX, COMMIT)
    restarted = driven.crash()
    restarted.append(Batch())
    assert epochs_of_batches(restarted) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    assert restarted.head().leadership == driven.head().leadership
    assert [epoch.epoch for epoch in restarted.head().leadership.history] == [0]


def test_another_line_begins_in_a_new_epoch_before_it_serves(driven: DrivenLog) -> None:
    driven.append(Batch(count=3))
    backup = driven.backup()
    driven.append(Batch(count=2))
    restored = driven.restore(backup)
    leadership = restored.head().leadership
    assert (leadership.epoch, leadership.incarnation) == (NOW_S, NOW_S)
    assert leadership.history[1:] == (LeaderEpoch(NOW_S, 3, restored.clock.wall_ms(), IncarnationCause.RESTORE),)
    restored.append(Batch(TX, 0))
    restored.end(TX, COMMIT)
    assert epochs_of_batches(restored) == [(0, 0), (3, NOW_S), (4, NOW_S)]


def test_the_new_epoch_is_durable_and_begins_once(driven: DrivenLog) -> None:
    driven.append(Batch())
    restored = driven.restore(driven.backup())
    again = restored.crash().crash()
    assert again.head().leadership == restored.head().leadership


def test_no_reader_is_served_before_the_new_epoch_is_durable(driven: DrivenLog) -> None:
    """Otherwise its answers to a reader would be gone with the next crash."""
    driven.append(Batch())
    store = driven.backup()
    store.begin_incarnation(IncarnationCause.DATA_LOSS, driven.clock.wall_ms())
    cut_short = DrivenLog(store, driven.clock)
    assert code(cut_short.read()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cut_short = cut_short.crash()
    assert code(cut_short.read()) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cut_short.flush()
    assert cut_short.head().leadership.history[-1] == LeaderEpoch(
        NOW_S, 1, driven.clock.wall_ms(), IncarnationCause.DATA_LOSS
    )


def test_a_backup_that_is_restored_twice_begins_two_lines(driven: DrivenLog) -> None:
    driven.append(Batch())
    backup = driven.backup()
    first = driven.restore(backup)
    first.clock.step_wall(5_000)
    assert first.restore(backup).head().leadership.epoch == NOW_S + 5
    assert first.head().leadership.epoch == NOW_S


def test_what_is_created_in_a_later_line_is_in_no_epoch_of_an_earlier_one(driven: DrivenLog) -> None:
    restored = driven.restore(driven.backup())
    restored.create("later")
    assert restored.head(topic="later").leadership.history[0].epoch == NOW_S
    assert restored.ordinal(topic="later") == 2 + ORDINALS_SKIPPED
    restored.create("latest")
    assert restored.ordinal(topic="latest") == 3 + ORDINALS_SKIPPED
    assert restored.crash().head(topic="later").leadership == restored.head(topic="later").leadership


def test_a_head_without_its_epochs_fails_its_shard(driven: DrivenLog) -> None:
    driven.append(Batch())
    key = epoch_key(driven.ordinal(), 0)
    driven.store.write([CommitGroup(driven.store.version() + 1, [(Family.PARTITIONS, key, None)])])
    driven.store.sync()
    restarted = driven.crash()
    shard = restarted.catalog.place(TOPIC, b"", 0).shard
    assert restarted.runtime.table.state(shard) is ShardState.FAILED


def test_a_head_from_before_the_newest_epoch_fails_its_shard(driven: DrivenLog) -> None:
    driven.append(Batch())
    newer = encode_epoch(LeaderEpoch(NOW_S, 1, 0, IncarnationCause.RESTORE))
    row = (Family.PARTITIONS, epoch_key(driven.ordinal(), NOW_S), newer)
    driven.store.write([CommitGroup(driven.store.version() + 1, [row])])
    driven.store.sync()
    restarted = driven.crash()
    shard = restarted.catalog.place(TOPIC, b"", 0).shard
    assert restarted.runtime.table.state(shard) is ShardState.FAILED


def test_an_epoch_begins_behind_the_records_of_open_transactions(driven: DrivenLog) -> None:
    driven.append(Batch())
    driven.append(Batch(TX, 0))
    assert driven.head().last_stable_offset == 1
    assert driven.restore(driven.backup()).head().leadership.history[-1].start_offset == 2


def lines(driven: DrivenLog) -> DrivenLog:
    """A log of three lines: three records in epoch 0, two more in the next, one in the last."""
    driven.append(Batch(count=3))
    driven = driven.restore(driven.backup())
    driven.append(Batch(count=2))
    driven.clock.step_wall(10_000)
    driven = driven.restore(driven.backup())
    driven.append(Batch())
    return driven


FIRST_LINE, SECOND, THIRD = 0, NOW_S, NOW_S + 10


@pytest.mark.parametrize(
    ("last_read_epoch", "offset", "diverging"),
    [
        (FIRST_LINE, 0, None),
        (FIRST_LINE, 3, None),
        (FIRST_LINE, 4, (FIRST_LINE, 3)),
        (SECOND, 3, None),
        (SECOND, 5, None),
        (SECOND, 6, (SECOND, 5)),
        (THIRD, 5, None),
        (THIRD, 6, None),
        (THIRD, 7, (THIRD, 6)),
        (SECOND + 1, 2, (SECOND, 2)),
        (SECOND + 1, 9, (SECOND, 5)),
        (THIRD + 1, 6, (THIRD, 6)),
        (-1, 4, (-1, 0)),
    ],
)
def test_a_reader_is_told_where_its_line_left_this_one(
    driven: DrivenLog, last_read_epoch: int, offset: int, diverging: tuple[int, int] | None
) -> None:
    result = lines(driven).read(fetch_offset=offset, last_read_epoch=last_read_epoch)
    if diverging is None:
        assert result.error is None
        return
    assert isinstance(result.error, Diverged)
    assert (result.error.code, result.error.divergence) == (ErrorCode.OFFSET_OUT_OF_RANGE, Divergence(*diverging))
    assert (result.batches, result.next_offset) == ((), offset)


@pytest.mark.parametrize(
    ("end_epoch", "end_offset", "diverging"),
    [
        (FIRST_LINE, 3, None),
        (FIRST_LINE, 4, (FIRST_LINE, 3)),
        (SECOND, 2, None),
        (SECOND, 6, (SECOND, 5)),
        (THIRD, 6, None),
        (THIRD, 7, (THIRD, 6)),
        # An epoch of a line that this log never was in: the end of the epoch before it is unknown.
        (SECOND + 1, 4, (SECOND, 4)),
        (SECOND + 1, 6, (SECOND, 5)),
        (-1, 4, (-1, 0)),
    ],
)
def test_a_range_is_served_as_long_as_all_before_its_end_is_what_it_was(
    driven: DrivenLog, end_epoch: int, end_offset: int, diverging: tuple[int, int] | None
) -> None:
    result = lines(driven).read(end_offset=end_offset, end_epoch=end_epoch)
    if diverging is None:
        assert result.error is None
        return
    assert isinstance(result.error, Diverged)
    assert (result.error.code, result.error.divergence) == (ErrorCode.OFFSET_OUT_OF_RANGE, Divergence(*diverging))
    assert f"planned in leader epoch {end_epoch}" in result.error.message
    assert (result.batches, result.next_offset) == ((), 0)


def epoch_ends(driven: DrivenLog, *queries: EpochQuery) -> list[EpochEndResult]:
    asked = driven.positions.offset_for_leader_epoch(OffsetForLeaderEpoch(queries), CONTEXT)
    driven.flush()
    return asked.result()


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (FIRST_LINE, (FIRST_LINE, 3)),
        (FIRST_LINE + 1, (FIRST_LINE, 3)),
        (SECOND, (SECOND, 5)),
        (SECOND + 1, (SECOND, 5)),
        (THIRD, (THIRD, 6)),
        (THIRD + 1, (-1, -1)),
        (-1, (-1, -1)),
        (-2, (-1, -1)),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(driven: DrivenLog, epoch: int, end: tuple[int, int]) -> None:
    (found,) = epoch_ends(lines(driven), EpochQuery(PartitionName(TOPIC, b"", 0), epoch))
    assert (found.error, found.epoch, found.end_offset) == (None, *end)


def test_an_epoch_before_the_first_one_ended_where_that_begins(driven: DrivenLog) -> None:
    """The topic was created again in a store that was restored: its first epoch is no longer 0."""
    restored = driven.restore(driven.backup())
    restored.create("later")
    restored.append(Batch(count=2), topic="later")
    name = PartitionName("later", b"", 0)
    found = epoch_ends(restored, EpochQuery(name, 0), EpochQuery(name, NOW_S))
    assert [(each.epoch, each.end_offset) for each in found] == [(0, 0), (NOW_S, 2)]


def test_ends_of_epochs_are_of_one_durable_moment(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 3))
    names = [PartitionName(TOPIC, b"", partition) for partition in (0, 1)]
    for partition in (0, 1):
        driven.send(Batch(), partition=partition)
    asked = OffsetForLeaderEpoch([EpochQuery(name, 0) for name in names])
    found = driven.positions.offset_for_leader_epoch(asked, CONTEXT).result()
    assert [each.end_offset for each in found] == [3, 0], "open transactions count"


def test_a_reader_with_another_current_epoch_gets_no_end(driven: DrivenLog) -> None:
    name = PartitionName(TOPIC, b"", 0)
    queries = [EpochQuery(name, FIRST_LINE, current) for current in (THIRD, SECOND, THIRD + 1)]
    found = epoch_ends(lines(driven), *queries, EpochQuery(PartitionName("missing", b"", 0), 0))
    assert [code(each) for each in found] == [
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [each.end_offset for each in found] == [3, -1, -1, -1]


def test_ends_of_epochs_need_describe() -> None:
    driven = DrivenLog(authorizer=_Reader())
    driven.create()
    (refused,) = epoch_ends(driven, EpochQuery(PartitionName(TOPIC, b"", 0), 0))
    assert code(refused) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


class _Reader(AllowAll):
    """A caller who may not describe topics."""

    def is_allowed(self, context: CallContext, permission: Permission, resource_type: ResourceType, name: str) -> bool:
        return permission is not Permission.DESCRIBE


def test_an_epoch_of_an_end_needs_the_end(driven: DrivenLog) -> None:
    with pytest.raises(Refused, match="end_epoch is that of end_offset, which is not set: set both"):
        driven.read(end_epoch=0)


@pytest.mark.parametrize("seed", range(20))
def test_a_range_that_names_the_epoch_of_its_end_is_read_as_it_was_planned_or_not_at_all(seed: int) -> None:
    rng = Random(seed)
    driven = DrivenLog()
    driven.clock.step_wall(1_735_689_600_000 + NOW_S * 1_000 - driven.clock.wall_ms())
    driven.create()
    backups, plans = [driven.backup()], [_Plan(driven)]
    for number in range(80):
        match rng.choices(("append", "back up", "restore", "plan", "read"), (6, 2, 1, 2, 8))[0]:
            case "append":
                driven.append(Batch(count=rng.randint(1, 3), payload=str(number).encode()))
            case "back up":
                backups.append(driven.backup())
            case "restore":
                driven.clock.step_wall(1_000)
                driven = driven.restore(rng.choice(backups))
            case "plan":
                plans.append(_Plan(driven))
            case _:
                rng.choice(plans).read_piece(driven, rng)
    driven.append(Batch(count=3))
    of_this_line = _Plan(driven)
    assert any(of_this_line.read_piece(driven, rng) for _ in range(20))


class _Plan:
    """A range up to the end that a log had, and what lay in it."""

    def __init__(self, driven: DrivenLog) -> None:
        end = driven.offsets(-1)[0]
        self.end_offset, self.epoch = end.offset, end.leader_epoch
        self.batches = self._batches(driven, 0, self.end_offset)

    def read_piece(self, driven: DrivenLog, rng: Random) -> bool:
        start_offset, end_offset = sorted(rng.randint(0, self.end_offset) for _ in range(2))
        if start_offset == end_offset:
            return False
        found = self._batches(driven, start_offset, end_offset, end_epoch=self.epoch)
        planned = [(header, payload) for header, payload in self.batches or () if header.last_offset >= start_offset]
        assert found is None or found == [each for each in planned if each[0].base_offset < end_offset]
        return found is not None

    @staticmethod
    def _batches(
        driven: DrivenLog, start_offset: int, end_offset: int, **fields: int | None
    ) -> list[tuple[BatchHeader, bytes]] | None:
        result = driven.read(fetch_offset=start_offset, end_offset=end_offset, bytes_max=1 << 20, **fields)
        if result.error is not None:
            assert code(result) is ErrorCode.OFFSET_OUT_OF_RANGE
            return None
        return [(header, bytes(payload_of(encoded))) for header, encoded in result.batches]


def test_a_fetch_names_the_epoch_of_what_lies_before_its_next_offset(driven: DrivenLog) -> None:
    driven = lines(driven)
    ends = [driven.read(end_offset=end).last_read_epoch for end in range(7)]
    assert ends == [None, FIRST_LINE, FIRST_LINE, FIRST_LINE, SECOND, SECOND, THIRD]
    assert driven.read(fetch_offset=6, last_read_epoch=THIRD).last_read_epoch == THIRD


def test_hidden_records_of_another_epoch_are_passed_in_it(driven: DrivenLog) -> None:
    """Otherwise a reader that saw nothing of them would be refused as diverged."""
    driven.append(Batch())
    driven = driven.restore(driven.backup())
    driven.append(Batch(TX, 0))
    driven.end(TX, ABORT)
    result = driven.read()
    assert (offsets_of(result), result.next_offset, result.last_read_epoch) == ([0], 3, NOW_S)
    assert driven.read(fetch_offset=3, last_read_epoch=NOW_S).error is None


def test_the_epoch_that_a_reader_takes_for_the_present_one_must_be_that(driven: DrivenLog) -> None:
    driven = lines(driven)
    assert driven.read(current_leader_epoch=THIRD).error is None
    assert code(driven.read(current_leader_epoch=SECOND)) is ErrorCode.FENCED_LEADER_EPOCH
    assert code(driven.read(current_leader_epoch=THIRD + 1)) is ErrorCode.UNKNOWN_LEADER_EPOCH
    queries = [OffsetQuery(PartitionName(TOPIC, b"", 0), -1, epoch) for epoch in (THIRD, SECOND, THIRD + 1)]
    found = driven.positions.list_offsets(ListOffsets(queries), CONTEXT)
    driven.flush()
    assert [code(result) for result in found.result()] == [
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]


def test_positions_come_with_their_epochs(driven: DrivenLog) -> None:
    driven.append(Batch(count=3, timestamp_ms=1_000))
    driven = driven.restore(driven.backup())
    driven.append(Batch(timestamp_ms=2_000))
    found = {time_ms: driven.offsets(time_ms)[0] for time_ms in (-2, -1, 1_500, 3_000)}
    assert {time_ms: (result.offset, result.leader_epoch) for time_ms, result in found.items()} == {
        -2: (0, 0),
        -1: (4, NOW_S),
        1_500: (3, NOW_S),
        3_000: (-1, None),
    }


@pytest.mark.parametrize("seed", range(40))
def test_who_names_the_epoch_it_read_is_never_shown_another_record_at_an_offset_it_has_read(seed: int) -> None:
    rng = Random(seed)
    driven = DrivenLog()
    driven.clock.step_wall(1_735_689_600_000 + NOW_S * 1_000 - driven.clock.wall_ms())
    driven.create()
    backups = [driven.backup()]
    readers = [EchoingReader(), EchoingReader()]
    for number in range(60):
        match rng.choices(("append", "back up", "crash", "restore", "read"), (6, 2, 1, 2, 8))[0]:
            case "append":
                driven.append(Batch(count=rng.randint(1, 3), payload=str(number).encode()))
            case "back up":
                backups.append(driven.backup())
            case "crash":
                driven = driven.crash()
            case "restore":
                driven.clock.step_wall(1_000)
                driven = driven.restore(rng.choice(backups))
            case _:
                rng.choice(readers).read(driven, bytes_max=rng.choice((1, 10_000)))
    whole = EchoingReader()
    for reader in (whole, *readers):
        assert any(not reader.read(driven) for _ in range(200)), "it comes to the end"
        assert reader.read_at == whole.read_at, "all of the present line, and nothing of a lost one"


class EchoingReader:
    """Reads on, names the epoch it has read, and forgets what it read behind the place where it diverged."""

    def __init__(self) -> None:
        self.offset = 0
        self.epoch: int | None = None
        self.began: list[tuple[int, int]] = []
        """First offset of each epoch that it read."""
        self.read_at: dict[int, bytes] = {}

    def read(self, driven: DrivenLog, **fields: int) -> bool:
        """Fetch once; False: there is nothing more."""
        result = driven.read(fetch_offset=self.offset, last_read_epoch=self.epoch, **fields)
        if isinstance(result.error, Diverged):
            self._go_back(result.error.divergence)
            return True
        assert result.error is None
        for header, encoded in result.batches:
            if not self.began or self.began[-1][1] != header.leader_epoch:
                self.began.append((header.base_offset, header.leader_epoch))
            for offset in range(max(header.base_offset, self.offset), header.last_offset + 1):
                assert offset not in self.read_at
                self.read_at[offset] = bytes(payload_of(encoded))
        is_end = result.next_offset == self.offset
        self.offset, self.epoch = result.next_offset, result.last_read_epoch
        return not is_end

    def _go_back(self, divergence: Divergence) -> None:
        later = [offset for offset, epoch in self.began if epoch > divergence.epoch]
        self.offset = min([divergence.end_offset, *later])
        self.began = [each for each in self.began if each[0] < self.offset]
        self.epoch = self.began[-1][1] if self.began else None
        self.read_at = {offset: payload for offset, payload in self.read_at.items() if offset < self.offset}


def test_an_incarnation_is_the_second_of_its_beginning_and_always_grows() -> None:
    def next_at(before: Incarnation, seconds: int) -> int:
        wall_ms = 1_735_689_600_000 + seconds * 1_000
        return next_incarnation(before, IncarnationCause.RESTORE, wall_ms).number

    assert next_at(FIRST, NOW_S) == NOW_S
    assert next_at(Incarnation(NOW_S, IncarnationCause.RESTORE), NOW_S) == NOW_S + 1
    assert next_at(Incarnation(NOW_S, IncarnationCause.RESTORE), -1) == NOW_S + 1
    assert first_epoch(3, Incarnation(NOW_S, IncarnationCause.RESTORE)) == NOW_S
    assert first_epoch(NOW_S + 7, Incarnation(NOW_S, IncarnationCause.RESTORE)) == NOW_S + 8
    assert first_epoch(3, FIRST) == 4
