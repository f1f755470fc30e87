"""How records become stored rows, and how a shard is read back.

Both coordinators and the topic catalog store their records alike (design 5): the newest value per key in
COORDINATOR_STATE, which alone rebuilds the shard, and one row of history per record in HISTORY. `StateRows`
does that for all of them; a package only says how its own values look as bytes. The partition log has its own rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from coordinator_api.storage.v1 import runtime_pb2
from coordinator_runtime.decision import Record, ShardEpoch, ShardKey, Turn
from coordinator_runtime.store import Family, KeyRange, Mutation, Store
from coordinator_runtime.unknown_rows import pass_over

_STATE_PREFIX = struct.Struct(">BHB")
_SHARD_PREFIX = struct.Struct(">BH")
_LOG_KEY = struct.Struct(">BHQ")

SHARD_EPOCH_TYPE = 0
"""Record type of ShardEpoch in every coordinator; packages number their own types from 1."""


# By names of their own: to find a member in its class takes 0.1 us.
_COORDINATOR_STATE: Final = Family.COORDINATOR_STATE
_HISTORY: Final = Family.HISTORY


class StagedRows(Struct, eq=False):
    """The rows of an operation, and of the commit group being built. Whoever stages rows fills the collections directly
    and adds up the bytes: an operation stages a dozen rows, and most of their lengths are known there."""

    added: list[tuple[Family, bytes, bytes]] = []
    """Rows under a key of their own: no other row of any group has it."""
    newest: dict[tuple[Family, bytes], bytes | None] = {}
    """Rows that replace the earlier ones of their key, so state is written once per key and group. None: the row is
    gone."""
    encoded_later: dict[tuple[Family, bytes], Callable[[], bytes]] = {}
    """Rows that nearly every operation replaces: only the newest value of a key is encoded, with the group. Encoding
    must be certain to succeed, because by then it is too late to refuse the operation; and the keys are never in
    `newest`."""
    deleted_ranges: list[KeyRange] = []
    """Applied after all rows of the group."""
    size_bytes: int = 0
    """Bytes of all staged keys and encoded values, including overwritten ones."""

    def merge(self, later: StagedRows) -> None:
        """Take over the rows of one operation, once all of them are there."""
        self.added += later.added
        self.newest.update(later.newest)
        self.encoded_later.update(later.encoded_later)
        self.deleted_ranges += later.deleted_ranges
        self.size_bytes += later.size_bytes

    def mutations(self) -> list[Mutation]:
        """All rows, encoded."""
        assert self.newest.keys().isdisjoint(self.encoded_later), (
            "a key is in one of the two, or nobody knows which of its rows is the newest"
        )
        rows: list[Mutation] = [*self.added]
        for (family, key), value in self.newest.items():
            rows.append((family, key, value))
        for (family, key), encode in self.encoded_later.items():
            rows.append((family, key, encode()))
        return rows


class Rows(Protocol):
    """Storage form of one coordinator's records."""

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        """Turn a record into rows. Called once per accepted record, in order."""

    def load(self, store: Store, shard: ShardKey) -> Iterator[Any]:
        """The record values that rebuild a shard, in the order in which they must be replayed."""


class EncodedRecord(Struct, frozen=True):
    """One record as bytes."""

    record_type: int
    key: bytes
    value: bytes | None
    """None forgets the key."""
    has_history: bool = True
    """False: only the newest value matters, no row of history is kept."""


class HistoryRow(NamedTuple):
    """One record of the history of a shard: what was written, when, for whom and why."""

    value: object | None
    """None: a tombstone, the key was forgotten."""
    wall_ms: int
    client_id: str
    """Empty for what the server did by itself."""
    host: str
    cause: str


def state_row(shard: ShardKey, record_type: int, key: bytes) -> tuple[Family, bytes]:
    """Return the key of the row that holds the newest value of a key."""
    return _COORDINATOR_STATE, _STATE_PREFIX.pack(*shard, record_type) + key


class StateCodec(Protocol):
    """Bytes of one coordinator's record values."""

    def encode(self, value: Any) -> EncodedRecord | None:  # noqa: ANN401  each codec narrows it to its own records
        """None for a change that is remembered in memory only."""

    def decode(self, record_type: int, key: bytes, value: bytes) -> object | None:
        """None for a record type that this program does not know (`unknown_rows` says what becomes of it)."""


