"""The group coordinator put together on loaded shards: what the server serves, and what others ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator_runtime.late_answers import LateAnswers
from coordinator_runtime.ports import Authorizer, GroupVerifier, TopicCatalog, TopicMetadata
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.worker import Worker
from group_coordinator.administration.service import AdministrationService
from group_coordinator.administration.servicer import AdministrationServicer
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor
from group_coordinator.classic.service import ClassicService
from group_coordinator.classic.servicer import ClassicServicer
from group_coordinator.committed.service import OffsetService
from group_coordinator.committed.servicer import OffsetServicer
from group_coordinator.config import GroupConfig
from group_coordinator.consumer.regex_resolver import RegexResolver
from group_coordinator.consumer.service import ConsumerService
from group_coordinator.consumer.servicer import ConsumerServicer
from group_coordinator.consumer.target_computer import TargetComputer
from group_coordinator.consumer.topic_watch import TopicWatch
from group_coordinator.loading import GroupRouter
from group_coordinator.news import News


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurroundings:
    """What the services of the group coordinator are made from."""

    runtime: Runtime
    router: GroupRouter
    config: GroupConfig
    authorizer: Authorizer
    catalog: TopicCatalog
    topics: TopicMetadata
    verifier: GroupVerifier
    answers: LateAnswers
    news: News
    worker: Worker
    assignors: Mapping[str, ServerAssignor] = field(default_factory=lambda: SERVER_ASSIGNORS)
    """Those of the shards, for the worker."""


def group_servicers(surroundings: GroupSurroundings) -> list[object]:
    """One object per part; together they have one function per method of GroupService."""
    return [_classic(surroundings), _consumer(surroundings), _offsets(surroundings), _administration(surroundings)]


def _classic(around: GroupSurroundings) -> ClassicServicer:
    service = ClassicService(
        around.runtime, router=around.router, config=around.config, answers=around.answers, news=around.news
    )
    return ClassicServicer(service, around.authorizer)


def _consumer(around: GroupSurroundings) -> ConsumerServicer:
    runtime, router = around.runtime, around.router
    TargetComputer(runtime, router, around.worker, around.assignors)
    TopicWatch(runtime, around.topics)
    resolver = RegexResolver(runtime, router=router, topics=around.topics, authorizer=around.authorizer)
    service = ConsumerService(runtime, router=router, config=around.config, news=around.news, resolver=resolver)
    return ConsumerServicer(service, around.topics, around.authorizer, around.config.consumer_assignors[0])


def _offsets(around: GroupSurroundings) -> OffsetServicer:
    service = OffsetService(
        around.runtime,
        around.router,
        catalog=around.catalog,
        verifier=around.verifier,
        authorizer=around.authorizer,
    )
    return OffsetServicer(service)


def _administration(around: GroupSurroundings) -> AdministrationServicer:
    return AdministrationServicer(AdministrationService(around.runtime, around.router), around.authorizer)
