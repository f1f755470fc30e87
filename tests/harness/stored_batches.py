"""Batches as the log stores them."""

from __future__ import annotations

from coordinator_protocol.batch import BatchHeader, OffsetlessBatch, encode_offsetless, pack_base_offset


def encode_batch(header: BatchHeader, payload: bytes) -> bytes:
    """The stored form of a batch at the base offset of its header, checksum included."""
    return with_base_offset(encode_offsetless(header, payload), header.base_offset)


def with_base_offset(batch: OffsetlessBatch, base_offset: int) -> bytes:
    """The stored form of a batch at this offset."""
    rest_of_header, payload = batch
    return pack_base_offset(base_offset) + rest_of_header + payload
