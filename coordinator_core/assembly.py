"""The assembly: makes and joins every part of the inside, here and nowhere else.

`assemble` needs no stored state. The process that runs the core then loads it. `Core.load_shared` reads what all shards
share, and calls may come in after it. `Core.load_shards` reads the shards, each of which serves as soon as it is
loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from coordinator_core.access import AclAuthorizer
from coordinator_core.acls import AclService
from coordinator_core.backups import NO_DIRECTORY, BackupControl, BackupMaker
from coordinator_core.config import CoreConfig
from coordinator_core.explanation import PartitionExplainer
from coordinator_core.fast_path import FastPath, FastPathParts, SilentAuthorizer
from coordinator_core.observation import Observation
from coordinator_core.partition_list import PartitionLister
from coordinator_core.shards import (
    GroupExtensions,
    ShardControl,
    catalog_kind,
    counters_kind,
    groups_kind,
    leave_markers_to_the_next_load,
    partitions_kind,
    send_members_away_with_their_shard,
    share_partitions_kind,
    transactions_kind,
)
from coordinator_core.topic_maker import LogTopicMaker
from coordinator_protocol.batch import ExamineBatch
from coordinator_runtime.decision import CATALOG_KEY, Coordinator, ShardKey, ShardRouter
from coordinator_runtime.disk_guard import DiskGuard
from coordinator_runtime.features import Features
from coordinator_runtime.history_trim import HISTORY_INTERVAL_MS, HistoryTrim
from coordinator_runtime.identity import new_uuid
from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.loader import ShardKind, ShardLoader
from coordinator_runtime.participants import GroupParticipant, ShareParticipant
from coordinator_runtime.pending import Pending, all_of
from coordinator_runtime.ports import ALLOW_ALL, Authorizer, Levels, UnfinishedTransactions
from coordinator_runtime.rounds import Rounds
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.share_ports import ShareStates
from coordinator_runtime.store import Store
from coordinator_runtime.store_features import StoreFeatures
from coordinator_runtime.store_readers import ReadsAtOnce, StoreReader
from coordinator_runtime.worker import Worker
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor
from group_coordinator.committed.decisions import GroupMarkers
from group_coordinator.committed.transacted import TransactedGroups
from group_coordinator.news import News
from group_coordinator.registry import PARTS, GroupPart
from group_coordinator.services import GroupDependencies, GroupServices, ShareDependencies, group_services
from group_coordinator.share_partitions.members import ShareMembers
from group_coordinator.share_partitions.news import ShareNews
from group_coordinator.share_partitions.places import SharePlaces, release_when_members_end
from group_coordinator.share_partitions.sessions import ShareSessions
from group_coordinator.share_partitions.transacted import AckPlacing, TransactedAcks
from group_coordinator.topics import DeletedTopics
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.settings import TopicDefaults
from partition_log.catalog.shard import CatalogShard
from partition_log.codec import examine_batch
from partition_log.compaction.holds import CompactionHolds
from partition_log.compaction.passes import CompactionPorts, LogCompaction
from partition_log.damage_watch import DamageWatch
from partition_log.foreign_markers import ForeignMarkers
from partition_log.leases import Leases
from partition_log.letter_log import LetterLog
from partition_log.positions import PositionService
from partition_log.ranges import RangeService
from partition_log.record_log import RecordReads
from partition_log.removal import LogRemoval
from partition_log.service import LogService
from partition_log.shard import PartitionMarkers, PartitionTransactions
from partition_log.snapshots import SnapshotService
from partition_log.topics import TopicPorts, TopicService, TopicUsers
from partition_log.transacted import TransactedBatches
from txn_coordinator.administration import TransactionAdministration
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.hanging import HangingTransactions, ProducerOwners
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.reading import TransactionReader
from txn_coordinator.service import TransactionPorts, TransactionService
from txn_coordinator.sinks.service import SinkService
from txn_coordinator.unfinished import UnfinishedOutcomes
from txn_coordinator.verifier import CoordinatorVerifier

LOAD_ORDER = (Coordinator.LOG, Coordinator.SHARE_PARTITIONS, Coordinator.GROUPS, Coordinator.TRANSACTIONS)
"""Coordinators in the order in which `Core.load_shards` loads them. Share groups come after the states of their
partitions, which they make with a heartbeat. Transactional ids come last, because after a load they may still owe
markers to partitions and groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Parts that the core needs besides its store."""

    worker: Worker
    """Computes large targets of groups."""
    payload_worker: Worker
    """Checks large payloads. Separate from `worker`, so that neither waits for the other."""
    compaction_worker: Worker | None = None
    """Reads the payloads of logs that are compacted, and remembers their keys; None if nothing is compacted."""
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: SERVER_ASSIGNORS)
    """Assignors that `GroupConfig.consumer_assignors` may name."""
    group_parts: Sequence[GroupPart] = PARTS
    """Kinds of groups, and other state that is kept with groups."""
    share_states: ShareStates | None = None
    """States of the partitions of share groups; None for those in the shards of share partitions."""
    new_topic_id: Callable[[], bytes] = new_uuid
    disk: DiskGuard = field(default_factory=DiskGuard)
    """Refuses records while little disk is free. The process that runs the core reports the free bytes to it."""
    backups: BackupMaker | None = None
    """Makes backups of the store; None if backups are off."""
    backup_advice: str = NO_DIRECTORY
    """Refusal of a request for a backup if they are off."""
    new_snapshot_id: Callable[[], bytes] = new_uuid
    levels: Levels | None = None
    """Quotas on the amounts that principals may hold; None means no quotas."""
    reader: StoreReader | None = None
    """Reads stored rows on threads; None for an engine whose reads do not wait: then the loop reads."""
    examine_batch: ExamineBatch = examine_batch
    """Examines every incoming batch: in Python, or the compiled equivalent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Services for requests about transactions."""

    service: TransactionService
    reader: TransactionReader
    sinks: SinkService


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Services for requests about topics and their records."""

    topics: TopicService
    records: LogService
    positions: PositionService
    ranges: RangeService
    removal: LogRemoval
    compaction: LogCompaction | None
    """None if nothing is compacted."""
    snapshots: SnapshotService
    foreign_markers: ForeignMarkers


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    """Services for requests of administrators."""

    transactions: TransactionAdministration
    hanging: HangingTransactions
    explainer: PartitionExplainer
    shards: ShardControl
    backups: BackupControl
    acls: AclService
    observation: Observation
    partitions: PartitionLister


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """The inside of one server. Callers use the first four fields; the others are for the process that runs it."""

    transactions: Transactions
    log: Log
    groups: GroupServices
    admin: Administration
    runtime: Runtime
    store: Store
    config: CoreConfig
    access: AclAuthorizer
    loader: ShardLoader
    catalog: CatalogShard
    markers: LocalMarkers
    sender: MarkerSender
    checks: BatchChecks
    answers: LateAnswers
    news: News
    shares: SharePlaces
    share_news: ShareNews
    fast_path: FastPath | None
    """The fast path; None if every call takes the general path."""

    def load_shared(self) -> Pending[None]:
        """Read the state that all shards share. The reply is a refusal if it cannot be read: then nothing can be
        served."""
        return all_of([self.loader.load(CATALOG_KEY), self.loader.load(COUNTERS)]).map(
            lambda _read: self.access.renew()
        )

    def load_shards(self) -> Pending[int]:
        """Read the shards. The reply comes when each one serves or has failed, and is the number of failed ones. The
        others serve without them."""
        return all_of([self.loader.load_all(coordinator) for coordinator in LOAD_ORDER]).map(sum)

    def retire(self, shard: ShardKey, coordinator_epoch: int) -> None:
        """Stop serving a shard because it has a newer owner: a participant refused a marker, since it knows a later
        coordinator epoch of the shard. As a zombie we must not answer for it."""

        def let_go() -> None:
            # Unless it was loaded again meanwhile, under a later coordinator epoch.
            if self.loader.standing(shard).coordinator_epoch == coordinator_epoch:
                self.loader.unload(shard)

        # Deferred, because the caller is in the middle of a step of the runtime.
        self.runtime.arm(("fenced", shard), 0, let_go)


