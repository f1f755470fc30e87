"""Stored form of the partition log: the keys and values of its rows, and the rows that each record changes.

All integers are big-endian; those in keys are unsigned, so that byte order is numeric order.

```
LOG         ordinal u32, last offset u64               -> stored batch, and perhaps a marker
PRODUCERS   ordinal u32, kind u8 (0), producer id u64  -> producer entry
PARTITIONS  ordinal u32, kind u8 (0)                   -> head
```
The other rows have modules of their own: `index_rows` (STRETCHES and ABORTED), `epoch_rows` (PARTITIONS, kind 1) and
`forgotten_rows` (PARTITIONS, kind 2, and PRODUCERS, kind 1). `compaction_rows` has PARTITIONS, kind 3. `LogRows` stages
the rows of all of them.

The key of a LOG row holds the last offset of the row. One forward seek to any offset therefore lands on the row that
holds it. `coordinator_protocol.marker` describes the marker behind a batch. Heads and producers begin with a version
byte.

A load reads the rows of heads and producers, and no batch. Its time depends on the number of partitions and producers,
not on the length of the logs.

Source: spec log-and-runtime D6, 5.1 and 1.6.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import starmap
from operator import itemgetter
from typing import Any, Final

from google.protobuf.message import DecodeError
from msgspec.structs import replace

from coordinator_api.v1 import log_pb2
from coordinator_protocol.batch import checked_part, last_offset_delta_of, pack_uncovered
from coordinator_protocol.checksum import KEEP_THE_GIL, crc32c
from coordinator_protocol.kafka_payload import TooManyItems, kafka_record_count
from coordinator_protocol.kafka_records import NotKafkaRecords, PlacedRecord, RecordHeaders
from coordinator_protocol.limits import SHARD_COUNT_MAX
from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Record, ShardKey, Turn
from coordinator_runtime.rows import LoadValues, StagedRows
from coordinator_runtime.store import Family, KeyRange, StoreReads
from coordinator_runtime.unknown_rows import check_version, known_member
from partition_log import forgotten_rows, index_rows
from partition_log.compaction_rows import compaction_key, decode_compaction, encode_compaction
from partition_log.epoch_rows import EPOCH_ROW_BYTES, ScannedRows, encode_epoch, epoch_key, load_epochs
from partition_log.load_checks import check_kinds, check_partition
from partition_log.records import (
    LeaderEpochRaised,
    LogCompacted,
    LogRecord,
    LogStartMoved,
    PartitionCreated,
    PartitionDeleted,
    PartitionRestored,
    ProducerRestored,
    ProducerSealed,
    ProducersForgotten,
    RowsAppended,
    StretchFinished,
)
from partition_log.state import (
    BATCHES_CACHED_MAX,
    NO_COORDINATOR_SHARD,
    NO_OFFSET,
    AbortedTransaction,
    CachedBatch,
    ForgottenProducers,
    IndexEntry,
    IndexProgress,
    LastMarker,
    Leadership,
    LogTotals,
    OpenTransaction,
    PartitionHead,
    ProducerEntry,
)

VALUE_VERSION: Final = 1
SEALED_VERSION: Final = VALUE_VERSION | 0x80
"""Version byte of a sealed producer. A program that does not know seals would let a zombie append, so it must not serve
such an entry."""

_ORDINAL: Final = struct.Struct(">I")
_ORDINAL_AND_NUMBER: Final = struct.Struct(">IQ")
# The pad byte is the kind of the row, 0. Other kinds have other numbers there (`load_checks.UNKNOWN_KINDS_FROM`).
_HEAD_KEY: Final = struct.Struct(">Ix")
_PRODUCER_KEY: Final = struct.Struct(">IxQ")

_HEAD: Final = struct.Struct(">BqqqIqqIIqqqqqqqII")
_PRODUCER: Final = struct.Struct(">BhiHqqqhbQqB")
_CACHED_BATCHES: Final = tuple(struct.Struct(">" + "iiq" * count) for count in range(BATCHES_CACHED_MAX + 1))

_NO_SHARD: Final = SHARD_COUNT_MAX
"""Stored if no coordinator shard is known. The numbers of shards are smaller."""

_NOTHING: Final = -1
"""Stands for an absent value where only 0 and above are valid."""

RECORD_FIELD: Final = log_pb2.Records.RECORDS_FIELD_NUMBER
"""Field number of each record in the encoding `records.v1`."""

_parse_records: Final = log_pb2.Records.FromString


class NotRecords(Exception):
    """Error for bytes that are no records of the encoding `records.v1`."""


# A key is made for every row, so these names are the packers themselves, without a Python function around them.

log_key: Final[Callable[[int, int], bytes]] = _ORDINAL_AND_NUMBER.pack
"""Packs (ordinal, last offset) into the key of the batch that ends at the offset. A scan for an offset starts there,
too."""

producer_key: Final[Callable[[int, int], bytes]] = _PRODUCER_KEY.pack
"""Packs (ordinal, producer id) into the key of a producer's entry."""

