"""Members of share groups that fetch and acknowledge records, by ShareService and without a network.

consumer = share_consumer(world, "a", "t")
consumer.fetch()                        # the offsets that it acquired: {"t-0": [0, 1, 2]}
consumer.acknowledge("t-0", (0, 2, 1))  # the error code of the partition
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from coordinator_api.v1 import group_pb2, share_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.pending import Pending
from tests.harness.calls import partition_name
from tests.harness.groups import GROUP, OK, code
from tests.harness.share_groups import ShareMember
from tests.harness.world import World

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0

Acks = tuple[int, int, int | Sequence[int]]
"""First offset, last offset, and a type or the types."""


@dataclass
class ShareConsumer:
    """One member, and its session. It fetches of all partitions that it is assigned."""

    world: World
    member: ShareMember
    epoch: int = 0
    """Epoch of the next request."""
    named: set[str] = field(default_factory=set)
    """Partitions of the session."""
    last: Any = None
    """The last response."""

    # Requests

    def fetching(
        self,
        acks: Mapping[str, Iterable[Acks]] | None = None,
        *,
        epoch: int | None = None,
        partitions: Iterable[str] | None = None,
        **settings: Any,
    ) -> Pending[Any]:
        """A ShareFetch. `partitions`: those that join the session; None for all that are assigned and not in it."""
        epoch = self.epoch if epoch is None else epoch
        if epoch == 0:
            self.named = set()
        acks = acks or {}
        if partitions is None:
            partitions = () if epoch < 0 else sorted(self.assigned - self.named)
        joining = [each for each in partitions if each not in acks]
        self.named |= {*joining}
        request = share_pb2.ShareFetchRequest(
            group_id=self.member.group_id,
            member_id=self.member.member_id,
            session_epoch=epoch,
            partitions=[*(_partition(name, each) for name, each in acks.items()), *map(_partition, joining)],
            **settings,
        )
        asked = self.world.call(request)
        asked.on_settled(lambda reply: self._hears(reply, epoch))
        return asked

    def asks(self, acks: Mapping[str, Iterable[Acks]] | None = None, **settings: Any) -> Any:
        """The response to a ShareFetch that does not wait."""
        asked = self.fetching(acks, **settings)
        self.world.settle()
        return response_of(asked)

    def fetch(self, acks: Mapping[str, Iterable[Acks]] | None = None, **settings: Any) -> dict[str, list[int]]:
        """The offsets that a ShareFetch acquires."""
        return self.acquired(self.asks(acks, **settings))

    def acknowledging(self, acks: Mapping[str, Iterable[Acks]], *, epoch: int | None = None) -> Pending[Any]:
        epoch = self.epoch if epoch is None else epoch
        request = share_pb2.ShareAcknowledgeRequest(
            group_id=self.member.group_id,
            member_id=self.member.member_id,
            session_epoch=epoch,
            partitions=[_partition(name, each) for name, each in acks.items()],
        )
        asked = self.world.call(request)
        asked.on_settled(lambda reply: self._hears(reply, epoch))
        return asked

    def acknowledges(self, acks: Mapping[str, Iterable[Acks]], *, epoch: int | None = None) -> Any:
        """The response to a ShareAcknowledge."""
        asked = self.acknowledging(acks, epoch=epoch)
        self.world.settle()
        return asked.result()

    def acknowledge(self, partition: str, *acks: Acks) -> ErrorCode:
        """The outcome in one partition."""
        response = self.acknowledges({partition: acks})
        assert code(response) is OK, response
        return code(response.results[0])

    def closes(self, acks: Mapping[str, Iterable[Acks]] | None = None) -> Any:
        return self.acknowledges(acks or {}, epoch=-1)

    # Answers

    @property
    def assigned(self) -> set[str]:
        return {f"{topic}-{number}" for topic, number in self.member.assigned}

    def acquired(self, response: Any) -> dict[str, list[int]]:
        """The offsets in an answer, whose batches are those of the acquired records and no others."""
        assert code(response) is OK, response
        found: dict[str, list[int]] = {}
        for result in response.results:
            offsets = [at for each in result.acquired for at in range(each.first_offset, each.last_offset + 1)]
            covered = {at for batch in result.batches for at in _offsets(batch)}
            assert {*offsets} <= covered, "every acquired record is in a batch"
            assert all({*offsets} & {*_offsets(batch)} for batch in result.batches), "a batch without acquired records"
            if offsets:
                found[f"{result.topic}-{result.partition}"] = offsets
        return found

    def counts(self) -> dict[int, int]:
        """Number of deliveries of each offset in the last answer, of one partition."""
        return {
            at: each.delivery_count
            for result in self.last.results
            for each in result.acquired
            for at in range(each.first_offset, each.last_offset + 1)
        }

    def _hears(self, reply: Pending[Any], epoch: int) -> None:
        if reply.error is None:
            self.last = response_of(reply)
            if code(self.last) is OK:
                self.epoch = 0 if epoch < 0 else epoch + 1


def response_of(reply: Pending[Any]) -> Any:
    """The message of a ShareFetch, which the servicer gives as bytes."""
    value = reply.result()
    if isinstance(value, Message):
        return value
    return share_pb2.ShareFetchResponse.FromString(value.SerializeToString())


def share_consumer(world: World, member_id: str, *topics: str, group_id: str = GROUP) -> ShareConsumer:
    """A member that has joined."""
    member = ShareMember(world, member_id, group_id)
    assert code(member.joins(*topics)) is OK
    member.beats()
    return ShareConsumer(world, member)


def alter_shares(world: World, group_id: str = GROUP, **values: int | str) -> None:
    """Set settings of a share group, which need not exist, by their names without `share_`."""
    configs = [
        group_pb2.GroupConfig(name=f"share_{name}", text=value)
        if isinstance(value, str)
        else group_pb2.GroupConfig(name=f"share_{name}", value=value)
        for name, value in values.items()
    ]
    assert code(world.ask(group_pb2.AlterGroupConfigsRequest(group_id=group_id, set=configs))) is OK


def _partition(text: str, acks: Iterable[Acks] = ()) -> share_pb2.SharePartition:
    name = partition_name(text)
    return share_pb2.SharePartition(
        topic=name.topic,
        partition=name.partition,
        acknowledgements=[
            share_pb2.AcknowledgementBatch(
                first_offset=first,
                last_offset=last,
                types=[kind] if isinstance(kind, int) else kind,  # type: ignore[arg-type, list-item]  # also unknown ones
            )
            for first, last, kind in acks
        ],
    )


def _offsets(batch: Any) -> range:
    return range(batch.base_offset, batch.base_offset + batch.record_count + batch.hole_count)
