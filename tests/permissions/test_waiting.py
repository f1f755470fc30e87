"""A call that has waited is asked again before it is done or answered: the rules may have changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from coordinator_api.v1 import common_pb2, group_pb2, log_pb2, share_pb2, transaction_pb2
from coordinator_protocol.acls import Permission, ResourceType
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from tests.permissions.guarded_front import (
    METHODS,
    STRANGER,
    GuardedFront,
    Question,
    batch,
    codes,
    joining,
    offsets,
)
from txn_coordinator.config import TwoPhase

READ_GROUP: Question = (Permission.READ, ResourceType.GROUP)
READ_TOPIC: Question = (Permission.READ, ResourceType.TOPIC)
WRITE_TOPIC: Question = (Permission.WRITE, ResourceType.TOPIC)
WRITE_ID: Question = (Permission.WRITE, ResourceType.TRANSACTIONAL_ID)
TWO_PHASE: Question = (Permission.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)
CODES = {
    READ_GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    READ_TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    WRITE_TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    WRITE_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    TWO_PHASE: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


WITHOUT_SENSE = {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_MEMBER_ID}
"""Errors of calls that are allowed, and come to nothing once the transaction before is complete."""


def answer(front: GuardedFront, request: Message, reply: Pending[bytes]) -> Any:
    method = METHODS[request.DESCRIPTOR.name.removesuffix("Request")]
    assert reply.is_settled
    return GetMessageClass(method.output_type).FromString(reply.result())


def _transact(front: GuardedFront, owner: dict[str, Any]) -> Message:
    named = front.names
    return transaction_pb2.TransactRequest(
        header=common_pb2.RequestHeader(request_id=b"0123456789abcdef"),
        committed=True,
        batches=[batch(named, base_sequence=0)],
        groups=[transaction_pb2.TransactOffsets(group_id=named.group, topics=[offsets(named)])],
        **owner,
    )


def _produce(front: GuardedFront, owner: dict[str, Any]) -> Message:
    identity = {"producer_id": owner["producer_id"], "producer_epoch": owner["producer_epoch"]}
    stored = batch(front.names, is_transactional=True, base_sequence=0, **identity)
    return log_pb2.ProduceRequest(transactional_id=owner["transactional_id"], batches=[stored])


PARKED: list[tuple[str, Callable[[GuardedFront, dict[str, Any]], Message], list[Question]]] = [
    (
        "InitProducerId",
        lambda front, _owner: transaction_pb2.InitProducerIdRequest(
            transactional_id=front.names.id, transaction_timeout_ms=1_000, enable_2pc=True
        ),
        [WRITE_ID, TWO_PHASE],
    ),
    (
        "AddPartitionsToTxn",
        lambda front, owner: transaction_pb2.AddPartitionsToTxnRequest(
            topics=[common_pb2.TopicPartitions(topic=front.names.topic, partitions=[0])], **owner
        ),
        [WRITE_ID, WRITE_TOPIC],
    ),
    (
        "AddPartitionsToTxn that verifies",
        lambda front, owner: transaction_pb2.AddPartitionsToTxnRequest(
            topics=[common_pb2.TopicPartitions(topic=front.names.topic, partitions=[0])], verify_only=True, **owner
        ),
        [WRITE_ID, WRITE_TOPIC],
    ),
    (
        "AddPartitionsToTxn by a topic's id",
        lambda front, owner: transaction_pb2.AddPartitionsToTxnRequest(
            topics=[common_pb2.TopicPartitions(topic_id=front.names.topic_id, partitions=[0])], **owner
        ),
        [WRITE_ID, WRITE_TOPIC],
    ),
    (
        "AddOffsetsToTxn",
        lambda front, owner: transaction_pb2.AddOffsetsToTxnRequest(group_id=front.names.group, **owner),
        [WRITE_ID, READ_GROUP],
    ),
    (
        "PrepareTransaction",
        lambda _front, owner: transaction_pb2.PrepareTransactionRequest(**owner),
        [WRITE_ID, TWO_PHASE],
    ),
    ("EndTxn", lambda _front, owner: transaction_pb2.EndTxnRequest(committed=True, **owner), [WRITE_ID]),
    ("Transact", _transact, [WRITE_ID, WRITE_TOPIC, READ_GROUP, READ_TOPIC]),
    ("Produce", _produce, [WRITE_ID, WRITE_TOPIC]),
    (
        "TxnOffsetCommit",
        lambda front, owner: group_pb2.TxnOffsetCommitRequest(
            group_id=front.names.group, topics=[offsets(front.names)], **owner
        ),
        [WRITE_ID, READ_GROUP, READ_TOPIC],
    ),
    (
        "TxnShareAcknowledge",
        lambda front, owner: share_pb2.TxnShareAcknowledgeRequest(
            group_id=front.names.shares,
            member_id="absent",
            member_epoch=1,
            partitions=[
                share_pb2.SharePartition(
                    topic=front.names.topic,
                    acknowledgements=[share_pb2.AcknowledgementBatch(types=[share_pb2.ACKNOWLEDGE_TYPE_ACCEPT])],
                )
            ],
            **owner,
        ),
        [WRITE_ID, READ_GROUP, READ_TOPIC],
    ),
]


@pytest.mark.parametrize(("name", "make", "rights"), PARKED, ids=[each[0].replace(" ", "_") for each in PARKED])
def test_a_parked_call_is_asked_again(
    name: str, make: Callable[[GuardedFront, dict[str, Any]], Message], rights: list[Question]
) -> None:
    for lost in [None, *rights]:
        front = GuardedFront(two_phase=TwoPhase.SPLIT)
        world = front.world
        front.let(rights)
        front.ask(transaction_pb2.EndTxnRequest(committed=True, **front.identity(front.names.id)))
        world.flush(1)
        owner = front.identity(front.names.id)
        request = make(front, owner)
        reply = front.ask(request, STRANGER)
        assert not reply.is_settled
        assert len(world.inside.runtime.parking) == 1, "it waits behind the transaction that is being completed"
        front.let([each for each in rights if each != lost])
        response = answer(front, request, reply)
        refused = {*codes(response)} - {ErrorCode.OPERATION_NOT_ATTEMPTED}
        if lost is None:
            assert refused <= WITHOUT_SENSE, (name, response)
        else:
            assert refused == {CODES[lost]}, (name, lost, response)
        if lost is not None and name != "TxnOffsetCommit":
            assert world.inside.state().transactions[front.names.id].state.api_name == "CompleteCommit"


def test_a_fetch_that_waits_is_told_nothing_after_the_right_is_gone() -> None:
    front = GuardedFront()
    named = front.names
    front.let([READ_TOPIC])
    partition = log_pb2.FetchPartition(topic=named.topic, partition=1, fetch_offset=0)
    request = log_pb2.FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1_000, partitions=[partition])
    reply = front.ask(request, STRANGER)
    front.let([])
    assert not reply.is_settled
    stored = batch(named)
    stored.partition = 1
    front.told(log_pb2.ProduceRequest(batches=[stored]))
    (result,) = answer(front, request, reply).results
    assert (result.error_code, len(result.batches)) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)
    assert (result.high_watermark, result.log_start_offset) == (0, 0), "nor how far the partition is"


def test_members_that_wait_are_told_nothing_after_the_right_is_gone() -> None:
    front = GuardedFront()
    front.let([READ_GROUP])
    requests: list[Message] = [
        group_pb2.HeartbeatRequest(max_wait_ms=10_000, **front.member),
        group_pb2.ConsumerGroupHeartbeatRequest(
            group_id=front.names.consumers, member_id="m1", member_epoch=front.member_epoch, max_wait_ms=10_000
        ),
        joining(front.names.classic),
    ]
    replies = [front.ask(request, STRANGER) for request in requests[:2]]
    front.world.settle()
    assert not any(reply.is_settled for reply in replies)
    replies.append(front.ask(requests[2], STRANGER))
    front.let([])
    for _second in range(60):
        front.world.tick(1_000)
        front.world.settle()
    told = [answer(front, request, reply) for request, reply in zip(requests, replies, strict=True)]
    assert [each.error_code for each in told] == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 3
    assert not told[2].members


def test_patterns_stand_for_topics_that_members_may_know_of_now() -> None:
    front = GuardedFront()
    see_topic: Question = (Permission.DESCRIBE, ResourceType.TOPIC)

    def subscribed() -> list[str]:
        """The topics that the member is to read."""
        for _step in range(10):
            front.world.tick(100)
            front.world.settle()
        described = front.told(group_pb2.ConsumerGroupDescribeRequest(group_ids=["of-patterns"])).groups[0]
        return [each.topic for member in described.members for each in member.target_assignment]

    front.let([READ_GROUP])
    beat = group_pb2.ConsumerGroupHeartbeatRequest(
        group_id="of-patterns",
        member_id="m",
        rebalance_timeout_ms=30_000,
        subscribed_topic_regex=f"{front.names.topic[:3]}.*",
        subscribed_topic_names=group_pb2.TopicNames(),
        topic_partitions=group_pb2.PartitionSet(),
    )
    assert not front.told(beat, STRANGER).error_code
    assert subscribed() == []
    for rights, topics in (([READ_GROUP, see_topic], [front.names.topic]), ([READ_GROUP], [])):
        front.let(rights)
        assert subscribed() == topics