class LocalMarkers:
    """Implements `coordinator_runtime.participants.MarkerPort` with the functions of participants in this process."""

    def __init__(self, partitions: PartitionMarkers, groups: GroupParticipant, shares: ShareParticipant) -> None:
        self.partition_marker = partitions.partition_marker
        self.partition_seal = partitions.partition_seal
        self.group_marker = groups.group_marker
        self.share_marker = shares.share_marker


@dataclass(frozen=True, slots=True, kw_only=True)
class _Foundation:
    """Values that several parts are made from."""

    runtime: Runtime
    store: Store
    reads: StoreReader
    """Reads stored rows, at once or on threads."""
    config: CoreConfig
    dependencies: Dependencies
    authorizer: Authorizer
    catalog: CatalogShard
    group_router: ShardRouter
    transaction_router: ShardRouter
    partition_markers: PartitionMarkers
    markers: LocalMarkers
    owners: ProducerOwners
    checks: BatchChecks
    features: Features
    leases: Leases
    shares: SharePlaces
    share_news: ShareNews
    sessions: ShareSessions


def assemble(
    runtime: Runtime,
    store: Store,
    config: CoreConfig,
    dependencies: Dependencies,
    authorizer: Authorizer | None = None,
) -> Core:
    """Make and join all parts, with nothing loaded. Access is decided by `authorizer` if one is given, else as the
    configuration says."""
    catalog = _catalog(runtime, store, config, dependencies.levels)
    counters = CountersShard(runtime.journal, store.incarnation)
    access = AclAuthorizer(runtime, catalog.acls, config.super_users)
    authorizer = authorizer or (access if config.enforces_acls else ALLOW_ALL)
    base = _foundation(runtime, store, config, dependencies, authorizer, catalog)
    loader = ShardLoader(runtime, store, dependencies.reader)
    for kind in _kinds(base, counters):
        loader.add(kind)
    open_transactions = PartitionTransactions(partial(runtime.shards, Coordinator.LOG), catalog)
    sender = MarkerSender(runtime, base.markers, open_transactions)
    leave_markers_to_the_next_load(loader, sender)
    answers, news = LateAnswers(runtime, waiting_max=config.group_waits_max), News(runtime)
    send_members_away_with_their_shard(loader, base.group_router, answers, news)
    release_when_members_end(runtime, base.sessions, ShareMembers(runtime, base.group_router))
    shard_key = base.transaction_router.shard_key
    verifier = CoordinatorVerifier(runtime, shard_key)
    log = _log(base, verifier, UnfinishedOutcomes(runtime, sender, config.shard_count))
    hanging = HangingTransactions(
        runtime=runtime,
        owners=base.owners,
        open_transactions=open_transactions,
        pending_shares=base.shares,
        markers=base.markers,
        shard_key=shard_key,
    )
    transactions = _transactions(base, sender, log.records)
    core = Core(
        transactions=transactions,
        log=log,
        groups=_groups(base, log, verifier, answers, news),
        admin=_admin(base, loader, hanging, log, transactions, access),
        runtime=runtime,
        store=store,
        config=config,
        access=access,
        loader=loader,
        catalog=catalog,
        markers=base.markers,
        sender=sender,
        checks=base.checks,
        answers=answers,
        news=news,
        shares=base.shares,
        share_news=base.share_news,
        fast_path=_fast_path(base, counters) if config.lane else None,
    )
    sender.on_fenced = core.retire
    access.on_renewed = core.groups.topics.hold_patterns_again
    return core