partition_key: Final[Callable[[int], bytes]] = _ORDINAL.pack
"""Packs (ordinal) into the prefix of all rows of a partition."""

head_key: Final[Callable[[int], bytes]] = _HEAD_KEY.pack
"""Packs (ordinal) into the key of a partition's head."""


def ranges_below(ordinal: int, offset: int) -> list[KeyRange]:
    """Return the ranges of rows under offsets that a partition no longer needs once its log begins at an offset. The
    row that holds the offset lies at or behind it. So does every row that readers from there on need."""
    first, below = log_key(ordinal, 0), log_key(ordinal, offset)
    return [
        (Family.LOG, first, below),
        (Family.STRETCHES, first, below),
        (Family.ABORTED, index_rows.aborted_key(ordinal, 0, 0), index_rows.aborted_key(ordinal, offset, 0)),
    ]


def ordinal_of(key: bytes) -> int:
    """Return the ordinal in a key of any kind."""
    ordinal: int = _ORDINAL.unpack_from(key)[0]
    return ordinal


def last_offset(key: bytes) -> int:
    """Return the last offset in a key of LOG."""
    found: int = _ORDINAL_AND_NUMBER.unpack(key)[1]
    return found


def is_log_key(key: bytes) -> bool:
    """True if these bytes have the shape of a key of LOG."""
    return len(key) == _ORDINAL_AND_NUMBER.size


def producer_id_of(key: bytes) -> int:
    """Return the producer id in a key of PRODUCERS."""
    producer_id: int = _PRODUCER_KEY.unpack(key)[1]
    return producer_id


def encode_head(head: PartitionHead) -> bytes:
    """Encode the head of a partition."""
    index, totals = head.index, head.totals
    return _HEAD.pack(
        VALUE_VERSION,
        head.log_start_offset,
        head.log_end_offset,
        head.last_stable_offset,
        head.open_transactions,
        head.last_abort_offset,
        index.first_offset,
        index.size_bytes,
        index.batch_count,
        index.max_timestamp_ms,
        head.forgotten.end_offset,
        totals.size_bytes,
        totals.record_count,
        totals.marker_count,
        totals.abort_count,
        head.compacted_to,
        head.leadership.epoch,
        head.leadership.incarnation,
    )


def decode_head(value: bytes, forgotten_csns: Iterable[tuple[int, int]] = ()) -> PartitionHead:
    """Decode the head of a partition, and add its forgotten csns, which have rows of their own. Leader epochs have such
    rows, too, so only the current epoch is known here (`epoch_rows`). Raises UnknownRow."""
    _check_version(value)
    numbers = _HEAD.unpack(value)
    _, start, end, stable, open_transactions, last_abort = numbers[:6]
    return PartitionHead(
        log_start_offset=start,
        log_end_offset=end,
        last_stable_offset=stable,
        open_transactions=open_transactions,
        last_abort_offset=last_abort,
        index=IndexProgress(*numbers[6:10]),
        forgotten=ForgottenProducers(numbers[10], tuple(forgotten_csns)),
        totals=LogTotals(*numbers[11:15]),
        compacted_to=numbers[15],
        leadership=Leadership(numbers[16], numbers[17], ()),
    )


