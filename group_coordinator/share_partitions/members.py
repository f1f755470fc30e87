"""The group as its data plane sees it: members, assignments and settings, from the live state of its shard."""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct

from coordinator_protocol.assignors.values import Share
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import ShardKey, ShardRouter
from coordinator_runtime.ports import PartitionRef
from coordinator_runtime.runtime import Runtime
from group_coordinator.administration.settings import GroupSettings, ShareSettings
from group_coordinator.members import unknown_member
from group_coordinator.shard import GroupShard
from group_coordinator.share.group import find_group
from group_coordinator.share_partitions.acquiring import Terms
from group_coordinator.share_partitions.sessions import MemberKey


class ShareMembership(Struct, frozen=True):
    """One member, as long as nothing changes."""

    assigned: Share[bytes]
    settings: ShareSettings

    def has(self, ref: PartitionRef) -> bool:
        """Return True if the member may fetch from a partition."""
        partitions = self.assigned.get(ref.topic_id, ())
        at = bisect_left(partitions, ref.partition)
        return at < len(partitions) and partitions[at] == ref.partition


def terms_of(settings: ShareSettings) -> Terms:
    """Return what holds for an acquisition."""
    return Terms(
        lock_duration_ms=settings.record_lock_duration_ms,
        delivery_count_limit=settings.delivery_count_limit,
        in_flight_max=settings.partition_max_record_locks,
        has_letters=bool(settings.dead_letter_topic),
    )


class ShareMembers:
    """Members of share groups."""

    def __init__(self, runtime: Runtime, router: ShardRouter) -> None:
        self._runtime = runtime
        self._router = router

    def shard_key(self, group_id: str) -> ShardKey:
        return self._router.shard_key(group_id)

    def settings(self, group_id: str) -> ShareSettings:
        """Return the settings of a group. Raises Refused if the shard of the group is not served."""
        shard: GroupShard = self._runtime.shard(self.shard_key(group_id))
        return shard.part(GroupSettings).of_shares(group_id)

    def has(self, key: MemberKey) -> bool:
        """Return True if there is such a member, and the shard of its group is served."""
        try:
            self.membership(key)
        except Refused:
            return False
        return True

    def membership(self, key: MemberKey) -> ShareMembership:
        """Return a member. Raises Refused: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, which may rest on live state; and if
        the shard of the group is not served."""
        shard: GroupShard = self._runtime.shard(self.shard_key(key.group_id))
        group = find_group(shard, key.group_id)
        if group is None:
            raise Refused(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"there is no share group {key.group_id!a:.300}: join it with ShareGroupHeartbeat",
            )
        if key.member_id not in group.members:
            raise unknown_member(key.group_id, key.member_id)
        assigned = group.assignment(key.member_id).assigned
        return ShareMembership(assigned, shard.part(GroupSettings).of_shares(key.group_id))
