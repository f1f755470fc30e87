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
from partition_log.records import (
    BatchAppended,
    LogRecord,
    MarkerAppended,
    PartitionCreated,
    PartitionDeleted,
    PartitionRestored,
    ProducerRestored,
    ProducerSealed,
    ProducersForgotten,
    TransactionAppended,
)
from partition_log.state import EMPTY_HEAD, EndedTransaction, PartitionHead, TimeIndexEntry

# A transaction usually leaves the same of its producer in all of its partitions, one after the other.
_encode_ended: Final = lru_cache(maxsize=64)(codec.encode_producer)

# By names of their own: to find a member in its class takes 0.1 us, and every transaction stages dozens of rows.
_LOG: Final = Family.LOG
_OUTCOMES: Final = Family.OUTCOMES
_PARTITIONS: Final = Family.PARTITIONS
_PRODUCERS: Final = Family.PRODUCERS
_TIME_INDEX: Final = Family.TIME_INDEX
_FAMILIES: Final = (_PARTITIONS, _LOG, _TIME_INDEX, _PRODUCERS, _OUTCOMES)


class LogRows:
    """Implements `coordinator_runtime.rows.Rows`. `ordinals_in` says which partitions live in a shard; it is asked
    during `load`, so the topic catalog is loaded first."""

    def __init__(self, ordinals_in: Callable[[ShardKey], Iterable[int]]) -> None:
        self._ordinals_in = ordinals_in

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        value = record.value
        stage = _STAGES.get(type(value))
        assert stage is not None, f"{type(value).__name__} comes from the store and does not go there"
        stage(value, staged)

    def load(self, store: Store, shard: ShardKey) -> Iterator[LogRecord]:
        for ordinal in self._ordinals_in(shard):
            stored = store.get(_PARTITIONS, codec.partition_key(ordinal))
            assert stored is not None, f"partition {ordinal} is in the catalog and not in the store"
            yield PartitionRestored(ordinal, codec.decode_head(stored))
            yield from _load_producers(store, ordinal)


def _stage_batch(record: BatchAppended, staged: StagedRows) -> None:
    ordinal = record.ordinal
    staged.added.append((_LOG, codec.log_key(ordinal, record.last_offset), record.batch))
    _stage_head(ordinal, record.head, staged)
    if record.producer is not None:
        key = codec.producer_key(ordinal, record.producer_id)
        staged.newest[_PRODUCERS, key] = codec.encode_producer(record.producer)
    if record.indexed is not None:
        _stage_index(ordinal, record.indexed, record.head.counted.markers, staged)


def _stage_marker(record: MarkerAppended, staged: StagedRows) -> None:
    ordinal = record.ordinal
    staged.added.append((_LOG, codec.log_key(ordinal, record.offset), record.batch))
    _stage_end(record, record.ended, staged)
    if record.indexed is not None:
        _stage_index(ordinal, record.indexed, record.head.counted.markers, staged)


def _stage_transaction(record: TransactionAppended, staged: StagedRows) -> None:
    ordinal, add = record.ordinal, staged.added.append
    for last_offset, batch in record.batches:
        add((_LOG, codec.log_key(ordinal, last_offset), batch))
    _stage_end(record, record.ended, staged)
    for entry, markers in record.indexed:
        _stage_index(ordinal, entry, markers, staged)


def _stage_sealed(record: ProducerSealed, staged: StagedRows) -> None:
    key = codec.producer_key(record.ordinal, record.producer_id)
    staged.newest[_PRODUCERS, key] = codec.encode_producer(record.producer)


def _stage_created(record: PartitionCreated, staged: StagedRows) -> None:
    _stage_head(record.ordinal, EMPTY_HEAD, staged)


def _stage_deleted(record: PartitionDeleted, staged: StagedRows) -> None:
    start, end = codec.partition_key(record.ordinal), codec.partition_key(record.ordinal + 1)
    for family in _FAMILIES:
        staged.deleted_ranges.append((family, start, end))


def _stage_head(ordinal: int, head: PartitionHead, staged: StagedRows) -> None:
    staged.encoded_later[_PARTITIONS, codec.partition_key(ordinal)] = partial(codec.encode_head, head)


def _stage_end(
    record: MarkerAppended | TransactionAppended, ended: EndedTransaction | None, staged: StagedRows
) -> None:
    """All that a marker changes besides the log and its index."""
    ordinal, producer_id = record.ordinal, record.producer_id
    _stage_head(ordinal, record.head, staged)
    staged.newest[_PRODUCERS, codec.producer_key(ordinal, producer_id)] = _encode_ended(record.producer)
    if ended is not None:
        key = codec.outcome_key(ordinal, ended.outcome, producer_id, ended.marker_offset)
        staged.added.append((_OUTCOMES, key, codec.encode_outcome(ended)))


def _stage_forgotten(record: ProducersForgotten, staged: StagedRows) -> None:
    ordinal = record.ordinal
    _stage_head(ordinal, record.head, staged)
    for producer_id in record.producer_ids:
        staged.newest[_PRODUCERS, codec.producer_key(ordinal, producer_id)] = None


def _stage_index(ordinal: int, entry: TimeIndexEntry, markers: int, staged: StagedRows) -> None:
    key = codec.time_index_key(ordinal, entry.max_timestamp_ms, entry.last_offset)
    staged.added.append((_TIME_INDEX, key, codec.encode_time_index(entry)))
    stretch_key = codec.stretch_key(ordinal, entry.last_offset)
    staged.added.append((_PARTITIONS, stretch_key, codec.encode_marker_count(markers)))


# A `match` would ask for one class after the other, for every record.
_STAGES: Final[Mapping[type, Callable[[Any, StagedRows], None]]] = {
    BatchAppended: _stage_batch,
    MarkerAppended: _stage_marker,
    TransactionAppended: _stage_transaction,
    ProducerSealed: _stage_sealed,
    ProducersForgotten: _stage_forgotten,
    PartitionCreated: _stage_created,
    PartitionDeleted: _stage_deleted,
}


def _load_producers(store: Store, ordinal: int) -> Iterator[ProducerRestored]:
    """All producers of a partition as they are read; those with open transactions last, in order of their first
    offsets."""
    still_open: list[tuple[int, ProducerRestored]] = []
    rows = store.scan(_PRODUCERS, codec.partition_key(ordinal), codec.partition_key(ordinal + 1))
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
