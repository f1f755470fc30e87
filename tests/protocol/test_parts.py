"""Parts of which a message has too many, counted on the wire: protobuf's reading of the same bytes is right."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from coordinator_api.v1 import admin_pb2, common_pb2, group_pb2, log_pb2, transaction_pb2
from coordinator_protocol.wire import varint
from coordinator_server.grpc_front.wire.parts import FIELDS_PER_PART, parts_are_too_many

LISTS_MAX = 4
UNKNOWN_GROUP = b"\xa3\x06\xa4\x06"
"""Begin and end of field 100."""


def parts_of(message: Message) -> int:
    """All elements of all lists, by looking at each."""
    parts = 0
    for field, value in message.ListFields():
        values: Any = value if field.is_repeated else [value]
        if field.is_repeated:
            parts += len(values)
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            parts += sum(parts_of(each) for each in values)
    return parts


def topics(number: int) -> st.SearchStrategy[list[Any]]:
    made = st.builds(
        common_pb2.TopicPartitions,
        topic=st.sampled_from(["", "t", "a name of some length"]),
        partitions=st.lists(st.integers(0, 2**31 - 1), max_size=LISTS_MAX),
    )
    return st.lists(made, max_size=number)


requests = st.builds(
    transaction_pb2.AddPartitionsToTxnRequest,
    transactional_id=st.text(max_size=5),
    topics=topics(LISTS_MAX),
    transactions=st.lists(
        st.builds(transaction_pb2.AddPartitionsToTxnTransaction, topics=topics(LISTS_MAX)), max_size=LISTS_MAX
    ),
)


@given(requests, st.booleans())
def test_parts_are_counted_as_protobuf_reads_them(
    request: transaction_pb2.AddPartitionsToTxnRequest, has_group: bool
) -> None:
    body = UNKNOWN_GROUP * has_group + request.SerializeToString()
    number = parts_of(request)
    assert parts_of(request.FromString(body)) == number
    assert not parts_are_too_many(body, request.DESCRIPTOR, max(number, 1))
    if number > 1:
        assert parts_are_too_many(body, request.DESCRIPTOR, number - 1)


@pytest.mark.parametrize(
    ("request_type", "body"),
    [
        (log_pb2.FetchRequest, log_pb2.FetchRequest(partitions=[{}] * 101).SerializeToString()),
        (transaction_pb2.DescribeTransactionsRequest, b"\x12\0" * 101),
        (group_pb2.AlterGroupConfigsRequest, group_pb2.AlterGroupConfigsRequest(unset=[""] * 101).SerializeToString()),
        (admin_pb2.DescribeLimitsRequest, b"\x98\x06\0" * (100 * FIELDS_PER_PART + 1)),
        (admin_pb2.DescribeLimitsRequest, UNKNOWN_GROUP * 50 * FIELDS_PER_PART + b"\x98\x06\0"),
    ],
    ids=["messages", "texts", "texts of groups", "unknown fields", "unknown groups"],
)
def test_empty_elements_and_unknown_fields_count(request_type: type[Message], body: bytes) -> None:
    request_type.FromString(body)
    assert parts_are_too_many(body, request_type.DESCRIPTOR, 100)
    assert not parts_are_too_many(body, request_type.DESCRIPTOR, 101)


def test_what_is_malformed_hides_nothing_that_stands_beside_it() -> None:
    broken = b"\x22\x02\x0a\x7f"
    many = transaction_pb2.AddPartitionsToTxnRequest(topics=[{"partitions": range(200)}]).SerializeToString()
    kind = transaction_pb2.AddPartitionsToTxnRequest.DESCRIPTOR
    assert parts_are_too_many(many + broken, kind, 100)
    assert not parts_are_too_many(b"\xff" * 300, kind, 100)


def test_a_large_payload_has_no_parts() -> None:
    request = log_pb2.ProduceRequest()
    request.batches.add(topic="t").batch.payload = varint(7) * 10_000
    assert not parts_are_too_many(request.SerializeToString(), request.DESCRIPTOR, 1)
