"""What the group coordinator tells of its shards, so that they can be read back from the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coordinator_runtime.decision import Coordinator
from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.loader import ShardChange, ShardKind, ShardLoader, ShardStopped
from coordinator_runtime.ports import TopicMetadata
from coordinator_runtime.rows import StateRows
from coordinator_runtime.runtime import Runtime
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor
from group_coordinator.codec import GroupCodec
from group_coordinator.config import GroupConfig
from group_coordinator.news import News
from group_coordinator.part import GroupPart
from group_coordinator.registry import PARTS
from group_coordinator.shard import GroupRouter, GroupShard


def groups_kind(
    runtime: Runtime,
    *,
    topics: TopicMetadata,
    config: GroupConfig,
    shard_count: int,
    assignors: Mapping[str, ServerAssignor] = SERVER_ASSIGNORS,
    parts: Sequence[GroupPart] = PARTS,
) -> ShardKind:
    """The shards of groups. `assignors`: those that `config.consumer_assignors` may name."""
    in_shard = tuple(part.in_shard for part in parts)
    return ShardKind(
        coordinator=Coordinator.GROUPS,
        shard_count=shard_count,
        rows=StateRows(codec_of(parts)),
        make=lambda key: GroupShard(
            key, runtime.journal, topics=topics, config=config, parts=in_shard, assignors=assignors
        ),
        has_epoch=True,
    )


def codec_of(parts: Iterable[GroupPart]) -> GroupCodec:
    """Bytes of the records of all these parts."""
    return GroupCodec((part.encoders, part.decoders) for part in parts)


def send_members_away_with_their_shard(
    loader: ShardLoader, router: GroupRouter, answers: LateAnswers, news: News
) -> None:
    """From now on, calls that wait for a shard that stops to serve are answered NOT_COORDINATOR at once: JoinGroup and
    SyncGroup, and heartbeats that wait for news (spec groups 2.12)."""

    def on_change(change: ShardChange) -> None:
        if isinstance(change, ShardStopped) and change.key.coordinator is Coordinator.GROUPS:
            answers.refuse_all(change.key)
            for group_id in news.waiting_group_ids():
                if router.shard_key(group_id) == change.key:
                    news.tell(group_id)

    loader.listen(on_change)
