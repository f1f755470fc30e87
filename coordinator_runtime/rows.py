"""How records become stored rows, and how a shard is read back.

Both coordinators and the topic catalog store their records alike (design 5): the newest value per key in
COORDINATOR_STATE, which alone rebuilds the shard, and one row of history per record in COORDINATOR_LOG. `StateRows`
does that for all of them; a package only says how its own values look as bytes. The partition log has its own rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from coordinator_api.storage.v1 import runtime_pb2
from coordinator_runtime.decision import Record, ShardEpoch, ShardKey, Turn
from coordinator_runtime.store import Family, KeyRange, Mutation, Store

_STATE_PREFIX = struct.Struct(">BHB")
_SHARD_PREFIX = struct.Struct(">BH")
_LOG_KEY = struct.Struct(">BHQ")

SHARD_EPOCH_TYPE = 0
"""Record type of ShardEpoch in every coordinator; packages number their own types from 1."""


class StagedRows:
    """The rows of an operation, and of the commit group being built."""

    __slots__ = ("_added", "_deleted_ranges", "_newest", "size_bytes")

    def __init__(self) -> None:
        self._added: list[Mutation] = []
        self._newest: dict[tuple[Family, bytes], bytes | Callable[[], bytes] | None] = {}
        self._deleted_ranges: list[KeyRange] = []
        self.size_bytes = 0

    def add(self, family: Family, key: bytes, value: bytes) -> None:
        """A row under a key of its own: no other row of any group has it."""
        self._added.append((family, key, value))
        self.size_bytes += len(key) + len(value)

    def put(self, family: Family, key: bytes, value: bytes) -> None:
        """The newest row of a key replaces the earlier ones, so state is written once per key and group."""
        self._newest[family, key] = value
        self.size_bytes += len(key) + len(value)

    def put_later(self, family: Family, key: bytes, encode: Callable[[], bytes]) -> None:
        """The same for a value that nearly every operation replaces: only the newest is encoded, with the group. It
        must be one that can be encoded for certain, because it would be too late to refuse it."""
        self._newest[family, key] = encode
        self.size_bytes += len(key)

    def delete(self, family: Family, key: bytes) -> None:
        """The same for a row that is gone."""
        self._newest[family, key] = None
        self.size_bytes += len(key)

    def delete_range(self, family: Family, start: bytes, end: bytes) -> None:
        """Applied after all puts of the group."""
        self._deleted_ranges.append((family, start, end))

    def merge(self, later: StagedRows) -> None:
        """Take over the rows of one operation, once all of them are there."""
        self._added += later._added
        self._newest.update(later._newest)
        self._deleted_ranges += later._deleted_ranges
        self.size_bytes += later.size_bytes

    def mutations(self) -> list[Mutation]:
        """All rows, encoded."""
        return self._added + [
            (family, key, value() if callable(value) else value) for (family, key), value in self._newest.items()
        ]

    def deleted_ranges(self) -> list[KeyRange]:
        return self._deleted_ranges


class Rows(Protocol):
    """Storage form of one coordinator's records."""

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        """Turn a record into rows. Called once per accepted record, in order."""
        ...

    def load(self, store: Store, shard: ShardKey) -> Iterator[Any]:
        """The record values that rebuild a shard, in the order in which they must be replayed."""
        ...


class EncodedRecord(Struct, frozen=True):
    """One record as bytes."""

    record_type: int
    key: bytes
    value: bytes | Callable[[], bytes] | None
    """None forgets the key. A function: see `StagedRows.put_later`; such a record has no history."""
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


class StateCodec(Protocol):
    """Bytes of one coordinator's record values."""

    def encode(self, value: Any) -> EncodedRecord | None:  # noqa: ANN401  each codec narrows it to its own records
        """None for a change that is remembered in memory only."""
        ...

    def decode(self, record_type: int, key: bytes, value: bytes) -> object | None:
        """None for a record type that this version does not know: it is skipped."""
        ...


class StateRows:
    """Rows of a coordinator whose shards live in COORDINATOR_STATE and COORDINATOR_LOG."""

    def __init__(self, codec: StateCodec) -> None:
        self._codec = codec
        self._next_offset: dict[ShardKey, int] = {}

    def stage(self, record: Record, turn: Turn, staged: StagedRows) -> None:
        encoded = self._encode(record.value)
        if encoded is None:
            return
        coordinator, index = record.shard
        state_key = _STATE_PREFIX.pack(coordinator, index, encoded.record_type) + encoded.key
        value = encoded.value
        if value is None:
            staged.delete(Family.COORDINATOR_STATE, state_key)
        elif isinstance(value, bytes):
            staged.put(Family.COORDINATOR_STATE, state_key, value)
        else:
            assert not encoded.has_history, "history needs every value"
            staged.put_later(Family.COORDINATOR_STATE, state_key, value)
            return
        if encoded.has_history:
            offset = self._next_offset[record.shard]
            self._next_offset[record.shard] = offset + 1
            # Set one by one: the constructor of a message takes more than twice as long for its keywords.
            row = runtime_pb2.LogRow()
            row.record_type = encoded.record_type
            row.key = encoded.key
            if value is not None:
                row.value = value
            row.wall_ms = turn.now_ms
            row.client_id = turn.client_id
            row.host = turn.host
            row.cause = record.cause
            staged.add(Family.COORDINATOR_LOG, _LOG_KEY.pack(coordinator, index, offset), row.SerializeToString())

    def load(self, store: Store, shard: ShardKey) -> Iterator[Any]:
        prefix = _SHARD_PREFIX.pack(*shard)
        newest = store.last(Family.COORDINATOR_LOG, prefix)
        self._next_offset[shard] = 0 if newest is None else _LOG_KEY.unpack(newest[0])[2] + 1
        for key, stored in store.scan(Family.COORDINATOR_STATE, prefix, _end_of(prefix)):
            record_type = key[3]
            if record_type == SHARD_EPOCH_TYPE:
                yield ShardEpoch(runtime_pb2.ShardEpochValue.FromString(stored).coordinator_epoch)
                continue
            value = self._codec.decode(record_type, key[4:], stored)
            if value is not None:
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
        for _key, stored in store.scan_backwards(Family.COORDINATOR_LOG, start, end):
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

    def _encode(self, value: object) -> EncodedRecord | None:
        if isinstance(value, ShardEpoch):
            epoch = runtime_pb2.ShardEpochValue(coordinator_epoch=value.coordinator_epoch)
            return EncodedRecord(SHARD_EPOCH_TYPE, b"", epoch.SerializeToString(), has_history=False)
        return self._codec.encode(value)


def _end_of(prefix: bytes) -> bytes:
    """The first key after all keys with the prefix."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
