"""Counts of the records ahead of a reader: markers never count, and aborted records not for a committed reader."""

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
from tests.log.driven_log import ABORT, COMMIT, CONTEXT, TOPIC, Batch, DrivenLog, code, transactional
from tests.log.naive_log import NaiveLog, Written

ORDERS_0 = PartitionName(TOPIC, b"", 0)
SHORT_STRETCHES = PartitionConfig(index_interval_batches=4)

commands = st.lists(
    st.tuples(st.sampled_from(("plain", "append", "commit", "abort")), st.integers(1, 3), st.integers(1, 3)),
    max_size=40,
)


class CountedLog:
    """A log, and the same as a list."""

    def __init__(self) -> None:
        self.driven = DrivenLog(config=SHORT_STRETCHES)
        self.driven.create()
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
        assert self.driven.append(batch).error is None
        is_transactional = command == "append"
        self.naive.written.append(Written(0, self.naive.end, count, producer_id, epoch, sequence, is_transactional))

    def end(self, producer_id: int, epoch: int, *, commits: bool) -> None:
        self.driven.end(transactional(producer_id, epoch), COMMIT if commits else ABORT)
        marker = Written(0, self.naive.end, 1, producer_id, epoch, commits=commits, next_epoch=epoch + 1)
        self.naive.written.append(marker)

    def count(self, start_offset: int, budget: ReadBudget | None = None) -> Counted:
        budget = budget if budget is not None else ReadBudget(0)
        return count_records(self.driven.store, self.driven.ordinal(), self.driven.head(), start_offset, budget)


@given(commands)
@settings(max_examples=60, deadline=None)
def test_counts_are_those_of_a_scan_from_every_offset(given_commands: list[tuple[str, int, int]]) -> None:
    counted = CountedLog()
    for command in given_commands:
        counted.perform(*command)
    for start in range(counted.naive.end + 2):
        assert counted.count(start) == (*counted.naive.count(start), counted.naive.end)
        assert counted.driven.count(start) == counted.naive.count(start)


@given(commands, st.integers(0, 60))
@settings(max_examples=30, deadline=None)
def test_what_retention_took_away_is_not_counted(given_commands: list[tuple[str, int, int]], log_start: int) -> None:
    counted = CountedLog()
    for command in given_commands:
        counted.perform(*command)
    ordinal, head = counted.driven.ordinal(), counted.driven.head()
    kept = next((one.base_offset for one in counted.naive.written if one.base_offset >= log_start), counted.naive.end)
    kept = min(kept, head.last_stable_offset)
    gone: list[tuple[Family, bytes, bytes | None]] = [
        (family, row, None)
        for family in (Family.LOG, Family.STRETCHES)
        for row, _ in counted.driven.store.scan(family, codec.log_key(ordinal, 0), codec.log_key(ordinal, kept))
    ]
    counted.driven.store.write([CommitGroup(counted.driven.store.version() + 1, gone)])
    moved = replace(head, log_start_offset=kept)
    for start in range(counted.naive.end + 1):
        found = count_records(counted.driven.store, ordinal, moved, start, ReadBudget(0))
        assert (found.records, found.committed_records) == counted.naive.count(max(start, kept))


def test_a_transaction_that_only_left_its_marker_is_no_lag() -> None:
    counted = CountedLog()
    counted.perform("append", 1, 3)
    counted.perform("commit", 1, 0)
    assert counted.count(3) == Counted(0, 0, 4)
    assert counted.count(0) == Counted(3, 3, 4)


def test_what_is_open_is_lag_to_the_high_watermark_only() -> None:
    counted = CountedLog()
    counted.perform("plain", 0, 2)
    counted.perform("append", 1, 3)
    counted.perform("plain", 0, 1)
    assert counted.count(0) == Counted(6, 2, 6)


def test_a_long_log_without_aborts_is_counted_within_a_stretch_or_two() -> None:
    counted = CountedLog()
    for _ in range(30):
        counted.perform("append", 1, 1)
        counted.perform("commit", 1, 0)
    budget = ReadBudget(0)
    batches_before = budget.batches
    assert counted.count(1, budget) == Counted(29, 29, 60)
    assert batches_before - budget.batches <= SEEK_COST_BATCHES + 2 * SHORT_STRETCHES.index_interval_batches


