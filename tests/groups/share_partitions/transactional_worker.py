"""A worker in a whole server: a member of a share group that acknowledges in the transactions of its results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import AllowAll, CallContext, Committer, Membership, Permission, ResourceType
from group_coordinator.share_partitions.requests import PartitionAcks, TxnShareAcknowledge
from group_coordinator.share_partitions.rules import AckBatch
from tests.groups.share_partitions.pictures import picture
from tests.harness.calls import called, partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.share_groups import ShareMember
from tests.harness.share_partitions import Shares
from tests.harness.world import World
from txn_coordinator.state import Identity

OK = ErrorCode.NONE
GROUP, ID = "workers", "worker-1"
VERSION_1 = CallContext(client_txn_version=1)
ACCEPT, RELEASE, REJECT = 1, 2, 3


def code_of(asked: Pending[Any]) -> ErrorCode:
    assert asked.is_settled, "the call waits"
    try:
        asked.result()
    except Refused as refused:
        return refused.code
    return OK


@dataclass
class Worker:
    """A member of a share group, with a transactional producer."""

    world: World
    partitions: tuple[str, ...] = ("t-0", "t-1")
    member: ShareMember = field(init=False)
    identity: Identity = field(init=False)

    def __post_init__(self) -> None:
        self.member = ShareMember(self.world, "w", group_id=GROUP)
        self.member.joins(*{partition.rpartition("-")[0] for partition in self.partitions})
        for partition in self.partitions:
            self.shares(partition).produce(4)
            self.shares(partition).resolve(0)
            assert self.shares(partition).acquire("w") == [0, 1, 2, 3]
        self.initialise()

    def initialise(self, context: CallContext = ANYBODY) -> None:
        asked = self.world.init(ID, context)
        self.world.settle()
        self.identity = asked.result()

    def shares(self, partition: str = "t-0") -> Shares:
        return Shares(self.world, partition, GROUP)

    def acknowledging(
        self,
        *partitions: str,
        types: tuple[int, ...] = (ACCEPT,),
        context: CallContext = ANYBODY,
        committer: Committer | None = None,
        identity: Identity | None = None,
        group_id: str = GROUP,
    ) -> Pending[None]:
        """The answer to an acknowledgement of the first two records of each partition."""
        named = tuple(PartitionAcks(partition_name(each), (AckBatch(0, 1, types),)) for each in partitions)
        command = TxnShareAcknowledge(
            group_id,
            committer or Committer(self.member.member_id, self.member.epoch),
            Membership(ID, *(identity or self.identity)),
            named,
        )
        return called(lambda: self.world.inside.core.groups.txn_shares.acknowledge(command, context))

    def acknowledge(self, *partitions: str, **arguments: Any) -> ErrorCode:
        asked = self.acknowledging(*partitions, **arguments)
        self.world.settle()
        return code_of(asked)

    def end(self, outcome: Outcome = Outcome.COMMIT, context: CallContext = ANYBODY) -> None:
        asked = self.world.end(ID, self.identity, outcome, context)
        self.world.settle()
        self.identity = asked.result().next_identity

    @property
    def pictures(self) -> list[str]:
        return [picture(self.shares(partition).state) for partition in self.partitions]

    @property
    def is_open(self) -> bool:
        return bool(self.world.describe(ID).shares)

    def check(self) -> None:
        self.world.check_replay()
        self.world.check_stored()


ALL_HELD = "0: w1 w1 w1 w1"
PENDING = "0: ?1 ?1 w1 w1"


class Denying(AllowAll):
    """One permission is missing."""

    def __init__(self) -> None:
        self.missing: tuple[Permission, ResourceType] | None = None

    def is_allowed(self, _context: CallContext, permission: Permission, resource: ResourceType, _name: str) -> bool:
        return (permission, resource) != self.missing
