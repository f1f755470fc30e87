"""Rows of a stopped server's store, read for `log dump` and `store verify` as they are stored.

Nothing here trusts the loader, the shards or the heads of partitions, because it is used to check what those wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import starmap
from typing import Final, Protocol

from coordinator_protocol.batch import HEADER_BYTES, TAIL_BYTES, BatchHeader, decode_header, split_row
from coordinator_protocol.errors import Refused
from coordinator_protocol.marker import Marker, Outcome, control_batch, decode_marker_payload, marker_header
from coordinator_protocol.wire import Buffer
from coordinator_runtime.decision import CATALOG_KEY, Coordinator, ShardKey
from coordinator_runtime.rows import HistoryRow, steps_of
from coordinator_runtime.store import Family, StoreDamaged
from partition_log import codec, forgotten_rows, index_rows, partition_state
from partition_log.batches import OFFSET_END
from partition_log.batches import batches as readable_batches
from partition_log.catalog.codec import CatalogCodec
from partition_log.catalog.state import CatalogRecord
from partition_log.compaction_rows import compaction_key, decode_compaction
from partition_log.reading import AbortedIndex, ReadBudget
from partition_log.state import (
    NO_OFFSET,
    AbortedTransaction,
    Compaction,
    IndexEntry,
    PartitionHead,
    ProducerEntry,
    RememberedEnd,
)
from txn_coordinator.codec import TransactionCodec
from txn_coordinator.records import TransactionChanged
from txn_coordinator.state import Transaction

_STATE_KEY: Final = struct.Struct(">BHB")
_LOG_ROW_KEY: Final = struct.Struct(">IQ")
_END: Final = b"\xff" * 24
"""A key after every key of every family: no key is longer and begins like this."""


class StoredRows(Protocol):
    """The reading half of a store."""

    def get(self, family: Family, key: bytes) -> bytes | None: ...

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...


@dataclass(frozen=True, slots=True)
class StateRow:
    """The newest value of one key of one shard."""

    shard: ShardKey
    record_type: int
    key: bytes
    value: bytes


class RowPart(Enum):
    """Part of its row in LOG that a batch takes."""

    WHOLE = "whole"
    BATCH = "batch"
    """All of the row but the tail, which is the marker after it."""
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One batch as stored in a partition's log."""

    key_offset: int
    """The last offset, according to the key of the row."""
    encoded: Buffer
    """Bytes that readers get. For a marker in a tail, the batch that it stands for."""
    header: BatchHeader
    part: RowPart = RowPart.WHOLE

    @property
    def stored_bytes(self) -> int:
        """Number of bytes that the batch takes in the store."""
        return TAIL_BYTES if self.part is RowPart.TAIL else len(self.encoded)

    @property
    def marker(self) -> Marker | None:
        """Marker of a control batch; None for another batch. Raises Refused (CORRUPT_MESSAGE) if it cannot be
        decoded."""
        if not self.header.is_control:
            return None
        payload = decode_marker_payload(self.payload)
        return Marker(
            producer_id=self.header.producer_id,
            txn_epoch=payload.txn_epoch,
            next_epoch=payload.next_epoch,
            coordinator_shard=payload.coordinator_shard,
            coordinator_epoch=payload.coordinator_epoch,
            outcome=payload.outcome,
            csn=payload.csn,
        )

    @property
    def payload(self) -> Buffer:
        """Bytes after the header."""
        return self.encoded[HEADER_BYTES:]


def aborted_by(batch: StoredBatch) -> AbortedTransaction | None:
    """Return the transaction that a batch aborts, according to its marker. None if it aborts none with records in the
    partition. Raises Refused."""
    marker = batch.marker
    if marker is None or marker.outcome is not Outcome.ABORT:
        return None
    first_offset, offset = decode_marker_payload(batch.payload).first_offset, batch.header.base_offset
    return None if first_offset == NO_OFFSET else partition_state.aborted_by(marker, first_offset, offset)


def rows_of(rows: StoredRows, family: Family) -> Iterator[tuple[bytes, bytes]]:
    """Return all rows of a family, as they are."""
    return rows.scan(family, b"", _END)


def state_key(shard: ShardKey, record_type: int, key: bytes) -> bytes:
    """Return the key of the row that holds the newest value of a key."""
    return _STATE_KEY.pack(shard.coordinator, shard.number, record_type) + key


def state_rows(rows: StoredRows, coordinator: Coordinator | None = None) -> Iterator[StateRow]:
    """Yield the newest values, by shard and key."""
    for key, value in rows.scan(Family.COORDINATOR_STATE, *_range_of(coordinator)):
        number, shard, record_type = _STATE_KEY.unpack_from(key)
        yield StateRow(ShardKey(Coordinator(number), shard), record_type, key[_STATE_KEY.size :], value)


def history(rows: StoredRows, coordinator: Coordinator | None = None) -> Iterator[HistoryRow]:
    """Yield the steps of coordinators and catalog, by shard and in order. Raises StoreDamaged for bytes that are not a
    history row."""
    for key, value in rows.scan(Family.HISTORY, *_range_of(coordinator)):
        yield from steps_of(key, value)


def catalog(rows: StoredRows) -> list[CatalogRecord]:
    """Return the records from which a server would load the topic catalog."""
    decode = CatalogCodec().decode
    found = (
        decode(row.record_type, row.key, row.value)
        for row in state_rows(rows, Coordinator.CATALOG)
        if row.shard == CATALOG_KEY and row.record_type
    )
    return [record for record in found if record is not None]


