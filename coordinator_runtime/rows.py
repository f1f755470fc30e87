"""Encoding of records as stored rows, and reading a shard back.

Both coordinators and the topic catalog store their records alike (design 5). The newest value of each key is in
COORDINATOR_STATE, which alone rebuilds the shard. HISTORY has one step for each record, unless its kind keeps none.
`StateRows` does that for all of them, and a package only encodes its own values. The partition log has its own rows.

HISTORY lists the changes of a shard, with one row for each commit group that changed something in it. A row is
MessagePack: the wall time from which the times of its steps count, a table of clients and causes, and the steps. A step
has what the newest row of its key lacks: the key, the time, the client and the cause. It also has a description of a
value that the next step overwrites, made by the package that owns the key (`EncodedRecord.told`). HISTORY is never
needed to go on.

Steps are numbered within their shard without gaps. The number of a row's first step is in its key, so the next number
follows from the newest row, which must never be trimmed. An array may grow at its end in a later version; fields after
the known ones are ignored.

Source: docs/store-format.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from coordinator_api.storage.v1 import runtime_pb2
from coordinator_runtime.decision import Coordinator, Record, ShardEpoch, ShardKey, Turn
from coordinator_runtime.store import Family, KeyRange, Mutation, StoreDamaged, StoreReads
from coordinator_runtime.unknown_rows import pass_over

_STATE_PREFIX = struct.Struct(">BHB")
_SHARD_PREFIX = struct.Struct(">BH")

SHARD_EPOCH_TYPE = 0
"""Record type of ShardEpoch in every coordinator; packages number their own types from 1."""


# A module-level alias for the fast path: enum attribute lookup is slow on CPython 3.11.
_COORDINATOR_STATE: Final = Family.COORDINATOR_STATE
_HISTORY_KEY: Final = struct.Struct(">BHQ")

StagedStep = tuple[int, bytes, int, tuple[str, str, str], msgspec.Raw]
"""Record type, key, wall time in milliseconds, (client id, host, cause), and the description of the value."""


class HistoryRow(NamedTuple):
    """One change of one key."""

    shard: ShardKey
    number: int
    record_type: int
    key: bytes
    wall_ms: int
    client_id: str
    """Client id; empty if the server acted by itself."""
    host: str
    cause: str
    told: msgspec.Raw
    """Description of the value by the package that owns the key, in MessagePack; nil if the key was forgotten."""

    @property
    def is_forgotten(self) -> bool:
        """True if the key was forgotten in this step."""
        return bytes(self.told) == _NIL


class _StoredStep(Struct, frozen=True, array_like=True, gc=False):
    record_type: int
    key: bytes
    after_ms: int
    """Time since that of the row (ms); negative if the wall clock was set back in between."""
    whom: int
    """Index into the row's table."""
    told: msgspec.Raw


class _StoredRow(Struct, frozen=True, array_like=True):
    wall_ms: int
    table: list[list[str]]
    """Entries of client id, host and cause. Nearly all steps of a group share one."""
    steps: list[_StoredStep]


_NIL: Final = msgspec.msgpack.encode(None)
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_StoredRow).decode

STEP_BYTES: Final = 16
"""Approximate bytes of a step besides its key and its description. The shared names are not counted."""


class ShardHistory:
    """Numbers of the steps of one shard."""

    __slots__ = ("_shard", "next_number")

    def __init__(self, store: StoreReads, shard: ShardKey) -> None:
        """Find the next number. Raises StoreUnreadable: without the newest row, the numbers in use are unknown."""
        self._shard = shard
        newest = store.last(Family.HISTORY, _SHARD_PREFIX.pack(*shard))
        self.next_number = 0
        """Number of the first step of the next row."""
        if newest is not None:
            self.next_number = _HISTORY_KEY.unpack(newest[0])[2] + len(_read(*newest).steps)

    def row(self, steps: Sequence[StagedStep]) -> Mutation:
        """Return the row of a group's steps, which take the next numbers."""
        wall_ms = steps[0][2]
        table: dict[tuple[str, str, str], int] = {}
        stored: list[tuple[object, ...]] = []
        for record_type, key, at_ms, whom, told in steps:
            stored.append((record_type, key, at_ms - wall_ms, table.setdefault(whom, len(table)), told))
        key = _HISTORY_KEY.pack(*self._shard, self.next_number)
        self.next_number += len(steps)
        return Family.HISTORY, key, _encode((wall_ms, list(table), stored))


