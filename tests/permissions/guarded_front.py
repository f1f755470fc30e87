"""A server that goes by rules, with something of everything in it, asked over the wire by a caller with few rights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from coordinator_api.v1 import common_pb2, group_pb2, log_pb2, share_pb2, transaction_pb2
from coordinator_protocol.acls import Acl, AclFilter, Permission, PermissionType, ResourceType
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.hashing import member_id
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.addresses import NodeAddress
from coordinator_server.build import SERVICES
from coordinator_server.grpc_front.wire.servicers import fast_methods, servicers
from coordinator_server.traffic.admission import Admission, AdmissionLimits
from tests.harness.gated import GatedDispatcher
from tests.harness.guarded import SUPER_USER, Guarded
from tests.harness.world import World
from txn_coordinator.config import TwoPhase

Question = tuple[Permission, ResourceType]

ROOT: Final = CallContext(principal=SUPER_USER, host="10.0.0.1")
STRANGER: Final = CallContext(principal="User:stranger", host="10.0.0.2")
METHODS: Final = {method.name: method for service in SERVICES for method in service.methods}
REFUSALS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
CODES: Final = dict(
    zip(
        (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID),
        (29, 30, 31, 53),
        strict=True,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names used in requests."""

    topic: str = "secrets"
    topic_id: bytes = b""
    """The id of the topic."""
    id: str = "hidden-till"
    """A transactional id with an open transaction in the topic and with an offset of the group."""
    prepared: str = "hidden-bank"
    """A transactional id whose transaction is prepared."""
    group: str = "unseen-readers"
    """A group that only has offsets."""
    consumers: str = "unseen-consumers"
    """A consumer group with a member that reads the topic."""
    classic: str = "unseen-classic"
    """A classic group with a member."""
    shares: str = "unseen-shares"
    """A share group with a member that reads the topic."""
    idle_shares: str = "unseen-idle-shares"
    """A share group that has read the topic, and whose member left."""
    streams: str = "unseen-streams"
    """A streams group with a member that reads the topic."""

    def all(self) -> Iterator[str]:
        yield from (self.topic, self.id, self.prepared, self.group, self.consumers, self.classic, self.shares)
        yield from (self.idle_shares, self.streams)


ABSENT: Final = Names(
    topic="nothing",
    topic_id=b"nobody has this!",
    id="absent-till",
    prepared="absent-bank",
    group="absent-readers",
    consumers="absent-consumers",
    classic="absent-classic",
    shares="absent-shares",
    idle_shares="absent-idle-shares",
    streams="absent-streams",
)
"""Names of the same lengths that stand for nothing."""


