"""The rows of HISTORY: what happened in a shard, a row for each commit group that changed something in it.

A row holds steps, in MessagePack: the wall time from which their times count, a table of who asked and why, and the
steps themselves. A step tells what the newest row of its key does not: which key changed, when, for whom and why, and
what the package that owns the key wants to be told of a state that the next step overwrites (`EncodedRecord.told`). It
is never needed to go on: COORDINATOR_STATE alone rebuilds a shard.

Steps are numbered within their shard without gaps. The number of a row's first step is in its key, so the next number
is found in the newest row: whoever trims the history from the front must leave that one. An array may grow at its end
in a later version; what is behind the known fields is ignored.

Source: spec store-format 2.5; docs/store-format.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.store import Family, Mutation, Store

_KEY: Final = struct.Struct(">BHQ")
_PREFIX: Final = struct.Struct(">BH")

StagedStep = tuple[int, bytes, int, tuple[str, str, str], msgspec.Raw]
"""Record type, key, wall time in milliseconds, (client id, host, cause), and what is told of the value."""


class Step(NamedTuple):
    """One change of one key."""

    shard: ShardKey
    number: int
    record_type: int
    key: bytes
    wall_ms: int
    client_id: str
    """Empty for what the server did by itself."""
    host: str
    cause: str
    told: msgspec.Raw
    """What the package of the key tells of its value, in MessagePack; nil where the key was forgotten."""

    @property
    def is_forgotten(self) -> bool:
        """The key was forgotten in this step."""
        return bytes(self.told) == _NIL


class _StoredStep(Struct, frozen=True, array_like=True, gc=False):
    record_type: int
    key: bytes
    after_ms: int
    """Time after that of the row; negative where the wall clock was set back in between."""
    whom: int
    """Place in the row's table."""
    told: msgspec.Raw


class _StoredRow(Struct, frozen=True, array_like=True):
    wall_ms: int
    table: list[list[str]]
    """Client id, host and cause. Nearly all steps of a group have them alike."""
    steps: list[_StoredStep]


_NIL: Final = msgspec.msgpack.encode(None)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_StoredRow).decode

STEP_BYTES: Final = 16
"""What a step takes besides its key and what is told, a byte more or less; what names it shares is not counted."""


def encode_told(told: object) -> msgspec.Raw:
    """What is told of a value, or None for a forgotten key, as a step has it."""
    return msgspec.Raw(_encode(told))


class ShardHistory:
    """The numbers of one shard's steps."""

    __slots__ = ("_shard", "end", "next_number")

    def __init__(self, store: Store, shard: ShardKey) -> None:
        self._shard = shard
        newest = store.last(Family.HISTORY, _PREFIX.pack(*shard))
        self.next_number = 0
        """Number of the first step of the next row."""
        if newest is not None:
            self.next_number = _KEY.unpack(newest[0])[2] + len(_decode(newest[1]).steps)
        self.end = self.next_number
        """Number behind all steps that were staged so far, of rows that are still being collected too."""

    def row(self, steps: Sequence[StagedStep]) -> Mutation:
        """The row of a group's steps, which take the next numbers."""
        wall_ms = steps[0][2]
        table: dict[tuple[str, str, str], int] = {}
        stored: list[tuple[object, ...]] = []
        for record_type, key, at_ms, whom, told in steps:
            stored.append((record_type, key, at_ms - wall_ms, table.setdefault(whom, len(table)), told))
        key = _KEY.pack(*self._shard, self.next_number)
        self.next_number += len(steps)
        return Family.HISTORY, key, _encode((wall_ms, list(table), stored))


def steps_of(key: bytes, stored: bytes) -> Iterator[Step]:
    """The steps of a row, in order. Raises msgspec.DecodeError for bytes that are no row."""
    coordinator, number, first = _KEY.unpack(key)
    shard = ShardKey(Coordinator(coordinator), number)
    row = _decode(stored)
    for at, step in enumerate(row.steps):
        client_id, host, cause = row.table[step.whom][:3]
        yield Step(
            shard,
            first + at,
            step.record_type,
            step.key,
            row.wall_ms + step.after_ms,
            client_id,
            host,
            cause,
            step.told,
        )


def steps_backwards(store: Store, shard: ShardKey, key: bytes, *, end: int, steps_max: int) -> tuple[list[Step], int]:
    """The steps of one key before the number `end`, the newest first, and the number that the search got down to: it
    looks at whole rows, until `steps_max` steps of the shard were passed. What is not durable is in the store too:
    callers name an end that is. Raises StoreUnreadable."""
    found: list[Step] = []
    reached = end
    for row_key, stored in store.scan_backwards(Family.HISTORY, _KEY.pack(*shard, 0), _KEY.pack(*shard, end)):
        reached = _KEY.unpack(row_key)[2]
        # Most rows are of other keys: looking for its bytes is several times cheaper than to decode them.
        if key in stored:
            of_key = [step for step in steps_of(row_key, stored) if step.key == key and step.number < end]
            found += reversed(of_key)
        if end - reached >= steps_max:
            break
    return found, reached