class StagedRows(Struct, eq=False):
    """Rows of an operation, or of the commit group being built.

    Code that stages rows fills the collections directly and adds up the bytes. An operation stages a dozen rows, and
    most of their lengths are known there."""

    added: list[tuple[Family, bytes, bytes]] = []
    """Rows whose key is written only once: no other group has a row with this key."""
    newest: dict[tuple[Family, bytes], bytes | None] = {}
    """Newest row of each key, so that state is written once per key and group. None deletes the row."""
    encoded_later: dict[tuple[Family, bytes], Callable[[], bytes]] = {}
    """Functions that encode rows which nearly every operation replaces. Only the newest value of a key is encoded, with
    the group. Encoding must always succeed, because by then it is too late to refuse the operation. No key is in
    `newest` too."""
    steps: list[tuple[ShardHistory, StagedStep]] = []
    """Steps of history, encoded with the group: one row for each shard."""
    deleted_ranges: list[KeyRange] = []
    """Key ranges deleted after all rows of the group were applied."""
    size_bytes: int = 0
    """Bytes of all staged keys and encoded values, including overwritten ones."""

    def merge(self, later: StagedRows) -> None:
        """Add the rows of one operation, once all of them are staged."""
        self.added += later.added
        self.newest.update(later.newest)
        self.encoded_later.update(later.encoded_later)
        self.steps += later.steps
        self.deleted_ranges += later.deleted_ranges
        self.size_bytes += later.size_bytes

    def mutations(self) -> list[Mutation]:
        """Return all rows, encoded. Call once only: the steps take their numbers here."""
        assert self.newest.keys().isdisjoint(self.encoded_later), (
            "a key is in one of the two, or its newest row is ambiguous"
        )
        rows: list[Mutation] = [*self.added]
        for (family, key), value in self.newest.items():
            rows.append((family, key, value))
        for (family, key), encode in self.encoded_later.items():
            rows.append((family, key, encode()))
        by_shard: dict[ShardHistory, list[StagedStep]] = {}
        for history, step in self.steps:
            by_shard.setdefault(history, []).append(step)
        for history, steps in by_shard.items():
            rows.append(history.row(steps))
        return rows


LoadValues = Callable[[StoreReads], Iterator[Any]]
"""Reads the record values that rebuild a shard, each as it is asked for, in the order in which they must be
replayed."""


class Rows(Protocol):
    """Storage form of one coordinator's records."""

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        """Turn a record into rows. Called once per accepted record, in order."""

    def load(self, shard: ShardKey) -> LoadValues:
        """Return the function that reads a shard back. It may be called on another thread, once at a time for all
        shards."""


class EncodedRecord(Struct, frozen=True):
    """One record as bytes."""

    record_type: int
    key: bytes
    value: bytes | None
    """Encoded value; None forgets the key."""
    has_history: bool = True
    """False if only the newest value matters and no step of history is kept."""
    told: Any = True
    """Description of a value for the history, kept when the next value overwrites it: any MessagePack value except
    None, which stands for a forgotten key. True says only that the value changed."""


def state_row(shard: ShardKey, record_type: int, key: bytes) -> tuple[Family, bytes]:
    """Return the key of the row that holds the newest value of a key."""
    return _COORDINATOR_STATE, _STATE_PREFIX.pack(*shard, record_type) + key


