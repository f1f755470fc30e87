"""How many records a reader has before it: markers never count, and aborted records not for a committed reader."""

from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.store import CommitGroup, Family
from partition_log import codec
from partition_log.counting import Counted, count_records
from partition_log.reading import BATCHES_READ_MAX, SEEK_COST_BATCHES, ReadBudget, oldest_unread_ms
from partition_log.requests import CountQuery, CountRecords, CountResult
from partition_log.state import Isolation, PartitionConfig
from tests.log.log_room import ABORT, COMMIT, CONTEXT, TOPIC, Batch, LogRoom, code, transactional
from tests.log.naive_log import NaiveLog, Written

ORDERS_0 = PartitionName(TOPIC, b"", 0)
SHORT_STRETCHES = PartitionConfig(index_interval_batches=4)

commands = st.lists(
    st.tuples(st.sampled_from(("plain", "append", "commit", "abort")), st.integers(1, 3), st.integers(1, 3)),
    max_size=40,
)


class CountedRoom:
    """A room, and the same log as a list."""

    def __init__(self) -> None:
        self.room = LogRoom(config=SHORT_STRETCHES)
        self.room.create()
        self.naive = NaiveLog()

    def perform(self, command: str, producer_id: int, count: int) -> None:
        known = self.naive.producer(producer_id)
        epoch = 0 if known is None else known.epoch
        if command in ("commit", "abort"):
            if known is not None and known.first_unstable is not None:
                self.end(producer_id, epoch, commits=command == "commit")
            return
        if command == "plain":
            producer_id, epoch, sequence, batch = -1, -1, -1, Batch(count=count)
        else:
            batches = [] if known is None else known.batches
            sequence = batches[-1].sequence + batches[-1].count if batches else 0
            batch = Batch(transactional(producer_id, epoch), sequence, count)
        assert self.room.append(batch).error is None
        is_transactional = command == "append"
        self.naive.written.append(Written(0, self.naive.end, count, producer_id, epoch, sequence, is_transactional))

    def end(self, producer_id: int, epoch: int, *, commits: bool) -> None:
        self.room.end(transactional(producer_id, epoch), COMMIT if commits else ABORT)
        marker = Written(0, self.naive.end, 1, producer_id, epoch, commits=commits, next_epoch=epoch + 1)
        self.naive.written.append(marker)

    def count(self, start_offset: int, budget: ReadBudget | None = None) -> Counted:
        budget = budget if budget is not None else ReadBudget(0)
        return count_records(self.room.store, self.room.ordinal(), self.room.head(), start_offset, budget)


@given(commands)
@settings(max_examples=60, deadline=None)
def test_counts_are_those_of_a_scan_from_every_offset(given_commands: list[tuple[str, int, int]]) -> None:
    room = CountedRoom()
    for command in given_commands:
        room.perform(*command)
    for start in range(room.naive.end + 2):
        assert room.count(start) == (*room.naive.count(start), room.naive.end)
        assert room.room.count(start) == room.naive.count(start)


@given(commands, st.integers(0, 60))
@settings(max_examples=30, deadline=None)
def test_what_retention_took_away_is_not_counted(given_commands: list[tuple[str, int, int]], log_start: int) -> None:
    room = CountedRoom()
    for command in given_commands:
        room.perform(*command)
    ordinal, head = room.room.ordinal(), room.room.head()
    kept = next((one.base_offset for one in room.naive.written if one.base_offset >= log_start), room.naive.end)
    kept = min(kept, head.last_stable_offset)
    gone: list[tuple[Family, bytes, bytes | None]] = [
        (family, row, None)
        for family in (Family.LOG, Family.STRETCHES)
        for row, _ in room.room.store.scan(family, codec.log_key(ordinal, 0), codec.log_key(ordinal, kept))
    ]
    room.room.store.write([CommitGroup(room.room.store.version() + 1, gone)])
    moved = replace(head, log_start_offset=kept)
    for start in range(room.naive.end + 1):
        counted = count_records(room.room.store, ordinal, moved, start, ReadBudget(0))
        assert (counted.records, counted.committed_records) == room.naive.count(max(start, kept))


def test_a_transaction_that_only_left_its_marker_is_no_lag() -> None:
    room = CountedRoom()
    room.perform("append", 1, 3)
    room.perform("commit", 1, 0)
    assert room.count(3) == Counted(0, 0, 4)
    assert room.count(0) == Counted(3, 3, 4)


