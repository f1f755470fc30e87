"""The log on the real store: what is read, found and rebuilt is what the memory store says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.rocks import RocksStore, StoreOptions, open_store
from coordinator_runtime.rocks.segments import SegmentOptions
from coordinator_runtime.store import CommitGroup, Family
from partition_log import codec
from partition_log.requests import DeleteTopics, DescribeTopics, TopicName
from partition_log.state import PartitionConfig
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    CONTEXT,
    SHARD_COUNT,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    Producer,
    code,
    offsets_of,
    read_around,
    transactional,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[RocksStore]:
    opened = open_store(path, shard_count=SHARD_COUNT)
    yield opened
    opened.close()


CONFIG = PartitionConfig(index_interval_batches=3)


def write_history(driven: DrivenLog) -> None:
    driven.create(partition_count=2)
    driven.create("other")
    for epoch in range(4):
        producer = transactional(7, epoch)
        driven.append(Batch(producer, 0, 2, timestamp_ms=10 * epoch))
        driven.append(Batch(Producer(9), epoch, timestamp_ms=10 * epoch + 5))
        driven.end(producer, COMMIT if epoch % 2 else ABORT)
        driven.append(Batch(), topic="other")
    driven.append(Batch(transactional(8), 0))


def test_it_reads_as_on_the_memory_store_and_comes_back_equal(path: Path, store: RocksStore) -> None:
    in_memory, driven = DrivenLog(config=CONFIG), DrivenLog(store, config=CONFIG)
    for each in (in_memory, driven):
        write_history(each)
    state = driven.state()
    assert state == in_memory.state()
    store.close()
    again = DrivenLog(open_store(path, shard_count=SHARD_COUNT), config=CONFIG)
    try:
        assert again.state() == state
        assert again.read_all() == in_memory.read_all()
        assert again.read_all(UNCOMMITTED) == in_memory.read_all(UNCOMMITTED)
        assert again.read(is_raw=True).aborted == in_memory.read(is_raw=True).aborted
        for timestamp_ms in range(0, 40, 4):
            assert again.offsets(timestamp_ms)[0].offset == in_memory.offsets(timestamp_ms)[0].offset
    finally:
        again.store.close()


@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_page_that_the_disk_erased_is_left_out_and_everything_behind_it_is_read(path: Path, count: int) -> None:
    """Nothing can be made out in the block, and RocksDB looks into it for the first offsets behind it too."""
    store = open_store(path, shard_count=SHARD_COUNT)
    driven = DrivenLog(store)
    driven.create()
    for number in range(60):
        driven.append(Batch(count=count, payload=b"payload%03d" % number * 30))
    store.close()
    open_store(path, shard_count=SHARD_COUNT).close()  # Moves what is in the write-ahead log into sorted files.
    marked = b"payload030"
    [file] = [file for file in (path / "store").glob("*.sst") if marked in file.read_bytes()]
    stored = bytearray(file.read_bytes())
    begins_at = stored.find(marked)
    stored[begins_at : begins_at + 4096] = bytes(4096)
    file.write_bytes(stored)

    driven = DrivenLog(open_store(path, shard_count=SHARD_COUNT))
    try:
        offsets, [(lost_from, lost_to)] = read_around(driven)
        assert lost_from <= 30 * count < lost_to < 60 * count
        assert offsets == [offset for offset in range(60 * count) if not lost_from <= offset < lost_to]
    finally:
        driven.store.close()


def test_a_deleted_topic_is_gone_and_its_neighbour_is_not(path: Path, store: RocksStore) -> None:
    driven = DrivenLog(store)
    write_history(driven)
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    driven.flush()
    store.close()
    again = DrivenLog(open_store(path, shard_count=SHARD_COUNT))
    try:
        assert [topic.name for topic in again.topics.describe_topics(DescribeTopics(), CONTEXT)] == ["other"]
        assert offsets_of(again.read(topic="other")) == [0, 1, 2, 3]
    finally:
        again.store.close()


def test_behind_the_log_start_nothing_needs_the_files_of_what_was_removed(path: Path) -> None:
    """The head tells the new start first; then rows and files may go."""
    options = StoreOptions(segments=SegmentOptions(value_bytes_min=500, segment_bytes_max=1_000))
    store = open_store(path, shard_count=SHARD_COUNT, options=options)
    driven = DrivenLog(store)
    driven.create()
    for _ in range(6):
        driven.append(Batch(payload=b"payload" * 80))
    ordinal, head = driven.ordinal(), driven.head()
    store.close()
    store = open_store(path, shard_count=SHARD_COUNT, options=options)
    moved = codec.encode_head(replace(head, log_start_offset=4))
    store.write([CommitGroup(store.version() + 1, [(Family.PARTITIONS, codec.head_key(ordinal), moved)])])
    removed = (Family.LOG, codec.log_key(ordinal, 0), codec.log_key(ordinal, 4))
    store.write([CommitGroup(store.version() + 1, [], [removed])])
    store.close()
    assert [file.name for file in (path / "segments").iterdir()] == ["0000000003.segment"]
    again = DrivenLog(open_store(path, shard_count=SHARD_COUNT, options=options))
    try:
        assert code(again.read(fetch_offset=3)) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert offsets_of(again.read(fetch_offset=4)) == [4, 5]
    finally:
        again.store.close()