def producer_rows(ordinal: int, producers: Iterable[tuple[int, ProducerEntry]]) -> list[tuple[bytes, bytes]]:
    """Return key and value of each producer's row in the partition with this ordinal.

    An entry that does not fit its row is a bug of ours, and raises."""
    rows = []
    for producer_id, entry in producers:
        opened, marker, batches = entry.open_transaction, entry.last_marker, entry.batches
        fixed = _PRODUCER.pack(
            SEALED_VERSION if entry.is_sealed else VALUE_VERSION,
            entry.epoch,
            entry.coordinator_epoch,
            _NO_SHARD if entry.coordinator_shard == NO_COORDINATOR_SHARD else entry.coordinator_shard,
            entry.last_append_ms,
            _NOTHING if opened is None else opened.first_offset,
            _NOTHING if opened is None else opened.started_ms,
            _NOTHING if marker is None else marker.txn_epoch,
            _NOTHING if marker is None else marker.outcome,
            entry.forgotten_csn if marker is None else marker.csn,
            NO_OFFSET if marker is None else marker.first_offset,
            len(batches),
        )
        numbers: list[int] = []
        for batch in batches:
            numbers += (batch.base_sequence, batch.last_sequence, batch.base_offset)
        value = fixed + _CACHED_BATCHES[len(batches)].pack(*numbers)
        rows.append((producer_key(ordinal, producer_id), value))
    return rows


def encode_producer(entry: ProducerEntry) -> bytes:
    """Encode a producer's entry."""
    ((_key, value),) = producer_rows(0, ((0, entry),))
    return value


def decode_producer(value: bytes) -> ProducerEntry:
    """Decode a producer's entry. Raises UnknownRow."""
    is_sealed = value[0] == SEALED_VERSION
    if not is_sealed:
        _check_version(value)
    (
        _,
        epoch,
        coordinator_epoch,
        shard,
        last_ms,
        first_offset,
        started_ms,
        txn_epoch,
        outcome,
        csn,
        ended_from,
        count,
    ) = _PRODUCER.unpack_from(value)
    numbers = _CACHED_BATCHES[count].unpack_from(value, _PRODUCER.size)
    return ProducerEntry(
        epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        last_append_ms=last_ms,
        batches=tuple(CachedBatch(*numbers[at : at + 3]) for at in range(0, 3 * count, 3)),
        open_transaction=None if first_offset == _NOTHING else OpenTransaction(first_offset, started_ms),
        last_marker=None if outcome == _NOTHING else LastMarker(txn_epoch, _outcome(outcome), csn, ended_from),
        is_sealed=is_sealed,
        forgotten_csn=csn if outcome == _NOTHING else 0,
        coordinator_shard=NO_COORDINATOR_SHARD if shard == _NO_SHARD else shard,
    )


def _outcome(stored: int) -> Outcome:
    return known_member(Outcome, stored, "the outcome of a producer's last marker")


def _check_version(value: bytes) -> None:
    check_version(value[0], VALUE_VERSION, "a stored value")


# Module-level aliases for the fast path: enum attribute lookup is slow on CPython 3.11, and a message stages many rows.
_LOG: Final = Family.LOG
_PARTITIONS: Final = Family.PARTITIONS
_PRODUCERS: Final = Family.PRODUCERS

_LOG_KEY_BYTES: Final = len(log_key(0, 0))
_HEAD_KEY_BYTES: Final = _HEAD_KEY.size
_PRODUCER_KEY_BYTES: Final = _PRODUCER_KEY.size
_FAMILIES: Final = (_PARTITIONS, _LOG, Family.STRETCHES, _PRODUCERS, Family.ABORTED)


