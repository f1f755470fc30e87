"""Expiry of old offsets, and of groups that have neither members nor offsets.

Every shard looks through its groups at an interval, a bounded number at a time, in ordinary operations. Each decides on
the spot if something is due. A group that was deleted between two looks does not exist any more.

Source: spec groups 4.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator_runtime.decision import ArmTimer, Decision, Effect, Operation, Record, ShardKey, Turn
from coordinator_runtime.expiration import EXPIRED_PER_TURN_MAX
from group_coordinator.committed.decisions import is_expired
from group_coordinator.committed.offsets import Offsets, OffsetTable
from group_coordinator.committed.state import OffsetForgotten
from group_coordinator.events import GroupRemoved, OffsetsExpired
from group_coordinator.shard import GroupShard
from group_coordinator.state import Group, PartitionKey

LOOKED_AT_PER_TURN_MAX: Final = 2_000
"""Groups and offsets after which one operation stops looking: about a millisecond of work."""

_GO_ON_MS: Final = 1
_CAUSE: Final = "expire"


def decide_owed(shard: GroupShard, _turn: Turn) -> Decision:
    """Schedule the first look after a load, a whole interval later, so that a member from before the restart has time
    to commit."""
    return Decision(effects=(_look_again(shard.key, shard.config.offsets_retention_check_interval_ms, None),))


def decide_expire(shard: GroupShard, group_ids: Sequence[str] | None, turn: Turn) -> Decision:
    """Look at these groups, or at all. Schedules the rest soon, or the next look at all groups after the interval."""
    if group_ids is None:
        group_ids = list(dict.fromkeys([*shard.groups.keys(), *shard.part(Offsets).group_ids()]))
    look = _Look(shard, turn)
    for number, group_id in enumerate(group_ids):
        if not look.at(group_id):
            again = _look_again(shard.key, _GO_ON_MS, group_ids[number:])
            break
    else:
        again = _look_again(shard.key, shard.config.offsets_retention_check_interval_ms, None)
    return Decision(records=tuple(look.records), events=tuple(look.events), effects=(*look.effects, again))


class _Look:
    """Part of a look that one operation does, and its findings."""

    def __init__(self, shard: GroupShard, turn: Turn) -> None:
        self._shard = shard
        self._turn = turn
        self._left_to_look_at = LOOKED_AT_PER_TURN_MAX
        self._left_to_forget = EXPIRED_PER_TURN_MAX
        self.records: list[Record] = []
        self.events: list[object] = []
        self.effects: list[Effect] = []

    def at(self, group_id: str) -> bool:
        """Look at one group.

        Returns False if this operation has looked at enough, or could not forget all expired offsets of the group.
        """
        if self._left_to_look_at <= 0:
            return False
        shard, group, offsets = self._shard, self._shard.group(group_id), self._shard.part(Offsets).of(group_id)
        self._left_to_look_at -= 1 + len(offsets.committed)
        if group is None:
            return True
        expired = self._expired(group, offsets)
        is_too_much = len(expired) > self._left_to_forget
        expired = expired[: self._left_to_forget]
        self._left_to_forget -= len(expired)
        self.records.extend(Record(shard.key, OffsetForgotten(group_id, partition)) for partition in expired)
        if expired:
            self.events.append(OffsetsExpired(group_id, len(expired)))
        has_offsets = len(expired) < len(offsets.committed) or offsets.has_pending
        if group.is_empty and not group.outlives_members and not has_offsets:
            self.records.extend(Record(shard.key, value, cause=_CAUSE) for value in group.tombstones())
            self.effects.extend(group.removal_effects())
            self.events.append(GroupRemoved(group_id, group.kind, is_deleted=False))
        return not is_too_much

    def _expired(self, group: Group, offsets: OffsetTable) -> list[PartitionKey]:
        unstable = offsets.unstable()
        expired = []
        for partition, offset in offsets.committed.items():
            shape = self._shard.topics.shape_of_id(partition[0])
            assert shape is not None, "the offsets of a topic go with it"
            base_ms = group.retention_base_ms(shape.topic, offset.commit_timestamp_ms)
            if base_ms is None or partition in unstable:
                continue
            retention_ms = self._shard.config.offsets_retention_ms
            if is_expired(offset, base_ms=base_ms, now_ms=self._turn.now_ms, retention_ms=retention_ms):
                expired.append(partition)
        return expired


def _look_again(key: ShardKey, delay_ms: int, group_ids: Sequence[str] | None) -> ArmTimer:
    operation = Operation(key, lambda shard, turn: decide_expire(shard, group_ids, turn))
    return ArmTimer(("offset_expiration", key.number), delay_ms, operation)
