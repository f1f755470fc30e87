"""Compressed payloads, for both ends: the only importer of the library that packs and unpacks them.

One library serves all four compressions, so that every reader of ours can unpack what the server accepts. The framings
mark their own end, and mostly have their own checksum. They are gzip members (RFC 1952), Snappy's framing format (not
Kafka's xerial blocks), LZ4 frames (not blocks) and Zstandard frames. A payload is one or several of them, with nothing
after. Payloads of Kafka (`Encoding.KAFKA_V2`) differ in Snappy only: see `unpack_kafka`.

Source: decision 22.
"""

from __future__ import annotations

import struct
from types import MappingProxyType, ModuleType
from typing import Final

import cramjam

from coordinator_protocol.batch import Compression, Encoding
from coordinator_protocol.limits import MEBI

UNPACKED_BYTES_MAX: Final = 16 * MEBI
"""Largest size of an unpacked payload: that of the largest message. The server and readers refuse a payload that
unpacks to more: a few KiB of gzip could otherwise fill the memory of all its readers."""

COMPRESSION_NAMES: Final = MappingProxyType({compression.name.lower(): compression for compression in Compression})
"""Compressions by their names in settings."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES: Final = 16
"""Size of the magic and of two version numbers, which readers ignore."""
_XERIAL_LENGTH: Final = struct.Struct(">I")

_XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
_LZ4_FRAME_BEGINS: Final = bytes.fromhex("04224d18604082")
"""Header of a frame of independent blocks without checksums, as Kafka's own writer makes it. Its reader takes no other
kind of blocks, and the library makes only those that depend on each other."""
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_LENGTH: Final = struct.Struct("<I")
_LZ4_NOT_PACKED: Final = 1 << 31
_LZ4_FRAME_ENDS: Final = _LZ4_LENGTH.pack(0)

_BUFFER_BYTES_MIN: Final = 64 * 1024
_BUFFER_GROWTH: Final = 8
_TOO_SMALL: Final = "failed to write whole buffer"
"""Text of the library's error for a buffer that is too small. Only the wording of a refusal rests on it."""

_CODECS: Final[MappingProxyType[Compression, ModuleType]] = MappingProxyType(
    {
        Compression.GZIP: cramjam.gzip,
        Compression.SNAPPY: cramjam.snappy,
        Compression.LZ4: cramjam.lz4,
        Compression.ZSTD: cramjam.zstd,
    }
)


class NotUnpackable(Exception):
    """The bytes are not in the named format, are cut off or followed by others, or unpack to too much. The text says
    which."""


def pack(payload: bytes, compression: Compression) -> bytes:
    """Return the packed payload, at the library's usual level."""
    if compression is Compression.NONE:
        return payload
    return bytes(_CODECS[compression].compress(payload))


def pack_as(encoding: Encoding, payload: bytes, compression: Compression) -> bytes:
    """Return the packed payload of a batch of this encoding, as `unpack_as` and the readers of Kafka take it."""
    if encoding is Encoding.KAFKA_V2 and compression is Compression.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(payload))
        return _XERIAL_MAGIC + _XERIAL_VERSIONS + _XERIAL_LENGTH.pack(len(block)) + block
    if encoding is Encoding.KAFKA_V2 and compression is Compression.LZ4:
        return _lz4_frame(payload)
    return pack(payload, compression)


