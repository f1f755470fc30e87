"""Offsets as the tests speak of them: partitions are `foo-0`, an answer is an offset or the code of an error.

world = group_world()
world.offsets.commits({"foo-0": 100})
producer = world.offsets.producer()
producer.commits({"foo-0": 200})
world.offsets.fetches("foo-0", stable=True)     # {"foo-0": UNSTABLE_OFFSET_COMMIT}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coordinator_api.v1 import common_pb2, group_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from group_coordinator.committed.offsets import OffsetCounts, Offsets
from tests.harness.groups import GROUP, OK, code
from txn_coordinator.requests import AddOffsets, EndTxn, InitProducerId
from txn_coordinator.state import Identity, Transaction

if TYPE_CHECKING:
    from tests.harness.world import World

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT

Told = dict[str, int | ErrorCode]
"""Answer for each partition: its offset, -1 for none, or the code of an error."""


def topic_offsets(offsets: Mapping[str, int], metadata: str = "") -> list[group_pb2.TopicOffsets]:
    return [
        group_pb2.TopicOffsets(
            topic=topic,
            partitions=[group_pb2.PartitionOffset(partition=int(number), committed_offset=offset, metadata=metadata)],
        )
        for name, offset in offsets.items()
        for topic, _dash, number in [name.rpartition("-")]
    ]


def topic_partitions(*names: str) -> list[common_pb2.TopicPartitions]:
    return [
        common_pb2.TopicPartitions(topic=topic, partitions=[int(number)])
        for topic, _dash, number in (name.rpartition("-") for name in names)
    ]


def results(response: Any) -> Told:
    return {f"{each.topic}-{each.partition}": code(each) for each in response.results}


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """The offsets that groups of all kinds have committed."""

    world: World

    def commit(self, offsets: Mapping[str, int], *, group_id: str = GROUP, **fields: Any) -> Pending[Any]:
        """OffsetCommit, by a caller that is no member unless `fields` say so."""
        metadata = fields.pop("metadata", "")
        return self.world.call(
            group_pb2.OffsetCommitRequest(group_id=group_id, topics=topic_offsets(offsets, metadata), **fields)
        )

    def commits(self, offsets: Mapping[str, int], **fields: Any) -> Told:
        """Return the answer for each partition."""
        reply = self.commit(offsets, **fields)
        self.world.settle()
        return results(reply.result())

    def committed_by(self, member: Any, offset: int, **fields: Any) -> ErrorCode:
        """Return the answer to a member that commits an offset of foo-0: classic, or of a consumer group."""
        return code(self.world.ask(self.commit_of(member, offset, **fields)))

    def commit_of(self, member: Any, offset: int, **fields: Any) -> group_pb2.OffsetCommitRequest:
        return group_pb2.OffsetCommitRequest(
            group_id=GROUP, topics=topic_offsets({"foo-0": offset}), **{**identity(member), **fields}
        )

    def fetch(self, *names: str, group_id: str = GROUP, stable: bool = False, **fields: Any) -> Pending[Any]:
        """OffsetFetch of some partitions, or of all that the group has."""
        topics = group_pb2.PartitionSet(topics=topic_partitions(*names)) if names else None
        group = group_pb2.OffsetFetchGroup(group_id=group_id, topics=topics, **fields)
        return self.world.call(group_pb2.OffsetFetchRequest(groups=[group], require_stable=stable))

    def fetched(self, *names: str, **fields: Any) -> Any:
        """The group of the answer."""
        reply = self.fetch(*names, **fields)
        self.world.settle()
        (group,) = reply.result().groups
        return group

    def fetches(self, *names: str, **fields: Any) -> Told:
        group = self.fetched(*names, **fields)
        assert code(group) is OK, group
        return {
            f"{each.topic}-{each.partition}": code(each) if each.error_code else each.committed_offset
            for each in group.offsets
        }

    def deletes(self, *names: str, group_id: str = GROUP) -> Told:
        """OffsetDelete."""
        return results(self.deleted(*names, group_id=group_id))

    def deleted(self, *names: str, group_id: str = GROUP) -> Any:
        return self.world.ask(group_pb2.OffsetDeleteRequest(group_id=group_id, topics=topic_partitions(*names)))

    def producer(self, transactional_id: str = "orders", *, version: int = 2) -> Producer:
        """A producer with an identity."""
        producer = Producer(self.world, transactional_id, version)
        producer.init()
        return producer

    def send_marker(self, marker: Marker, group_id: str = GROUP) -> None:
        """A marker out of the blue."""
        self.world.inside.groups.send_marker(group_id, marker)
        self.world.settle()

    def counts(self, group_id: str = GROUP) -> OffsetCounts:
        """Return the counts of a group's shard that the metrics show."""
        inside = self.world.inside
        counts: OffsetCounts = inside.runtime.shard(inside.groups.router.shard_key(group_id)).part(Offsets).counts()
        return counts

    def state(self) -> dict[str, object]:
        """Everything that is stored of offsets."""
        return self.world.inside.groups.durable_state(lambda _key: True)