Encoders = Mapping[type, Callable[[Any], EncodedRecord | None]]
"""Functions that make the bytes of a record, by class of its value; None for a change that lives in memory only."""
Decoders = Mapping[int, Callable[[bytes, bytes], object]]
"""Functions that make a record from key and value, by record type."""


class TableCodec:
    """A `StateCodec` made of the functions of several parts, each of which has record types of its own."""

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
    """Rows of a coordinator whose shards live in COORDINATOR_STATE and HISTORY."""

    def __init__(self, codec: StateCodec) -> None:
        self._codec = codec
        self._next_offset: dict[ShardKey, int] = {}

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        changed = record.value
        encoded = _encode_epoch(changed) if isinstance(changed, ShardEpoch) else self._codec.encode(changed)
        if encoded is None:
            return
        shard = record.shard
        coordinator, index = shard
        record_type, key, value = encoded.record_type, encoded.key, encoded.value
        state_key = _STATE_PREFIX.pack(coordinator, index, record_type) + key
        staged.newest[_COORDINATOR_STATE, state_key] = value
        size_bytes = len(state_key) if value is None else len(state_key) + len(value)
        if encoded.has_history:
            offset = self._next_offset[shard]
            self._next_offset[shard] = offset + 1
            # Set one by one: the constructor of a message takes more than twice as long for its keywords.
            row = runtime_pb2.LogRow()
            row.record_type = record_type
            row.key = key
            if value is not None:
                row.value = value
            row.wall_ms = turn.now_ms
            history = row.SerializeToString() + _by_whom(turn.client_id, turn.host, record.cause)
            staged.added.append((_HISTORY, _LOG_KEY.pack(coordinator, index, offset), history))
            size_bytes += _LOG_KEY.size + len(history)
        staged.size_bytes += size_bytes

    def load(self, store: Store, shard: ShardKey) -> Iterator[Any]:
        prefix = _SHARD_PREFIX.pack(*shard)
        newest = store.last(Family.HISTORY, prefix)
        self._next_offset[shard] = 0 if newest is None else _LOG_KEY.unpack(newest[0])[2] + 1
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

    def history_end(self, shard: ShardKey) -> int:
        """Offset of the next row of history: everything staged so far lies before it."""
        return self._next_offset[shard]

    def history_backwards(
        self, store: Store, shard: ShardKey, key: bytes, *, start_offset: int, end_offset: int
    ) -> Iterator[HistoryRow]:
        """Rows of one key in [start, end), the newest first. Reads all rows of the shard in that range, so callers
        bound it. What is not durable is in the store too: callers name an end that is."""
        start, end = (_LOG_KEY.pack(*shard, offset) for offset in (start_offset, end_offset))
        for _key, stored in store.scan_backwards(Family.HISTORY, start, end):
            # Most rows are of other keys: looking for its bytes is several times cheaper than parsing.
            if key not in stored:
                continue
            row = runtime_pb2.LogRow.FromString(stored)
            if row.key != key:
                continue
            is_tombstone = not row.HasField("value")
            value = None if is_tombstone else self._codec.decode(row.record_type, row.key, row.value)
            if is_tombstone or value is not None:
                yield HistoryRow(value, row.wall_ms, row.client_id, row.host, row.cause)


def _encode_epoch(value: ShardEpoch) -> EncodedRecord:
    epoch = runtime_pb2.ShardEpochValue(coordinator_epoch=value.coordinator_epoch)
    return EncodedRecord(SHARD_EPOCH_TYPE, b"", epoch.SerializeToString(), has_history=False)


@lru_cache(maxsize=256)
def _by_whom(client_id: str, host: str, cause: str) -> bytes:
    """The last fields of a LogRow. They are the same in row after row, and one message behind the other is one message
    with the fields of both."""
    return runtime_pb2.LogRow(client_id=client_id, host=host, cause=cause).SerializeToString()


def _end_of(prefix: bytes) -> bytes:
    """The first key after all keys with the prefix."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
