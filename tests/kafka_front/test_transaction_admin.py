"""Administration of transactions over Kafka's protocol, as its tool for hanging transactions uses it."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from coordinator_server.kafka_front.messages.describe_transactions_request import DescribeTransactionsRequest
from coordinator_server.kafka_front.messages.list_transactions_request import ListTransactionsRequest
from coordinator_server.kafka_front.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.harness.kafka_caller import KafkaCaller
from tests.transactions.administered import CLIENT, COMMIT, Administered
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity

OK = ErrorCode.NONE


@pytest.fixture
def world() -> Administered:
    return Administered()


def call(world: Administered, key: ApiKey, version: int, request: Any) -> Any:
    reply = KafkaCaller(world).begin(key, version, request)
    world.settle()
    return reply.result()


def test_transactions_are_described(world: Administered) -> None:
    identity = world.opened("a", "t-1", "t-0")
    request = DescribeTransactionsRequest(transactional_ids=("a", "unknown"))
    known, unknown = call(world, ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    assert (known.transactional_id, known.error_code, known.transaction_state) == ("a", OK, "Ongoing")
    assert Identity(known.producer_id, known.producer_epoch) == identity
    assert known.transaction_timeout_ms == 60_000
    assert known.transaction_start_time_ms == world.clock.wall_ms()
    assert [(each.topic, each.partitions) for each in known.topics] == [("t", [0, 1])]
    assert (unknown.transactional_id, unknown.error_code) == ("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert (unknown.transaction_state, unknown.topics) == ("", ())


def test_a_transaction_that_may_not_be_seen_is_refused() -> None:
    class WithoutIds(AllowAll):
        """A caller without rights on transactional ids."""

        def is_allowed(
            self, _context: CallContext, _permission: Permission, resource: ResourceType, _name: str
        ) -> bool:
            return resource is not ResourceType.TRANSACTIONAL_ID

    world = Administered(authorizer=WithoutIds())
    request = DescribeTransactionsRequest(transactional_ids=("a",))
    (refused,) = call(world, ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert call(world, ApiKey.LIST_TRANSACTIONS, 2, ListTransactionsRequest()).transaction_states == []


@pytest.fixture
def listed_world() -> Administered:
    world = Administered()
    world.opened("a-1")
    world.tick(10_000)
    world.opened("a-2")
    world.ready("b-1")
    return world


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_in_every_version(listed_world: Administered, version: int) -> None:
    response = call(listed_world, ApiKey.LIST_TRANSACTIONS, version, ListTransactionsRequest())
    assert response.error_code == OK
    assert [(each.transactional_id, each.transaction_state) for each in response.transaction_states] == [
        ("a-1", "Ongoing"),
        ("a-2", "Ongoing"),
        ("b-1", "Empty"),
    ]
    first = response.transaction_states[0]
    assert first.producer_id == listed_world.describe("a-1").producer_id


@pytest.mark.parametrize(
    ("fields", "listed", "unknown"),
    [
        ({"state_filters": ("Empty", "Asleep")}, ["b-1"], ["Asleep"]),
        ({"duration_filter": 5_000}, ["a-1"], []),
        ({"duration_filter": 0}, ["a-1"], []),
        ({"transactional_id_pattern": ".*-1"}, ["a-1", "b-1"], []),
        ({"transactional_id_pattern": ""}, ["a-1", "a-2", "b-1"], []),
        ({"producer_id_filters": (0,)}, ["a-1"], []),
    ],
)
def test_a_listing_may_be_filtered(
    listed_world: Administered, fields: dict[str, Any], listed: list[str], unknown: list[str]
) -> None:
    response = call(listed_world, ApiKey.LIST_TRANSACTIONS, 2, ListTransactionsRequest(**fields))
    assert [each.transactional_id for each in response.transaction_states] == listed
    assert response.unknown_state_filters == unknown


def test_an_impossible_pattern_is_refused(world: Administered) -> None:
    request = ListTransactionsRequest(transactional_id_pattern="(")
    response = call(world, ApiKey.LIST_TRANSACTIONS, 2, request)
    assert (response.error_code, response.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, ())


def producers(world: Administered, topic: str, *partitions: int) -> dict[int, Any]:
    """Return what DescribeProducers tells of each partition."""
    request = DescribeProducersRequest(topics=(TopicRequest(name=topic, partition_indexes=partitions),))
    (found,) = call(world, ApiKey.DESCRIBE_PRODUCERS, 0, request).topics
    assert found.name == topic
    return {each.partition_index: each for each in found.partitions}


def test_producers_of_partitions_are_described(world: Administered) -> None:
    identity = world.opened("a")
    found = producers(world, "t", 0, 1, 7, 0)
    (producer,) = found[0].active_producers
    assert Identity(producer.producer_id, producer.producer_epoch) == identity
    assert (producer.last_sequence, producer.current_txn_start_offset) == (0, 0)
    assert (producer.last_timestamp, producer.coordinator_epoch) == (world.clock.wall_ms(), -1)
    assert (found[1].error_code, found[1].error_message, found[1].active_producers) == (OK, None, [])
    assert found[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found[7].error_message
    world.end("a", identity, COMMIT, CLIENT)
    world.settle()
    (producer,) = producers(world, "t", 0)[0].active_producers
    assert producer.current_txn_start_offset == -1
    assert producer.coordinator_epoch >= 0


def test_an_impossible_partition_is_refused_at_every_place(world: Administered) -> None:
    found = producers(world, "t", 0, -1)
    assert [each.error_code for each in found.values()] == [ErrorCode.INVALID_REQUEST] * 2


def write_marker(
    world: Administered, identity: Identity, *partitions: int, version: int = 2, topic: str = "t", commits: bool = False
) -> dict[int, int]:
    """Return the code of each partition."""
    marker = WritableTxnMarker(
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        transaction_result=commits,
        topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=partitions),),
        coordinator_epoch=0,
    )
    (result,) = call(world, ApiKey.WRITE_TXN_MARKERS, version, WriteTxnMarkersRequest(markers=(marker,))).markers
    assert result.producer_id == identity.producer_id
    (found,) = result.topics
    assert found.name == topic
    return {each.partition_index: each.error_code for each in found.partitions}


@pytest.fixture
def orphan(world: Administered) -> Identity:
    """A producer that no id has, with a transaction that hangs in both partitions."""
    given = world.init_plain(CLIENT)
    world.settle()
    identity = given.result()
    for partition in ("t-0", "t-1"):
        world.leave_hanging(partition, identity)
    return identity


@pytest.mark.parametrize("version", [1, 2])
def test_a_hanging_transaction_is_aborted(world: Administered, orphan: Identity, version: int) -> None:
    assert world.read("t-0").last_stable_offset == 0
    assert write_marker(world, orphan, 0, version=version) == {0: OK}
    reading = world.read("t-0")
    assert (reading.values, reading.last_stable_offset) == ([], 2)
    assert world.read("t-1").last_stable_offset == 0
    assert write_marker(world, orphan, 0, 1) == {0: ErrorCode.INVALID_TXN_STATE, 1: OK}


def test_no_marker_commits(world: Administered, orphan: Identity) -> None:
    assert write_marker(world, orphan, 0, commits=True) == {0: ErrorCode.INVALID_TXN_STATE}
    assert world.read("t-0").last_stable_offset == 0


def test_a_marker_must_name_the_epoch_that_hangs(world: Administered, orphan: Identity) -> None:
    later = Identity(orphan.producer_id, orphan.producer_epoch + 1)
    assert write_marker(world, later, 0) == {0: ErrorCode.INVALID_TXN_STATE}
    assert write_marker(world, orphan, 0) == {0: OK}


@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_a_transaction_with_an_owner_is_left_to_its_coordinator(two_phase: TwoPhase) -> None:
    world = Administered(two_phase)
    identity = world.opened("a")
    assert write_marker(world, identity, 0) == {0: ErrorCode.INVALID_TXN_STATE}
    ended = world.end("a", identity, COMMIT, CLIENT)
    world.settle()
    assert ended.result().next_identity
    assert world.read("t-0").values == ["x"]


def test_a_marker_for_an_unknown_partition(world: Administered, orphan: Identity) -> None:
    assert write_marker(world, orphan, 0, topic="u") == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_who_may_not_alter_the_server_writes_no_marker() -> None:
    class WithoutCluster(AllowAll):
        """A caller without rights on the cluster."""

        def is_allowed(
            self, _context: CallContext, _permission: Permission, resource: ResourceType, _name: str
        ) -> bool:
            return resource is not ResourceType.CLUSTER

    world = Administered(authorizer=WithoutCluster())
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert write_marker(world, Identity(1, 0), 0, 1) == {0: denied, 1: denied}