def identity(member: Any) -> dict[str, Any]:
    """Return the identity that a member of either kind claims."""
    epoch = member.generation if hasattr(member, "generation") else member.epoch
    return {
        "member_id": member.member_id,
        "generation_id_or_member_epoch": epoch,
        "group_instance_id": member.instance_id,
    }


@dataclass
class Producer:
    """A transactional producer, with what it believes."""

    world: World
    transactional_id: str
    version: int = 2
    identity: Identity = field(default_factory=lambda: Identity(-1, -1))

    @property
    def context(self) -> CallContext:
        return CallContext(client_txn_version=self.version)

    def init(self) -> None:
        command = InitProducerId(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        initialised = self.world.inside.transactions.init_producer_id(command, self.context)
        self.world.settle()
        self.identity = initialised.result().identity

    def request(
        self, offsets: Mapping[str, int], *, group_id: str = GROUP, **fields: Any
    ) -> group_pb2.TxnOffsetCommitRequest:
        metadata = fields.pop("metadata", "")
        said = {
            "transactional_id": self.transactional_id,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.producer_epoch,
        }
        return group_pb2.TxnOffsetCommitRequest(
            header=common_pb2.RequestHeader(client_txn_version=self.version),
            group_id=group_id,
            topics=topic_offsets(offsets, metadata),
            **{**said, **fields},
        )

    def commits(self, offsets: Mapping[str, int], **fields: Any) -> Told:
        """TxnOffsetCommit: what each partition is answered."""
        return results(self.world.ask(self.request(offsets, **fields)))

    def adds(self, group_id: str = GROUP) -> None:
        """AddOffsetsToTxn."""
        command = AddOffsets(transactional_id=self.transactional_id, identity=self.identity, group_id=group_id)
        added = self.world.inside.transactions.add_offsets(command, self.context)
        self.world.settle()
        added.result()

    def end(self, outcome: Outcome) -> Pending[Any]:
        """EndTxn."""
        command = EndTxn(transactional_id=self.transactional_id, identity=self.identity, outcome=outcome)
        return self.world.inside.transactions.end_txn(command, self.context)

    def ends(self, outcome: Outcome) -> None:
        """EndTxn, and everything that follows."""
        ended = self.end(outcome)
        self.world.settle()
        answer = ended.result()
        self.identity = answer.next_identity if self.version == 2 else self.identity

    def csn(self) -> int:
        """The number of the id's last outcome."""
        return self._described().csn

    def coordinator_shard(self) -> int:
        """The shard that the id belongs to."""
        return self.world.inside.transactions.shard_key(self.transactional_id).number

    def state(self) -> str:
        """The transaction's durable state."""
        return self._described().state.api_name

    def groups(self) -> list[str]:
        """Those in the transaction, durable."""
        return sorted(self._described().groups)

    def _described(self) -> Transaction:
        (described,) = self.world.inside.reader.describe([self.transactional_id], self.context).result()
        assert described.transaction is not None
        return described.transaction
