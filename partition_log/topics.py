"""Use cases of topics: create, change, delete, describe. Each topic of a request succeeds or fails by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from coordinator_protocol.acls import CLUSTER_NAME
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.names import check_topic, check_topic_name
from coordinator_runtime.decision import CATALOG_KEY, Decision, Operation, Turn
from coordinator_runtime.features import COMPACT_TOPICS, Features
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    Permission,
    ResourceType,
    TopicOffsets,
    TransactionVerifier,
    require,
    require_by_id,
)
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.share_ports import TopicShares
from partition_log.catalog.settings import loses_records_if_overlooked
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import MorePartitions, NewTopic, Topic, TopicToAlter, check_new_topic, repeated_names
from partition_log.requests import (
    AlterTopicConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    DescribedTopic,
    DescribeTopicConfigs,
    DescribeTopics,
    FoundTopic,
    LookUpTopics,
    TopicConfigs,
    TopicName,
    TopicResult,
)
from partition_log.shard import LogShard

WantedT = TypeVar("WantedT", MorePartitions, TopicToAlter)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class TopicUsers:
    """Users of a topic that must let go of it before it is deleted: open transactions, offsets of groups, and share
    groups."""

    verifier: TransactionVerifier
    offsets: TopicOffsets
    shares: TopicShares

    def let_go(self, topic: Topic) -> Sequence[Operation]:
        """Return the operations that abort its open transactions, and forget the groups' offsets in it and what share
        groups know of its records."""
        return [
            *self.verifier.abort_touching(topic.partition_ordinals),
            *self.offsets.forget_topic(topic.topic_id),
            *self.shares.forget_partitions(topic.partition_ordinals),
        ]


@dataclass(frozen=True, slots=True)
class TopicPorts:
    """Parts that use cases of topics need from others."""

    users: TopicUsers
    authorizer: Authorizer
    features: Features


class TopicService:
    """`new_topic_id` draws the ids of topics (`coordinator_runtime.identity.new_uuid`)."""

    def __init__(
        self,
        runtime: Runtime,
        catalog: CatalogShard,
        *,
        ports: TopicPorts,
        limits: Limits,
        new_topic_id: Callable[[], bytes],
    ) -> None:
        self._runtime = runtime
        self._catalog = catalog
        self._users = ports.users
        self._features = ports.features
        self._authorizer = ports.authorizer
        self._limits = limits
        self._new_topic_id = new_topic_id
        self._serving = runtime.table.find

    def create_topics(self, command: CreateTopics, context: CallContext) -> Pending[list[TopicResult]]:
        """Create topics, each with all its partitions or not at all; durable when answered."""
        repeated = repeated_names(topic.name for topic in command.topics)
        return all_of(
            [self._create(topic, repeated, context, validate_only=command.validate_only) for topic in command.topics]
        )

    def _create(
        self, topic: NewTopic, repeated: frozenset[str], context: CallContext, *, validate_only: bool
    ) -> Pending[TopicResult]:
        try:
            may = self._authorizer.is_allowed
            if not may(context, Permission.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
                require(self._authorizer, context, Permission.CREATE, ResourceType.TOPIC, topic.name)
            if topic.name in repeated:
                raise _named_twice(topic.name)
            check_new_topic(topic, self._limits)
        except Refused as refusal:
            return settled(TopicResult(topic.name, error=refusal))
        topic_id = self._new_topic_id()

        def write(validate_only: bool) -> Pending[Topic]:
            def decide(catalog: CatalogShard, turn: Turn) -> Decision:
                return catalog.decide_create(topic, topic_id, turn, validate_only=validate_only)

            return self._runtime.write(Operation(CATALOG_KEY, decide), context)

        created = self._written(topic.config, write, validate_only=validate_only)
        return created.map(lambda made: TopicResult(made.name, made.topic_id, topic.partition_count)).answer_error(
            lambda error: TopicResult(topic.name, error=error)
        )

    def delete_topics(self, command: DeleteTopics, context: CallContext) -> Pending[list[TopicResult]]:
        """Delete topics with their records, and with the offsets and share states that groups have in them. Open
        transactions that touch them are aborted first. Durable when answered.

        Raises Refused INVALID_REQUEST as `check_topic`."""
        for topic in command.topics:
            check_topic(topic.name, topic.topic_id)
        return all_of([self._delete(topic, context) for topic in command.topics])

    def _delete(self, wanted: TopicName, context: CallContext) -> Pending[TopicResult]:
        name, topic_id = wanted.name, wanted.topic_id

        def decide(catalog: CatalogShard, _turn: Turn) -> Decision:
            found = self._find(Permission.DELETE, context, wanted, catalog.topic)
            return catalog.decide_delete(found.name, found.topic_id, self._users.let_go)

        deleted: Pending[Topic] = self._runtime.write(Operation(CATALOG_KEY, decide), context)
        return deleted.map(
            lambda topic: TopicResult(topic.name, topic.topic_id, len(topic.partition_ordinals))
        ).answer_error(lambda error: TopicResult(name, topic_id, error=error))

    def _written(
        self, settings: Mapping[str, str], write: Callable[[bool], Pending[Topic]], *, validate_only: bool
    ) -> Pending[Topic]:
        """Write a change of a topic, after the feature of the store that its new settings need. `write` takes
        `validate_only`. The change is tried so first, because one that is refused must begin no feature."""
        if validate_only or not loses_records_if_overlooked(settings) or self._features.has(COMPACT_TOPICS):
            return write(validate_only)
        return write(True).then(lambda _tried: self._features.begin(COMPACT_TOPICS)).then(lambda _begun: write(False))

    def create_partitions(self, command: CreatePartitions, context: CallContext) -> Pending[list[TopicResult]]:
        """Add partitions to topics, each topic all that were asked for or none; durable when answered.

        Raises Refused INVALID_REQUEST as `check_topic`."""

        def decide(wanted: MorePartitions, catalog: CatalogShard) -> Decision:
            return catalog.decide_add_partitions(wanted, self._limits)

        def result(wanted: MorePartitions, changed: Pending[Topic]) -> Pending[TopicResult]:
            return changed.map(
                lambda topic: TopicResult(topic.name, topic.topic_id, len(topic.partition_ordinals))
            ).answer_error(lambda error: TopicResult(wanted.name, wanted.topic_id, error=error))

        return all_of(self._change(Permission.ALTER, command.topics, decide, result, context))

    def alter_topic_configs(self, command: AlterTopicConfigs, context: CallContext) -> Pending[list[TopicConfigs]]:
        """Change settings of topics, each topic as asked or not at all. The changes are effective and durable when
        answered. The results have all settings after the change.

        Raises Refused INVALID_REQUEST as `check_topic`."""

        def decide(wanted: TopicToAlter, catalog: CatalogShard) -> Decision:
            return catalog.decide_alter(wanted)

        def result(wanted: TopicToAlter, changed: Pending[Topic]) -> Pending[TopicConfigs]:
            return changed.map(self._configs).answer_error(
                lambda error: TopicConfigs(wanted.name, wanted.topic_id, error=error)
            )

        return all_of(self._change(Permission.ALTER_CONFIGS, command.topics, decide, result, context))

    def _change(
        self,
        permission: Permission,
        topics: Sequence[WantedT],
        decide: Callable[[WantedT, CatalogShard], Decision],
        result: Callable[[WantedT, Pending[Topic]], Pending[ResultT]],
        context: CallContext,
    ) -> list[Pending[ResultT]]:
        """Change each topic by itself. A topic that the request names twice, perhaps once by its id, is not changed at
        all."""
        for topic in topics:
            check_topic(topic.name, topic.topic_id)
        repeated = repeated_names(map(self._known_as, topics))

        def decide_one(catalog: CatalogShard, _turn: Turn, wanted: WantedT) -> Decision:
            self._find(permission, context, TopicName(wanted.name, wanted.topic_id), catalog.topic)
            if self._known_as(wanted) in repeated:
                raise _named_twice(wanted.name or wanted.topic_id.hex())
            return decide(wanted, catalog)

        def write(wanted: WantedT, validate_only: bool) -> Pending[Topic]:
            decide_this = partial(decide_one, wanted=replace(wanted, validate_only=validate_only))
            return self._runtime.write(Operation(CATALOG_KEY, decide_this), context)

        def written(wanted: WantedT) -> Pending[Topic]:
            return self._written(wanted.new_settings, partial(write, wanted), validate_only=wanted.validate_only)

        return [result(wanted, written(wanted)) for wanted in topics]

    def _known_as(self, wanted: MorePartitions | TopicToAlter) -> str:
        """Return the name of a topic, whether a request names it by name or by id."""
        topic = None if wanted.name else self._catalog.topic_with_id(wanted.topic_id)
        return wanted.name or (wanted.topic_id.hex() if topic is None else topic.name)

    def describe_topic_configs(self, command: DescribeTopicConfigs, context: CallContext) -> list[TopicConfigs]:
        """Return all settings of topics as they are on disk. If none is named, return those of all topics that the
        caller may see, by name.

        Raises Refused INVALID_REQUEST as `check_topic`."""
        for topic in command.topics:
            check_topic(topic.name, topic.topic_id)
        wanted = command.topics or self._visible(Permission.DESCRIBE_CONFIGS, context)
        return [self._describe_configs(topic, context) for topic in wanted]

    def _describe_configs(self, wanted: TopicName, context: CallContext) -> TopicConfigs:
        try:
            return self._configs(self._find(Permission.DESCRIBE_CONFIGS, context, wanted, self._catalog.durable_topic))
        except Refused as refusal:
            return TopicConfigs(wanted.name, wanted.topic_id, error=refusal)

    def _configs(self, topic: Topic) -> TopicConfigs:
        return TopicConfigs(topic.name, topic.topic_id, self._catalog.settings(topic))

    def describe_topics(self, command: DescribeTopics, context: CallContext) -> list[DescribedTopic]:
        """Return topics with their durable positions. If none is named, return all that the caller may see, by name.

        Raises Refused INVALID_REQUEST as `check_topic`."""
        for topic in command.topics:
            check_topic(topic.name, topic.topic_id)
        wanted = command.topics or self._visible(Permission.DESCRIBE, context)
        return [self._describe(topic, context) for topic in wanted]

    def look_up_topics(self, command: LookUpTopics, context: CallContext) -> list[FoundTopic]:
        """Return the ids and partitions of topics on disk, in the order asked, or of all by name. Unlike
        `describe_topics`, it reads neither positions nor settings, and a shard that does not serve is no error.

        Raises Refused INVALID_REQUEST as `check_topic`."""
        wanted = command.topics
        if wanted is None:
            wanted = self._visible(Permission.DESCRIBE, context)
        for topic in wanted:
            check_topic(topic.name, topic.topic_id)
        return [self._look_up(topic, context) for topic in wanted]

    def _look_up(self, wanted: TopicName, context: CallContext) -> FoundTopic:
        try:
            topic = self._find(Permission.DESCRIBE, context, wanted, self._catalog.durable_topic)
        except Refused as refusal:
            return FoundTopic(wanted.name, wanted.topic_id, error=refusal)
        return FoundTopic(topic.name, topic.topic_id, list(map(self._leader_epoch, topic.partition_ordinals)))

    def _leader_epoch(self, ordinal: int) -> int | None:
        # The partition is gone from the live catalog while the deletion of its topic is not on disk yet.
        placed = self._catalog.placed(ordinal)
        shard: LogShard | None = None if placed is None else self._serving(placed.shard)
        head = None if shard is None else shard.durable_head(ordinal)
        return None if head is None else head.leadership.epoch

    def _visible(self, permission: Permission, context: CallContext) -> list[TopicName]:
        """Return all topics on disk for which the caller has the permission, by name."""
        may = partial(self._authorizer.is_allowed, context, permission, ResourceType.TOPIC)
        return [TopicName(topic.name, topic.topic_id) for topic in self._catalog.durable_topics() if may(topic.name)]

    def _describe(self, wanted: TopicName, context: CallContext) -> DescribedTopic:
        try:
            find = self._catalog.durable_topic
            return self._description(self._find(Permission.DESCRIBE, context, wanted, find))
        except Refused as refusal:
            return DescribedTopic(wanted.name, wanted.topic_id, error=refusal)

    def _find(
        self, permission: Permission, context: CallContext, wanted: TopicName, find: Callable[[str, bytes], Topic]
    ) -> Topic:
        """Return the topic, if the caller has the permission for it. Raises Refused, also for a name that no topic can
        have."""
        # The permission is checked before the existence, so that a caller that may not see a topic does not learn of
        # it.
        if wanted.name:
            require(self._authorizer, context, permission, ResourceType.TOPIC, wanted.name)
            check_topic_name(wanted.name)
        topic = find(wanted.name, wanted.topic_id)
        if not wanted.name:
            require_by_id(self._authorizer, context, permission, topic.name, wanted.topic_id)
        return topic

    def _description(self, topic: Topic) -> DescribedTopic:
        heads = []
        for partition, ordinal in enumerate(topic.partition_ordinals):
            shard: LogShard = self._runtime.shard(self._catalog.log_shard(topic.name, partition))
            head = shard.durable_head(ordinal)
            assert head is not None, "a topic and its partitions are on disk together"
            heads.append(head)
        settings = {each.name: each.value for each in self._catalog.settings(topic)}
        return DescribedTopic(topic.name, topic.topic_id, tuple(heads), settings)


def _named_twice(name: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, f"the request names {name!a:.300} more than once; name it once")