class GuardedFront:
    """The server. Everything in it was made by the superuser."""

    def __init__(self, *, lane: bool = False, two_phase: TwoPhase = TwoPhase.FUSED) -> None:
        self.world = World(Guarded(lane=lane, two_phase=two_phase))
        core = self.world.inside.core
        self.access = core.access
        self.dispatcher = GatedDispatcher(
            SERVICES, Admission(AdmissionLimits(), lambda: 0), self.world.clock, message_bytes_max=1 << 24
        )
        self.dispatcher.open(servicers(core, NodeAddress(1, "here", 1)), fast_methods(core))
        self.asked: set[Question] = set()
        ask = self.access.is_allowed

        def note(context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
            self.asked.add((permission, resource))
            return ask(context, permission, resource, name)

        self.access.is_allowed = note  # type: ignore[method-assign]  # to hear of every question
        self.names = Names()
        self._fill()

    def _fill(self) -> None:
        named = self.names
        topic = log_pb2.NewTopic(name=named.topic, partition_count=2, config={"validate_payload": "header"})
        made = self.told(log_pb2.CreateTopicsRequest(topics=[topic]))
        self.names = named = Names(topic_id=made.results[0].topic_id)
        self.told(self.produce(named))
        for transactional_id in (named.id, named.prepared):
            self.told(
                transaction_pb2.InitProducerIdRequest(
                    transactional_id=transactional_id,
                    transaction_timeout_ms=60_000,
                    enable_2pc=transactional_id == named.prepared,
                )
            )
            self.told(self.transactional_produce(transactional_id))
        self.told(transaction_pb2.PrepareTransactionRequest(**self.identity(named.prepared)))
        self.told(group_pb2.OffsetCommitRequest(group_id=named.group, topics=[offsets(named, partition=1)]))
        self.told(
            transaction_pb2.JoinBatchRequest(
                header=common_pb2.RequestHeader(request_id=b"m" * 16),
                sink=named.id,
                run_id="run",
                transaction_timeout_ms=60_000,
            )
        )
        pending = group_pb2.TxnOffsetCommitRequest(
            group_id=named.group, topics=[offsets(named)], **self.identity(named.id)
        )
        self.told(pending)
        self.member_epoch = self.told(
            group_pb2.ConsumerGroupHeartbeatRequest(
                group_id=named.consumers,
                member_id="m1",
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=group_pb2.TopicNames(names=[named.topic]),
                topic_partitions=group_pb2.PartitionSet(),
            )
        ).member_epoch
        topics = group_pb2.TopicNames(names=[named.topic])
        self.share_epoch, _left = (
            self.told(
                group_pb2.ShareGroupHeartbeatRequest(group_id=group_id, member_id="m1", subscribed_topic_names=topics)
            ).member_epoch
            for group_id in (named.shares, named.idle_shares)
        )
        self.told(group_pb2.ShareGroupHeartbeatRequest(group_id=named.idle_shares, member_id="m1", member_epoch=-1))
        self.told(joining_streams(named))
        joined = self.told(joining(named.classic))
        self.member = {
            "group_id": named.classic,
            "member_id": joined.member_id,
            "generation_id": joined.generation_id,
        }
        self.told(group_pb2.SyncGroupRequest(**self.member))
        held = common_pb2.TopicPartitions(topic=named.topic, partitions=[0])
        self.snapshot_id = self.told(log_pb2.TakeSnapshotRequest(topics=[held], lease_ms=3_600_000)).snapshot_id
        self.world.settle()

    def identity(self, transactional_id: str) -> dict[str, Any]:
        """Fields of a request by the owner of an id; some numbers where there is none."""
        found = self.world.inside.state().transactions.get(transactional_id)
        producer_id, epoch = (7, 0) if found is None else found.client_identity
        return {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}

    def produce(self, named: Names, **identity: Any) -> log_pb2.ProduceRequest:
        return log_pb2.ProduceRequest(batches=[batch(named)], **identity)

    def transactional_produce(self, transactional_id: str) -> log_pb2.ProduceRequest:
        known = self.identity(transactional_id)
        return log_pb2.ProduceRequest(
            transactional_id=transactional_id,
            batches=[
                batch(
                    self.names,
                    producer_id=known["producer_id"],
                    producer_epoch=known["producer_epoch"],
                    base_sequence=0,
                    is_transactional=True,
                )
            ],
        )

    def sink_member(self, sink: str) -> dict[str, Any]:
        """Fields of a request by the member of a sink's batch."""
        return self.identity(member_id(sink, (b"m" * 16).hex()))

    def as_member(self, named: Names) -> dict[str, Any]:
        """Fields of a request by the member of the classic group."""
        return self.member | {"group_id": named.classic}

    # Asking

    def ask(self, request: Message, by: CallContext = ROOT) -> Pending[bytes]:
        method = request.DESCRIPTOR.name.removesuffix("Request")
        return self.dispatcher(method, request.SerializeToString(), by)

    def told(self, request: Message, by: CallContext = ROOT) -> Any:
        """The response, once it is there."""
        reply = self.ask(request, by)
        self.world.settle()
        for _second in range(60):
            if reply.is_settled:
                break
            self.world.tick(1_000)
            self.world.settle()
        response = response_to(request, reply)
        if by is ROOT:
            assert not {*codes(response)} & REFUSALS, response
        return response

    # Rights

    def let(self, allowed: Iterable[Question], denied: Iterable[Question] = ()) -> None:
        """From now on the stranger may do this with everything, but for what is denied, and nothing else."""
        acls = self.world.inside.core.admin.acls
        acls.delete([AclFilter()], _by_root("DeleteAcls"), validate_only=False)
        wanted = {PermissionType.ALLOW: allowed, PermissionType.DENY: denied}
        rules = [
            Acl(
                principal=STRANGER.principal,
                resource_type=resource,
                resource_name="*",
                operation=permission,
                permission_type=kind,
            )
            for kind, questions in wanted.items()
            for permission, resource in questions
        ]
        if rules:
            acls.create(rules, _by_root("CreateAcls"), validate_only=False)
        self.world.settle()
        # The next epoch of the session of the member of the share group is 1, whatever was asked before.
        self.told(share_pb2.ShareFetchRequest(group_id=self.names.shares, member_id="m1"))

    def snapshot(self) -> tuple[object, ...]:
        """All that a refused call must leave as it was."""
        runtime = self.world.inside.runtime
        return (
            self.world.inside.state(),
            self.world.shelf.store.version(),
            runtime.timers.next_deadline_ms(),
            len(runtime.parking),
        )


def response_to(request: Message, reply: Pending[bytes]) -> Any:
    """The response in a reply that is there."""
    method = METHODS[request.DESCRIPTOR.name.removesuffix("Request")]
    return GetMessageClass(method.output_type).FromString(reply.result())


def _by_root(method: str) -> CallContext:
    return CallContext(principal=ROOT.principal, host=ROOT.host, method=method)


def batch(named: Names, *, by_id: bool = False, **fields: Any) -> log_pb2.PartitionBatch:
    header = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1} | fields
    stored = log_pb2.RecordBatch(record_count=1, encoding=1, payload=b"x", base_timestamp_ms=1, max_timestamp_ms=1)
    for name, value in header.items():
        setattr(stored, name, value)
    where = {"topic_id": named.topic_id} if by_id else {"topic": named.topic}
    return log_pb2.PartitionBatch(batch=stored, **where)


