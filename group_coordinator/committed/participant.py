"""The groups as others see them: as participants of transactions, and as holders of what is said of topics."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import Decision, Operation, ShardRouter, Turn
from group_coordinator.committed.decisions import decide_forget_topic, decide_marker
from group_coordinator.shard import GroupShard


class GroupMarkers:
    """Implements `coordinator_runtime.ports.GroupParticipant`."""

    def __init__(self, router: ShardRouter) -> None:
        self._router = router

    def group_marker(self, group: str, marker: Marker) -> Operation:
        """Settles the transaction's pending offsets of a group, in the operation that it is joined to. Idempotent by
        csn; success for a group that is gone."""

        def decide(shard: GroupShard, _turn: Turn) -> Decision:
            return decide_marker(shard, group, marker)

        return Operation(self._router.shard_key(group), decide)


class OffsetsOfTopics:
    """Implements `coordinator_runtime.ports.TopicOffsets`."""

    def __init__(self, router: ShardRouter) -> None:
        self._router = router

    def forget_topic(self, topic_id: bytes) -> Sequence[Operation]:
        """Operations that drop every offset of the topic, committed or pending, in all groups. On every shard, so a
        topic cannot be deleted while offsets of it may lie in a shard that is not served here."""

        def decide(shard: GroupShard, _turn: Turn) -> Decision:
            return decide_forget_topic(shard, topic_id)

        return [Operation(key, decide) for key in self._router.shard_keys]