def test_before_an_abort_a_count_goes_on_where_its_budget_ended() -> None:
    counted = CountedLog()
    for _ in range(5):
        counted.perform("append", 1, 2)
        counted.perform("commit", 1, 0)
    counted.perform("append", 1, 2)
    counted.perform("abort", 1, 0)
    first = counted.count(0, ReadBudget(0, batches=3))
    assert first.next_offset < 18
    rest = counted.count(first.next_offset)
    assert (first.records + rest.records, first.committed_records + rest.committed_records) == (12, 10)
    assert counted.count(0, ReadBudget(0, batches=0)) == Counted(0, 0, 0)


def test_counts_survive_a_restart() -> None:
    counted = CountedLog()
    for _ in range(7):
        counted.perform("append", 1, 2)
        counted.perform("commit", 1, 0)
    before = [counted.count(start) for start in range(22)]
    counted.driven = counted.driven.crash()
    assert [counted.count(start) for start in range(22)] == before


def asked(driven: DrivenLog, *queries: CountQuery) -> list[CountResult]:
    return driven.ranges.count_records(CountRecords(queries), CONTEXT).result()


def test_one_call_counts_many_partitions_under_their_positions() -> None:
    driven = DrivenLog()
    driven.create(partition_count=2)
    driven.append(Batch(count=3))
    driven.append(Batch(transactional(), 0, 2), partition=1)
    first, second = asked(driven, CountQuery(ORDERS_0, 1), CountQuery(ORDERS_0._replace(partition=1), 0))
    assert (first.counted, first.head) == (Counted(2, 2, 3), driven.head())
    assert (second.counted, second.head) == (Counted(2, 0, 2), driven.head(1))


def test_beyond_the_end_there_is_nothing() -> None:
    driven = DrivenLog()
    driven.create()
    driven.append(Batch())
    (result,) = asked(driven, CountQuery(ORDERS_0, 7))
    assert result.counted == Counted(0, 0, 1)


def test_only_what_is_durable_is_counted() -> None:
    driven = DrivenLog()
    driven.create()
    driven.send(Batch())
    (result,) = asked(driven, CountQuery(ORDERS_0, 0))
    assert result.counted == Counted(0, 0, 0)


def test_a_call_that_asks_for_much_is_told_where_to_go_on() -> None:
    driven = DrivenLog()
    driven.create()
    driven.append(Batch(count=2))
    many = [CountQuery(ORDERS_0, 0)] * (BATCHES_READ_MAX // SEEK_COST_BATCHES)
    results = asked(driven, *many)
    assert results[0].counted == Counted(2, 2, 2)
    assert results[-1].counted == Counted(0, 0, 0)
    assert results[-1].head == driven.head()


def test_a_partition_that_is_not_there_is_refused_for_itself() -> None:
    driven = DrivenLog()
    driven.create()
    answer = driven.ranges.count_records(
        CountRecords([CountQuery(ORDERS_0._replace(partition=9), 0), CountQuery(ORDERS_0, 0)]), CONTEXT
    )
    driven.flush()
    assert [code(result) for result in answer.result()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_the_age_of_what_is_unread_is_looked_for_no_further_than_the_budget_goes() -> None:
    """Behind hidden batches lies what was written later: the last time that was seen is as good."""
    driven = DrivenLog()
    driven.create()
    for sequence in range(20):
        driven.append(Batch(transactional(), sequence, timestamp_ms=1_000 + sequence))
    driven.end(transactional(), ABORT)
    driven.append(Batch(timestamp_ms=5_000))
    unread = partial(oldest_unread_ms, driven.store, driven.ordinal(), driven.head(), 0, Isolation.READ_COMMITTED)
    assert unread(ReadBudget(0)) == 5_000
    budget = ReadBudget(0, batches=3 * SEEK_COST_BATCHES)
    seen_ms = unread(budget)
    assert budget.is_spent
    assert seen_ms is not None
    assert seen_ms < 1_020
