"""Administration of topics, groups and transactions. Small typed calls for people, tools and tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.admin.acl_admin import AclCalls
from coordinator_client.admin.observing import ObservationCalls, TransactionListing, transaction_listing
from coordinator_client.admin.share_admin import ShareAdminCalls
from coordinator_client.calls import (
    ALTER_TOPIC_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_CONFIGS,
    DESCRIBE_TOPICS,
    DESCRIBE_TRANSACTIONS,
    EXPLAIN_PARTITION,
    LIST_TRANSACTIONS,
    Deadlines,
)
from coordinator_client.descriptions import (
    DeletedRecords,
    PartitionDescription,
    PartitionExplanation,
    TransactionDescription,
    leader_epoch,
    partition_explanation,
    transaction_description,
)
from coordinator_client.errors import Rejected, check_here, rejected
from coordinator_client.reading.snapshots import LEASE_MS, Snapshot, release_snapshot, renew_snapshot, take_snapshot
from coordinator_client.settings import duration_ms
from coordinator_client.tls import Tls
from coordinator_client.transport.connection import Connection, connection_to
from coordinator_client.transport.first_contact import GIVE_UP_MS
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_topic_name, check_transactional_id

DEADLINE_MS = 30_000

_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


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


class Admin(ShareAdminCalls, AclCalls, ObservationCalls):
    """Administrator calls to one server. Calls about groups are inherited from `GroupCalls` and `ShareAdminCalls`,
    those about ACLs from `AclCalls`, and calls that observe a server from `ObservationCalls`.

    Each call is retried until `deadline_ms`. If its outcome stays unknown, or its caller is interrupted, the exception
    says whether it is safe to repeat the call. Close an `Admin`, or use it in a `with` statement.
    """

    def __init__(
        self,
        endpoint: str | Connection,
        *,
        client_id: str = "",
        deadline_ms: int = DEADLINE_MS,
        wait_ms: int | None = GIVE_UP_MS,
        tls: Tls | None = None,
    ) -> None:
        """Store the address of the server; no connection is opened.

        `deadline_ms` is the time that each call may take. `client_id`, `wait_ms` and `tls` are those of `Connection`,
        and are used only if the connection is made here. Raises: Rejected, Misconfigured or TypeError for a wrong one.
        """
        connection, self._is_own = connection_to(endpoint, client_id=client_id or "admin", wait_ms=wait_ms, tls=tls)
        super().__init__(connection, Deadlines(total_ms=duration_ms("deadline_ms", deadline_ms)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection if it was made here."""
        if self._is_own:
            self._connection.close()

    def take_snapshot(self, topics: Collection[str], *, lease_ms: int = LEASE_MS) -> Snapshot:
        """Take a snapshot of some topics, for `read(..., snapshot=...)`; see `snapshots.take_snapshot`."""
        return take_snapshot(self._connection, topics, lease_ms=lease_ms, deadlines=self._deadlines)

    def renew_snapshot(self, snapshot: Snapshot, *, lease_ms: int = LEASE_MS) -> None:
        """Keep the records of a snapshot for `lease_ms` from now on; see `snapshots.renew_snapshot`."""
        renew_snapshot(self._connection, snapshot, lease_ms=lease_ms, deadlines=self._deadlines)

    def release_snapshot(self, snapshot: Snapshot) -> None:
        """Release the records of a snapshot; see `snapshots.release_snapshot`."""
        release_snapshot(self._connection, snapshot, deadlines=self._deadlines)

    def create_topic(
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
        `delete` (default: retention removes records), `compact` (it removes none) or `compact,delete`. Nothing compacts
        yet.

        `is_existing_ok`: accept an existing topic of that name with as many partitions and these settings.

        Raises: Rejected with TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION or INVALID_PARTITIONS; Misconfigured with
        INVALID_CONFIG.
        """
        wanted = log.NewTopic(name=name, partition_count=partition_count, config=config)
        self._is_new_topic(wanted, is_existing_ok=is_existing_ok, validate_only=False)
        return self.describe_topic(name)

    def would_create_topic(
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
        return self._is_new_topic(wanted, is_existing_ok=is_existing_ok, validate_only=True)

    def _is_new_topic(self, wanted: log.NewTopic, *, is_existing_ok: bool, validate_only: bool) -> bool:
        check_here(check_topic_name, wanted.name, Method.CREATE_TOPICS)
        request = log.CreateTopicsRequest(
            header=self._connection.header(self._connection.random_source.request_id()),
            topics=[wanted],
            validate_only=validate_only,
        )
        try:
            self._connection.ask(CREATE_TOPICS, request, deadlines=self._deadlines, items=lambda reply: reply.results)
        except Rejected as error:
            # The first attempt may have created the topic, and its answer was lost: then this is the requested topic.
            may_be_own = error.lost_attempts > 0 and not validate_only
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not (is_existing_ok or may_be_own):
                raise
            there = self.describe_topic(wanted.name)
            if len(there.partitions) != wanted.partition_count:
                error.add_note(f"it has {len(there.partitions)} partitions, {wanted.partition_count} were asked for")
                raise
            for setting, value in wanted.config.items():
                if there.config.get(setting) != value:
                    error.add_note(f"its {setting} is {there.config.get(setting)}, {value} was asked for")
                    raise
            return False
        return True

    def add_partitions(self, name: str, partition_count: int, *, validate_only: bool = False) -> None:
        """Grow a topic to `partition_count` partitions; durable when this returns. Producers and groups notice by
        themselves. New records of a key may go to another partition than earlier ones.

        `validate_only`: nothing is changed.

        Raises: Rejected with INVALID_PARTITIONS unless that is more than the topic has and not too many;
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        check_here(check_topic_name, name, Method.CREATE_PARTITIONS)
        request = log.CreatePartitionsRequest(
            header=self._mutation(),
            topics=[log.PartitionsOfTopic(name=name, partition_count=partition_count)],
            validate_only=validate_only,
        )
        try:
            self._connection.ask(
                CREATE_PARTITIONS, request, deadlines=self._deadlines, items=lambda reply: reply.results
            )
        except Rejected as error:
            # The first attempt may have added the partitions, and its answer was lost: then the topic has the requested
            # number.
            may_be_own = error.code == ErrorCode.INVALID_PARTITIONS and error.lost_attempts > 0 and not validate_only
            if not may_be_own or len(self.describe_topic(name).partitions) != partition_count:
                raise

    def topic_configs(self, name: str) -> dict[str, TopicSetting]:
        """Return all settings of a topic by name, including those that were not set.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION).
        """
        check_here(check_topic_name, name, Method.DESCRIBE_TOPIC_CONFIGS)
        request = log.DescribeTopicConfigsRequest(header=self._connection.header(), topics=[log.TopicName(name=name)])
        reply = self._connection.ask(
            DESCRIBE_TOPIC_CONFIGS, request, deadlines=self._deadlines, items=lambda reply: reply.topics
        )
        (topic,) = reply.topics
        return _settings(topic)

    def alter_topic_configs(
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
            header=self._mutation(),
            topics=[log.TopicToAlter(name=name, set=set_to, unset=unset)],
            validate_only=validate_only,
        )
        reply = self._connection.ask(
            ALTER_TOPIC_CONFIGS, request, deadlines=self._deadlines, items=lambda reply: reply.results
        )
        (topic,) = reply.results
        return _settings(topic)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records; open transactions that touch it are aborted.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION) if it does not exist.
        """
        check_here(check_topic_name, name, Method.DELETE_TOPICS)
        request = log.DeleteTopicsRequest(
            header=self._connection.header(self._connection.random_source.request_id()),
            topics=[log.TopicName(name=name)],
        )
        try:
            self._connection.ask(DELETE_TOPICS, request, deadlines=self._deadlines, items=lambda reply: reply.results)
        except Rejected as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not error.lost_attempts:
                raise

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records before an offset in each partition, and return the new log starts; durable when this
        returns. -1 deletes all records.

        Records that an open transaction or another reader still needs are kept, and the answer says so.

        Raises: Rejected (OFFSET_OUT_OF_RANGE for an offset after the high watermark; UNKNOWN_TOPIC_OR_PARTITION).
        Records in partitions that were not refused are deleted.
        """
        request = log.DeleteRecordsRequest(header=self._mutation())
        for topic, partition in before:
            check_here(check_topic_name, topic, Method.DELETE_RECORDS)
            request.partitions.add(topic=topic, partition=partition, offset=before[TopicPartition(topic, partition)])
        reply = self._connection.ask(
            DELETE_RECORDS, request, deadlines=self._deadlines, items=lambda reply: reply.results
        )
        return {
            TopicPartition(found.topic, found.partition): DeletedRecords(
                low_watermark=found.low_watermark, held_back=found.held_back
            )
            for found in reply.results
        }

    def describe_topic(self, name: str) -> TopicDescription:
        """Return one topic.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION) if it does not exist.
        """
        (topic,) = self.describe_topics([name])
        return topic

    def describe_topics(self, names: Sequence[str] = ()) -> list[TopicDescription]:
        """Return these topics in this order, or all topics by name.

        Raises: Rejected if one does not exist.
        """
        for name in names:
            check_here(check_topic_name, name, Method.DESCRIBE_TOPICS)
        request = log.DescribeTopicsRequest(
            header=self._connection.header(), topics=[log.TopicName(name=name) for name in names]
        )
        reply = self._connection.ask(
            DESCRIBE_TOPICS, request, deadlines=self._deadlines, items=lambda reply: reply.topics
        )
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

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        older_than_ms: int | None = None,
        pattern: str = "",
    ) -> list[TransactionListing]:
        """Return the transactional ids that match every filter, sorted by id. A filter that is not given matches all.

        The state is one of `states`, and the producer id one of `producer_ids`. A transaction has been open for longer
        than `older_than_ms`. The whole id matches the regular expression `pattern`.

        Raises: Rejected (INVALID_REGULAR_EXPRESSION; INVALID_REQUEST for a state that does not exist).
        """
        if older_than_ms is not None:
            duration_ms("older_than_ms", older_than_ms)
        request = txn.ListTransactionsRequest(
            header=self._connection.header(),
            state_filters=states,
            producer_id_filters=producer_ids,
            duration_ms=older_than_ms,
            transactional_id_pattern=pattern,
        )
        reply = self._connection.ask(LIST_TRANSACTIONS, request, deadlines=self._deadlines)
        if reply.unknown_state_filters:
            raise rejected(
                ErrorCode.INVALID_REQUEST,
                f"there is no state {', '.join(reply.unknown_state_filters)}: the states are {', '.join(_STATES)}",
            )
        return list(map(transaction_listing, reply.transactions))

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """Return the coordinator's description of this id.

        Raises: Rejected (TRANSACTIONAL_ID_NOT_FOUND).
        """
        check_here(check_transactional_id, transactional_id, Method.DESCRIBE_TRANSACTIONS)
        request = txn.DescribeTransactionsRequest(
            header=self._connection.header(), transactional_ids=[transactional_id]
        )
        reply = self._connection.ask(
            DESCRIBE_TRANSACTIONS, request, deadlines=self._deadlines, items=lambda reply: reply.transactions
        )
        (found,) = reply.transactions
        return transaction_description(found)

    def explain_partition(self, topic: str, partition: int, *, history_limit: int = 1) -> PartitionExplanation:
        """Explain why committed readers of a partition do not advance. The answer names the oldest open transaction
        there, its owner with at most `history_limit` of its last steps, and the next event.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION; INVALID_REQUEST for more than 100 steps); Misconfigured
        (TOPIC_AUTHORIZATION_FAILED).
        """
        check_here(check_topic_name, topic, Method.EXPLAIN_PARTITION)
        request = admin.ExplainPartitionRequest(
            header=self._connection.header(), topic=topic, partition=partition, history_limit=history_limit
        )
        return partition_explanation(self._connection.ask(EXPLAIN_PARTITION, request, deadlines=self._deadlines))


def _settings(topic: log.TopicConfigs) -> dict[str, TopicSetting]:
    return {
        each.name: TopicSetting(
            value=each.value, origin=_ORIGINS.get(each.origin, ""), inherited_value=each.inherited_value
        )
        for each in topic.settings
    }
