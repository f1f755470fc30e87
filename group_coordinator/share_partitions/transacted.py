"""Use case TxnShareAcknowledge: a worker acknowledges records in the transaction in which it writes its results.

One operation adds the share partitions to the transaction, checks the member, and lets the records wait for the marker.
So no acknowledgement comes after the end of its transaction, and none is left without a marker.

Source: spec groups 6.5, 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import check_group_id, check_transactional_id
from coordinator_runtime.decision import (
    CATALOG_KEY,
    Decision,
    Operation,
    ShardRouter,
    TransactionInTheWay,
    Turn,
    once_durable,
)
from coordinator_runtime.participants import ShareKey, ShareVerifier
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    GroupAcknowledgements,
    Membership,
    OutcomeNumber,
    PartitionRef,
    Permission,
    ResourceType,
    TopicCatalog,
    require,
    unknown_topic_id,
)
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.share_ports import PartitionHomes
from coordinator_runtime.transact import PartRefused
from group_coordinator.committed.decisions import check_identity, check_names
from group_coordinator.committed.service import Placing
from group_coordinator.shard import GroupShard
from group_coordinator.share.decisions import decide_check_member
from group_coordinator.share_partitions.decisions import decide_acknowledge_in_transaction
from group_coordinator.share_partitions.places import share_shard
from group_coordinator.share_partitions.requests import PartitionAcks, TxnAcknowledge, TxnShareAcknowledge
from group_coordinator.share_partitions.rules import AckBatch, check_transactional_batches
from group_coordinator.share_partitions.shard import ShareShard
from group_coordinator.share_partitions.state import AcknowledgingTransaction

PlacedAcks = tuple[PartitionRef, tuple[AckBatch, ...]]
"""A partition, and the acknowledgements of its records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnSharePorts:
    """Other parts of the server that the use case needs."""

    authorizer: Authorizer
    catalog: TopicCatalog
    homes: PartitionHomes
    verifier: ShareVerifier


class TxnShareService:
    """Acknowledgements in transactions. The reply comes when everything it rests on is durable."""

    def __init__(self, runtime: Runtime, group_router: ShardRouter, ports: TxnSharePorts) -> None:
        self._runtime = runtime
        self._ports = ports
        self._placing = AckPlacing(group_router, ports.catalog, ports.homes, ports.authorizer)

    def acknowledge(self, command: TxnShareAcknowledge, context: CallContext) -> Pending[None]:
        """Let records wait for the end of a transaction: those of all partitions, or none.

        The same operation adds the share partitions to the transaction. A client of version 1 must have added the group
        before.

        Raises Refused: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, as
        `check_names`, `check_identity` and `rules.check_transactional_batches`, as `ShareVerifier`,
        `decide_check_member` and `decide_acknowledge_in_transaction`. A refusal because of one partition names it."""
        membership, group_id = command.membership, command.group_id

        def ask() -> None:
            authorizer = self._ports.authorizer
            name = membership.transactional_id
            require(authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, name)
            require(authorizer, context, Permission.READ, ResourceType.GROUP, group_id)

        ask()
        check_transactional_id(membership.transactional_id)
        _check_acknowledgements(command)
        try:
            placed = self._placing.place(command.partitions, context)
        except Refused as refusal:
            # It may rest on a change of the catalog that is not durable yet.
            return self._runtime.write(once_durable(CATALOG_KEY, refusal), is_urgent=True)
        if not placed:
            return settled(None)

        def ask_again() -> None:
            ask()
            for ref, _batches in placed:
                require(self._ports.authorizer, context, Permission.READ, ResourceType.TOPIC, ref.topic)

        operation = self._ports.verifier.add_shares(
            membership,
            frozenset(ShareKey(group_id, ref.ordinal) for ref, _batches in placed),
            partial(self._placing.acknowledge, command, placed),
            verified_group=group_id if context.client_txn_version == 1 else None,
        )
        park_key = TransactionInTheWay(membership.transactional_id)
        return self._runtime.write(operation, context, park_key=park_key, ask_again=ask_again)


