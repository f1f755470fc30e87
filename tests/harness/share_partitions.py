"""A share partition of a world: its log, and what members of a group ask of it, below sessions and RPCs.

A record goes by its offset. Whatever is asked is settled before the answer is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Decision, Operation, ShardKey
from coordinator_runtime.features import SHARE_GROUPS
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, Committer, Membership
from coordinator_runtime.share_ports import ReleaseShares
from coordinator_runtime.store_features import StoreFeatures
from group_coordinator.share_partitions import decisions
from group_coordinator.share_partitions.acquiring import Content, LogPosition, Read, Span, Terms
from group_coordinator.share_partitions.places import share_shard
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.requests import Acknowledge, Acquire, PartitionAcks, TxnShareAcknowledge
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.shard import ShareShard
from group_coordinator.share_partitions.state import SharePartition
from partition_log.batches import batches
from partition_log.requests import DeleteRecords, RecordsToDelete
from partition_log.shard import LogShard
from partition_log.state import PartitionHead
from tests.harness.calls import called, partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.inside import WorldOptions
from tests.harness.share_groups import ShareMember
from tests.harness.world import World
from txn_coordinator.state import Identity

GROUP: Final = "workers"


def share_world(**options: Any) -> World:
    """A server with the topic `t` of one partition, whose store has the feature of share groups."""
    world = World(WorldOptions(**options))
    world.settle()
    world.create_topic("t", 1)
    StoreFeatures(world.inside.runtime, world.shelf.store).begin(SHARE_GROUPS)
    world.settle()
    return world


@dataclass
class Shares:
    """One partition as one group reads it. `terms` are the settings of the group."""

    world: World
    partition: str = "t-0"
    group_id: str = GROUP
    terms: Terms = field(default_factory=Terms)
    allows_renewal: bool = False
    woken: int = 0
    """Number of times that waiting fetches were woken, since the group began."""
    _sequences: dict[Identity, int] = field(default_factory=dict)

    # The log

    def produce(self, *lengths: int) -> None:
        """Append batches of so many records."""
        identity = next(iter(self._sequences), None) or self._plain()
        for length in lengths:
            sequence = self._sequences[identity]
            self.world.produce(None, identity, self.partition, ["v"] * length, sequence=sequence)
            self._sequences[identity] += length
        self.world.settle()

    def _plain(self) -> Identity:
        drawn = self.world.init_plain()
        self.world.settle()
        identity = drawn.result()
        self._sequences[identity] = 0
        return identity

    @property
    def key(self) -> ShareKey:
        return ShareKey(self.group_id, self.world.inside.catalog.resolve(*partition_name(self.partition)).ordinal)

    @property
    def shard_key(self) -> ShardKey:
        return share_shard(self.world.shard_of(self.partition).number)

    @property
    def shard(self) -> ShareShard:
        found: ShareShard = self.world.inside.runtime.shard(self.shard_key)
        return found

    @property
    def state(self) -> SharePartition:
        """The share partition, live."""
        found = self.shard.find(self.key)
        assert found is not None, "the group does not read the partition"
        return found

    @property
    def head(self) -> PartitionHead:
        log: LogShard = self.world.inside.runtime.shard(self.world.shard_of(self.partition))
        head = log.durable_head(self.key.ordinal)
        assert head is not None
        return head

    def read(self) -> Read | None:
        """Read for the next acquisition, as a service does; None if nothing may be acquired."""
        available = self.state.first_available(self.terms.in_flight_max)
        if available is None:
            return None
        first_offset = max(available, self.head.log_start_offset)
        found = [
            Span(header.base_offset, header.last_offset, Content.NOTHING if header.is_control else Content.RECORDS)
            for header, _encoded in batches(self.world.shelf.store, self.key.ordinal, first_offset)
            if header.base_offset < self.head.last_stable_offset
        ]
        return Read(first_offset, tuple(found))

    # The group

    def ask(self, decide: Callable[..., Decision], **arguments: Any) -> Any:
        """Perform a decision on the shard and return its reply. Raises Refused."""
        operation = Operation(self.shard_key, partial(decide, **arguments))
        reply = self.world.inside.runtime.write(operation)
        self.world.settle()
        return reply.result()

    def begin(self, offset: int = 0, *, state_epoch: int = 1) -> None:
        """The group reads the partition from this offset on."""
        self.ask(decisions.decide_initialize, key=self.key, state_epoch=state_epoch)
        self.resolve(offset)

    def resolve(self, offset: int) -> None:
        """The first fetch finds this offset."""
        epoch = self.state.state_epoch
        self.ask(decisions.decide_resolve_start, key=self.key, state_epoch=epoch, offset=offset)
        self.world.inside.core.share_news.listen(self.key, self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def acquire(self, member_id: str, max_records: int = 500) -> list[int]:
        """The offsets that a member gets."""
        read = self.read()
        if read is None:
            return []
        command = Acquire(
            member_id=member_id,
            state_epoch=self.state.state_epoch,
            read=read,
            log=LogPosition(self.head.log_start_offset, self.head.leadership.epoch),
            terms=self.terms,
            max_records=max_records,
        )
        reply = self.ask(decisions.decide_acquire, key=self.key, command=command)
        return [at for each in reply.ranges for at in range(each.first_offset, each.last_offset + 1)]

    def acknowledging(self, member_id: str, *wanted: tuple[int, int, Sequence[int]]) -> Pending[None]:
        """The answer to a member that acknowledges: first offset, last offset and types of each batch."""
        command = Acknowledge(member_id, _batches(wanted), self.terms, self.allows_renewal)
        decide = partial(decisions.decide_acknowledge, key=self.key, command=command)
        return self.world.inside.runtime.write(Operation(self.shard_key, decide))

    def acknowledge(self, member_id: str, *wanted: tuple[int, int, Sequence[int]]) -> ErrorCode:
        """Return the answer to the member, see `acknowledging`."""
        asked = self.acknowledging(member_id, *wanted)
        self.world.settle()
        try:
            asked.result()
        except Refused as refused:
            return refused.code
        return ErrorCode.NONE

    def acknowledging_in_transaction(
        self,
        transactional_id: str,
        identity: Identity,
        member: ShareMember,
        *wanted: tuple[int, int, Sequence[int]],
        context: CallContext = ANYBODY,
    ) -> Pending[None]:
        """The answer to a member that acknowledges in a transaction, as in `acknowledging`."""
        command = TxnShareAcknowledge(
            self.group_id,
            Committer(member.member_id, member.epoch),
            Membership(transactional_id, *identity),
            (PartitionAcks(partition_name(self.partition), _batches(wanted)),),
        )
        return called(lambda: self.world.inside.core.groups.txn_shares.acknowledge(command, context))

    def end_member(self, member_id: str) -> None:
        """The membership ends, as the control plane tells it."""

        def decide(_shard: object, _turn: object) -> Decision:
            return Decision(effects=(ReleaseShares(self.group_id, member_id),))

        self.world.inside.runtime.write(Operation(self.shard_key, decide))
        self.world.settle()

    def trim(self, offset: int) -> None:
        """Delete the records before this offset."""
        wanted = RecordsToDelete(partition_name(self.partition), offset)
        self.world.inside.log.delete_records(DeleteRecords([wanted]), ANYBODY)
        self.world.settle()

    def move_log_start(self) -> None:
        """The group follows the log start, without reading."""
        log_start_offset = self.head.log_start_offset
        self.ask(decisions.decide_move_log_start, key=self.key, log_start_offset=log_start_offset)


def _batches(wanted: Sequence[tuple[int, int, Sequence[int]]]) -> tuple[AckBatch, ...]:
    return tuple(AckBatch(first, last, tuple(types)) for first, last, types in wanted)