class StateCodec(Protocol):
    """Encoding of one coordinator's record values."""

    def encode(self, value: Any) -> EncodedRecord | None:  # noqa: ANN401  each codec narrows it to its own records
        """Encode a record value. None for a change that is kept in memory only."""

    def decode(self, record_type: int, key: bytes, value: bytes) -> object | None:
        """Decode a record value. None for a record type that this program does not know (`unknown_rows` decides on
        it)."""


Encoders = Mapping[type, Callable[[Any], EncodedRecord | None]]
"""Functions that encode a record, by class of its value. They return None for a change that is kept in memory only."""
Decoders = Mapping[int, Callable[[bytes, bytes], object]]
"""Functions that decode a record from key and value, by record type."""


class TableCodec:
    """A `StateCodec` made of the functions of several parts. Each part has record types of its own."""

    def __init__(self, parts: Iterable[tuple[Encoders, Decoders]]) -> None:
        self._encoders: dict[type, Callable[[Any], EncodedRecord | None]] = {}
        self._decoders: dict[int, Callable[[bytes, bytes], object]] = {}
        for encoders, decoders in parts:
            assert self._encoders.keys().isdisjoint(encoders), "every class of record belongs to one part"
            assert self._decoders.keys().isdisjoint(decoders), "every record type belongs to one part"
            self._encoders |= encoders
            self._decoders |= decoders

    def encode(self, value: object) -> EncodedRecord | None:
        return self._encoders[type(value)](value)

    def decode(self, record_type: int, key: bytes, value: bytes) -> object | None:
        decoder = self._decoders.get(record_type)
        return None if decoder is None else decoder(key, value)


class StateRows:
    """Rows of a coordinator whose shards are stored in COORDINATOR_STATE and HISTORY."""

    def __init__(self, codec: StateCodec) -> None:
        self._codec = codec
        self._histories: dict[ShardKey, ShardHistory] = {}

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        changed = record.value
        encoded = _encode_epoch(changed) if isinstance(changed, ShardEpoch) else self._codec.encode(changed)
        if encoded is None:
            return
        shard, record_type, key, value = record.shard, encoded.record_type, encoded.key, encoded.value
        state_key = _STATE_PREFIX.pack(*shard, record_type) + key
        staged.newest[_COORDINATOR_STATE, state_key] = value
        size_bytes = len(state_key) + len(value or b"")
        if encoded.has_history:
            told = msgspec.Raw(_encode(None if value is None else encoded.told))
            whom = (turn.client_id, turn.host, record.cause)
            staged.steps.append((self._histories[shard], (record_type, key, turn.now_ms, whom, told)))
            size_bytes += STEP_BYTES + len(key) + len(told)
        staged.size_bytes += size_bytes

    def load(self, shard: ShardKey) -> LoadValues:
        return partial(self._load, shard)

    def _load(self, shard: ShardKey, store: StoreReads) -> Iterator[Any]:
        prefix = _SHARD_PREFIX.pack(*shard)
        self._histories[shard] = ShardHistory(store, shard)
        for key, stored in store.scan(Family.COORDINATOR_STATE, prefix, _end_of(prefix)):
            record_type = key[3]
            if record_type == SHARD_EPOCH_TYPE:
                yield ShardEpoch(runtime_pb2.ShardEpochValue.FromString(stored).coordinator_epoch)
                continue
            value = self._codec.decode(record_type, key[4:], stored)
            if value is None:
                pass_over(record_type, f"a row of {shard.coordinator.name.lower()} shard {shard.number}")
            else:
                yield value

    def history_end(self, shard: ShardKey, being_built: StagedRows) -> int:
        """Return the number after the steps of all operations so far.

        `being_built` are the rows of the open commit group, whose steps have no numbers yet."""
        history = self._histories[shard]
        return history.next_number + sum(1 for of, _step in being_built.steps if of is history)


