"""Impossible names of topics and partitions are refused by the services themselves, whichever front asks.

An item that names nothing at all refuses the request; a name that no topic can have is the error of its item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import (
    ALLOW_ALL,
    AllowAll,
    CallContext,
    Membership,
    PartitionName,
    Permission,
    ResourceType,
)
from partition_log.catalog.state import NewTopic
from partition_log.foreign_markers import DecidedMarker, WriteTxnMarkers
from partition_log.requests import (
    CountQuery,
    CountRecords,
    CreateTopics,
    DeleteTopics,
    DescribeProducers,
    DescribeTopics,
    Fetch,
    FetchItem,
    ListOffsets,
    MeasureQuery,
    MeasureRecords,
    OffsetQuery,
    Produce,
    TopicName,
)
from partition_log.transacted import TransactedBatches
from tests.log.driven_log import COMMIT, CONTEXT, TOPIC, Batch, DrivenLog, code, transactional

SOME_ID = b"i" * 16
IMPOSSIBLE_NAMES = ("a\0b", "x" * 250, ".", "..", "__offsets", "a b", "a/b", "\x1b[31m" + "x" * 300)
NO_NAMES = (("", b"", 0), ("", b"short", 0), (TOPIC, b"short", 0), (TOPIC, b"i" * 17, 0))
NO_PARTITIONS = (*NO_NAMES, (TOPIC, b"", -1), ("", SOME_ID, -1))

Ask = Callable[[DrivenLog, PartitionName], Any]
"""Asks for a partition, or for the topic alone, and gives the one result. Raises Refused."""


def _settled(driven: DrivenLog, pending: Any) -> Any:
    driven.flush()
    (result,) = pending.result()
    return result


def _write_marker(driven: DrivenLog, name: PartitionName) -> Any:
    command = WriteTxnMarkers([DecidedMarker(driven.marker(transactional(), COMMIT, csn=1), [name])])
    _producer_id, (result,) = _settled(driven, driven.foreign_markers.write(command, CONTEXT))
    return result


OF_PARTITIONS: dict[str, Ask] = {
    "Produce": lambda driven, name: _settled(driven, driven.log.produce(Produce(None, [Batch().item(name)]), CONTEXT)),
    "Fetch": lambda driven, name: _settled(driven, driven.log.fetch(Fetch([FetchItem(name, 0)]), CONTEXT)),
    "Fetch that waits": lambda driven, name: _settled(
        driven, driven.log.fetch(Fetch([FetchItem(name, 0)], wait_ms_max=5_000), CONTEXT)
    ),
    "ListOffsets": lambda driven, name: _settled(
        driven, driven.positions.list_offsets(ListOffsets([OffsetQuery(name, -1)]), CONTEXT)
    ),
    "CountRecords": lambda driven, name: _settled(
        driven, driven.ranges.count_records(CountRecords([CountQuery(name, 0)]), CONTEXT)
    ),
    "MeasureRecords": lambda driven, name: _settled(
        driven, driven.ranges.measure_records(MeasureRecords([MeasureQuery(name, 0, 1)], step_bytes=1), CONTEXT)
    ),
    "DescribeProducers": lambda driven, name: _settled(
        driven, driven.log.describe_producers(DescribeProducers([name]), CONTEXT)
    ),
    "WriteTxnMarkers": _write_marker,
}
OF_TOPICS: dict[str, Ask] = {
    "DeleteTopics": lambda driven, name: _settled(
        driven, driven.topics.delete_topics(DeleteTopics([TopicName(*name[:2])]), CONTEXT)
    ),
    "DescribeTopics": lambda driven, name: driven.topics.describe_topics(
        DescribeTopics([TopicName(*name[:2])]), CONTEXT
    )[0],
}
CREATE: dict[str, Ask] = {
    "CreateTopics": lambda driven, name: _settled(
        driven, driven.topics.create_topics(CreateTopics([NewTopic(name.topic, 1)]), CONTEXT)
    ),
}
EVERY_RPC = OF_PARTITIONS | OF_TOPICS | CREATE


@pytest.mark.parametrize("name", IMPOSSIBLE_NAMES, ids=ascii)
@pytest.mark.parametrize("rpc", EVERY_RPC)
def test_a_name_that_no_topic_can_have_is_refused_precisely(driven: DrivenLog, rpc: str, name: str) -> None:
    before = driven.store.version()
    result = EVERY_RPC[rpc](driven, PartitionName(name, b"", 0))
    assert code(result) is ErrorCode.INVALID_TOPIC_EXCEPTION
    error = result if isinstance(result, Refused) else result.error
    assert error.message.isascii()
    assert len(error.message) < 400
    assert driven.store.version() == before


def test_a_topic_without_a_name_is_not_created(driven: DrivenLog) -> None:
    assert code(CREATE["CreateTopics"](driven, PartitionName("", b"", 0))) is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", NO_PARTITIONS, ids=ascii)
@pytest.mark.parametrize("rpc", OF_PARTITIONS)
def test_what_names_no_partition_refuses_the_request(driven: DrivenLog, rpc: str, name: tuple[str, bytes, int]) -> None:
    _refuses_the_request(driven, OF_PARTITIONS[rpc], PartitionName(*name))


@pytest.mark.parametrize("name", NO_NAMES, ids=ascii)
@pytest.mark.parametrize("rpc", OF_TOPICS)
def test_what_names_no_topic_refuses_the_request(driven: DrivenLog, rpc: str, name: tuple[str, bytes, int]) -> None:
    _refuses_the_request(driven, OF_TOPICS[rpc], PartitionName(*name))


def _refuses_the_request(driven: DrivenLog, ask: Ask, name: PartitionName) -> None:
    before = driven.store.version()
    with pytest.raises(Refused) as refusal:
        ask(driven, name)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
    driven.flush()
    assert driven.store.version() == before


def test_a_good_item_beside_what_names_nothing_is_not_appended(driven: DrivenLog) -> None:
    items = [Batch().item(PartitionName(TOPIC, b"", 0)), Batch().item(PartitionName(TOPIC, b"", -1))]
    with pytest.raises(Refused):
        driven.log.produce(Produce(None, items), CONTEXT)
    driven.flush()
    assert driven.head().log_end_offset == 0


@pytest.mark.parametrize("field", ["wait_ms_max", "bytes_min", "bytes_max"])
def test_a_fetch_with_a_negative_number_is_refused(driven: DrivenLog, field: str) -> None:
    with pytest.raises(Refused, match="negative") as refusal:
        driven.fetch(Fetch([FetchItem(PartitionName(TOPIC, b"", 0), 0)], **{field: -1}))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_a_fetch_item_and_a_count_with_a_negative_number_are_refused(driven: DrivenLog) -> None:
    name = PartitionName(TOPIC, b"", 0)
    with pytest.raises(Refused, match="partition_max_bytes is -1"):
        driven.fetch(Fetch([FetchItem(name, 0, partition_bytes_max=-1)]))
    with pytest.raises(Refused, match="start_offset is -1"):
        driven.ranges.count_records(CountRecords([CountQuery(name, -1)]), CONTEXT)


def test_a_partition_is_named_once_where_order_would_be_lost(driven: DrivenLog) -> None:
    names = [PartitionName(TOPIC, b"", 0)] * 2
    with pytest.raises(Refused, match="named twice"):
        driven.log.describe_producers(DescribeProducers(names), CONTEXT)
    command = WriteTxnMarkers([DecidedMarker(driven.marker(transactional(), COMMIT, csn=1), names)])
    with pytest.raises(Refused, match="named twice"):
        driven.foreign_markers.write(command, CONTEXT)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((PartitionName(name, b"", 0), ErrorCode.INVALID_TOPIC_EXCEPTION) for name in IMPOSSIBLE_NAMES),
        *((PartitionName(*name), ErrorCode.INVALID_REQUEST) for name in NO_PARTITIONS),
    ],
    ids=ascii,
)
def test_a_transact_with_such_a_name_is_refused_at_once(
    driven: DrivenLog, name: PartitionName, expected: ErrorCode
) -> None:
    batches = TransactedBatches(driven.reader, driven.catalog, ALLOW_ALL, driven.checks, driven.log.fetcher.damage)
    with pytest.raises(Refused) as refusal:
        batches.place([Batch(transactional(), 0).item(name)], Membership("tx-7", 7, 0), CONTEXT)
    assert refusal.value.code is expected
    assert refusal.value.message.isascii()
    assert len(refusal.value.message) < 400


class _Nothing(AllowAll):
    """Topics are not for this caller."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return permission is not Permission.CREATE and resource is not ResourceType.TOPIC


@pytest.mark.parametrize("rpc", sorted(EVERY_RPC.keys() - {"WriteTxnMarkers"}))
def test_who_may_not_see_a_topic_does_not_learn_whether_it_exists(driven: DrivenLog, rpc: str) -> None:
    guarded = DrivenLog(driven.store, driven.clock, authorizer=_Nothing())
    for name in (TOPIC, "missing", "a b"):
        assert code(EVERY_RPC[rpc](guarded, PartitionName(name, b"", 0))) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
