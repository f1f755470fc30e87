"""Shard of the catalog: finds topics and partitions, and decides on their creation, change and deletion. It also keeps
the access rules (`acls.py`).

It is loaded before any caller may ask, and never unloaded, so other parts may hold a reference to the shard itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.acls import ANONYMOUS
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.hashing import shard_of
from coordinator_protocol.limits import Limits
from coordinator_protocol.names import check_partition, check_topic_name
from coordinator_runtime.decision import CATALOG_KEY, Coordinator, Decision, Operation, Record, ShardKey, Turn
from coordinator_runtime.ports import Level, Levels, PartitionName, PartitionRef, TopicShape, unknown_topic_id
from coordinator_runtime.share_ports import PartitionHome
from coordinator_runtime.timeline import Journal, TimelineMap
from partition_log.catalog.acls import AclTable
from partition_log.catalog.settings import (
    KEEP_ALL,
    CleanupPolicy,
    CompactionTerms,
    PayloadValidation,
    Retention,
    SettingValue,
    TopicDefaults,
    altered,
    batch_bytes_max,
    compaction_terms,
    retention,
    setting_values,
    timestamp_after_max,
)
from partition_log.catalog.state import (
    ORDINAL_MAX,
    AclCreated,
    AclDeleted,
    AclVersion,
    CatalogRecord,
    MorePartitions,
    NewTopic,
    OrdinalsAllocated,
    PlacedPartition,
    Topic,
    TopicDeleted,
    TopicSet,
    TopicToAlter,
    check_more_partitions,
)
from partition_log.records import TopicChanged

ORDINALS_SKIPPED: Final = 1 << 20
"""Number of ordinals that are skipped once in a new incarnation of the store. The lost one may have assigned as many
beyond those that are known."""

_ONLY: Final = None
"""Key of a map that holds one value."""


class CatalogShard:
    """Topics by name and by id, partitions by ordinal. Implements `coordinator_runtime.ports.TopicCatalog` and
    `TopicMetadata`, and `coordinator_runtime.share_ports.PartitionHomes`."""

    def __init__(
        self,
        journal: Journal,
        *,
        shard_count: int,
        incarnation: int = 0,
        defaults: TopicDefaults | None = None,
        levels: Levels | None = None,
    ) -> None:
        self._shard_count = shard_count
        self._incarnation = incarnation
        """Incarnation of the store."""
        self._defaults = TopicDefaults() if defaults is None else defaults
        self._levels = levels
        self._topics: TimelineMap[str, Topic] = TimelineMap(journal)
        self._names: TimelineMap[bytes, str] = TimelineMap(journal)
        self._placed: TimelineMap[int, PlacedPartition] = TimelineMap(journal)
        self._allocated: TimelineMap[None, OrdinalsAllocated] = TimelineMap(journal)
        self.acls = AclTable(journal)
        self.placed: Callable[[int], PlacedPartition | None] = self._placed.get
        """Returns the partition of this ordinal, live; None once it is deleted."""

    # Reading

    def topic(self, name: str, topic_id: bytes) -> Topic:
        """Return the topic of this name, of this id, or of both, from the live state.

        Raises Refused: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID."""
        return _find(name, topic_id, self._topics.get, self._names.get)

    def find(self, name: str, topic_id: bytes, partition: int) -> PlacedPartition | None:
        """Return the partition of this name, live; None if `refusal` has a reason."""
        topic = self._topics.get(name) if name else self.topic_with_id(topic_id)
        if topic is None or partition < 0 or (topic_id and topic.topic_id != topic_id):
            return None
        try:
            return self._placed.get(topic.partition_ordinals[partition])
        except IndexError:
            return None

    def place(self, topic: str, topic_id: bytes, partition: int) -> PlacedPartition:
        """Return the partition of this name, live. Raises Refused as `refusal`."""
        placed = self.find(topic, topic_id, partition)
        if placed is None:
            raise self.refusal(topic, topic_id, partition)
        return placed

    def refusal(self, topic: str, topic_id: bytes, partition: int) -> Refused:
        """Return the error for a partition name that `find` did not find: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
        or INCONSISTENT_TOPIC_ID. An invalid topic name is INVALID_TOPIC_EXCEPTION, an invalid partition name
        INVALID_REQUEST (`check_partition`)."""
        try:
            check_partition(topic, topic_id, partition)
            if topic:
                check_topic_name(topic)
            partition_of(self.topic(topic, topic_id), partition)
        except Refused as refusal:
            return refusal
        raise AssertionError("every partition of a topic that exists is placed")

    def resolve(self, topic: str, topic_id: bytes, partition: int) -> PartitionRef:
        """Return the reference to a partition, live. Raises Refused as `refusal`."""
        return self.place(topic, topic_id, partition).ref

    def by_ordinal(self, ordinal: int) -> PartitionRef | None:
        """Return the reference to the partition of this ordinal, live; None once the topic is deleted."""
        placed = self.placed(ordinal)
        return None if placed is None else placed.ref

    def home(self, topic_id: bytes, partition: int) -> PartitionHome | None:
        """Return the place of a partition, live; None if there is none."""
        placed = self.find("", topic_id, partition)
        return None if placed is None else PartitionHome(placed.ref.ordinal, placed.shard.number)

    def shard_number(self, ordinal: int) -> int | None:
        """Return the number of the shard of a partition, live; None once the topic is deleted."""
        placed = self.placed(ordinal)
        return None if placed is None else placed.shard.number

    def topic_with_id(self, topic_id: bytes) -> Topic | None:
        name = self._names.get(topic_id)
        return None if name is None else self._topics.get(name)

    def topic_names(self) -> Iterable[str]:
        """Return the names of all topics, in no order."""
        return self._topics.keys()

    def shape(self, topic: str) -> TopicShape | None:
        """Return the shape of the topic of this name; None if there is none."""
        return _shape(self._topics.get(topic))

    def shape_of_id(self, topic_id: bytes) -> TopicShape | None:
        """Return the shape of the topic with this id; None once it is deleted."""
        return _shape(self.topic_with_id(topic_id))

    def durable_topic(self, name: str, topic_id: bytes) -> Topic:
        """Return the topic as `topic` does, from the state on disk."""
        return _find(name, topic_id, self._topics.durable, self._names.durable)

    def durable_topics(self) -> list[Topic]:
        """Return all topics that are on disk, by name."""
        return sorted((topic for _, topic in self._topics.durable_items()), key=lambda topic: topic.name)

    def settings(self, topic: Topic) -> list[SettingValue]:
        """Return every setting of a topic, including those that it inherits."""
        return setting_values(topic.settings, self._defaults)

    def retention(self, topic: Topic) -> Retention:
        """Return the retention of a topic's partitions. Its limits are off if the topic is to be compacted only."""
        if topic.cleanup_policy is CleanupPolicy.COMPACT:
            return KEEP_ALL
        return retention(topic.settings, self._defaults.retention)

    def compaction(self, topic: Topic) -> CompactionTerms | None:
        """Return the settings of a topic about its compaction; None if it is not to be compacted."""
        return compaction_terms(topic.settings) if topic.cleanup_policy.compacts else None

    def ordinals_in(self, shard: ShardKey) -> list[int]:
        """Return the ordinals of the partitions in a shard, ascending."""
        return sorted(ordinal for ordinal, placed in self._placed.items() if placed.shard.number == shard.number)

    # Deciding

    def decide_create(self, wanted: NewTopic, topic_id: bytes, turn: Turn, *, validate_only: bool) -> Decision:
        """Create a topic that has passed `check_new_topic`. The reply is the Topic; with `validate_only` it has no id
        and no ordinals yet. Raises Refused: TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS."""
        if wanted.name in self._topics:
            raise Refused(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {wanted.name} already; use it or choose another name"
            )
        ordinals = self._free_ordinals(wanted.partition_count)
        if validate_only:
            return Decision(reply=Topic(wanted.name, b"", (), turn.now_ms))
        principal = "" if turn.principal == ANONYMOUS else turn.principal
        if self._levels is not None:
            self._levels.check(Level.TOPICS, turn.principal, lambda: self._created_by(principal))
        topic = Topic(wanted.name, topic_id, tuple(ordinals), turn.now_ms, wanted.settings, principal)
        return self._extended(None, topic, ordinals, cause="create")

    def _created_by(self, principal: str) -> int:
        return sum(1 for topic in self._topics.values() if topic.created_by == principal)

    def decide_add_partitions(self, wanted: MorePartitions, limits: Limits) -> Decision:
        """Add partitions to a topic, behind its present ones. The reply is the Topic after the change; with
        `validate_only` nothing changes. Raises Refused INVALID_PARTITIONS, and as `topic`."""
        topic = self.topic(wanted.name, wanted.topic_id)
        count = check_more_partitions(topic, wanted.partition_count, limits)
        ordinals = self._free_ordinals(count)
        larger = replace(topic, partition_ordinals=(*topic.partition_ordinals, *ordinals))
        if wanted.validate_only:
            return Decision(reply=larger)
        return self._extended(topic, larger, ordinals, cause="add partitions")

    def _free_ordinals(self, count: int) -> range:
        """Return ordinals that no partition has or ever had, in any incarnation of the store. Raises Refused
        INVALID_PARTITIONS."""
        allocated = self._allocated.get(_ONLY) or OrdinalsAllocated(0)
        skipped = 0 if allocated.incarnation == self._incarnation else ORDINALS_SKIPPED
        first = allocated.next_ordinal + skipped
        if first + count > ORDINAL_MAX:
            raise Refused(ErrorCode.INVALID_PARTITIONS, "this server has given away all its partition ordinals")
        return range(first, first + count)

    def _extended(self, before: Topic | None, topic: Topic, ordinals: range, *, cause: str) -> Decision:
        """Give a topic its new last partitions, with these ordinals. All changes become durable together."""
        return Decision(
            reply=topic,
            records=(
                Record(CATALOG_KEY, OrdinalsAllocated(ordinals.stop, self._incarnation)),
                Record(CATALOG_KEY, TopicSet(topic), cause=cause),
            ),
            events=(TopicChanged(before, topic),),
            joins=tuple(
                Operation(shard, lambda log, now, inside=inside: log.decide_create(inside, now))  # type: ignore[misc]
                for shard, inside in self._by_shard(topic, len(topic.partition_ordinals) - len(ordinals)).items()
            ),
        )

    def decide_alter(self, wanted: TopicToAlter) -> Decision:
        """Change settings of a topic, with effect from now on. The reply is the Topic after the change. With
        `validate_only`, or if nothing is new, nothing changes. Raises Refused as `topic` and `altered`."""
        topic = self.topic(wanted.name, wanted.topic_id)
        after = replace(
            topic, settings=altered(topic.name, topic.settings, wanted.change, self._defaults.batch_bytes_max)
        )
        if wanted.validate_only or after == topic:
            return Decision(reply=after)
        record = Record(CATALOG_KEY, TopicSet(after), cause="alter config")
        return Decision(after, (record,), events=(TopicChanged(topic, after),))

    def decide_delete(self, name: str, topic_id: bytes, let_go: Callable[[Topic], Sequence[Operation]]) -> Decision:
        """Delete a topic after its users have let go of it (`TopicUsers`), all in one operation. The reply is the
        deleted Topic. Raises Refused as `topic`."""
        topic = self.topic(name, topic_id)
        delete = Operation(CATALOG_KEY, lambda catalog, _turn: catalog.decide_delete_now(topic))
        return Decision(reply=topic, joins=(*let_go(topic), delete))

    def decide_delete_now(self, topic: Topic) -> Decision:
        """Delete a topic that no transaction touches any more: the second half of `decide_delete`."""
        return Decision(
            records=(Record(CATALOG_KEY, TopicDeleted(topic.name), cause="delete"),),
            events=(TopicChanged(topic, None),),
            joins=tuple(
                Operation(shard, lambda log, _turn, inside=inside: log.decide_delete(inside))  # type: ignore[misc]
                for shard, inside in self._by_shard(topic).items()
            ),
        )

    def on_loaded(self, turn: Turn) -> Decision:
        """Return an empty decision: the catalog has nothing to resume."""
        return Decision()

    # Changing

    def replay(self, value: CatalogRecord) -> None:
        match value:
            case TopicSet(topic):
                self._topics.put(topic.name, topic)
                self._names.put(topic.topic_id, topic.name)
                validates_payload = topic.validate_payload is PayloadValidation.FULL
                after_max_ms = timestamp_after_max(topic.settings, self._defaults.timestamp_after_max_ms)
                bytes_max = batch_bytes_max(topic.settings, self._defaults.batch_bytes_max)
                needs_keys = topic.cleanup_policy.compacts
                for partition, ordinal in enumerate(topic.partition_ordinals):
                    ref = PartitionRef(topic.name, topic.topic_id, partition, ordinal)
                    name = PartitionName(topic.name, topic.topic_id, partition)
                    shard = self.log_shard(topic.name, partition)
                    placed = PlacedPartition(ref, name, shard, validates_payload, after_max_ms, bytes_max, needs_keys)
                    if self._placed.get(ordinal) != placed:
                        self._placed.put(ordinal, placed)
            case TopicDeleted(name):
                deleted = self._topics.get(name)
                assert deleted is not None, "only a topic that exists is deleted"
                self._topics.remove(name)
                self._names.remove(deleted.topic_id)
                for ordinal in deleted.partition_ordinals:
                    self._placed.remove(ordinal)
            case OrdinalsAllocated():
                self._allocated.put(_ONLY, value)
            case AclCreated() | AclDeleted() | AclVersion():
                self.acls.replay(value)

    def log_shard(self, topic: str, partition: int) -> ShardKey:
        return ShardKey(Coordinator.LOG, shard_of(f"{topic}-{partition}", self._shard_count))

    def _by_shard(self, topic: Topic, first_partition: int = 0) -> dict[ShardKey, list[int]]:
        """Return the ordinals of a topic's partitions by shard, from a partition number on."""
        by_shard: dict[ShardKey, list[int]] = defaultdict(list)
        for partition, ordinal in enumerate(topic.partition_ordinals[first_partition:], first_partition):
            by_shard[self.log_shard(topic.name, partition)].append(ordinal)
        return by_shard