def _foundation(
    runtime: Runtime,
    store: Store,
    config: CoreConfig,
    dependencies: Dependencies,
    authorizer: Authorizer,
    catalog: CatalogShard,
) -> _Foundation:
    group_router = ShardRouter(Coordinator.GROUPS, config.shard_count)
    partition_markers = PartitionMarkers(catalog)
    features, shares = StoreFeatures(runtime, store), SharePlaces(catalog, runtime.table)
    return _Foundation(
        runtime=runtime,
        store=store,
        reads=dependencies.reader or ReadsAtOnce(store),
        config=config,
        dependencies=dependencies,
        authorizer=authorizer,
        catalog=catalog,
        group_router=group_router,
        transaction_router=ShardRouter(Coordinator.TRANSACTIONS, config.shard_count),
        partition_markers=partition_markers,
        markers=LocalMarkers(partition_markers, GroupMarkers(group_router), shares),
        owners=ProducerOwners(runtime),
        checks=BatchChecks(
            dependencies.payload_worker,
            config.limits,
            dependencies.disk,
            dependencies.examine_batch,
            features=features,
        ),
        features=features,
        leases=Leases(runtime, dependencies.new_snapshot_id, dependencies.levels),
        shares=shares,
        share_news=ShareNews(runtime),
        sessions=ShareSessions(config.groups.share_sessions_max),
    )


