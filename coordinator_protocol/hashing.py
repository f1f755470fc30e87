"""The hashes that decide where a key lives; they must agree with Kafka bit for bit and can never change.

Source: design 5 (shards) and 6 (partitioner); spec transactions 2.1; Kafka's `Utils.murmur2`, `Utils.abs`, `Utils.toPositive`.
"""

from __future__ import annotations

import struct
from operator import mul
from typing import Final

_MASK32: Final = 0xFFFF_FFFF
_MASK31: Final = 0x7FFF_FFFF
_INT32_MIN: Final = -(2**31)

_MURMUR2_SEED: Final = 0x9747_B28C
_MURMUR2_M: Final = 0x5BD1_E995

_POWERS_OF_31_MAX: Final = 1024
_POWERS_OF_31: Final = tuple(pow(31, exponent, 2**32) for exponent in reversed(range(_POWERS_OF_31_MAX)))


def _signed32(number: int) -> int:
    return number - 2**32 if number & 0x8000_0000 else number


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: a signed 32-bit polynomial in 31 over the UTF-16 code units."""
    units: bytes | tuple[int, ...]
    if text.isascii():
        units = text.encode("ascii")
    else:
        # Lone surrogates are valid in a Java string, so they have a hash too.
        encoded = text.encode("utf-16-le", "surrogatepass")
        units = struct.unpack(f"<{len(encoded) // 2}H", encoded)
    total = 0
    # Multiplying with ready powers keeps the inner loop out of Python; ids longer than the table take more than one round.
    for start in range(0, len(units), _POWERS_OF_31_MAX):
        part = units[start : start + _POWERS_OF_31_MAX]
        total = total * pow(31, len(part), 2**32) + sum(map(mul, part, _POWERS_OF_31[-len(part) :]))
    return _signed32(total & _MASK32)


def shard_of(key: str, shard_count: int) -> int:
    """Return the shard of a transactional id or group id, in `[0, shard_count)`.

    The absolute value of the smallest 32-bit integer does not fit 32 bits and counts as 0, as in Kafka.
    """
    number = java_string_hash(key)
    return 0 if number == _INT32_MIN else abs(number) % shard_count


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of `data`, signed."""
    length = len(data)
    mixed = (_MURMUR2_SEED ^ length) & _MASK32
    word_count = length >> 2
    for word in struct.unpack_from(f"<{word_count}I", data):
        word = word * _MURMUR2_M & _MASK32
        mixed = (mixed * _MURMUR2_M & _MASK32) ^ ((word ^ word >> 24) * _MURMUR2_M & _MASK32)
    tail = data[word_count << 2 :]
    if tail:
        mixed = (mixed ^ int.from_bytes(tail, "little")) * _MURMUR2_M & _MASK32
    mixed = (mixed ^ mixed >> 13) * _MURMUR2_M & _MASK32
    return _signed32(mixed ^ mixed >> 15)


def partition_for(key: bytes, partition_count: int) -> int:
    """Return the partition of a record key, in `[0, partition_count)`, as Kafka's default partitioner chooses it."""
    return (murmur2(key) & _MASK31) % partition_count
