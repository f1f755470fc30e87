"""A group coordinator that knows only what two-phase commit needs of one: offsets that wait for their transaction.

Its shard keeps, per group and producer, the pending offset and the newest marker, durable, so that the group half of
the marker port runs in every mode and through every crash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from coordinator_protocol.hashing import shard_of
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator, Decision, Operation, Record, ShardEpoch, ShardKey, Turn
from coordinator_runtime.loader import ShardKind
from coordinator_runtime.rows import EncodedRecord, StateRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.timeline import Journal, TimelineMap


@dataclass(frozen=True, slots=True)
class GroupState:
    """One group: the offset that everybody sees, those that wait, and the markers seen, by producer id."""

    group: str
    committed: int = -1
    pending: tuple[tuple[int, int, int], ...] = ()
    """(producer id, epoch, offset)"""
    markers: tuple[tuple[int, int], ...] = ()
    """(producer id, csn)"""
    history: tuple[int, ...] = ()
    """Every offset that was ever committed, in order."""


class FakeGroupShard:
    def __init__(self, journal: Journal) -> None:
        self.groups: TimelineMap[str, GroupState] = TimelineMap(journal)

    def replay(self, value: GroupState | ShardEpoch) -> None:
        if isinstance(value, GroupState):
            self.groups.put(value.group, value)

    def on_loaded(self, turn: Turn) -> Decision:
        return Decision()

    def state(self, group: str) -> GroupState:
        return self.groups.get(group) or GroupState(group)

    def decide_pend(self, key: ShardKey, group: str, producer: tuple[int, int], offset: int) -> Decision:
        state = self.state(group)
        others = tuple(each for each in state.pending if each[:2] != producer)
        changed = replace(state, pending=(*others, (*producer, offset)))
        return Decision(reply=offset, records=(Record(key, changed),))

    def decide_marker(self, key: ShardKey, group: str, marker: Marker) -> Decision:
        state = self.state(group)
        seen = dict(state.markers)
        if marker.csn <= seen.get(marker.producer_id, 0):
            return Decision()
        producer = (marker.producer_id, marker.txn_epoch)
        settled = [offset for *owner, offset in state.pending if tuple(owner) == producer]
        committed = settled if marker.outcome is Outcome.COMMIT else []
        changed = replace(
            state,
            committed=committed[-1] if committed else state.committed,
            pending=tuple(each for each in state.pending if each[:2] != producer),
            markers=tuple(sorted({**seen, marker.producer_id: marker.csn}.items())),
            history=(*state.history, *committed),
        )
        return Decision(records=(Record(key, changed, cause="marker"),))


class _Codec:
    def encode(self, value: GroupState) -> EncodedRecord:
        fields = [value.committed, value.pending, value.markers, value.history]
        return EncodedRecord(1, value.group.encode(), json.dumps(fields).encode())

    def decode(self, record_type: int, key: bytes, value: bytes) -> GroupState:
        committed, pending, markers, history = json.loads(value)
        return GroupState(
            key.decode(),
            committed,
            tuple((producer_id, epoch, offset) for producer_id, epoch, offset in pending),
            tuple((producer_id, csn) for producer_id, csn in markers),
            tuple(history),
        )


def fake_groups_kind(runtime: Runtime, shard_count: int) -> ShardKind:
    return ShardKind(
        coordinator=Coordinator.GROUPS,
        shard_count=shard_count,
        rows=StateRows(_Codec()),
        make=lambda _key: FakeGroupShard(runtime.journal),
        has_epoch=True,
    )


class FakeGroups:
    """Implements `coordinator_runtime.ports.GroupParticipant`."""

    def __init__(self, runtime: Runtime, shard_count: int) -> None:
        self._runtime = runtime
        self._shard_count = shard_count

    def key(self, group: str) -> ShardKey:
        return ShardKey(Coordinator.GROUPS, shard_of(group, self._shard_count))

    def group_marker(self, group: str, marker: Marker) -> Operation:
        key = self.key(group)
        return Operation(key, lambda shard, _turn: shard.decide_marker(key, group, marker))

    def pend(self, group: str, producer: tuple[int, int], offset: int) -> Operation:
        """Keep an offset until its transaction ends."""
        key = self.key(group)
        return Operation(key, lambda shard, _turn: shard.decide_pend(key, group, producer, offset))

    def durable(self, group: str) -> GroupState:
        shard: FakeGroupShard = self._runtime.shard(self.key(group))
        return shard.groups.durable(group) or GroupState(group)

    def durable_groups(self) -> list[GroupState]:
        shards: list[FakeGroupShard] = self._runtime.shards(Coordinator.GROUPS)
        return sorted((state for shard in shards for _, state in shard.groups.durable_items()), key=lambda g: g.group)