def offsets(named: Names, partition: int = 0) -> group_pb2.TopicOffsets:
    one = group_pb2.PartitionOffset(partition=partition, committed_offset=1)
    return group_pb2.TopicOffsets(topic=named.topic, partitions=[one])


def joining_streams(named: Names) -> group_pb2.StreamsGroupHeartbeatRequest:
    subtopology = group_pb2.StreamsSubtopology(subtopology_id="0", source_topics=[named.topic])
    return group_pb2.StreamsGroupHeartbeatRequest(
        group_id=named.streams,
        member_id="m1",
        rebalance_timeout_ms=30_000,
        topology=group_pb2.StreamsTopology(epoch=1, subtopologies=[subtopology]),
        owned_tasks=group_pb2.StreamsTasks(),
        process_id="p1",
    )


def joining(group_id: str) -> group_pb2.JoinGroupRequest:
    return group_pb2.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[group_pb2.JoinGroupProtocol(name="range", metadata=b"m")],
        skip_member_id_required=True,
    )


def codes(message: Any) -> Iterator[int]:
    """Every error code in a message, however deep."""
    for field, value in message.ListFields():
        if field.name == "error_code":
            yield value
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in [value] if not field.is_repeated else value:
                yield from codes(each)


def without_names(response: Message, named: Names) -> str:
    """The text of a response with every name that it has replaced by what it is the name of."""
    text = str(response)
    replaced: Mapping[str, str] = {
        getattr(named, field): f"<{field}>"
        for field in ("topic", "id", "prepared", "group", "consumers", "classic", "shares", "idle_shares", "streams")
    }
    for name, meaning in replaced.items():
        text = text.replace(name, meaning)
    quoted = str(log_pb2.TopicName(topic_id=named.topic_id)).strip().removeprefix("topic_id: ").strip('"')
    return text.replace(named.topic_id.hex(), "<hex>").replace(quoted, "<topic_id>")