def _lz4_frame(payload: bytes) -> bytes:
    pieces = [_LZ4_FRAME_BEGINS]
    for start in range(0, len(payload), _LZ4_BLOCK_BYTES):
        block = payload[start : start + _LZ4_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            pieces += (_LZ4_LENGTH.pack(len(packed)), packed)
        else:
            pieces += (_LZ4_LENGTH.pack(len(block) | _LZ4_NOT_PACKED), block)
    return b"".join((*pieces, _LZ4_FRAME_ENDS))


def unpack_into(buffer: bytearray, payload: bytes | memoryview, compression: Compression) -> int | None:
    """Unpack to the beginning of `buffer` and return the number of bytes.

    None: the payload is damaged, or unpacks to more than `buffer` holds; `unpack` reports which."""
    try:
        size: int = _CODECS[compression].decompress_into(payload, buffer)
    except cramjam.DecompressionError:
        return None
    return size


def unpack(payload: bytes | memoryview, compression: Compression, *, bytes_max: int = UNPACKED_BYTES_MAX) -> bytes:
    """Return the unpacked payload. Takes at most about `bytes_max` of memory, however large the payload unpacks.

    Raises: NotUnpackable."""
    if compression is Compression.NONE:
        return bytes(payload)
    why: Exception | None = None
    for buffer_bytes in _buffer_sizes(len(payload), bytes_max):
        buffer = bytearray(buffer_bytes)
        try:
            size = _CODECS[compression].decompress_into(payload, buffer)
        except cramjam.DecompressionError as error:
            why = error
        else:
            return bytes(memoryview(buffer)[:size])
    assert why is not None, "there is always a size to try"
    raise NotUnpackable(_why(why, compression, bytes_max)) from why


def unpack_as(encoding: Encoding, payload: bytes | memoryview, compression: Compression) -> bytes:
    """Return the unpacked payload of a batch of this encoding, at most `UNPACKED_BYTES_MAX`. Raises: NotUnpackable."""
    return unpack_kafka(payload, compression) if encoding is Encoding.KAFKA_V2 else unpack(payload, compression)


def unpack_kafka(
    payload: bytes | memoryview, compression: Compression, *, bytes_max: int = UNPACKED_BYTES_MAX
) -> bytes:
    """Return the unpacked payload of a batch of Kafka, as `unpack`. Its Snappy is that of xerial: blocks behind a
    header of 16 bytes, each after its length. Some writers send a single block without either.

    Raises: NotUnpackable."""
    if compression is not Compression.SNAPPY:
        return unpack(payload, compression, bytes_max=bytes_max)
    if payload[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unpack_block(payload, bytes_max)
    view, blocks, unpacked_bytes = memoryview(payload), [], 0
    at = _XERIAL_HEADER_BYTES
    while at < len(view):
        block_at = at + _XERIAL_LENGTH.size
        if block_at > len(view):
            raise NotUnpackable("its snappy payload is cut off")
        (length,) = _XERIAL_LENGTH.unpack_from(view, at)
        at = block_at + length
        if at > len(view):
            raise NotUnpackable("its snappy payload is cut off")
        blocks.append(_unpack_block(view[block_at:at], bytes_max - unpacked_bytes))
        unpacked_bytes += len(blocks[-1])
    return b"".join(blocks)


def _unpack_block(block: bytes | memoryview, bytes_max: int) -> bytes:
    """Return an unpacked block of Snappy. Raises: NotUnpackable."""
    try:
        # Read from the block, before any memory is taken for it.
        if cramjam.snappy.decompress_raw_len(block) > bytes_max:
            raise NotUnpackable(f"its snappy payload unpacks to more than {bytes_max} bytes")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise NotUnpackable(_why(error, Compression.SNAPPY, bytes_max)) from error


def _buffer_sizes(packed_bytes: int, bytes_max: int) -> list[int]:
    """Return the sizes of buffers to try, `bytes_max` last.

    A small one comes first: clearing the largest costs more than unpacking most payloads."""
    first = max(_BUFFER_BYTES_MIN, _BUFFER_GROWTH * packed_bytes)
    return sorted({min(bytes_max, first), min(bytes_max, _BUFFER_GROWTH * first), bytes_max})


def _why(error: Exception, compression: Compression, bytes_max: int) -> str:
    if _TOO_SMALL in str(error):
        return f"its {compression.name.lower()} payload unpacks to more than {bytes_max} bytes"
    return f"its {compression.name.lower()} payload cannot be unpacked ({error})"
