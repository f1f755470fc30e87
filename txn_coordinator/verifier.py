"""Ports of the transaction coordinator for the partition log and the group coordinator.

Each method returns an operation that the log joins to its append, or that continues with the decision of the groups. So
the check and the write are one step, and no transaction can be left hanging in between (spec log-and-runtime 1.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, NotInTransaction, Refused
from coordinator_runtime.decision import Coordinator, Decision, Operation, ShardKey, Turn
from coordinator_runtime.participants import ShareKey
from coordinator_runtime.ports import Membership, OutcomeNumber
from coordinator_runtime.runtime import Runtime
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.rules.adding import Additions
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import Identity


class CoordinatorVerifier:
    """Membership checks of transactions. Implements `coordinator_runtime.ports.TransactionVerifier` and
    `GroupVerifier`, and `coordinator_runtime.participants.ShareVerifier`."""

    def __init__(self, runtime: Runtime, shard_of_id: Callable[[str], ShardKey]) -> None:
        self._runtime = runtime
        self._shard_of_id = shard_of_id

    def verify(self, membership: Membership, ordinal: int) -> Operation:
        """Check that the partition was added before, for clients of version 1."""

        def decide(shard: TransactionShard, _turn: Turn) -> Decision:
            try:
                decision = shard.decide_verify(membership.transactional_id, _identity(membership), frozenset({ordinal}))
            except Refused as refusal:
                raise _of_data_plane(refusal) from None
            if ordinal not in decision.reply:
                raise NotInTransaction(
                    "the partition is not in the transaction; call AddPartitionsToTxn before Produce, or use client "
                    "version 2, which adds it by itself",
                )
            return Decision()

        return Operation(self._shard_of_id(membership.transactional_id), decide)

    def add(self, membership: Membership, ordinals: frozenset[int]) -> Operation:
        """Let the partitions join the transaction with their first batches, for clients of version 2."""

        def decide(shard: TransactionShard, turn: Turn) -> Decision:
            identity = Identity(membership.producer_id, membership.producer_epoch)
            additions = Additions(partitions=ordinals)
            try:
                decision = shard.decide_add(
                    membership.transactional_id, identity, additions, turn, client_txn_version=2
                )
            except Refused as refusal:
                raise _of_data_plane(refusal) from None
            # The append gives the reply of the operation.
            return replace(decision, reply=None)

        return Operation(self._shard_of_id(membership.transactional_id), decide)

    def refuse_if_open(self, membership: Membership, ordinal: int, refusal: Refused) -> Operation:
        """Raise the refusal if the partition is in the producer's open transaction, and nothing else."""
        transactional_id, identity = membership.transactional_id, _identity(membership)

        def decide(shard: TransactionShard, _turn: Turn) -> Decision:
            return shard.decide_refuse_if_open(transactional_id, identity, ordinal, refusal)

        return Operation(self._shard_of_id(transactional_id), decide)

    def check_plain(self, producer_id: int) -> Operation:
        """Return the operation that asks the counters, of which every server has all. No shard of transactional ids is
        needed."""

        def decide(counters: CountersShard, _turn: Turn) -> Decision:
            counters.check_plain(producer_id)
            return Decision()

        return Operation(COUNTERS, decide)

    def verify_group(
        self, membership: Membership, group_id: str, then: Callable[[OutcomeNumber], Decision]
    ) -> Operation:
        """Check that the group was added before, for clients of version 1."""

        def decide(shard: TransactionShard, _turn: Turn) -> Decision:
            try:
                return shard.decide_verify_group(membership.transactional_id, _identity(membership), group_id, then)
            except Refused as refusal:
                raise _of_data_plane(refusal) from None

        return Operation(self._shard_of_id(membership.transactional_id), decide)

    def add_group(self, membership: Membership, group_id: str, then: Callable[[OutcomeNumber], Decision]) -> Operation:
        """Let the group join the transaction with its first offsets, for clients of version 2."""

        def decide(shard: TransactionShard, turn: Turn) -> Decision:
            try:
                return shard.decide_add_group(membership.transactional_id, _identity(membership), group_id, then, turn)
            except Refused as refusal:
                raise _of_data_plane(refusal) from None

        return Operation(self._shard_of_id(membership.transactional_id), decide)

    def add_shares(
        self,
        membership: Membership,
        shares: frozenset[ShareKey],
        then: Callable[[OutcomeNumber], Decision],
        *,
        verified_group: str | None,
    ) -> Operation:
        """Let share partitions join the transaction with the first records acknowledged in them."""

        def decide(shard: TransactionShard, turn: Turn) -> Decision:
            name, identity, version = membership.transactional_id, _identity(membership), 2
            try:
                if verified_group is not None:
                    shard.decide_verify_group(name, identity, verified_group, lambda _last: Decision())
                    version = 1
                additions = Additions(shares=shares)
                added = shard.decide_add(name, identity, additions, turn, client_txn_version=version)
            except Refused as refusal:
                raise _of_data_plane(refusal) from None
            current = shard.acting(name)
            assert current is not None, "it was added to"
            last = OutcomeNumber(shard.key.number, current.csn)
            go_on = Operation(shard.key, lambda _shard, _turn: then(last))
            # The reply is that of `then`.
            return replace(added, reply=None, joins=(*added.joins, go_on))

        return Operation(self._shard_of_id(membership.transactional_id), decide)

    def abort_touching(self, ordinals: Sequence[int]) -> Sequence[Operation]:
        """Return operations that abort every open transaction with one of these partitions. Raises Refused unless all
        shards serve.

        It looks at every open transaction: topics are deleted rarely, and an index by partition would burden every
        commit.
        """
        wanted = frozenset(ordinals)
        shards: list[TransactionShard] = self._runtime.table.all_serving(Coordinator.TRANSACTIONS)
        return [
            Operation(shard.key, partial(TransactionShard.decide_abort, meant=transaction, cause="topic_deleted"))
            for shard in shards
            for transaction in shard.table.open_touching(wanted)
        ]


def _of_data_plane(refusal: Refused) -> Refused:
    """Return the refusal with the data plane's code for fencing, INVALID_PRODUCER_EPOCH (KIP-588; spec transactions
    2.9).

    A batch may be late without a newer instance, and this code lets the producer abort and go on.
    """
    if refusal.code is not ErrorCode.PRODUCER_FENCED:
        return refusal
    # The same class, so that an outdated identity is reported as outdated here too.
    return type(refusal)(ErrorCode.INVALID_PRODUCER_EPOCH, refusal.message)


def _identity(membership: Membership) -> Identity:
    return Identity(membership.producer_id, membership.producer_epoch)
