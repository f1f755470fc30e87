"""Assembly of the services of the group coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator_runtime.dead_letters import DeadLetterLog
from coordinator_runtime.decision import ShardRouter
from coordinator_runtime.features import Features
from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.participants import ShareVerifier
from coordinator_runtime.ports import Authorizer, GroupVerifier, TopicCatalog, TopicMetadata
from coordinator_runtime.record_log import RecordLog
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.share_ports import PartitionHomes
from coordinator_runtime.topic_making import TopicMaker
from coordinator_runtime.worker import Worker
from group_coordinator.administration.service import AdministrationService
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor
from group_coordinator.catalog_watch import CatalogWatch
from group_coordinator.classic.service import ClassicService
from group_coordinator.committed.service import OffsetService
from group_coordinator.config import GroupConfig
from group_coordinator.consumer.background import target_rules
from group_coordinator.consumer.service import ConsumerService
from group_coordinator.news import News
from group_coordinator.share.background import SHARE_TARGETS
from group_coordinator.share.service import ShareService
from group_coordinator.share_partitions.fetching import ShareParts
from group_coordinator.share_partitions.letter_writer import LetterWriter
from group_coordinator.share_partitions.members import ShareMembers
from group_coordinator.share_partitions.news import ShareNews
from group_coordinator.share_partitions.offset_admin import OffsetAdmin
from group_coordinator.share_partitions.service import SharePartitionService
from group_coordinator.share_partitions.sessions import ShareSessions
from group_coordinator.share_partitions.transacted import TxnSharePorts, TxnShareService
from group_coordinator.streams.background import TaskPlacer
from group_coordinator.streams.service import StreamsPorts, StreamsService
from group_coordinator.target_computer import TargetComputer


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDependencies:
    """Further dependencies of the records of share groups."""

    log: RecordLog
    homes: PartitionHomes
    sessions: ShareSessions
    news: ShareNews
    verifier: ShareVerifier
    letters: DeadLetterLog


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDependencies:
    """Dependencies of the services of the group coordinator."""

    runtime: Runtime
    router: ShardRouter
    config: GroupConfig
    authorizer: Authorizer
    catalog: TopicCatalog
    topics: TopicMetadata
    topic_maker: TopicMaker
    verifier: GroupVerifier
    answers: LateAnswers
    news: News
    features: Features
    worker: Worker
    shares: ShareDependencies
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: SERVER_ASSIGNORS)
    """The assignors of the shards, for the worker."""


@dataclass(frozen=True, slots=True)
class GroupServices:
    """Services of the group coordinator, by part."""

    classic: ClassicService
    consumer: ConsumerService
    share: ShareService
    streams: StreamsService
    share_records: SharePartitionService
    share_offsets: OffsetAdmin
    txn_shares: TxnShareService
    offsets: OffsetService
    administration: AdministrationService
    topics: CatalogWatch


def group_services(around: GroupDependencies) -> GroupServices:
    """Build the services, and start their background work."""
    runtime, router, config = around.runtime, around.router, around.config
    for targets in (target_rules(around.assignors), SHARE_TARGETS):
        TargetComputer(runtime, router, around.worker, targets)
    TaskPlacer(runtime, router, around.worker)
    shares = _share_parts(around)
    LetterWriter(runtime, shares, around.catalog, around.shares.letters)
    return GroupServices(
        classic=ClassicService(
            runtime,
            router=router,
            config=config,
            authorizer=around.authorizer,
            answers=around.answers,
            news=around.news,
        ),
        consumer=ConsumerService(
            runtime,
            router=router,
            config=config,
            authorizer=around.authorizer,
            topics=around.topics,
            news=around.news,
        ),
        share=ShareService(
            runtime,
            router=router,
            authorizer=around.authorizer,
            topics=around.topics,
            features=around.features,
            news=around.news,
        ),
        streams=StreamsService(
            runtime,
            router,
            StreamsPorts(around.authorizer, around.topics, around.features, around.topic_maker),
            around.news,
        ),
        share_records=SharePartitionService(runtime, shares, around.authorizer),
        share_offsets=OffsetAdmin(runtime, shares, around.topics, around.authorizer),
        txn_shares=TxnShareService(
            runtime,
            router,
            TxnSharePorts(
                authorizer=around.authorizer,
                catalog=around.catalog,
                homes=around.shares.homes,
                verifier=around.shares.verifier,
            ),
        ),
        offsets=OffsetService(
            runtime, router, catalog=around.catalog, verifier=around.verifier, authorizer=around.authorizer
        ),
        administration=AdministrationService(runtime, router, around.authorizer),
        topics=CatalogWatch(runtime, around.topics),
    )


def _share_parts(around: GroupDependencies) -> ShareParts:
    return ShareParts(
        log=around.shares.log,
        homes=around.shares.homes,
        members=ShareMembers(around.runtime, around.router),
        sessions=around.shares.sessions,
        news=around.shares.news,
    )
