"""Hashes that decide where a key is stored; they must agree with Kafka bit for bit and can never change.

Source: design 5 (shards) and 6 (partitioner); spec transactions 2.1; Kafka's `Utils.murmur2`, `Utils.abs`,
`Utils.toPositive`.
"""

from __future__ import annotations

import struct
from typing import Final

MEMBER_PREFIX: Final = "__member/"
"""Prefix of the transactional ids of the members of a sink's batch."""

_MASK31: Final = 0x7FFF_FFFF
_INT32_MIN: Final = -(2**31)

# A prepared Struct saves the lookup of its format. Nearly all keys have at most 256 bytes.
_WORD_COUNT_PREPARED_MAX: Final = 64
_WORDS: Final = tuple(struct.Struct(f"<{count}I") for count in range(_WORD_COUNT_PREPARED_MAX + 1))


def _signed32(number: int) -> int:
    return number - 2**32 if number & 0x8000_0000 else number


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode`: a signed 32-bit polynomial in 31 over the UTF-16 code units."""
    units: bytes | tuple[int, ...]
    if text.isascii():
        units = text.encode()
    else:
        # Half a surrogate pair is valid in a Java string, so it has a hash too.
        encoded = text.encode("utf-16-le", "surrogatepass")
        units = struct.unpack(f"<{len(encoded) // 2}H", encoded)
    total = 0
    for unit in units:
        total = 31 * total + unit & 0xFFFF_FFFF
    return _signed32(total)


def coordinator_key(transactional_id: str) -> str:
    """Return the key whose shard coordinates a transactional id: for nearly all, the id itself.

    `__member/GROUP/ATTEMPT` is one of several ids whose transactions are decided together. It goes where `GROUP` goes,
    so that one record of one shard can decide for all of them. The group may contain slashes, the attempt does not.

    Source: design 6; docs/store-format.md, "Order of outcomes"."""
    if transactional_id.startswith(MEMBER_PREFIX):
        group, _, _attempt = transactional_id[len(MEMBER_PREFIX) :].rpartition("/")
        if group:
            return group
    return transactional_id


def member_id(sink: str, attempt: str) -> str:
    """Return the transactional id of a member of a sink's batch; `coordinator_key` gives the sink back."""
    return f"{MEMBER_PREFIX}{sink}/{attempt}"


def shard_of(key: str, shard_count: int) -> int:
    """Return the shard of a key, in `[0, shard_count)`. Only `ShardRouter` and the topic catalog call this.

    Keys are group ids, names of partitions, and the results of `coordinator_key`.

    The absolute value of the smallest 32-bit integer does not fit 32 bits and counts as 0, as in Kafka."""
    number = java_string_hash(key)
    return 0 if number == _INT32_MIN else abs(number) % shard_count


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of `data`, signed."""
    factor, mask = 0x5BD1_E995, 0xFFFF_FFFF  # locals, because the loop below is the cost of every keyed record
    length = len(data)
    word_count = length >> 2
    if word_count <= _WORD_COUNT_PREPARED_MAX:
        words = _WORDS[word_count].unpack_from(data)
    else:
        words = struct.unpack_from(f"<{word_count}I", data)
    mixed = 0x9747_B28C ^ length
    for word in words:
        word = word * factor & mask
        mixed = (mixed * factor ^ (word ^ word >> 24) * factor) & mask
    if length & 3:
        mixed = (mixed ^ int.from_bytes(data[word_count << 2 :], "little")) * factor & mask
    mixed = (mixed ^ mixed >> 13) * factor & mask
    return _signed32(mixed ^ mixed >> 15)


def partition_for(key: bytes, partition_count: int) -> int:
    """Return the partition of a record key, in `[0, partition_count)`, as Kafka's default partitioner chooses it."""
    return (murmur2(key) & _MASK31) % partition_count
