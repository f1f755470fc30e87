"""How records become stored rows, and how a shard is read back.

Both coordinators and the topic catalog store their records alike (design 5): the newest value per key in
COORDINATOR_STATE, which alone rebuilds the shard, and one step per record in HISTORY (`history_rows`). `StateRows` does
that for all of them; a package only says how its own values look as bytes. The partition log has its own rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

from msgspec import Struct

from coordinator_api.storage.v1 import runtime_pb2
from coordinator_runtime.decision import Record, ShardEpoch, ShardKey, Turn
from coordinator_runtime.history_rows import STEP_BYTES, ShardHistory, StagedStep, encode_told
from coordinator_runtime.store import Family, KeyRange, Mutation, Store
from coordinator_runtime.unknown_rows import pass_over

_STATE_PREFIX = struct.Struct(">BHB")
_SHARD_PREFIX = struct.Struct(">BH")

SHARD_EPOCH_TYPE = 0
"""Record type of ShardEpoch in every coordinator; packages number their own types from 1."""


# By names of their own: to find a member in its class takes 0.1 us.
_COORDINATOR_STATE: Final = Family.COORDINATOR_STATE


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
    steps: list[tuple[ShardHistory, StagedStep]] = []
    """Steps of history, encoded with the group: one row for each shard."""
    deleted_ranges: list[KeyRange] = []
    """Applied after all rows of the group."""
    size_bytes: int = 0
    """Bytes of all staged keys and encoded values, including overwritten ones."""

    def merge(self, later: StagedRows) -> None:
        """Take over the rows of one operation, once all of them are there."""
        self.added += later.added
        self.newest.update(later.newest)
        self.encoded_later.update(later.encoded_later)
        self.steps += later.steps
        self.deleted_ranges += later.deleted_ranges
        self.size_bytes += later.size_bytes

    def mutations(self) -> list[Mutation]:
        """All rows, encoded. Once only: the steps take their numbers here."""
        assert self.newest.keys().isdisjoint(self.encoded_later), (
            "a key is in one of the two, or nobody knows which of its rows is the newest"
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
    """False: only the newest value matters, no step of history is kept."""
    told: Any = True
    """What the history tells of a value that the next one overwrites: anything that MessagePack knows, but None, which
    stands for a forgotten key. True: that it changed."""


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
        self._histories: dict[ShardKey, ShardHistory] = {}

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
            history = self._histories[shard]
            history.end += 1
            told = encode_told(None if value is None else encoded.told)
            whom = (turn.client_id, turn.host, record.cause)
            staged.steps.append((history, (record_type, key, turn.now_ms, whom, told)))
            size_bytes += STEP_BYTES + len(key) + len(told)
        staged.size_bytes += size_bytes

    def load(self, store: Store, shard: ShardKey) -> Iterator[Any]:
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

    def history_end(self, shard: ShardKey) -> int:
        """Number of the next step of history: everything staged so far lies before it."""
        return self._histories[shard].end


def _encode_epoch(value: ShardEpoch) -> EncodedRecord:
    epoch = runtime_pb2.ShardEpochValue(coordinator_epoch=value.coordinator_epoch)
    return EncodedRecord(SHARD_EPOCH_TYPE, b"", epoch.SerializeToString(), has_history=False)


def _end_of(prefix: bytes) -> bytes:
    """The first key after all keys with the prefix."""
    return (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")
