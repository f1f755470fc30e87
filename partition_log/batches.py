"""Stored batches of a partition, and the recovery of those that are damaged.

Three kinds of damage can be met where a batch is read. Each concerns this batch alone:

- *The value cannot be read, but its row can*: the segment of the value does not hold it. The row has the header and
  tail, so the damaged offsets are known, and the marker behind them is whole.
- *A block of sorted rows fails its checksum*, with a dozen batches in it. The block is read without verification. Every
  batch is judged by its own checksum, by its key, and by whether it follows the one before. Usually all but one are
  whole.
- *Nothing can be recovered there*: then a search finds the next offset at which the store can be read again.

A marker may lie in the tail of a row (`coordinator_protocol.marker`). Readers of batches get it as a batch of its own,
behind the batch of that row.

Source: design 5 (damage), spec log-and-runtime 1.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from coordinator_protocol.batch import BatchHeader, decode_header, split_row, verify_batch
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import marker_header
from coordinator_protocol.wire import Buffer
from coordinator_runtime.store import Family, StoreDamaged
from partition_log import codec

OFFSET_END: Final = 2**63 - 1
"""Offset behind every other one, for reads to an unknown end."""

_STEPS_OF_ONE: Final = 64
"""Number of offsets that are tried one by one before the steps grow. Most blocks hold fewer."""


class LogReads(Protocol):
    """The part of a store that is used here, as `coordinator_runtime.store.Store` describes it."""

    def scan(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def scan_headers(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...

    def scan_unverified(self, family: Family, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]: ...


class LogDamaged(Exception):
    """Error for a part of a partition that cannot be read as it was written. A reader must skip the records in [offset,
    next_offset) to continue."""

    def __init__(
        self, family: Family, offset: int, next_offset: int, reason: str, code: ErrorCode = ErrorCode.CORRUPT_MESSAGE
    ) -> None:
        super().__init__(family, offset, next_offset, reason)
        self.family = family
        """Damaged family: LOG for the records themselves, ABORTED for their outcome."""
        self.offset = offset
        self.next_offset = next_offset
        self.reason = reason
        self.code = code
        """UNSUPPORTED_FOR_MESSAGE_FORMAT means that the batch is whole, but only a newer version can read it."""


def batches(
    store: LogReads, ordinal: int, start_offset: int, end_offset: int = OFFSET_END, *, headers_only: bool = False
) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Yield headers and stored forms, from the batch that holds `start_offset` to the last one before `end_offset`. The
    end is the first offset of a row, or behind all rows. The stored form of a marker may be a tail: `control_batch`.

    With `headers_only`, the stored form is the part that had to be read. Of a large batch that is its header alone, so
    damage to a payload in a segment is not met. A large batch with a marker behind it is viewed, not copied.

    Raises LogDamaged, behind all batches that lie before the damage; StoreUnreadable."""
    at = start_offset
    try:
        scan = store.scan_headers if headers_only else store.scan
        for key, row in scan(Family.LOG, codec.log_key(ordinal, start_offset), codec.log_key(ordinal, end_offset)):
            batch, tail = split_row(memoryview(row))
            try:
                header = decode_header(batch, may_be_cut=headers_only)
            except Refused as damage:
                raise LogDamaged(Family.LOG, at, codec.last_offset(key) + 1, damage.message, damage.code) from damage
            at = header.last_offset + 1
            if at > start_offset:
                yield header, batch
            if tail is None:
                continue
            try:
                marker = marker_header(header, tail)
            except Refused as damage:
                raise LogDamaged(Family.LOG, at, at + 1, damage.message) from damage
            yield marker, tail
            at += 1
    except StoreDamaged as damage:
        found = damage
    else:
        return
    yield from _salvaged(store, ordinal, at, end_offset, found, headers_only=headers_only)