class LogRows:
    """Implements `coordinator_runtime.rows.Rows`. `ordinals_in` returns the partitions of a shard. `load` calls it, so
    the topic catalog is loaded first."""

    def __init__(self, ordinals_in: Callable[[ShardKey], Iterable[int]]) -> None:
        self._ordinals_in = ordinals_in

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        value = record.value
        if not isinstance(value, RowsAppended):
            # A KeyError is a bug of ours: records that a load yields are never staged.
            _STAGES[type(value)](value, staged)
            return
        ordinal, rows, producers = value.ordinal, value.rows, value.producers
        for last_offset, row in rows:
            staged.added.append((_LOG, log_key(ordinal, last_offset), row))
        # The head counts once for each transaction, as if they had come one by one. A commit group therefore holds as
        # much either way.
        heads_bytes = _HEAD_KEY_BYTES * (len(producers) or 1)
        staged.size_bytes += heads_bytes + len(rows) * _LOG_KEY_BYTES + value.size_bytes
        staged.encoded_later[_PARTITIONS, head_key(ordinal)] = partial(encode_head, value.head)
        for key, producer in producer_rows(ordinal, producers):
            staged.newest[_PRODUCERS, key] = producer
            staged.size_bytes += _PRODUCER_KEY_BYTES + len(producer)
        if value.aborted is not None:
            _stage_aborted(ordinal, value.aborted, staged)
        for stretch in value.stretches:
            _stage_stretch(ordinal, stretch, staged)

    def load(self, shard: ShardKey) -> LoadValues:
        return partial(_load_partitions, tuple(self._ordinals_in(shard)))


def _load_partitions(ordinals: Iterable[int], store: StoreReads) -> Iterator[LogRecord]:
    for ordinal in ordinals:
        stored = store.get(_PARTITIONS, head_key(ordinal))
        assert stored is not None, f"partition {ordinal} is in the catalog and not in the store"
        forgotten = starmap(
            forgotten_rows.decode_forgotten, store.scan(_PARTITIONS, *forgotten_rows.forgotten_range(ordinal))
        )
        check_kinds(store, partition_key(ordinal))
        head = with_epochs(store, ordinal, decode_head(stored, forgotten))
        head = replace(head, compaction=decode_compaction(store.get(_PARTITIONS, compaction_key(ordinal))))
        check_partition(store, partition_key(ordinal), head)
        yield PartitionRestored(ordinal, head)
        yield from _load_producers(store, ordinal)


def with_epochs(store: ScannedRows, ordinal: int, head: PartitionHead) -> PartitionHead:
    """Return the head of a partition with all of its leader epochs. Raises UnknownRow."""
    leadership = head.leadership
    return replace(head, leadership=replace(leadership, history=load_epochs(store, ordinal, leadership.epoch)))


def _stage_sealed(record: ProducerSealed, staged: StagedRows) -> None:
    _stage_producer(record.ordinal, record.producer_id, encode_producer(record.producer), staged)


def _stage_leadership(record: PartitionCreated | LeaderEpochRaised, staged: StagedRows) -> None:
    _stage_head(record.ordinal, record.head, staged)
    newest = record.head.leadership.history[-1]
    staged.added.append((_PARTITIONS, epoch_key(record.ordinal, newest.epoch), encode_epoch(newest)))
    staged.size_bytes += EPOCH_ROW_BYTES


def _stage_stretch(ordinal: int, stretch: IndexEntry, staged: StagedRows) -> None:
    key, row = index_rows.stretch_key(ordinal, stretch.last_offset), index_rows.encode_stretch(stretch)
    staged.added.append((Family.STRETCHES, key, row))
    staged.size_bytes += len(key) + len(row)


def _stage_log_start(record: LogStartMoved, staged: StagedRows) -> None:
    _stage_head(record.ordinal, record.head, staged)


def _stage_finished(record: StretchFinished, staged: StagedRows) -> None:
    _stage_head(record.ordinal, record.head, staged)
    _stage_stretch(record.ordinal, record.stretch, staged)


