"""A reader that needs headers only reads no segment, and finds the same as all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_protocol.batch import (
    HEADER_BYTES,
    HEADER_BYTES_COUNTED,
    TAIL_BYTES,
    BatchHeader,
    Encoding,
    cut_row,
    encode_offsetless,
    pack_place,
    split_row,
)
from coordinator_protocol.marker import Marker, Outcome, encode_tail
from coordinator_runtime.rocks import RocksStore, StoreOptions, open_store
from coordinator_runtime.rocks.segments import SegmentOptions
from coordinator_runtime.store import CommitGroup, Family, Mutation, Store, StoreDamaged
from partition_log import codec
from partition_log.batches import LogDamaged, batches
from tests.harness.memory_store import Damage, MemoryStore
from tests.log.driven_log import ABORT, COMMIT, SHARD_COUNT, Batch, DrivenLog, code, read_around, transactional

ORDINAL = 1
LARGE = b"x" * (40 << 10)
PAYLOADS = st.sampled_from([0, 1, 37, 38, 39, 76, 77, 500, 33_000])


def row(base_offset: int, payload_bytes: int, *, has_tail: bool) -> bytes:
    """A row of one record, and the marker behind it."""
    header = BatchHeader(base_offset, 1, 5, 5, Encoding.RECORDS_V1, 7, 0, 0, is_transactional=True)
    rest, payload = encode_offsetless(header, b"x" * payload_bytes)
    batch = pack_place(base_offset, HEADER_BYTES_COUNTED + payload_bytes, 0) + rest + payload
    return batch + encode_tail(MARKER, base_offset, 6) if has_tail else batch


MARKER = Marker(
    producer_id=7, txn_epoch=0, next_epoch=1, coordinator_shard=3, coordinator_epoch=2, outcome=Outcome.COMMIT, csn=9
)


def put(store: Store, kinds: Sequence[tuple[int, bool]], ordinal: int = ORDINAL) -> int:
    """Store rows with these payloads, of which some have a tail; returns the log end."""
    mutations: list[Mutation] = []
    end = 0
    for payload_bytes, has_tail in kinds:
        last_offset = end + has_tail
        mutations.append((Family.LOG, codec.log_key(ordinal, last_offset), row(end, payload_bytes, has_tail=has_tail)))
        end = last_offset + 1
    size = sum(len(value or b"") for _family, _key, value in mutations)
    store.write([CommitGroup(store.version() + 1, mutations, size_bytes=size)])
    return end


def headers(store: Store, start: int = 0, *, headers_only: bool) -> list[BatchHeader]:
    return [header for header, _stored in batches(store, ORDINAL, start, headers_only=headers_only)]


@given(PAYLOADS, st.booleans())
def test_a_cut_row_is_split_as_the_whole_one(payload_bytes: int, has_tail: bool) -> None:
    whole = row(4, payload_bytes, has_tail=has_tail)
    cut = cut_row(whole)
    assert len(cut) <= HEADER_BYTES + 2 * TAIL_BYTES
    assert split_row(cut)[0][:HEADER_BYTES] == whole[:HEADER_BYTES]
    assert split_row(cut)[1] == split_row(whole)[1]
    assert (split_row(whole)[1] is not None) == has_tail or payload_bytes == 0


@given(st.lists(st.tuples(PAYLOADS, st.booleans()), max_size=12), st.sampled_from([1, 150, 32 * 1024]))
@settings(max_examples=15, deadline=None)
def test_headers_are_the_same_with_and_without_segments(kinds: list[tuple[int, bool]], value_bytes_min: int) -> None:
    memory = MemoryStore()
    end = put(memory, kinds)
    options = StoreOptions(segments=SegmentOptions(value_bytes_min=value_bytes_min))
    with TemporaryDirectory() as path:
        store = open_store(Path(path) / "store", shard_count=SHARD_COUNT, options=options)
        try:
            put(store, kinds)
            for start in range(end + 1):
                expected = headers(memory, start, headers_only=False)
                assert headers(memory, start, headers_only=True) == expected
                assert headers(store, start, headers_only=False) == expected
                assert headers(store, start, headers_only=True) == expected
            damage_segments(Path(path) / "store")
            assert headers(store, headers_only=True) == headers(memory, headers_only=False)
        finally:
            store.close()


def damage_segments(path: Path) -> None:
    """Make every read of a segment fail."""
    for segment in path.glob("segments/*.segment"):
        segment.write_bytes(b"")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[RocksStore]:
    opened = open_store(path, shard_count=SHARD_COUNT)
    yield opened
    opened.close()


def test_counts_read_no_segment_and_searches_by_time_can_do_without(path: Path, store: RocksStore) -> None:
    driven = DrivenLog(store)
    driven.create()
    for epoch in range(4):
        producer = transactional(7, epoch)
        driven.append(Batch(producer, 0, 3, LARGE, timestamp_ms=10 * epoch))
        driven.end(producer, ABORT if epoch % 2 else COMMIT)
    before = [driven.count(start) for start in range(17)], [driven.offsets(at) for at in range(-2, 40)]
    assert before[0][0] == (12, 6)
    assert list(path.glob("segments/*.segment"))
    damage_segments(path)
    assert code(driven.read()) != code(None), "a reader of payloads meets it"
    assert ([driven.count(start) for start in range(17)], [driven.offsets(at) for at in range(-2, 40)]) == before


def test_a_damaged_payload_damages_one_batch_and_not_the_marker_behind_it() -> None:
    store = MemoryStore()
    end = put(store, [(500, False), (500, True), (500, False)])
    store.damage(Family.LOG, codec.log_key(ORDINAL, 2), Damage.VALUE)
    for start, left_out in ((0, 1), (1, 1)):
        with pytest.raises(LogDamaged) as damaged:
            headers(store, start, headers_only=False)
        assert (damaged.value.offset, damaged.value.next_offset) == (left_out, 2)
    behind = list(batches(store, ORDINAL, 2))
    assert [(header.base_offset, header.is_control) for header, _stored in behind] == [(2, True), (3, False)]
    assert len(behind[0][1]) == TAIL_BYTES
    assert [header.base_offset for header in headers(store, headers_only=True)] == list(range(end))


def test_where_a_damaged_block_has_the_reference_the_marker_is_lost_too() -> None:
    store = MemoryStore()
    put(store, [(500, False), (500, True), (500, False)])
    store.damage(Family.LOG, codec.log_key(ORDINAL, 2), Damage.LOST)
    with pytest.raises(LogDamaged) as damaged:
        headers(store, headers_only=True)
    assert (damaged.value.offset, damaged.value.next_offset) == (1, 3)


class Misled(MemoryStore):
    """Without checksums, a damaged block gave the key of a row of another partition."""

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        raise StoreDamaged(family, "a segment does not hold it", codec.log_key(ORDINAL + 1, 2))


def test_no_marker_is_taken_from_another_partition() -> None:
    store = Misled()
    kinds = [(500, False), (500, True), (500, False)]
    put(store, kinds)
    put(store, kinds, ORDINAL + 1)
    store.damage(Family.LOG, codec.log_key(ORDINAL, 2), Damage.BLOCK)
    assert list(batches(store, ORDINAL + 1, 2)), "there is one"
    with pytest.raises(LogDamaged) as damaged:
        list(batches(store, ORDINAL, 2))
    assert (damaged.value.offset, damaged.value.next_offset) == (2, 3)


def test_a_count_goes_on_over_a_damaged_payload(driven: DrivenLog) -> None:
    for sequence, outcome in enumerate((COMMIT, ABORT)):
        driven.append(Batch(transactional(7, sequence), 0, count=5))
        driven.end(transactional(7, sequence), outcome)
    assert isinstance(driven.store, MemoryStore)
    driven.store.damage(Family.LOG, codec.log_key(driven.ordinal(), 4), Damage.VALUE)
    assert driven.count() == (10, 5)
    assert read_around(driven)[1] == [(0, 5)]