def _encode_epoch(value: ShardEpoch) -> EncodedRecord:
    epoch = runtime_pb2.ShardEpochValue(coordinator_epoch=value.coordinator_epoch)
    return EncodedRecord(SHARD_EPOCH_TYPE, b"", epoch.SerializeToString(), has_history=False)


def _end_of(prefix: bytes) -> bytes:
    """Return the first key after all keys with the prefix."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


def steps_of(key: bytes, stored: bytes) -> Iterator[HistoryRow]:
    """Yield the steps of a row, in order. Raises StoreDamaged if the bytes are no row."""
    coordinator, number, first = _HISTORY_KEY.unpack(key)
    shard = ShardKey(Coordinator(coordinator), number)
    row = _read(key, stored)
    for at, step in enumerate(row.steps):
        client_id, host, cause = row.table[step.whom][:3]
        yield HistoryRow(
            shard=shard,
            number=first + at,
            record_type=step.record_type,
            key=step.key,
            wall_ms=row.wall_ms + step.after_ms,
            client_id=client_id,
            host=host,
            cause=cause,
            told=step.told,
        )


def steps_backwards(
    store: StoreReads, shard: ShardKey, record_type: int, key: bytes, *, end: int
) -> Iterator[tuple[int, list[HistoryRow]]]:
    """Go back through the rows of a shard, from the step before the number `end`.

    Yields the number of each row's first step, and its steps of one key, newest first. The store also has steps that
    are not durable, so pass an `end` that is. Raises StoreUnreadable at a row that cannot be read."""
    begin, behind = _HISTORY_KEY.pack(*shard, 0), _HISTORY_KEY.pack(*shard, end)
    for row_key, stored in store.scan_backwards(Family.HISTORY, begin, behind):
        found: list[HistoryRow] = []
        # Most rows have other keys: searching the bytes is several times cheaper than decoding them.
        if key in stored:
            of_key = (step for step in steps_of(row_key, stored) if (step.record_type, step.key) == (record_type, key))
            found = [step for step in of_key if step.number < end]
        yield _HISTORY_KEY.unpack(row_key)[2], found[::-1]


def older_history(store: StoreReads, shard: ShardKey, before_ms: int) -> KeyRange | None:
    """Return the range of a shard's history rows that begin before a time; None if there are none.

    The newest row stays, because the next number follows from it. Raises StoreUnreadable."""
    prefix = _SHARD_PREFIX.pack(*shard)
    newest = store.last_key(Family.HISTORY, prefix)
    if newest is None:
        return None

    def is_kept(number: int) -> tuple[bool, int]:
        """Return True if the first row at or after a step stays; and the number of that row."""
        key, value = next(iter(store.scan(Family.HISTORY, _HISTORY_KEY.pack(*shard, number), _end_of(prefix))))
        return key == newest or _read(key, value).wall_ms >= before_ms, _HISTORY_KEY.unpack(key)[2]

    low, high = 0, _HISTORY_KEY.unpack(newest)[2]
    if is_kept(low)[0]:
        return None
    # Rows that begin before `low` are old, and the first row from `high` on stays.
    while low < high:
        middle = (low + high) // 2
        stays, number = is_kept(middle)
        if stays:
            high = middle
        else:
            low = number + 1
    return Family.HISTORY, prefix, _HISTORY_KEY.pack(*shard, low)


def _read(key: bytes, stored: bytes) -> _StoredRow:
    try:
        row = _decode(stored)
    except msgspec.DecodeError as damage:
        raise _damaged(key, str(damage)) from damage
    if any(step.whom not in range(len(row.table)) for step in row.steps) or any(len(whom) < 3 for whom in row.table):
        raise _damaged(key, "a step refers to no entry of the row's table")
    return row


def _damaged(key: bytes, reason: str) -> StoreDamaged:
    coordinator, number, first = _HISTORY_KEY.unpack(key)
    name = Coordinator(coordinator).name.lower()
    return StoreDamaged(
        Family.HISTORY, f"a row of history cannot be read, from step {first} of {name} {number} on: {reason}", key
    )