def _stage_deleted(record: PartitionDeleted, staged: StagedRows) -> None:
    start, end = partition_key(record.ordinal), partition_key(record.ordinal + 1)
    for family in _FAMILIES:
        staged.deleted_ranges.append((family, start, end))


def _stage_compacted(record: LogCompacted, staged: StagedRows) -> None:
    ordinal, step = record.ordinal, record.step
    _stage_head(ordinal, record.head, staged)
    changed: dict[tuple[Family, bytes], bytes | None] = {}
    for last_offset, row in step.rows:
        changed[_LOG, log_key(ordinal, last_offset)] = row
    for last_offset, stretch in step.stretches:
        changed[Family.STRETCHES, index_rows.stretch_key(ordinal, last_offset)] = stretch
    for aborted in step.aborted:
        for offset in index_rows.aborted_offsets(aborted):
            changed[Family.ABORTED, index_rows.aborted_key(ordinal, offset, aborted.producer_id)] = None
    changed[_PARTITIONS, compaction_key(ordinal)] = encode_compaction(step.compaction)
    staged.newest |= changed
    staged.size_bytes += sum(len(key) + len(value or b"") for (_family, key), value in changed.items())
    staged.deleted_ranges += [
        (_LOG, log_key(ordinal, first), log_key(ordinal, last + 1)) for first, last in step.gone_ranges
    ]


def _stage_head(ordinal: int, head: PartitionHead, staged: StagedRows) -> None:
    staged.encoded_later[_PARTITIONS, head_key(ordinal)] = partial(encode_head, head)
    staged.size_bytes += _HEAD_KEY_BYTES


def _stage_producer(ordinal: int, producer_id: int, producer: bytes | None, staged: StagedRows) -> None:
    staged.newest[_PRODUCERS, producer_key(ordinal, producer_id)] = producer
    staged.size_bytes += _PRODUCER_KEY_BYTES + (0 if producer is None else len(producer))


def _stage_aborted(ordinal: int, aborted: AbortedTransaction, staged: StagedRows) -> None:
    value, producer_id = index_rows.encode_aborted(aborted), aborted.producer_id
    rows = [
        (Family.ABORTED, index_rows.aborted_key(ordinal, offset, producer_id), value)
        for offset in index_rows.aborted_offsets(aborted)
    ]
    staged.added += rows
    staged.size_bytes += len(rows) * index_rows.ABORTED_ROW_BYTES


def _stage_forgotten(record: ProducersForgotten, staged: StagedRows) -> None:
    ordinal = record.ordinal
    _stage_head(ordinal, record.head, staged)
    for producer_id in record.producer_ids:
        _stage_producer(ordinal, producer_id, None, staged)
    for coordinator_shard, csn in record.raised_csns:
        key, value = forgotten_rows.forgotten_key(ordinal, coordinator_shard), forgotten_rows.encode_forgotten(csn)
        staged.newest[_PARTITIONS, key] = value
        staged.size_bytes += len(key) + len(value)
    for remembered in record.remembered:
        key, value = (
            forgotten_rows.remembered_key(ordinal, remembered.identity),
            forgotten_rows.encode_remembered(remembered),
        )
        staged.added.append((_PRODUCERS, key, value))
        staged.size_bytes += len(key) + len(value)


_STAGES: Final[Mapping[type, Callable[[Any, StagedRows], None]]] = {
    ProducerSealed: _stage_sealed,
    ProducersForgotten: _stage_forgotten,
    PartitionCreated: _stage_leadership,
    LeaderEpochRaised: _stage_leadership,
    LogStartMoved: _stage_log_start,
    StretchFinished: _stage_finished,
    LogCompacted: _stage_compacted,
    PartitionDeleted: _stage_deleted,
}