def test_what_is_open_is_lag_to_the_high_watermark_only() -> None:
    room = CountedRoom()
    room.perform("plain", 0, 2)
    room.perform("append", 1, 3)
    room.perform("plain", 0, 1)
    assert room.count(0) == Counted(6, 2, 6)


def test_a_long_log_without_aborts_is_counted_within_a_stretch_or_two() -> None:
    room = CountedRoom()
    for _ in range(30):
        room.perform("append", 1, 1)
        room.perform("commit", 1, 0)
    budget = ReadBudget(0)
    batches_before = budget.batches
    assert room.count(1, budget) == Counted(29, 29, 60)
    assert batches_before - budget.batches <= SEEK_COST_BATCHES + 2 * SHORT_STRETCHES.index_interval_batches


def test_before_an_abort_a_count_goes_on_where_its_budget_ended() -> None:
    room = CountedRoom()
    for _ in range(5):
        room.perform("append", 1, 2)
        room.perform("commit", 1, 0)
    room.perform("append", 1, 2)
    room.perform("abort", 1, 0)
    first = room.count(0, ReadBudget(0, batches=3))
    assert first.next_offset < 18
    rest = room.count(first.next_offset)
    assert (first.records + rest.records, first.committed_records + rest.committed_records) == (12, 10)
    assert room.count(0, ReadBudget(0, batches=0)) == Counted(0, 0, 0)


def test_counts_survive_a_restart() -> None:
    room = CountedRoom()
    for _ in range(7):
        room.perform("append", 1, 2)
        room.perform("commit", 1, 0)
    before = [room.count(start) for start in range(22)]
    room.room = room.room.crash()
    assert [room.count(start) for start in range(22)] == before


def asked(room: LogRoom, *queries: CountQuery) -> list[CountResult]:
    return room.ranges.count_records(CountRecords(queries), CONTEXT).result()


def test_one_call_counts_many_partitions_under_their_positions() -> None:
    room = LogRoom()
    room.create(partition_count=2)
    room.append(Batch(count=3))
    room.append(Batch(transactional(), 0, 2), partition=1)
    first, second = asked(room, CountQuery(ORDERS_0, 1), CountQuery(ORDERS_0._replace(partition=1), 0))
    assert (first.counted, first.head) == (Counted(2, 2, 3), room.head())
    assert (second.counted, second.head) == (Counted(2, 0, 2), room.head(1))


def test_beyond_the_end_there_is_nothing() -> None:
    room = LogRoom()
    room.create()
    room.append(Batch())
    (result,) = asked(room, CountQuery(ORDERS_0, 7))
    assert result.counted == Counted(0, 0, 1)


def test_only_what_is_durable_is_counted() -> None:
    room = LogRoom()
    room.create()
    room.send(Batch())
    (result,) = asked(room, CountQuery(ORDERS_0, 0))
    assert result.counted == Counted(0, 0, 0)


def test_a_call_that_asks_for_much_is_told_where_to_go_on() -> None:
    room = LogRoom()
    room.create()
    room.append(Batch(count=2))
    many = [CountQuery(ORDERS_0, 0)] * (BATCHES_READ_MAX // SEEK_COST_BATCHES)
    results = asked(room, *many)
    assert results[0].counted == Counted(2, 2, 2)
    assert results[-1].counted == Counted(0, 0, 0)
    assert results[-1].head == room.head()


def test_a_partition_that_is_not_there_is_refused_for_itself() -> None:
    room = LogRoom()
    room.create()
    answer = room.ranges.count_records(
        CountRecords([CountQuery(ORDERS_0._replace(partition=9), 0), CountQuery(ORDERS_0, 0)]), CONTEXT
    )
    room.flush()
    assert [code(result) for result in answer.result()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_the_age_of_what_is_unread_is_looked_for_no_further_than_the_budget_goes() -> None:
    """Behind hidden batches lies what was written later: the last time that was seen is as good."""
    room = LogRoom()
    room.create()
    for sequence in range(20):
        room.append(Batch(transactional(), sequence, timestamp_ms=1_000 + sequence))
    room.end(transactional(), ABORT)
    room.append(Batch(timestamp_ms=5_000))
    unread = partial(oldest_unread_ms, room.store, room.ordinal(), room.head(), 0, Isolation.READ_COMMITTED)
    assert unread(ReadBudget(0)) == 5_000
    budget = ReadBudget(0, batches=3 * SEEK_COST_BATCHES)
    seen_ms = unread(budget)
    assert budget.is_spent
    assert seen_ms is not None
    assert seen_ms < 1_020