def _admin(
    base: _Foundation,
    loader: ShardLoader,
    hanging: HangingTransactions,
    log: Log,
    transactions: Transactions,
    access: AclAuthorizer,
) -> Administration:
    runtime, catalog, authorizer = base.runtime, base.catalog, base.authorizer
    return Administration(
        transactions=TransactionAdministration(
            runtime, base.transaction_router.shard_key, hanging=hanging, catalog=catalog, authorizer=authorizer
        ),
        hanging=hanging,
        explainer=PartitionExplainer(
            runtime=runtime, log=log.records, owners=base.owners, reader=transactions.reader, authorizer=authorizer
        ),
        shards=ShardControl(loader, authorizer),
        backups=BackupControl(base.dependencies.backups, base.dependencies.backup_advice, authorizer),
        acls=AclService(runtime, catalog.acls, access, authorizer, is_enforced=base.config.enforces_acls),
        observation=Observation(base.leases, authorizer),
        partitions=PartitionLister(runtime, base.reads, catalog, base.owners, authorizer),
    )


def _catalog(runtime: Runtime, store: Store, config: CoreConfig, levels: Levels | None) -> CatalogShard:
    return CatalogShard(
        runtime.journal,
        shard_count=config.shard_count,
        incarnation=store.incarnation.number,
        defaults=TopicDefaults(
            retention=config.default_retention,
            timestamp_after_max_ms=config.default_timestamp_after_max_ms,
            batch_bytes_max=config.limits.batch_bytes_max,
        ),
        levels=levels,
    )


def _fast_path(base: _Foundation, counters: CountersShard) -> FastPath:
    authorizer = SilentAuthorizer(base.authorizer)
    return FastPath(
        FastPathParts(
            runtime=base.runtime,
            catalog=base.catalog,
            counters=counters,
            transaction_router=base.transaction_router,
            authorizer=authorizer,
            checks=base.checks,
            groups=TransactedGroups(base.group_router, base.catalog, authorizer),
            group_markers=GroupMarkers(base.group_router),
        )
    )


def _kinds(base: _Foundation, counters: CountersShard) -> Sequence[ShardKind]:
    """Return the kinds of shards."""
    runtime, catalog, config, around = base.runtime, base.catalog, base.config, base.dependencies
    return (
        catalog_kind(catalog),
        counters_kind(counters),
        partitions_kind(
            runtime,
            catalog,
            config,
            incarnation=base.store.incarnation,
            leases=base.leases,
        ),
        groups_kind(
            runtime,
            catalog,
            config,
            GroupExtensions(
                assignors=around.assignors, parts=around.group_parts, share_states=around.share_states or base.shares
            ),
            incarnation=base.store.incarnation,
        ),
        share_partitions_kind(runtime, config),
        transactions_kind(runtime, counters, base.markers, config, around.levels),
    )


