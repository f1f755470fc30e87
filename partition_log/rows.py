"""How the partition log is stored: every record as the rows that it changes, and back.

A load reads the rows of heads and producers and no batch, so it takes as long as there are partitions and producers,
however long the logs are.

Source: spec log-and-runtime D6 and 5.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, Final

from coordinator_runtime.decision import Record, ShardKey, Turn
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.store import Family, Store
from partition_log import codec
from partition_log.codec import (
    OUTCOME_ROW_BYTES,
    encode_head,
    encode_outcome,
    encode_producer,
    log_key,
    outcome_key,
    partition_key,
    producer_key,
)
from partition_log.records import (
    BatchesAppended,
    LogRecord,
    PartitionCreated,
    PartitionDeleted,
    PartitionRestored,
    ProducerRestored,
    ProducerSealed,
    ProducersForgotten,
    TransactionEnded,
)
from partition_log.state import EMPTY_HEAD, PartitionHead, TimeIndexEntry

# A transaction usually leaves the same of its producer in all of its partitions, one after the other.
_encode_ended: Final = lru_cache(maxsize=64)(encode_producer)

# By names of their own: to find a member in its class takes 0.1 us, and every transaction stages dozens of rows.
_LOG: Final = Family.LOG
_OUTCOMES: Final = Family.OUTCOMES
_PARTITIONS: Final = Family.PARTITIONS
_PRODUCERS: Final = Family.PRODUCERS
_TIME_INDEX: Final = Family.TIME_INDEX

_LOG_KEY_BYTES: Final = len(log_key(0, 0))
_HEAD_KEY_BYTES: Final = len(partition_key(0))
_PRODUCER_KEY_BYTES: Final = len(producer_key(0, 0))
_FAMILIES: Final = (_PARTITIONS, _LOG, _TIME_INDEX, _PRODUCERS, _OUTCOMES)


class LogRows:
    """Implements `coordinator_runtime.rows.Rows`. `ordinals_in` says which partitions live in a shard; it is asked
    during `load`, so the topic catalog is loaded first."""

    def __init__(self, ordinals_in: Callable[[ShardKey], Iterable[int]]) -> None:
        self._ordinals_in = ordinals_in

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        value = record.value
        # A KeyError is a bug of ours: what comes from the store does not go there.
        _STAGES[type(value)](value, staged)

    def load(self, store: Store, shard: ShardKey) -> Iterator[LogRecord]:
        for ordinal in self._ordinals_in(shard):
            stored = store.get(_PARTITIONS, partition_key(ordinal))
            assert stored is not None, f"partition {ordinal} is in the catalog and not in the store"
            yield PartitionRestored(ordinal, codec.decode_head(stored))
            yield from _load_producers(store, ordinal)


def _stage_appended(record: BatchesAppended | TransactionEnded, staged: StagedRows) -> None:
    # Every transaction stages this for each of its partitions, so it calls next to nothing.
    ordinal, producer_id, batches, ended = record.ordinal, record.producer_id, record.batches, record.ended
    add = staged.added.append
    staged.size_bytes += _HEAD_KEY_BYTES + len(batches) * _LOG_KEY_BYTES + record.size_bytes
    for last_offset, batch in batches:
        add((_LOG, log_key(ordinal, last_offset), batch))
    staged.encoded_later[_PARTITIONS, partition_key(ordinal)] = partial(encode_head, record.head)
    entry = record.producer
    if entry is not None:
        producer = encode_producer(entry) if ended is None else _encode_ended(entry)
        staged.newest[_PRODUCERS, producer_key(ordinal, producer_id)] = producer
        staged.size_bytes += _PRODUCER_KEY_BYTES + len(producer)
    if ended is not None:
        key = outcome_key(ordinal, ended.outcome, producer_id, ended.marker_offset)
        add((_OUTCOMES, key, encode_outcome(ended)))
        staged.size_bytes += OUTCOME_ROW_BYTES
    if record.indexed:
        for stretch, markers in record.indexed:
            _stage_index(ordinal, stretch, markers, staged)


def _stage_sealed(record: ProducerSealed, staged: StagedRows) -> None:
    _stage_producer(record.ordinal, record.producer_id, encode_producer(record.producer), staged)


def _stage_created(record: PartitionCreated, staged: StagedRows) -> None:
    _stage_head(record.ordinal, EMPTY_HEAD, staged)


def _stage_deleted(record: PartitionDeleted, staged: StagedRows) -> None:
    start, end = partition_key(record.ordinal), partition_key(record.ordinal + 1)
    for family in _FAMILIES:
        staged.deleted_ranges.append((family, start, end))


def _stage_head(ordinal: int, head: PartitionHead, staged: StagedRows) -> None:
    staged.encoded_later[_PARTITIONS, partition_key(ordinal)] = partial(encode_head, head)
    staged.size_bytes += _HEAD_KEY_BYTES


def _stage_producer(ordinal: int, producer_id: int, producer: bytes | None, staged: StagedRows) -> None:
    staged.newest[_PRODUCERS, producer_key(ordinal, producer_id)] = producer
    staged.size_bytes += _PRODUCER_KEY_BYTES + (0 if producer is None else len(producer))


def _stage_forgotten(record: ProducersForgotten, staged: StagedRows) -> None:
    ordinal = record.ordinal
    _stage_head(ordinal, record.head, staged)
    for producer_id in record.producer_ids:
        _stage_producer(ordinal, producer_id, None, staged)


def _stage_index(ordinal: int, entry: TimeIndexEntry, markers: int, staged: StagedRows) -> None:
    rows = (
        (
            _TIME_INDEX,
            codec.time_index_key(ordinal, entry.max_timestamp_ms, entry.last_offset),
            codec.encode_time_index(entry),
        ),
        (_PARTITIONS, codec.stretch_key(ordinal, entry.last_offset), codec.encode_marker_count(markers)),
    )
    staged.added += rows
    staged.size_bytes += sum(len(key) + len(value) for _family, key, value in rows)


# A `match` would ask for one class after the other, for every record.
_STAGES: Final[Mapping[type, Callable[[Any, StagedRows], None]]] = {
    BatchesAppended: _stage_appended,
    TransactionEnded: _stage_appended,
    ProducerSealed: _stage_sealed,
    ProducersForgotten: _stage_forgotten,
    PartitionCreated: _stage_created,
    PartitionDeleted: _stage_deleted,
}


def _load_producers(store: Store, ordinal: int) -> Iterator[ProducerRestored]:
    """All producers of a partition as they are read; those with open transactions last, in order of their first
    offsets."""
    still_open: list[tuple[int, ProducerRestored]] = []
    rows = store.scan(_PRODUCERS, partition_key(ordinal), partition_key(ordinal + 1))
    for key, value in rows:
        restored = ProducerRestored(ordinal, codec.producer_id_of(key), codec.decode_producer(value))
        opened = restored.producer.open_transaction
        if opened is None:
            yield restored
        else:
            still_open.append((opened.first_offset, restored))
    still_open.sort(key=itemgetter(0))
    for _first_offset, restored in still_open:
        yield restored
