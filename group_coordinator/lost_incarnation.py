"""Removal of all members after the store lost something.

In the lost incarnation a group may have gone on, under generations and epochs that would be given again here. So each
group continues above all epochs of that incarnation, without members. They are answered UNKNOWN_MEMBER_ID and join
again. Committed offsets stay.

Source: ours, docs/decisions/0028-incarnations.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from coordinator_runtime.decision import Record, Turn
from group_coordinator.classic.state import ClassicGroup, ClassicGroupChanged, rebuilt_group
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.consumer.records import GroupEpochBumped
from group_coordinator.consumer.removal import removal_values
from group_coordinator.shard import GroupShard
from group_coordinator.share import records as share_records
from group_coordinator.share.group import ShareGroup, member_tombstones
from group_coordinator.streams import records as streams_records
from group_coordinator.streams.group import StreamsGroup
from group_coordinator.streams.group import member_tombstones as streams_member_tombstones

LOST_INCARNATION: Final = "lost_line"
"""Cause of the records. The text is stored, so it keeps an older word for incarnation."""


def end_lost_memberships(shard: GroupShard, turn: Turn) -> Iterable[Record]:
    """Return the records that end all memberships of lost incarnations; they must be durable before the shard serves.
    There are none if the store never lost anything, and none for groups that were raised before."""
    if not shard.least_epoch:
        return ()
    return [Record(shard.key, value, cause=LOST_INCARNATION) for value in _values(shard, turn)]


def _values(shard: GroupShard, turn: Turn) -> Iterator[object]:
    least = shard.least_epoch
    for group in shard.groups.values():
        if isinstance(group, ClassicGroup) and group.generation_id < least:
            bare = ClassicGroup(
                shard=shard.key,
                group_id=group.group_id,
                state_timestamp_ms=turn.now_ms if group.members else group.state_timestamp_ms,
                generation_id=least,
                protocol_type=group.protocol_type,
            )
            yield ClassicGroupChanged(rebuilt_group(bare, ()), is_stored=True)
        elif isinstance(group, ConsumerGroup) and group.epochs.group_epoch < least:
            yield from removal_values(group, list(group.members.keys()))
            yield GroupEpochBumped(group.group_id, least, group.epochs.metadata_hash)
        elif isinstance(group, ShareGroup) and group.epochs.group_epoch < least:
            # The states of its partitions stay. The data plane judges them by the leader epochs of the log.
            yield from member_tombstones(group.group_id, list(group.members.keys()))
            yield share_records.ShareGroupEpochBumped(group.group_id, least, group.epochs.metadata_hash)
        elif isinstance(group, StreamsGroup) and group.epochs.group_epoch < least:
            yield from streams_member_tombstones(group.group_id, list(group.members.keys()))
            epochs = group.epochs
            yield streams_records.StreamsGroupEpochBumped(
                group.group_id, least, epochs.metadata_hash, epochs.validated_topology_epoch
            )
