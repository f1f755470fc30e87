"""Throttled delivery: records near the delivery limit come a few at a time, and the last time each alone."""

from __future__ import annotations

from collections import Counter

import pytest

from group_coordinator.share_partitions import acquiring
from group_coordinator.share_partitions.acquiring import AcquiredRange, LogPosition, Read, Span, Terms
from group_coordinator.share_partitions.state import SharePartition
from group_coordinator.share_partitions.throttling import BatchOffsets, is_throttled, records_at_once
from tests.groups.share_partitions.pictures import fresh, picture, released_by, spans, taken, told


@pytest.mark.parametrize(("limit", "throttled_from"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (9, 5), (10, 5)])
def test_records_are_throttled_from_half_of_the_limit_on(limit: int, throttled_from: int) -> None:
    assert [count for count in range(limit + 1) if is_throttled(count, limit)] == [*range(throttled_from, limit + 1)]


@pytest.mark.parametrize(
    ("deliveries", "limit", "count"),
    [(3, 5, 50), (4, 5, 1), (2, 3, 1), (5, 10, 50), (6, 10, 25), (7, 10, 12), (8, 10, 6), (9, 10, 1)],
)
def test_each_delivery_near_the_limit_has_half_of_the_records(deliveries: int, limit: int, count: int) -> None:
    assert records_at_once(deliveries, limit, [BatchOffsets(0, 99)], 40, 60) == count


@pytest.mark.parametrize(
    ("first_offset", "last_offset", "count"), [(0, 3, 2), (2, 2, 2), (3, 4, 4), (5, 9, 3), (10, 10, 1), (0, 10, 5)]
)
def test_the_batches_that_have_the_records_are_halved(first_offset: int, last_offset: int, count: int) -> None:
    batches = [BatchOffsets(0, 3), BatchOffsets(4, 7), BatchOffsets(8, 9), BatchOffsets(10, 10)]
    assert records_at_once(3, 6, batches, first_offset, last_offset) == count


class Consumer:
    """A member that takes what it gets, and releases all of it."""

    def __init__(self, *lengths: int, limit: int) -> None:
        """`lengths`: of the batches in the log."""
        self.partition = fresh()
        self.spans = spans(*lengths, first_offset=0)
        self.terms = Terms(delivery_count_limit=limit)
        self.deliveries: Counter[int] = Counter()

    def gets(self, most: int = 500, end_offset: int | None = None) -> list[AcquiredRange]:
        """Acquire, and release."""
        read = Read(self.partition.first_available(2_000) or 0, self.spans, end_offset)
        change, ranges = acquiring.acquire(self.partition, "a", read, self.terms, max_records=most, log=LogPosition(0))
        self.partition = released_by(change.partition, "a").partition
        for each in ranges:
            self.deliveries.update(range(each.first_offset, each.last_offset + 1))
        return list(ranges)

    def all(self) -> list[int]:
        """The numbers of records that come together, until none come."""
        counts = []
        while ranges := self.gets():
            (each,) = ranges
            counts.append(each.last_offset - each.first_offset + 1)
        return counts


def test_a_batch_that_is_always_released_comes_in_smaller_parts() -> None:
    """The numbers of Kafka's own test, `testFetchWithThrottledDelivery`."""
    consumer = Consumer(100, limit=5)
    assert consumer.all() == [100, 100, 100, 50, *[1] * 50, 50, *[1] * 50]
    assert {*consumer.deliveries.values()} == {5}
    assert picture(consumer.partition) == "100:"


def test_a_batch_is_halved_down_to_its_last_records() -> None:
    """The numbers of Kafka's `testFetchWithThrottledDeliveryBatchesWithIncreasedDeliveryLimit`."""
    consumer = Consumer(512, limit=10)
    counts = consumer.all()
    assert counts[:10] == [512] * 5 + [256, 128, 64, 32, 1]
    assert counts[10:43] == [1] * 31 + [32, 1]
    assert Counter(counts) == {512: 5, 256: 2, 128: 4, 64: 8, 32: 16, 1: 512}
    assert {*consumer.deliveries.values()} == {10}


@pytest.mark.parametrize("lengths", [(1,) * 64, (7, 1, 30, 2, 2, 2, 20), (64,)], ids=["single", "mixed", "one"])
@pytest.mark.parametrize("limit", [3, 4, 5, 7, 10])
def test_every_record_is_delivered_up_to_the_limit_and_alone_at_last(lengths: tuple[int, ...], limit: int) -> None:
    consumer = Consumer(*lengths, limit=limit)
    counts = consumer.all()
    assert consumer.deliveries == dict.fromkeys(range(64), limit)
    assert counts.count(1) >= 64


def test_a_group_with_the_lowest_limit_gets_whole_batches() -> None:
    assert Consumer(512, limit=2).all() == [512, 512]


def test_small_batches_are_halved_together() -> None:
    consumer = Consumer(*[1] * 8, limit=6)
    for delivery in (1, 2, 3):
        assert consumer.gets() == [AcquiredRange(0, 7, delivery)]
    assert [consumer.gets()[0].last_offset for _ in range(3)] == [3, 0, 0]


def test_a_part_is_not_larger_than_a_strict_fetch_wants() -> None:
    consumer = Consumer(8, limit=6)
    for _ in range(3):
        consumer.gets()
    assert consumer.gets(most=3, end_offset=3) == [AcquiredRange(0, 2, 4)]


def before_the_last_delivery() -> SharePartition:
    """Record 1 was delivered twice, the others once. The limit is 3."""
    partition = told(taken(fresh(), "a", 1, 1, 1), "a", (0, 2, "222"))
    partition = taken(partition, "b", 1, first_offset=1, max_records=1, terms=Terms(delivery_count_limit=3))
    return released_by(partition, "b").partition


def test_a_throttled_record_comes_with_no_other() -> None:
    partition, terms = before_the_last_delivery(), Terms(delivery_count_limit=3)
    assert picture(partition) == "0: .1 .2 .1"
    read = Read(0, (*spans(1, 1, 1, first_offset=0), Span(3, 3)))

    def take(before: SharePartition) -> SharePartition:
        return acquiring.acquire(before, "b", read, terms, max_records=9, log=LogPosition(0)).change.partition

    first = take(partition)
    assert picture(first) == "0: b2 .2 .1", "the one before it comes first, alone"
    second = take(first)
    assert picture(second) == "0: b2 b3 .1", "then itself, without the one behind it and the new one"
    assert picture(take(second)) == "0: b2 b3 b2 b1"


def test_what_is_held_in_between_is_left_out_of_a_part() -> None:
    partition = told(taken(fresh(), "a", 6), "a", (0, 5, "222222"))
    partition = told(taken(partition, "a", 6, first_offset=0), "a", (0, 5, "224222"))
    terms = Terms(delivery_count_limit=4)
    read = Read(0, spans(6, 2, first_offset=0))
    after = acquiring.acquire(partition, "b", read, terms, max_records=9, log=LogPosition(0)).change.partition
    assert picture(after) == "0: b3 b3 a2 b3 .2 .2"