def _salvaged(
    store: LogReads, ordinal: int, at: int, end_offset: int, damage: StoreDamaged, *, headers_only: bool
) -> Iterator[tuple[BatchHeader, Buffer]]:
    """Yield the batches from `at` on, as long as they are whole and follow each other. Raises LogDamaged."""
    try:
        if damage.key is not None:
            raise damage
        for key, row in store.scan_unverified(
            Family.LOG, codec.log_key(ordinal, at), codec.log_key(ordinal, end_offset)
        ):
            whole = _whole(ordinal, key, row)
            if whole and whole[0][0].base_offset > at:
                # Compaction may have left these offsets without a batch. Next to damage, nothing distinguishes that
                # from a loss.
                raise LogDamaged(Family.LOG, at, whole[0][0].base_offset, str(damage)) from damage
            for header, stored in whole:
                if header.last_offset >= at:
                    yield header, stored
                    at = header.last_offset + 1
    except StoreDamaged as worse:
        marker = _marker_in(store, ordinal, worse.key)
        if marker is not None and marker[0].base_offset == at:
            yield marker
            yield from batches(store, ordinal, at + 1, end_offset, headers_only=headers_only)
            return
        found_from, next_offset = _behind(store, ordinal, at, end_offset, worse.key)
        if marker is not None:
            next_offset = min(next_offset, marker[0].base_offset)
        if next_offset > at:
            raise LogDamaged(Family.LOG, at, next_offset, str(worse)) from worse
        # This batch is whole, and the damage lies in the block before it. RocksDB's index does not hold the last key of
        # a block, but a key that is long enough to separate it from the next block. So RocksDB looks for the first
        # offsets behind a block in that block.
        yield from batches(store, ordinal, found_from, end_offset, headers_only=headers_only)
        return
    if at < end_offset < OFFSET_END:
        raise LogDamaged(Family.LOG, at, end_offset, str(damage)) from damage


def _whole(ordinal: int, key: bytes, row: bytes) -> Sequence[tuple[BatchHeader, bytes]]:
    """Return the batches of a row that is as it was written, and lies where it belongs; none for any other bytes."""
    batch, tail = split_row(row)
    try:
        verify_batch(batch)
        parts = [(decode_header(batch), batch)]
        if tail is not None:
            parts.append((marker_header(parts[0][0], tail), tail))
    except Refused:
        return ()
    return parts if key == codec.log_key(ordinal, parts[-1][0].last_offset) else ()


def _marker_in(store: LogReads, ordinal: int, key: bytes | None) -> tuple[BatchHeader, bytes] | None:
    """Return the marker in a row whose payload cannot be read; None if it has none, or that cannot be read either."""
    if key is None:
        return None
    try:
        for _key, row in store.scan_headers(Family.LOG, key, key + b"\0"):
            batch, tail = split_row(row)
            if tail is not None:
                header = marker_header(decode_header(batch, may_be_cut=True), tail)
                # Behind a damaged block the key may be that of any other row.
                return (header, tail) if key == codec.log_key(ordinal, header.base_offset) else None
    except (StoreDamaged, Refused):
        # The marker is as lost as the batch.
        return None
    return None


def _behind(store: LogReads, ordinal: int, at: int, end_offset: int, key: bytes | None) -> tuple[int, int]:
    """Find where the log continues behind damage that was met at `at`. Return an offset from which the store can be
    read, and the first offset of the batch that it finds there. `key` is that of the damaged batch, if it is known."""
    if key is not None and codec.is_log_key(key):
        last_offset = codec.last_offset(key)
        if key == codec.log_key(ordinal, last_offset) and at <= last_offset < end_offset:
            return last_offset + 1, last_offset + 1
    damaged, step = at, 1
    while (next_offset := _readable_from(store, ordinal, damaged + step, end_offset)) is None:
        damaged += step
        if damaged - at >= _STEPS_OF_ONE:
            step *= 2
    while step > 1:
        # The damage ends somewhere in the last step.
        step //= 2
        found = _readable_from(store, ordinal, damaged + step, end_offset)
        if found is None:
            damaged += step
        else:
            next_offset = found
    return damaged + 1, next_offset


def _readable_from(store: LogReads, ordinal: int, offset: int, end_offset: int) -> int | None:
    """Return the first offset of the batch that the store finds at an offset, or the end; None if it finds damage."""
    if offset < end_offset:
        rows = store.scan(Family.LOG, codec.log_key(ordinal, offset), codec.log_key(ordinal, end_offset))
        try:
            for _key, row in rows:
                return decode_header(split_row(row)[0]).base_offset
        except (StoreDamaged, Refused):
            return None
    return end_offset
