"""Batches of which several polls of a share consumer take records: decoded once, and anew if they are others."""

from __future__ import annotations

import pytest

from coordinator_client.errors import CorruptBatch
from coordinator_client.fetch_reply import WireBatch
from coordinator_client.share import decoded
from coordinator_client.share.acquired import AcquiredOffsets, HeldRecords
from coordinator_client.share.decoded import DecodedBatches
from coordinator_client.values import TopicPartition
from coordinator_protocol.batch import Encoding
from tests.client.test_kafka_batches import wire
from tests.harness.every_encoding import stored

NAME = TopicPartition("t", 0)


def batch(*values: bytes, base_offset: int = 0) -> WireBatch:
    records = [(delta, 5, None, value, ()) for delta, value in enumerate(values)]
    return wire(stored(records, Encoding.KAFKA_V2, base_offset=base_offset))


def taken(batches: DecodedBatches, found: WireBatch, first: int, last: int) -> dict[int, bytes | None]:
    """The records of a poll that acquired these offsets."""
    held = HeldRecords(1, NAME, b"", [AcquiredOffsets(first, last, 1)], [found], expires_ms=1_000)
    held.decode(batches)
    assert not held.corrupt
    return {record.offset: record.value for record in held.records}


def is_kept(batches: DecodedBatches, found: WireBatch) -> bool:
    """True if two polls get the same decoded records."""
    once, again = (batches.placed(NAME, found, is_whole=False)[1] for _time in range(2))
    return once is again


def test_a_batch_is_decoded_once_for_the_polls_that_share_it() -> None:
    batches = DecodedBatches()
    found = batch(b"a", b"b", b"c", base_offset=7)
    assert taken(batches, found, 7, 7) == {7: b"a"}
    assert taken(batches, batch(b"a", b"b", b"c", base_offset=7), 8, 9) == {8: b"b", 9: b"c"}
    assert is_kept(batches, found)


def test_another_batch_at_the_same_offset_is_decoded_anew() -> None:
    batches = DecodedBatches()
    assert taken(batches, batch(b"a", b"b"), 0, 0) == {0: b"a"}
    assert taken(batches, batch(b"x", b"y"), 1, 1) == {1: b"y"}


def test_a_batch_that_was_acquired_as_a_whole_is_not_kept() -> None:
    batches = DecodedBatches()
    found = batch(b"a", b"b")
    first = batches.placed(NAME, found, is_whole=True)
    assert batches.placed(NAME, found, is_whole=True)[1] is not first[1]


def test_the_batches_used_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = batch(b"a", b"b"), batch(b"a" * 1_000, b"b", base_offset=10)
    monkeypatch.setattr(decoded, "KEPT_BYTES_MAX", 1_000)
    batches = DecodedBatches()
    assert is_kept(batches, small)
    assert not is_kept(batches, large)
    assert is_kept(batches, small)


def test_a_damaged_batch_is_refused_each_time() -> None:
    batches = DecodedBatches()
    found = batch(b"a", b"b")
    damaged = WireBatch(found.fields, bytes(found.payload)[:-1] + b"?")
    for _time in range(2):
        with pytest.raises(CorruptBatch):
            batches.placed(NAME, damaged, is_whole=False)
    assert taken(batches, found, 0, 1) == {0: b"a", 1: b"b"}
