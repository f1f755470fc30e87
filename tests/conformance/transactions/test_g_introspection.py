"""G. Introspection, administration, producer ids."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from coordinator_api.v1 import common_pb2, log_pb2, transaction_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused, error_class
from coordinator_protocol.methods import Method
from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM, PRODUCER_ID_MAX
from coordinator_runtime.ports import CallContext
from coordinator_runtime.timeline import Journal
from tests.conformance.transactions.case_world import ABORT, COMMIT, NOW, TIMEOUT_MS, CaseWorld, Denies
from tests.conformance.transactions.cases import case, not_drivable
from txn_coordinator.counters import CountersShard
from txn_coordinator.records import ProducerIdBlockTaken
from txn_coordinator.requests import TransactionFilter
from txn_coordinator.state import Identity

_Describe = transaction_pb2.DescribeTransactionsRequest
_List = transaction_pb2.ListTransactionsRequest


def described(world: CaseWorld, *ids: str, denies: Denies | None = None) -> list[Any]:
    answer = world.asked(lambda: world.servicer(denies).DescribeTransactions(_Describe(transactional_ids=ids), NOW))
    return list(answer.transactions)


@case(219)
def test_describing_the_empty_id() -> None:
    (found,) = described(CaseWorld(), "")
    assert (found.error_code, found.transactional_id) == (42, "")


@case(221)
def test_describing_while_loading() -> None:
    assert CaseWorld().while_loading(_Describe(transactional_ids=["orders"])) == 14


@case(222)
def test_describing_an_open_transaction() -> None:
    world = CaseWorld()
    client = world.ongoing()
    client.add("t-2")
    (found,) = described(world, "orders")
    assert (found.error_code, found.state) == (0, "Ongoing")
    assert Identity(found.producer_id, found.producer_epoch) == client.identity
    assert (found.transaction_timeout_ms, found.start_ms) == (TIMEOUT_MS, world.clock.wall_ms())
    assert [(topic.topic, list(topic.partitions)) for topic in found.topics] == [("t", [0, 2])]


@case(223)
def test_describing_only_what_one_may_know() -> None:
    world = CaseWorld()
    world.create_topic("secret", 1)
    world.ongoing().add("secret-0")
    world.ready("other")
    found, refused = described(world, "orders", "other", denies=Denies({"secret", "other"}))
    assert (refused.error_code, refused.state) == (53, "")
    assert [topic.topic for topic in found.topics] == ["t"]


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "abort aborted commit committed empty late open"),
    ({"states": ["Ongoing"]}, "late open"),
    ({"states": ["Ongoing", "PrepareCommit"]}, "commit late open"),
    ({"states": ["CompleteCommit", "CompleteAbort", "Empty"]}, "aborted committed empty"),
    ({"states": ["Dead"]}, ""),
    ({"states": ["Sleeping"]}, ""),
    ({"states": ["Sleeping", "Ongoing"]}, "late open"),
    ({"producer_ids": [0]}, "empty"),
    ({"producer_ids": [0, 5, 99]}, "empty open"),
    ({"producer_ids": [99]}, ""),
    ({"open_longer_than_ms": 0}, "abort commit open"),
    ({"open_longer_than_ms": 999}, "abort commit open"),
    ({"open_longer_than_ms": 1_000}, ""),
    ({"open_longer_than_ms": 999, "states": ["Ongoing", "Empty"]}, "open"),
    ({"open_longer_than_ms": 999, "states": ["Ongoing"], "producer_ids": [0]}, ""),
    ({"id_pattern": "comm.*", "states": ["CompleteCommit"]}, "committed"),
]


@case(225)
def test_listing_with_filters() -> None:
    world = CaseWorld(split=True)
    world.answers_markers(Refused(ErrorCode.NETWORK_EXCEPTION, "away"), "t-1")
    world.ready("empty")
    for name, outcome in (("committed", COMMIT), ("aborted", ABORT)):
        world.ongoing(name).end(outcome)
        world.settle()
    for name, outcome in (("commit", COMMIT), ("abort", ABORT)):
        client = world.ongoing(name)
        client.add("t-1")
        client.end(outcome)
    world.ongoing("open")
    world.clock.advance(1_000)
    world.ongoing("late")
    for fields, expected in FILTERS:
        listing = world.inside.reader.list(TransactionFilter(**fields), CallContext())
        assert " ".join(found.transactional_id for found in listing.transactions) == expected, fields
        assert list(listing.unknown_states) == [name for name in fields.get("states", ()) if name == "Sleeping"]


@case(226)
def test_listing_while_loading_and_with_few_rights() -> None:
    world = CaseWorld()
    assert world.while_loading(_List()) == 14
    world.ready("mine")
    world.ready("theirs")
    answer = world.asked(lambda: world.servicer(Denies({"theirs"})).ListTransactions(_List(), NOW))
    assert [found.transactional_id for found in answer.transactions] == ["mine"]


@case(227)
def test_describing_the_producers_of_partitions() -> None:
    world = CaseWorld()
    world.create_topic("secret", 1)
    client = world.ongoing()
    topics = [common_pb2.TopicPartitions(topic=name, partitions=[0]) for name in ("t", "secret", "missing", "no name!")]
    servicer = world.log_servicer(Denies({"secret"}))
    answer = world.asked(lambda: servicer.DescribeProducers(log_pb2.DescribeProducersRequest(topics=topics), NOW))
    assert [each.error_code for each in answer.partitions] == [0, 29, 3, 17]
    (found,) = answer.partitions[0].producers
    assert Identity(found.producer_id, found.producer_epoch) == client.identity


@case(229)
def test_what_a_listing_client_does_with_an_error() -> None:
    assert error_class(Method.LIST_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is ErrorClass.RETRY
    assert error_class(Method.LIST_TRANSACTIONS, ErrorCode.INVALID_REGULAR_EXPRESSION) is ErrorClass.REJECTED


not_drivable(230, "the coordinator's storage is made with the server's directory; it is no topic that could be missing")


@case(231)
def test_who_may_not_see_an_id_or_a_group_does_not_learn_where_it_is() -> None:
    world = CaseWorld()
    servicer = world.servicer(Denies({"orders", "copiers"}))
    for key_type, denied in (
        (transaction_pb2.COORDINATOR_KEY_TYPE_TRANSACTION, 53),
        (transaction_pb2.COORDINATOR_KEY_TYPE_GROUP, 30),
    ):
        request = transaction_pb2.FindCoordinatorRequest(key_type=key_type, keys=["orders", "copiers", "others"])
        found = world.asked(partial(servicer.FindCoordinator, request, NOW))
        assert [each.error_code for each in found.coordinators] == [denied, denied, 0]


@case(233)
def test_producer_ids_never_wrap() -> None:
    counters = CountersShard(Journal())
    counters.replay(ProducerIdBlockTaken(PRODUCER_ID_MAX - 500))
    with pytest.raises(Refused, match="no unused producer ids"):
        counters.next_plain_producer_id([])
    counters.replay(ProducerIdBlockTaken(PLAIN_PRODUCER_IDS_FROM - 500))
    with pytest.raises(Refused, match="no unused producer ids"):
        counters.next_producer_id([])


@case(234, differs="the next block is stored with the first use of it, so no call ever waits for one (14)")
def test_producer_ids_of_three_blocks_are_distinct_and_none_is_skipped() -> None:
    world = CaseWorld()
    pending = [world.init_plain(NOW) for _ in range(3_000)]
    world.settle()
    first = PLAIN_PRODUCER_IDS_FROM
    assert [each.result() for each in pending] == [Identity(first + number, 0) for number in range(3_000)]
    world.crash()
    assert world.told(world.init_plain(NOW)) == Identity(first + 3_000, 0)


not_drivable(235, "the block is a record of the operation that needs it: there is no request for one that could fail")
not_drivable(237, "only the newest block is stored, so no smaller one can follow it")