def _find(
    name: str,
    topic_id: bytes,
    by_name: Callable[[str], Topic | None],
    name_of: Callable[[bytes], str | None],
) -> Topic:
    if not topic_id:
        topic = by_name(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!a:.300}; create it first")
        return topic
    found = name_of(topic_id)
    named = by_name(name or found or "")
    if named is not None and named.topic_id == topic_id:
        return named
    if named is not None or found is not None:
        raise Refused(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"the topic {name!a:.300} does not have the id {topic_id.hex()}: it was deleted and created again, or "
            "another topic was meant; look it up again",
        )
    raise unknown_topic_id(topic_id)


def unresolved(topic: str) -> Refused:
    """Return the refusal for a partition whose creation or deletion is not on disk yet."""
    return Refused(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"the topic {topic} is being created, extended or deleted at this moment; look it up again",
    )


def _shape(topic: Topic | None) -> TopicShape | None:
    return None if topic is None else TopicShape(topic.name, topic.topic_id, len(topic.partition_ordinals))


def partition_of(topic: Topic, partition: int) -> int:
    """Return the ordinal of a topic's partition. Raises Refused: UNKNOWN_TOPIC_OR_PARTITION."""
    if not 0 <= partition < len(topic.partition_ordinals):
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"the topic {topic.name} has no partition {partition}: it has {len(topic.partition_ordinals)}, from 0",
        )
    return topic.partition_ordinals[partition]
