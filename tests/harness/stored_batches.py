"""Batches as the log stores them."""

from __future__ import annotations

from coordinator_protocol.batch import (
    HEADER_BYTES_COUNTED,
    NO_LEADER_EPOCH,
    BatchHeader,
    OffsetlessBatch,
    encode_offsetless,
    pack_place,
)


def encode_batch(header: BatchHeader, payload: bytes) -> bytes:
    """The stored form of a batch at the base offset of its header, checksum included."""
    return with_place(encode_offsetless(header, payload), header.base_offset, header.leader_epoch)


def with_place(batch: OffsetlessBatch, base_offset: int, leader_epoch: int = NO_LEADER_EPOCH) -> bytes:
    """The stored form of a batch at this offset."""
    rest_of_header, payload = batch
    return pack_place(base_offset, HEADER_BYTES_COUNTED + len(payload), leader_epoch) + rest_of_header + payload
