"""Record batches as Kafka's clients send them, written from Kafka's documented format alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from coordinator_protocol.batch import Compression
from coordinator_protocol.checksum import crc32c
from coordinator_protocol.compression import pack

KafkaRow = tuple[bytes | None, bytes | None, int, Sequence[tuple[bytes, bytes | None]]]
"""Key, value, timestamp (ms) and headers."""

BASE_MS = 1_700_000_000_000
ROW: KafkaRow = (b"k", b"v" * 20, BASE_MS, ((b"h", b"x"), (b"none", None)))

_CONTENTS = st.none() | st.binary(max_size=90)
KAFKA_ROWS = st.lists(
    st.tuples(
        _CONTENTS,
        _CONTENTS,
        st.integers(BASE_MS - 2**40, BASE_MS + 2**40),
        st.lists(st.tuples(st.binary(max_size=5), _CONTENTS), max_size=3),
    ),
    min_size=1,
    max_size=5,
)


def zigzag(number: int) -> bytes:
    """A number of 32 or 64 bits, with its sign in the lowest bit."""
    rest = (number << 1) ^ (number >> 63)
    written = bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def sized(content: bytes | None) -> bytes:
    return zigzag(-1) if content is None else zigzag(len(content)) + content


def kafka_record(row: KafkaRow, delta: int) -> bytes:
    key, value, timestamp_ms, headers = row
    named = b"".join(sized(name) + sized(content) for name, content in headers)
    body = b"\0" + zigzag(timestamp_ms - BASE_MS) + zigzag(delta) + sized(key) + sized(value)
    return sized(body + zigzag(len(headers)) + named)


def kafka_payload(rows: Iterable[KafkaRow], deltas: Iterable[int] | None = None) -> bytes:
    """The records of a batch, not compressed."""
    listed = list(rows)
    places = range(len(listed)) if deltas is None else deltas
    return b"".join(kafka_record(row, delta) for row, delta in zip(listed, places, strict=True))


def xerial(payload: bytes, *, block_bytes: int = 50) -> bytes:
    """A payload in Snappy as Java's clients pack it: blocks, each behind its length."""
    import cramjam

    blocks = [
        bytes(cramjam.snappy.compress_raw(payload[start : start + block_bytes]))
        for start in range(0, len(payload), block_bytes)
    ]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(each)) + each for each in blocks)


def kafka_packed(payload: bytes, compression: Compression) -> bytes:
    return xerial(payload) if compression is Compression.SNAPPY else pack(payload, compression)


def kafka_batch(
    payload: bytes,
    record_count: int,
    *,
    compression: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
    last_offset_delta: int | None = None,
    max_ms: int = BASE_MS,
    place: tuple[int, int] = (0, -1),
) -> bytes:
    """A whole batch around a payload. `producer`: id, epoch and base sequence. `place`: base offset, leader epoch."""
    delta = record_count - 1 if last_offset_delta is None else last_offset_delta
    covered = (
        struct.pack(">hiqqqhii", attributes | compression, delta, BASE_MS, max_ms, *producer, record_count) + payload
    )
    base_offset, leader_epoch = place
    return struct.pack(">qiibI", base_offset, 9 + len(covered), leader_epoch, 2, crc32c(covered)) + covered