def _load_producers(store: StoreReads, ordinal: int) -> Iterator[ProducerRestored]:
    """Yield all producers of a partition as they are read. Those with open transactions come last, in order of their
    first offsets."""
    still_open: list[tuple[int, ProducerRestored]] = []
    for key, value in store.scan(_PRODUCERS, producer_key(ordinal, 0), forgotten_rows.remembered_from(ordinal)):
        restored = ProducerRestored(ordinal, producer_id_of(key), decode_producer(value))
        opened = restored.producer.open_transaction
        if opened is None:
            yield restored
        else:
            still_open.append((opened.first_offset, restored))
    still_open.sort(key=itemgetter(0))
    for _first_offset, restored in still_open:
        yield restored


def examine_batch(covered: bytes, payload: bytes, items_max: int) -> tuple[bytes, int, int | None]:
    """Examine a batch as `ExamineBatch` describes. The compiled transport brings the same function, compiled."""
    checked = checked_part(covered)
    crc = crc32c(payload, crc32c(checked), KEEP_THE_GIL)
    count: int | None = None
    try:
        if items_max and checked is covered:
            count = len(_parse_records(payload).records)
        elif items_max:
            count = kafka_record_count(payload, last_offset_delta_of(covered), items_max=items_max)
    except (DecodeError, NotKafkaRecords, TooManyItems):
        pass
    return pack_uncovered(crc) + covered, crc, count


def record_count_of(payload: bytes) -> int:
    """Return the number of records in an unpacked payload of the encoding `records.v1`. Raises NotRecords."""
    try:
        return len(_parse_records(payload).records)
    except DecodeError as error:
        raise NotRecords(str(error)) from error


def offset_deltas_of(payload: bytes) -> list[int]:
    """Return the offset deltas that the records of an unpacked payload of `RECORDS_V2` carry. Raises NotRecords."""
    try:
        return [record.offset_delta for record in _parse_records(payload).records]
    except DecodeError as error:
        raise NotRecords(str(error)) from error


def lacks_a_key(payload: bytes) -> bool:
    """True if a record of an unpacked payload of `Records` has no key. Raises NotRecords."""
    try:
        return not all(record.HasField("key") for record in _parse_records(payload).records)
    except DecodeError as error:
        raise NotRecords(str(error)) from error


def placed_times_of(payload: bytes) -> list[tuple[int, int]]:
    """Return offset delta and timestamp of each record of an unpacked payload of `Records`. Records carry their offset
    delta only in `RECORDS_V2`; in other payloads it is 0. Raises NotRecords."""
    try:
        return [(record.offset_delta, record.timestamp_ms) for record in _parse_records(payload).records]
    except DecodeError as error:
        raise NotRecords(str(error)) from error


def placed_records_of(payload: bytes, first_place: int | None) -> list[PlacedRecord]:
    """Return the records of an unpacked payload of `Records`. They are consecutive from `first_place` on; None = each
    carries its offset delta. Raises NotRecords."""
    try:
        records = _parse_records(payload).records
    except DecodeError as error:
        raise NotRecords(str(error)) from error
    return [
        (
            record.offset_delta if first_place is None else place,
            record.timestamp_ms,
            # Checking that a field is present only matters for an empty value.
            record.key or (b"" if record.HasField("key") else None),
            record.value or (b"" if record.HasField("value") else None),
            _headers_of(record) if record.headers else (),
        )
        for place, record in enumerate(records, first_place or 0)
    ]


def encode_records(records: Iterable[PlacedRecord], *, has_deltas: bool) -> bytes:
    """Return the records as an unpacked payload of `Records`, each with its offset delta if `has_deltas`. In names of
    headers, bytes that are no text become U+FFFD, as in Kafka's own consumer."""
    message = log_pb2.Records()
    add = message.records.add
    for place, timestamp_ms, key, value, headers in records:
        record = add()
        if key is not None:
            record.key = key
        if value is not None:
            record.value = value
        record.timestamp_ms = timestamp_ms
        if has_deltas:
            record.offset_delta = place
        for name, content in headers:
            record.headers.add(key=name.decode(errors="replace"), value=content)
    return message.SerializeToString()


def _headers_of(record: log_pb2.Record) -> RecordHeaders:
    return tuple((header.key.encode(), header.value if header.HasField("value") else None) for header in record.headers)
