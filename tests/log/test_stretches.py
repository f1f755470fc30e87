"""Finished stretches say what lies before their ends, and are found by halving: compared with a scan of the log."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_protocol.batch import NO_TIMESTAMP_MS, payload_of
from coordinator_protocol.marker import decode_marker_payload
from coordinator_runtime.store import Family
from partition_log.batches import batches
from partition_log.state import IndexEntry, LogTotals, PartitionConfig
from partition_log.stretches import first_that, stretches
from tests.log.driven_log import ABORT, COMMIT, UNCOMMITTED, Batch, DrivenLog, transactional

HOUR_MS = 3_600_000

commands = st.lists(
    st.tuples(
        st.sampled_from(("plain", "append", "append", "commit", "abort")),
        st.integers(1, 2),
        st.integers(1, 3),
        st.sampled_from((NO_TIMESTAMP_MS, 10, 20, 30, 40)),
    ),
    max_size=40,
)
configs = st.builds(
    PartitionConfig, index_interval_batches=st.integers(1, 6), index_interval_bytes=st.sampled_from((1, 200, 1 << 20))
)


def play(config: PartitionConfig, given_commands: list[tuple[str, int, int, int]]) -> DrivenLog:
    driven = DrivenLog(config=config)
    driven.create()
    sequences = {1: 0, 2: 0}
    epochs = {1: 0, 2: 0}
    for command, producer_id, count, timestamp_ms in given_commands:
        producer = transactional(producer_id, epochs[producer_id])
        if command == "plain":
            driven.append(Batch(count=count, timestamp_ms=timestamp_ms))
        elif command == "append":
            batch = Batch(producer, sequences[producer_id], count, timestamp_ms=timestamp_ms)
            assert driven.append(batch).error is None
            sequences[producer_id] += count
        else:
            # A marker without records before it is no aborted transaction.
            driven.end(producer, COMMIT if command == "commit" else ABORT)
            epochs[producer_id], sequences[producer_id] = producer.epoch + 1, 0
        driven.clock.advance(1_000)
    return driven


def by_scan(driven: DrivenLog) -> dict[int, tuple[LogTotals, int]]:
    """Totals and largest timestamp of a record before the end of each row."""
    found = {}
    size_bytes = records = markers = aborts = 0
    newest_ms = NO_TIMESTAMP_MS
    writers: set[int] = set()
    for header, encoded in batches(driven.store, driven.ordinal(), 0):
        size_bytes += len(encoded)
        if header.is_control:
            markers += 1
            aborts += header.producer_id in writers and says_abort(encoded)
            writers.discard(header.producer_id)
        else:
            records += header.record_count
            newest_ms = max(newest_ms, header.max_timestamp_ms)
            if header.is_transactional:
                writers.add(header.producer_id)
        found[header.last_offset] = LogTotals(size_bytes, records, markers, aborts), newest_ms
    return found


def says_abort(encoded: bytes) -> bool:
    return decode_marker_payload(payload_of(encoded)).outcome is ABORT


@given(configs, commands)
@settings(max_examples=80, deadline=None)
def test_what_is_counted_is_what_a_scan_finds(
    config: PartitionConfig, given_commands: list[tuple[str, int, int, int]]
) -> None:
    driven = play(config, given_commands)
    truth = by_scan(driven)
    next_offset, rows = 0, sorted(truth)
    for stretch in stretches(driven.store, driven.ordinal(), 0):
        assert stretch.first_offset == next_offset
        assert (stretch.totals, stretch.max_timestamp_ms) == truth[stretch.last_offset]
        next_offset = stretch.last_offset + 1
    head = driven.head()
    assert head.index.first_offset == next_offset
    assert head.index.batch_count == sum(last_offset >= next_offset for last_offset in rows)
    if truth:
        assert (head.totals, head.index.max_timestamp_ms) == truth[rows[-1]]
    assert driven.crash().head() == head


@given(configs, commands)
@settings(max_examples=60, deadline=None)
def test_a_time_is_found_where_a_scan_finds_it(
    config: PartitionConfig, given_commands: list[tuple[str, int, int, int]]
) -> None:
    driven = play(config, given_commands)
    log = [header for header, _encoded in batches(driven.store, driven.ordinal(), 0)]
    for timestamp_ms in (0, 10, 11, 25, 40, 41):
        reach = (header for header in log if not header.is_control and header.max_timestamp_ms >= timestamp_ms)
        expected = next(((header.base_offset, header.max_timestamp_ms) for header in reach), (-1, -1))
        (found,) = driven.offsets(timestamp_ms, UNCOMMITTED)
        assert (found.offset, found.timestamp_ms) == expected


class Counting:
    """A store that counts how often it is asked."""

    def __init__(self, driven: DrivenLog) -> None:
        self._store = driven.store
        self.seeks = 0

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.seeks += 1
        return self._store.scan(family, start, end)


@pytest.fixture(scope="module")
def long_log() -> DrivenLog:
    """500 stretches of a batch each, with many more offsets than stretches; the batches grow."""
    driven = DrivenLog(config=PartitionConfig(index_interval_batches=1))
    driven.create()
    for number in range(500):
        driven.append(Batch(count=1_000 + number % 7, timestamp_ms=number, payload=b"x" * (1 + number)))
        driven.clock.advance(HOUR_MS)
    return driven


@pytest.mark.parametrize("wanted", [0, 1, 250, 498, 499, 500])
def test_the_first_that_reaches_something_is_found_with_few_seeks(long_log: DrivenLog, wanted: int) -> None:
    store, ordinal, head = Counting(long_log), long_log.ordinal(), long_log.head()
    every = list(stretches(long_log.store, ordinal, 0))

    def is_it(stretch: IndexEntry) -> bool:
        return stretch.max_timestamp_ms >= wanted

    found = first_that(store, ordinal, (0, head.log_end_offset), is_it)
    assert found == next(filter(is_it, every), None)
    assert store.seeks <= ceil(log2(500)) + 3


def test_where_to_cut_by_size_and_by_age_is_found_likewise(long_log: DrivenLog) -> None:
    store, ordinal, head = Counting(long_log), long_log.ordinal(), long_log.head()
    every = list(stretches(long_log.store, ordinal, 0))
    kept_bytes, now_ms = 50_000, long_log.clock.wall_ms()

    def leaves_less(stretch: IndexEntry) -> bool:
        return head.totals.size_bytes - stretch.totals.size_bytes < kept_bytes

    def is_young(stretch: IndexEntry) -> bool:
        return now_ms - stretch.ended_ms < 48 * HOUR_MS

    for holds in (leaves_less, is_young):
        found = first_that(store, ordinal, (0, head.log_end_offset), holds)
        assert found is not None
        assert found == next(filter(holds, every))


def test_what_lies_before_the_range_is_not_looked_at(long_log: DrivenLog) -> None:
    found = first_that(long_log.store, long_log.ordinal(), (100_000, 100_001), lambda _stretch: True)
    assert found is not None
    assert found.first_offset <= 100_000 <= found.last_offset
    assert first_that(long_log.store, long_log.ordinal(), (7, 7), lambda _stretch: True) is None
