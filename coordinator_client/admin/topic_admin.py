"""Administration of topics: create, grow, describe, change and delete them, and take snapshots of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.asking import BlockingAsker
from coordinator_client.calls import (
    ALTER_TOPIC_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TOPICS,
)
from coordinator_client.descriptions.transactions import DeletedRecords, PartitionDescription, leader_epoch
from coordinator_client.errors import Rejected, check_here
from coordinator_client.reading.snapshots import (
    LEASE_MS,
    Snapshot,
    lease_released,
    lease_renewed,
    snapshot_taken,
)
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_topic_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic with its partitions in the order of their numbers."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionDescription, ...]
    config: Mapping[str, str]
    """All settings of the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """One setting of a topic in force."""

    value: str
    origin: str
    """Origin of the value: `topic` = set for this topic; `server` = set in the server's configuration as a default for
    topics; `default` = built in."""
    inherited_value: str
    """Value that applies if the topic has none of its own."""


_ORIGINS = {log.CONFIG_ORIGIN_TOPIC: "topic", log.CONFIG_ORIGIN_SERVER: "server", log.CONFIG_ORIGIN_DEFAULT: "default"}


class TopicCalls:
    """Administrator calls about topics; users create an `Admin`."""

    _asker: BlockingAsker

    async def take_snapshot(self, topics: Collection[str], *, lease_ms: int = LEASE_MS) -> Snapshot:
        """Take a snapshot of all partitions of some topics, for `read(..., snapshot=...)`.

        `lease_ms`: time for which its records are held, up to an hour, prolonged by `renew_snapshot`; 0 = not at all.

        Raises: Rejected for a topic that does not exist, or none; Retriable at the deadline, or if the server holds too
        many.
        """
        return await snapshot_taken(self._asker, topics, lease_ms=lease_ms)

    async def renew_snapshot(self, snapshot: Snapshot, *, lease_ms: int = LEASE_MS) -> None:
        """Keep the records of a snapshot for `lease_ms` from now on.

        Raises: Rejected (SNAPSHOT_NOT_FOUND) if the lease is over or the server was restarted since.
        """
        await lease_renewed(self._asker, snapshot.snapshot_id, lease_ms=lease_ms)

    async def release_snapshot(self, snapshot: Snapshot) -> None:
        """Release the records of a snapshot. Raises: Rejected (SNAPSHOT_NOT_FOUND) as `renew_snapshot`."""
        await lease_released(self._asker, snapshot.snapshot_id)

    async def create_topic(
        self,
        name: str,
        partition_count: int = 1,
        *,
        config: Mapping[str, str] | None = None,
        is_existing_ok: bool = False,
    ) -> TopicDescription:
        """Create a topic and return it; durable when this returns.

        `config` has settings by name. `validate_payload` is `full` (default: the server takes only batches that every
        reader can decode) or `header`. `retention_ms` and `retention_bytes` limit what each partition keeps; `-1` = no
        limit. `timestamp_after_max_ms` limits how far timestamps may lie ahead of the server's clock; `-1` = any
        distance. A later timestamp is refused with INVALID_TIMESTAMP. `batch_bytes_max` limits the stored size of a
        batch, up to the server's own limit. A larger batch is refused with MESSAGE_TOO_LARGE. `cleanup_policy` is
        `delete` (default: retention removes records), `compact` (only the newest record of each key stays) or
        `compact,delete`. A compacted topic refuses records without a key with INVALID_RECORD.
        `min_compaction_lag_ms`, `max_compaction_lag_ms`, `delete_retention_ms` and `min_dirty_ratio` say when it is
        compacted, as Kafka's settings do.

        `is_existing_ok`: accept an existing topic of that name with as many partitions and these settings.

        Raises: Rejected with TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION or INVALID_PARTITIONS; Misconfigured with
        INVALID_CONFIG.
        """
        wanted = log.NewTopic(name=name, partition_count=partition_count, config=config)
        await self._is_new_topic(wanted, is_existing_ok=is_existing_ok, validate_only=False)
        return await self.describe_topic(name)

    async def would_create_topic(
        self,
        name: str,
        partition_count: int = 1,
        *,
        config: Mapping[str, str] | None = None,
        is_existing_ok: bool = False,
    ) -> bool:
        """Return True if `create_topic` with the same arguments would create a topic now; nothing is created. False: an
        acceptable topic exists (`is_existing_ok`).

        Raises: any exception that `create_topic` would raise.
        """
        wanted = log.NewTopic(name=name, partition_count=partition_count, config=config)
        return await self._is_new_topic(wanted, is_existing_ok=is_existing_ok, validate_only=True)

    async def _is_new_topic(self, wanted: log.NewTopic, *, is_existing_ok: bool, validate_only: bool) -> bool:
        check_here(check_topic_name, wanted.name, Method.CREATE_TOPICS)
        request = log.CreateTopicsRequest(
            header=self._asker.mutation(),
            topics=[wanted],
            validate_only=validate_only,
        )
        try:
            await self._asker.ask(CREATE_TOPICS, request, items=lambda reply: reply.results)
        except Rejected as error:
            # The first attempt may have created the topic, and its answer was lost: then this is the requested topic.
            may_be_own = error.lost_attempts > 0 and not validate_only
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not (is_existing_ok or may_be_own):
                raise
            there = await self.describe_topic(wanted.name)
            if len(there.partitions) != wanted.partition_count:
                error.add_note(f"it has {len(there.partitions)} partitions, {wanted.partition_count} were asked for")
                raise
            for setting, value in wanted.config.items():
                if there.config.get(setting) != value:
                    error.add_note(f"its {setting} is {there.config.get(setting)}, {value} was asked for")
                    raise
            return False
        return True

    async def add_partitions(self, name: str, partition_count: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `partition_count` partitions; durable when this returns. Producers and groups notice by
        themselves. New records of a key may go to another partition than earlier ones.

        `validate_only`: nothing is changed.

        Raises: Rejected with INVALID_PARTITIONS unless that is more than the topic has and not too many;
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        check_here(check_topic_name, name, Method.CREATE_PARTITIONS)
        request = log.CreatePartitionsRequest(
            header=self._asker.mutation(),
            topics=[log.PartitionsOfTopic(name=name, partition_count=partition_count)],
            validate_only=validate_only,
        )
        try:
            await self._asker.ask(CREATE_PARTITIONS, request, items=lambda reply: reply.results)
        except Rejected as error:
            # The first attempt may have added the partitions, and its answer was lost: then the topic has the requested
            # number.
            may_be_own = error.code == ErrorCode.INVALID_PARTITIONS and error.lost_attempts > 0 and not validate_only
            if not may_be_own or len((await self.describe_topic(name)).partitions) != partition_count:
                raise

    async def topic_configs(self, name: str) -> dict[str, TopicSetting]:
        """Return all settings of a topic by name, including those that were not set.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION).
        """
        return (await self.configs_of_topics([name]))[name]

    async def configs_of_topics(self, names: Collection[str] = ()) -> dict[str, dict[str, TopicSetting]]:
        """Return the settings of these topics, or of all topics, as `topic_configs` does.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION) if one does not exist.
        """
        for name in names:
            check_here(check_topic_name, name, Method.DESCRIBE_TOPIC_CONFIGS)
        request = log.DescribeTopicConfigsRequest(
            header=self._asker.header(), topics=[log.TopicName(name=name) for name in names]
        )
        reply = await self._asker.ask(DESCRIBE_TOPIC_CONFIGS, request, items=lambda reply: reply.topics)
        return {topic.name: _settings(topic) for topic in reply.topics}

    async def alter_topic_configs(
        self, name: str, set_to: Mapping[str, str], *, unset: Sequence[str] = (), validate_only: bool = False
    ) -> dict[str, TopicSetting]:
        """Change settings of a topic (see `create_topic`) and return all its settings as `topic_configs` does. Settings
        in `unset` follow the server's again. The change is durable and in force when this returns.

        `validate_only`: nothing is changed, and the settings that would result are returned.

        Raises: Misconfigured (INVALID_CONFIG) or Rejected (INVALID_REQUEST if nothing is set or unset;
        UNKNOWN_TOPIC_OR_PARTITION); then nothing was changed.
        """
        check_here(check_topic_name, name, Method.ALTER_TOPIC_CONFIGS)
        request = log.AlterTopicConfigsRequest(
            header=self._asker.mutation(),
            topics=[log.TopicToAlter(name=name, set=set_to, unset=unset)],
            validate_only=validate_only,
        )
        reply = await self._asker.ask(ALTER_TOPIC_CONFIGS, request, items=lambda reply: reply.results)
        (topic,) = reply.results
        return _settings(topic)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; open transactions that touch it are aborted.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION) if it does not exist.
        """
        check_here(check_topic_name, name, Method.DELETE_TOPICS)
        request = log.DeleteTopicsRequest(
            header=self._asker.mutation(),
            topics=[log.TopicName(name=name)],
        )
        try:
            await self._asker.ask(DELETE_TOPICS, request, items=lambda reply: reply.results)
        except Rejected as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not error.lost_attempts:
                raise

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records before an offset in each partition, and return the new log starts; durable when this
        returns. -1 deletes all records.

        Records that an open transaction or another reader still needs are kept, and the answer says so.

        Raises: Rejected (OFFSET_OUT_OF_RANGE for an offset after the high watermark; UNKNOWN_TOPIC_OR_PARTITION).
        Records in partitions that were not refused are deleted.
        """
        request = log.DeleteRecordsRequest(header=self._asker.mutation())
        for topic, partition in before:
            check_here(check_topic_name, topic, Method.DELETE_RECORDS)
            request.partitions.add(topic=topic, partition=partition, offset=before[TopicPartition(topic, partition)])
        reply = await self._asker.ask(DELETE_RECORDS, request, items=lambda reply: reply.results)
        return {
            TopicPartition(found.topic, found.partition): DeletedRecords(
                low_watermark=found.low_watermark, held_back=found.held_back
            )
            for found in reply.results
        }

    async def describe_topic(self, name: str) -> TopicDescription:
        """Return one topic.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION) if it does not exist.
        """
        (topic,) = await self.describe_topics([name])
        return topic

    async def describe_topics(self, names: Sequence[str] = ()) -> list[TopicDescription]:
        """Return these topics in this order, or all topics by name.

        Raises: Rejected if one does not exist.
        """
        for name in names:
            check_here(check_topic_name, name, Method.DESCRIBE_TOPICS)
        request = log.DescribeTopicsRequest(
            header=self._asker.header(), topics=[log.TopicName(name=name) for name in names]
        )
        reply = await self._asker.ask(DESCRIBE_TOPICS, request, items=lambda reply: reply.topics)
        return [
            TopicDescription(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    PartitionDescription(
                        partition=found.partition,
                        log_start_offset=found.log_start_offset,
                        high_watermark=found.high_watermark,
                        last_stable_offset=found.last_stable_offset,
                        open_transactions=found.open_transactions,
                        leader_epochs=tuple(map(leader_epoch, found.leader_epochs)),
                    )
                    for found in topic.partitions
                ),
                config=dict(topic.config),
            )
            for topic in reply.topics
        ]


def _settings(topic: log.TopicConfigs) -> dict[str, TopicSetting]:
    return {
        each.name: TopicSetting(
            value=each.value, origin=_ORIGINS.get(each.origin, ""), inherited_value=each.inherited_value
        )
        for each in topic.settings
    }