class AckPlacing:
    """Places acknowledgements of a transaction: checks them, finds their share partitions, and lets records wait."""

    def __init__(
        self, group_router: ShardRouter, catalog: TopicCatalog, homes: PartitionHomes, authorizer: Authorizer
    ) -> None:
        self._group_router = group_router
        self._homes = homes
        self._placing = Placing(catalog, authorizer)

    def place(self, partitions: Iterable[PartitionAcks], context: CallContext) -> list[PlacedAcks]:
        """Return the partitions with their acknowledgements. Raises Refused for the first one that does not exist, or
        that the caller may not read. It may rest on a change of the catalog that is not durable yet."""
        placed: list[PlacedAcks] = []
        for each in partitions:
            (ref,) = self._placing.place([each.name], Permission.READ, context)
            if isinstance(ref, Refused):
                raise PartRefused.naming(each.name, ref)
            if each.batches:
                placed.append((ref, each.batches))
        return placed

    def acknowledge(self, command: TxnShareAcknowledge, placed: Iterable[PlacedAcks], last: OutcomeNumber) -> Decision:
        """Return the decision once the share partitions are in the transaction, whose id has this last outcome."""
        membership, committer, group_id = command.membership, command.committer, command.group_id
        member = Operation(
            self._group_router.shard_key(group_id), partial(decide_check_member, group_id=group_id, committer=committer)
        )
        transaction = AcknowledgingTransaction(
            membership.transactional_id, membership.producer_id, membership.producer_epoch, last
        )
        return Decision(
            joins=(
                member,
                *(
                    self._pending(group_id, ref, TxnAcknowledge(committer.member_id, batches, transaction))
                    for ref, batches in placed
                ),
            )
        )

    def operation(self, command: TxnShareAcknowledge, placed: Iterable[PlacedAcks], last: OutcomeNumber) -> Operation:
        """Return the operation of `acknowledge`, whose refusals name the group."""

        def decide(_shard: GroupShard, _turn: Turn) -> Decision:
            decision = self.acknowledge(command, placed, last)
            return replace(decision, joins=tuple(_naming(command.group_id, each) for each in decision.joins))

        return Operation(self._group_router.shard_key(command.group_id), decide)

    def _pending(self, group_id: str, ref: PartitionRef, command: TxnAcknowledge) -> Operation:
        number = self._homes.shard_number(ref.ordinal)
        if number is None:
            # The topic was deleted while the call waited. One of the same name has other records.
            return once_durable(CATALOG_KEY, PartRefused.naming(ref, unknown_topic_id(ref.topic_id)))
        key = ShareKey(group_id, ref.ordinal)

        def decide(shard: ShareShard, turn: Turn) -> Decision:
            try:
                return decide_acknowledge_in_transaction(shard, turn, key=key, command=command)
            except Refused as refusal:
                raise PartRefused.naming(ref, refusal) from refusal

        return Operation(share_shard(number), decide)


def _naming(group_id: str, operation: Operation) -> Operation:
    """Return the operation with refusals that name the group."""

    def decide(shard: Any, turn: Turn) -> Decision:  # noqa: ANN401  as `Operation.decide`
        try:
            return operation.decide(shard, turn)
        except Refused as refusal:
            raise PartRefused.naming(group_id, refusal) from refusal

    return Operation(operation.shard, decide)


def _check_acknowledgements(command: TxnShareAcknowledge) -> None:
    """Raise Refused for a request that no state allows. That of a partition names it."""
    check_group_id(command.group_id)
    check_identity(command.membership)
    check_names([each.name for each in command.partitions])
    for each in command.partitions:
        try:
            check_transactional_batches(each.batches)
        except Refused as refusal:
            raise PartRefused.naming(each.name, refusal) from refusal


class BroughtAcks:
    """Acknowledgements of one share group in a Transact. Implements `coordinator_runtime.ports.ShareWrite`."""

    __slots__ = ("_command", "_placed", "_placing", "_refusal", "group_id", "shares")

    def __init__(
        self, placing: AckPlacing, command: TxnShareAcknowledge, placed: Sequence[PlacedAcks], refusal: Refused | None
    ) -> None:
        self._placing = placing
        self._command = command
        self._placed = placed
        self._refusal = refusal
        self.group_id = command.group_id
        self.shares = frozenset((command.group_id, ref.ordinal) for ref, _batches in placed)

    def hold(self, last: OutcomeNumber) -> Operation:
        """Return the operation that lets the records wait for the marker."""
        if self._refusal is not None:
            return once_durable(CATALOG_KEY, PartRefused.naming(self.group_id, self._refusal))
        return self._placing.operation(self._command, self._placed, last)


class TransactedAcks:
    """Implements `coordinator_runtime.transact.TransactedShares`."""

    def __init__(self, placing: AckPlacing, authorizer: Authorizer) -> None:
        self._placing = placing
        self._authorizer = authorizer

    def place(
        self, groups: Sequence[GroupAcknowledgements], membership: Membership, context: CallContext
    ) -> Sequence[BroughtAcks]:
        """Return the acknowledgements of a request, one for each group.

        Raises Refused: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, INVALID_REQUEST, and as `check_names` and
        `rules.check_transactional_batches`."""
        found: dict[str, BroughtAcks] = {}
        for each in groups:
            group_id = each.group_id
            acks = [PartitionAcks(name, tuple(map(AckBatch._make, batches))) for name, batches in each.partitions]
            command = TxnShareAcknowledge(group_id, each.committer, membership, tuple(acks))
            try:
                check_group_id(group_id)
                require(self._authorizer, context, Permission.READ, ResourceType.GROUP, group_id)
                if group_id in found:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"group {group_id!a} is named twice; name it once")
                _check_acknowledgements(command)
            except Refused as refusal:
                raise PartRefused.naming(group_id, refusal) from refusal
            try:
                placed, missing = self._placing.place(acks, context), None
            except Refused as refusal:
                placed, missing = [], refusal
            found[group_id] = BroughtAcks(self._placing, command, placed, missing)
        return list(found.values())