def _transactions(base: _Foundation, sender: MarkerSender, records: LogService) -> Transactions:
    runtime, router, catalog, authorizer = base.runtime, base.transaction_router, base.catalog, base.authorizer
    ports = TransactionPorts(
        authorizer=authorizer,
        catalog=catalog,
        sequences=base.partition_markers,
        partitions=TransactedBatches(
            reader=base.reads, catalog=catalog, authorizer=authorizer, checks=base.checks, damage=records.fetcher.damage
        ),
        offsets=TransactedGroups(base.group_router, catalog, authorizer),
        shares=TransactedAcks(AckPlacing(base.group_router, catalog, catalog, authorizer), authorizer),
    )
    limits = base.config.limits
    service = TransactionService(
        runtime, router, ports, limits=limits, two_phase_commit_enable=base.config.two_phase_commit_enable
    )
    return Transactions(
        service=service,
        sinks=SinkService(runtime, router, service, authorizer, limits=limits),
        reader=TransactionReader(runtime, base.reads, router, sender=sender, catalog=catalog, authorizer=authorizer),
    )


def _log(base: _Foundation, verifier: CoordinatorVerifier, unfinished: UnfinishedTransactions) -> Log:
    runtime, catalog, authorizer = base.runtime, base.catalog, base.authorizer
    records = LogService(runtime, base.store, catalog, verifier=verifier, authorizer=authorizer, checks=base.checks)
    records.leases = base.leases
    records.fetcher.reader = base.dependencies.reader
    removal = LogRemoval(
        runtime=runtime, reader=base.reads, catalog=catalog, damage=records.fetcher.damage, leases=base.leases
    )
    Rounds(runtime, "removal", base.config.partitions.removal_interval_ms, removal.round)
    compaction = _compaction(base, records.fetcher.damage, unfinished)
    if compaction is not None:
        Rounds(runtime, "compaction", base.config.partitions.compaction_interval_ms, compaction.round)
    trim = HistoryTrim(runtime, base.reads, base.config.history_retention_ms)
    Rounds(runtime, "history_trim", HISTORY_INTERVAL_MS, trim.round)
    return Log(
        topics=TopicService(
            runtime,
            catalog,
            ports=TopicPorts(
                TopicUsers(verifier, DeletedTopics(base.group_router), base.shares), authorizer, base.features
            ),
            limits=base.config.limits,
            new_topic_id=base.dependencies.new_topic_id,
        ),
        records=records,
        positions=PositionService(runtime, base.reads, records, base.checks.worker),
        ranges=RangeService(base.reads, records),
        removal=removal,
        compaction=compaction,
        snapshots=SnapshotService(
            runtime=runtime, log=records, unfinished=unfinished, leases=base.leases, authorizer=authorizer
        ),
        foreign_markers=ForeignMarkers(runtime, catalog, guard=base.owners, authorizer=authorizer),
    )


def _compaction(base: _Foundation, damage: DamageWatch, unfinished: UnfinishedTransactions) -> LogCompaction | None:
    worker = base.dependencies.compaction_worker
    if worker is None:
        return None
    holds = CompactionHolds(base.runtime, unfinished, base.leases)
    ports = CompactionPorts(worker, base.features, damage, holds.held_from)
    return LogCompaction(base.runtime, base.reads, base.catalog, ports, base.config.partitions)


def _groups(
    base: _Foundation, log: Log, verifier: CoordinatorVerifier, answers: LateAnswers, news: News
) -> GroupServices:
    return group_services(
        GroupDependencies(
            runtime=base.runtime,
            router=base.group_router,
            config=base.config.groups,
            authorizer=base.authorizer,
            catalog=base.catalog,
            topics=base.catalog,
            topic_maker=LogTopicMaker(log.topics),
            verifier=verifier,
            answers=answers,
            news=news,
            features=base.features,
            worker=base.dependencies.worker,
            shares=ShareDependencies(
                log=RecordReads(base.runtime, base.catalog, log.records, log.positions),
                homes=base.catalog,
                sessions=base.sessions,
                news=base.share_news,
                verifier=verifier,
                letters=LetterLog(base.catalog, base.checks),
            ),
            assignors=base.dependencies.assignors,
        )
    )