def transaction_of(record_type: int, key: bytes, value: bytes) -> Transaction | None:
    """Return the transaction in a row of the TRANSACTIONS shards; None for a row of another kind."""
    record = TransactionCodec().decode(record_type, key, value)
    return record.transaction if isinstance(record, TransactionChanged) else None


def transactions(rows: StoredRows) -> Iterator[Transaction]:
    """Yield every transactional id in its current state."""
    return (found for _shard, found in transactions_by_shard(rows))


def transactions_by_shard(rows: StoredRows) -> Iterator[tuple[int, Transaction]]:
    """Yield every transactional id in its current state, with the number of its shard."""
    for row in state_rows(rows, Coordinator.TRANSACTIONS):
        found = transaction_of(row.record_type, row.key, row.value)
        if found is not None:
            yield row.shard.number, found


def batches(rows: StoredRows, ordinal: int, start_offset: int = 0) -> Iterator[StoredBatch]:
    """Yield the batches of a partition, starting with the one that holds the offset. Raises LogDamaged at bytes that
    cannot be read as a batch."""
    start, end = codec.log_key(ordinal, start_offset), codec.partition_key(ordinal + 1)
    at = start_offset
    try:
        for key, row in rows.scan(Family.LOG, start, end):
            for batch in _parts(_LOG_ROW_KEY.unpack(key)[1], row):
                if batch.header.last_offset >= start_offset:
                    yield batch
                at = max(at, batch.header.last_offset + 1)
    except (StoreDamaged, Refused):
        # `readable_batches` finds the extent of the damage, and yields the intact batches beside it.
        for header, found in readable_batches(rows, ordinal, at):
            part = RowPart.TAIL if len(found) == TAIL_BYTES else RowPart.WHOLE
            yield StoredBatch(header.last_offset, control_batch(header, found), header, part)


def _parts(key_offset: int, row: bytes) -> Iterator[StoredBatch]:
    encoded, tail = split_row(row)
    header = decode_header(encoded)
    if tail is None:
        yield StoredBatch(key_offset, encoded, header)
        return
    yield StoredBatch(key_offset - 1, encoded, header, RowPart.BATCH)
    marker = marker_header(header, tail)
    yield StoredBatch(key_offset, control_batch(marker, tail), marker, RowPart.TAIL)


def heads(rows: StoredRows) -> dict[int, PartitionHead]:
    """Return the positions of every partition, by ordinal. Of its leader epochs, they have only the current one."""
    found: dict[int, PartitionHead] = {}
    for key, value in rows.scan(Family.PARTITIONS, b"", _END):
        ordinal = codec.ordinal_of(key)
        if key == codec.head_key(ordinal):
            csns = rows.scan(Family.PARTITIONS, *forgotten_rows.forgotten_range(ordinal))
            found[ordinal] = codec.decode_head(value, starmap(forgotten_rows.decode_forgotten, csns))
    return found


def compaction(rows: StoredRows, ordinal: int) -> Compaction:
    """Return the progress of compaction in a partition."""
    return decode_compaction(rows.get(Family.PARTITIONS, compaction_key(ordinal)))


def stretches(rows: StoredRows, ordinal: int) -> list[IndexEntry]:
    """Return the finished index entries of a partition, in order."""
    start, end = codec.partition_key(ordinal), codec.partition_key(ordinal + 1)
    return [index_rows.decode_stretch(key, value) for key, value in rows.scan(Family.STRETCHES, start, end)]


def producers(rows: StoredRows, ordinal: int) -> dict[int, ProducerEntry]:
    """Return the producers of a partition, by producer id."""
    start, end = codec.partition_key(ordinal), forgotten_rows.remembered_from(ordinal)
    return {
        codec.producer_id_of(key): codec.decode_producer(value)
        for key, value in rows.scan(Family.PRODUCERS, start, end)
    }


def remembered_ends(rows: StoredRows, ordinal: int) -> list[RememberedEnd]:
    """Return the remembered ends of transactions whose producers a partition has forgotten."""
    start, end = forgotten_rows.remembered_from(ordinal), forgotten_rows.remembered_end(ordinal)
    return [forgotten_rows.decode_remembered(key, value) for key, value in rows.scan(Family.PRODUCERS, start, end)]


def aborted_rows(rows: StoredRows, ordinal: int) -> list[tuple[int, AbortedTransaction]]:
    """Return the rows of the index of aborted transactions in a partition, each with the offset in its key."""
    start, end = codec.partition_key(ordinal), codec.partition_key(ordinal + 1)
    return [index_rows.decode_aborted(key, value) for key, value in rows.scan(Family.ABORTED, start, end)]


class Fates:
    """Outcomes of the transactions of a partition, for its batches in ascending order."""

    def __init__(self, rows: StoredRows, ordinal: int) -> None:
        everything = PartitionHead(last_abort_offset=OFFSET_END)
        self._aborted = AbortedIndex(rows, ordinal, everything, ReadBudget(0))
        self._producers = producers(rows, ordinal)

    def of(self, batch: BatchHeader) -> Outcome | None:
        """Return the outcome; None while the transaction is open. Raises LogDamaged if that cannot be read."""
        if self._aborted.hides(batch):
            return Outcome.ABORT
        entry = self._producers.get(batch.producer_id)
        opened = None if entry is None else entry.open_transaction
        return None if opened is not None and opened.first_offset <= batch.base_offset else Outcome.COMMIT


def _range_of(coordinator: Coordinator | None) -> tuple[bytes, bytes]:
    return (b"", _END) if coordinator is None else (bytes([coordinator]), bytes([coordinator + 1]))
