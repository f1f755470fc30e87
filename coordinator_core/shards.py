"""Kinds of shards: the stored rows of each, and the actions when a shard stops serving or an administrator asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator_core.config import CoreConfig
from coordinator_protocol.acls import CLUSTER_NAME
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, ShardKey, ShardRouter
from coordinator_runtime.incarnation import FIRST, Incarnation
from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.loader import ShardChange, ShardKind, ShardLoader, ShardStanding, ShardStopped
from coordinator_runtime.participants import MarkerPort
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    NO_LEASES,
    Authorizer,
    CallContext,
    Levels,
    OffsetLeases,
    Permission,
    ResourceType,
    TopicMetadata,
    require,
)
from coordinator_runtime.rows import StateRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.share_ports import NO_SHARE_STATES, ShareStates
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor
from group_coordinator.lost_incarnation import end_lost_memberships
from group_coordinator.news import News
from group_coordinator.registry import PARTS, GroupPart, codec_of
from group_coordinator.shard import GroupShard
from group_coordinator.share_partitions.codec import share_codec
from group_coordinator.share_partitions.shard import ShareShard
from partition_log.catalog.codec import CatalogCodec
from partition_log.catalog.shard import CatalogShard
from partition_log.codec import LogRows
from partition_log.shard import LogShard
from txn_coordinator.codec import CountersRows, TransactionCodec
from txn_coordinator.counters import CountersShard
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.shard import TransactionShard


def catalog_kind(catalog: CatalogShard) -> ShardKind:
    """Return the kind of the catalog shard (topics), with nothing in it yet."""
    return ShardKind(
        coordinator=Coordinator.CATALOG,
        shard_count=1,
        rows=StateRows(CatalogCodec()),
        make=lambda _key: catalog,
        is_essential=True,
    )


def counters_kind(counters: CountersShard) -> ShardKind:
    """Return the kind of the counters shard (producer ids, commit sequence numbers), with nothing in it yet."""
    return ShardKind(
        coordinator=Coordinator.COUNTERS,
        shard_count=1,
        rows=CountersRows(),
        make=lambda _key: counters,
        is_essential=True,
    )


def partitions_kind(
    runtime: Runtime,
    catalog: CatalogShard,
    config: CoreConfig,
    *,
    incarnation: Incarnation = FIRST,
    leases: OffsetLeases = NO_LEASES,
) -> ShardKind:
    """Return the kind of the shards of partitions. The catalog lists the partitions of each shard, and must be loaded
    first. `incarnation` is that of the store. `leases` keep old records."""
    return ShardKind(
        coordinator=Coordinator.LOG,
        shard_count=config.shard_count,
        rows=LogRows(catalog.ordinals_in),
        make=lambda key: LogShard(
            key=key, journal=runtime.journal, config=config.partitions, incarnation=incarnation, leases=leases
        ),
        before_serving=LogShard.before_serving,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExtensions:
    """Replaceable parts of the shards of groups."""

    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: SERVER_ASSIGNORS)
    """Assignors that `GroupConfig.consumer_assignors` may name."""
    parts: Sequence[GroupPart] = PARTS
    share_states: ShareStates = NO_SHARE_STATES
    """States of the partitions of share groups."""


def groups_kind(
    runtime: Runtime,
    topics: TopicMetadata,
    config: CoreConfig,
    extensions: GroupExtensions,
    *,
    incarnation: Incarnation = FIRST,
) -> ShardKind:
    """Return the kind of the shards of groups. `incarnation` is that of the store."""
    in_shard = tuple(part.in_shard for part in extensions.parts)

    def make(key: ShardKey) -> GroupShard:
        shard = GroupShard(
            key,
            runtime.journal,
            topics=topics,
            config=config.groups,
            parts=in_shard,
            assignors=extensions.assignors,
        )
        shard.share_states = extensions.share_states
        shard.least_epoch = incarnation.number
        return shard

    return ShardKind(
        coordinator=Coordinator.GROUPS,
        shard_count=config.shard_count,
        rows=StateRows(codec_of(extensions.parts)),
        make=make,
        before_serving=end_lost_memberships,
        has_epoch=True,
    )


def share_partitions_kind(runtime: Runtime, config: CoreConfig) -> ShardKind:
    """Return the kind of the shards of share partitions, one beside each shard of partitions."""
    return ShardKind(
        coordinator=Coordinator.SHARE_PARTITIONS,
        shard_count=config.shard_count,
        rows=StateRows(share_codec()),
        make=lambda key: ShareShard(key, runtime.journal),
    )


def transactions_kind(
    runtime: Runtime,
    counters: CountersShard,
    markers: MarkerPort,
    config: CoreConfig,
    levels: Levels | None,
) -> ShardKind:
    """Return the kind of the shards of transactional ids. The counters must be loaded first."""

    def make(key: ShardKey) -> TransactionShard:
        shard = TransactionShard(
            key,
            runtime.journal,
            counters=counters,
            markers=markers,
            limits=config.limits,
            two_phase=config.two_phase,
        )
        shard.levels = shard.sinks.levels = levels
        shard.expiration_ms = config.transactional_id_expiration_ms
        shard.outcomes.is_served = runtime.table.served.__contains__
        return shard

    return ShardKind(
        coordinator=Coordinator.TRANSACTIONS,
        shard_count=config.shard_count,
        rows=StateRows(TransactionCodec()),
        make=make,
        has_epoch=True,
    )


def leave_markers_to_the_next_load(loader: ShardLoader, sender: MarkerSender) -> None:
    """Have no more markers sent for a shard once it stops serving. Its next load sends all of them again. Answers to
    markers under way must not complete transactions that are not loaded here any more (spec transactions 7)."""

    def on_change(change: ShardChange) -> None:
        if isinstance(change, ShardStopped) and isinstance(change.shard, TransactionShard):
            sender.stop(change.key, change.shard.coordinator_epoch)

    loader.listen(on_change)


def send_members_away_with_their_shard(
    loader: ShardLoader, router: ShardRouter, answers: LateAnswers, news: News
) -> None:
    """Have waiting calls answered with NOT_COORDINATOR as soon as their shard stops serving: JoinGroup, SyncGroup, and
    heartbeats that wait for news (spec groups 2.12)."""

    def on_change(change: ShardChange) -> None:
        if isinstance(change, ShardStopped) and change.key.coordinator is Coordinator.GROUPS:
            answers.refuse_all(change.key)
            for group_id in news.waiting_group_ids():
                if router.shard_key(group_id) == change.key:
                    news.tell(group_id)

    loader.listen(on_change)


class ShardControl:
    """Use cases of shards. Refuses callers without the permission."""

    def __init__(self, loader: ShardLoader, authorizer: Authorizer) -> None:
        self._loader = loader
        self._authorizer = authorizer
        self.on_asked: Callable[[ShardKey, CallContext], None] = lambda _key, _context: None
        """Called for every permitted request to load or unload a shard."""

    def list_shards(self, coordinator: str, context: CallContext) -> list[ShardStanding]:
        """Return the standings of the shards of a coordinator, or of all if none is named. Raises Refused
        INVALID_REQUEST."""
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        wanted = {_coordinator(coordinator)} if coordinator else set(Coordinator)
        return [each for each in self._loader.standings() if each.key.coordinator in wanted]

    def load(self, coordinator: str, number: int, context: CallContext) -> Pending[ShardStanding]:
        """Read a shard from the store and let it serve. Refusals: as `ShardLoader.load`."""
        return self._act(self._loader.load, coordinator, number, context)

    def unload(self, coordinator: str, number: int, context: CallContext) -> Pending[ShardStanding]:
        """Stop serving a shard. Refusals: as `ShardLoader.unload`."""
        return self._act(self._loader.unload, coordinator, number, context)

    def _act(
        self, act: Callable[[ShardKey], Pending[None]], coordinator: str, number: int, context: CallContext
    ) -> Pending[ShardStanding]:
        require(self._authorizer, context, Permission.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        key = ShardKey(_coordinator(coordinator), number)
        self.on_asked(key, context)
        return act(key).map(lambda _done: self._loader.standing(key))


def _coordinator(name: str) -> Coordinator:
    try:
        return Coordinator[name.upper()]
    except KeyError:
        names = ", ".join(coordinator.name.lower() for coordinator in Coordinator)
        raise Refused(ErrorCode.INVALID_REQUEST, f"there is no coordinator {name!a:.100}; there are {names}") from None
