"""Callers of the transaction coordinator: their permissions, and what they show and name.

Each use case checks its caller first, and again once the call has waited for another transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_protocol.names import check_partition, check_transactional_id
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionName,
    Permission,
    ResourceType,
    TopicCatalog,
    require,
    require_by_id,
)
from txn_coordinator.state import NO_EPOCH, NO_PRODUCER_ID, Identity


class CallerChecks:
    """Checks of a caller's permissions, and of the ids and partitions that it names."""

    def __init__(self, authorizer: Authorizer, catalog: TopicCatalog, *, two_phase_commit_enable: bool) -> None:
        self._authorizer = authorizer
        self._catalog = catalog
        self._two_phase_commit_enable = two_phase_commit_enable

    def check(
        self,
        transactional_id: str,
        context: CallContext,
        identity: Identity | None = None,
        *,
        is_owner: bool = True,
        may_prepare: bool = False,
    ) -> None:
        """Raise Refused unless the caller may write to the transactional id, and it and the identity are possible ones.

        `is_owner` is False for another server, which needs another permission. `may_prepare` requires the permission to
        take part in an outside two-phase commit.
        """
        if is_owner:
            require(self._authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        check_transactional_id(transactional_id)
        if identity is not None and (identity.producer_id < 0 or not 0 <= identity.producer_epoch <= EPOCH_MAX):
            raise no_identity(identity)
        if may_prepare:
            self.check_may_prepare(transactional_id, context)

    def check_may_prepare(self, transactional_id: str, context: CallContext) -> None:
        """Raise Refused unless the caller may take part in an outside two-phase commit (KIP-939).

        TRANSACTIONAL_ID_AUTHORIZATION_FAILED also if that is switched off: deliberately the same as "not allowed" (spec
        transactions 2.2, row 6).
        """
        if not self._two_phase_commit_enable:
            raise Refused(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "two-phase commit with outside participants is switched off or not allowed; set "
                "transaction_two_phase_commit_enable at the server",
            )
        require(self._authorizer, context, Permission.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def resolve(self, name: PartitionName, permission: Permission, context: CallContext | None) -> int:
        """Return the ordinal of a partition, if the caller has the permission on its topic. Raises Refused."""
        # The permission is checked by name first, so that an unauthorized caller does not learn if the topic exists.
        if name.topic and context is not None:
            require(self._authorizer, context, permission, ResourceType.TOPIC, name.topic)
        ref = self._catalog.resolve(*name)
        if not name.topic and context is not None:
            require_by_id(self._authorizer, context, permission, ref.topic, name.topic_id)
        return ref.ordinal

    def resolve_sequences(
        self, last_sequences: Sequence[tuple[PartitionName, int]], context: CallContext
    ) -> list[tuple[int, int]]:
        """Return the last sequences by the ordinal of their partition.

        Raises Refused, also for a topic that the caller may not see: the answer would otherwise reveal its existence.
        """
        resolved = []
        for name, sequence in last_sequences:
            check_partition(*name)
            if sequence < 0:
                text = f"last sequence {sequence} is negative; leave the entry out"
                raise Refused(ErrorCode.INVALID_REQUEST, text)
            resolved.append((self.resolve(name, Permission.DESCRIBE, context), sequence))
        return resolved


def check_expected(expected: Identity | None) -> None:
    """Raise Refused INVALID_REQUEST for an invalid expected identity (spec transactions 2.2, row 3)."""
    if expected is None:
        return
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.producer_epoch == NO_EPOCH):
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "expected_producer_id and expected_producer_epoch belong together: give both, or neither",
        )
    if expected.producer_id < 0 or not 0 <= expected.producer_epoch <= EPOCH_MAX:
        raise no_identity(expected)


def no_identity(identity: Identity) -> Refused:
    """Return the refusal for a producer id and epoch that no producer has."""
    return Refused(
        ErrorCode.INVALID_REQUEST,
        f"producer id {identity.producer_id} with epoch {identity.producer_epoch} is no identity; use what "
        "InitProducerId answered",
    )


def check_can_transact(context: CallContext) -> None:
    """Raise Refused unless the caller can send a Transact: UNSUPPORTED_VERSION, INVALID_REQUEST."""
    if context.client_txn_version < 2:
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            "Transact is for clients of version 2, whose every transaction has an epoch of its own: leave "
            "client_txn_version out, or use AddPartitionsToTxn, Produce and EndTxn",
        )
    if not context.request_id:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            "Transact needs a request_id, so that it can be repeated when its answer is lost: send 16 random bytes, "
            "the same for every attempt",
        )
