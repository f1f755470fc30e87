"""Share partitions for other parts: their states for share groups, deleted topics, and members that end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import CATALOG_KEY, Coordinator, Operation, ShardKey, once_durable
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import OpenInPartition, PartitionRef
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.shard_table import ShardTable
from coordinator_runtime.share_ports import PartitionHomes, ReleaseShares
from coordinator_runtime.stepping import AnswerSteps, in_steps
from group_coordinator.share_partitions.decisions import (
    decide_alter_start,
    decide_delete,
    decide_delete_partitions,
    decide_initialize,
    decide_marker,
    decide_release,
)
from group_coordinator.share_partitions.members import ShareMembers
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.sessions import MemberKey, ShareSessions
from group_coordinator.share_partitions.shard import ShareShard
from group_coordinator.share_partitions.state import SharePartition

LOOKED_AT_PER_STEP: Final = 256
"""Number of share partitions that are searched for the acquisitions of a member in one turn of the loop."""

RELEASED_PER_STEP: Final = 32
"""Number of acquisitions that are released in one turn, or a few more."""

DEPARTURE_MS: Final = 5_000
"""Longest time that a member may acknowledge after it left (ms), if it kept its session. It covers a repetition of the
last request. A session that ends with its connection may end sooner."""

ShareHold = tuple[ShareKey, Sequence[int]]
"""Acquisitions of one member in a share partition."""


def share_shard(number: int) -> ShardKey:
    """Return the shard of share partitions beside a log shard."""
    return ShardKey(Coordinator.SHARE_PARTITIONS, number)


def shard_beside(ref: PartitionRef, homes: PartitionHomes) -> ShardKey:
    """Return the shard with the share partitions of a partition. Raises Refused UNKNOWN_TOPIC_OR_PARTITION if its topic
    was deleted."""
    number = homes.shard_number(ref.ordinal)
    if number is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {ref.topic} was deleted")
    return share_shard(number)


class SharePlaces:
    """Implements `coordinator_runtime.share_ports.ShareStates` and `TopicShares`, and
    `coordinator_runtime.participants.ShareParticipant` and `PendingShares`."""

    def __init__(self, homes: PartitionHomes, table: ShardTable) -> None:
        self._homes = homes
        self._table = table

    def initialize(self, group_id: str, topic_id: bytes, partition: int, state_epoch: int) -> Operation:
        home = self._homes.home(topic_id, partition)
        assert home is not None, "a partition that does not exist is not served, so it is not initialised"
        key = ShareKey(group_id, home.ordinal)
        return Operation(share_shard(home.shard_number), partial(decide_initialize, key=key, state_epoch=state_epoch))

    def alter_start(self, group_id: str, topic_id: bytes, partition: int, state_epoch: int, offset: int) -> Operation:
        home = self._homes.home(topic_id, partition)
        assert home is not None, "the partition was found in the same turn"
        key = ShareKey(group_id, home.ordinal)
        decide = partial(decide_alter_start, key=key, state_epoch=state_epoch, offset=offset)
        return Operation(share_shard(home.shard_number), decide)

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> Operation:
        home = self._homes.home(topic_id, partition)
        if home is None:
            # The states were deleted with the topic, which may not be on disk yet.
            return once_durable(CATALOG_KEY)
        keys = [ShareKey(group_id, home.ordinal)]
        return Operation(share_shard(home.shard_number), partial(decide_delete, keys=keys))

    def share_marker(self, share: ShareKey, marker: Marker) -> Operation:
        number = self._homes.shard_number(share.ordinal)
        if number is None:
            # The states were deleted with the topic, which may not be on disk yet.
            return once_durable(CATALOG_KEY)
        return Operation(share_shard(number), partial(decide_marker, key=share, marker=marker))

    def all_pending(self) -> Sequence[OpenInPartition]:
        shards: list[ShareShard] = self._table.serving(Coordinator.SHARE_PARTITIONS)
        return [found for shard in shards for found in shard.all_pending()]

    def is_served(self, topic_id: bytes, partition: int) -> bool:
        home = self._homes.home(topic_id, partition)
        return home is not None and share_shard(home.shard_number) in self._table.served

    def forget_partitions(self, ordinals: Sequence[int]) -> Sequence[Operation]:
        by_shard: dict[int, list[int]] = {}
        for ordinal in ordinals:
            number = self._homes.shard_number(ordinal)
            assert number is not None, "states are forgotten before their partitions are"
            by_shard.setdefault(number, []).append(ordinal)
        return [
            Operation(share_shard(number), partial(decide_delete_partitions, ordinals=found))
            for number, found in by_shard.items()
        ]


def release(runtime: Runtime, group_id: str, member_id: str) -> Pending[None]:
    """Release the records that a member holds now, in several turns of the loop if there is much to look at. What a new
    member with the same id acquires meanwhile stays held. A shard that is not served has none, because holds end with
    it."""
    shards: list[ShareShard] = runtime.shards(Coordinator.SHARE_PARTITIONS)
    now = [(shard, found) for shard in shards if (found := shard.of_group(group_id))]
    if not now:
        return settled(None)
    steps = _release_steps(runtime, member_id, now)
    return in_steps(runtime, steps, outlives_caller=True).then(all_of).map(lambda _released: None)


def _release_steps(
    runtime: Runtime, member_id: str, now: Iterable[tuple[ShareShard, Sequence[tuple[ShareKey, SharePartition]]]]
) -> AnswerSteps[list[Pending[Any]]]:
    released: list[Pending[Any]] = []
    written_before: Pending[Any] | None = None
    looked = count = 0
    for shard, found in now:
        holds: list[ShareHold] = []
        for key, partition in found:
            if looked == LOOKED_AT_PER_STEP or count >= RELEASED_PER_STEP:
                released += _released(runtime, shard, member_id, holds)
                # Not more than two steps become durable together, because all that follows from it comes in one turn.
                yield written_before
                written_before = released[-1] if released else None
                holds, looked, count = [], 0, 0
            looked += 1
            numbers = partition.numbers_of(member_id)
            if numbers:
                holds.append((key, numbers))
                count += len(numbers)
        released += _released(runtime, shard, member_id, holds)
    return released


def _released(runtime: Runtime, shard: ShareShard, member_id: str, holds: Sequence[ShareHold]) -> list[Pending[Any]]:
    # Another shard with this name knows nothing of the holds of an earlier one.
    if not holds or runtime.table.find(shard.key) is not shard:
        return []
    decide = partial(decide_release, member_id=member_id, holds=holds)
    return [runtime.write(Operation(shard.key, decide), is_urgent=True)]


def release_when_members_end(runtime: Runtime, sessions: ShareSessions, members: ShareMembers) -> None:
    """Handle the effect `ReleaseShares`: end the session of the member, and release its records. A kept session ends
    with its final epoch, or after `DEPARTURE_MS`, unless the member has joined again."""

    def end(key: MemberKey) -> None:
        sessions.end(key)
        release(runtime, *key)

    def end_departure(key: MemberKey) -> None:
        if not members.has(key):
            end(key)

    def ended(effect: ReleaseShares) -> None:
        key = MemberKey(effect.group_id, effect.member_id)
        if effect.keeps_session and sessions.keep_for_acknowledgements(key):
            runtime.arm(("share_departure", key), DEPARTURE_MS, partial(end_departure, key))
        else:
            end(key)

    runtime.handle_effect(ReleaseShares, ended)
