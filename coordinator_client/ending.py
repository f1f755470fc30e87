"""How a transaction was asked to end: the same request until it is answered for good, and what an answer means.

A transaction ends with EndTxn, or with a Transact that holds what was not sent before: often all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.errors import TransactionError, failure_of
from coordinator_client.methods import END_TXN, Rpc
from coordinator_client.rules import send_failure
from coordinator_client.state import Identity
from coordinator_protocol.errors import ErrorClass, ErrorCode

EndRequest: TypeAlias = txn.EndTxnRequest | txn.TransactRequest
EndReply: TypeAlias = txn.EndTxnResponse | txn.TransactResponse

_NOTHING_CHANGED: Final = frozenset({ErrorClass.RETRY, ErrorClass.REFRESH})


@dataclass(slots=True)
class Ending:
    """The end of one transaction."""

    rpc: Rpc[Any, Any]
    request: EndRequest
    is_all: bool = False
    """The request is all of the transaction, so that a refusal leaves nothing to abort."""
    is_lost: bool = False
    """An attempt may have been carried out without anybody having heard of it."""

    @property
    def committed(self) -> bool:
        """What was asked for."""
        return self.request.committed

    @property
    def topics(self) -> set[str]:
        """Topics that a Transact writes to."""
        return (
            {batch.topic for batch in self.request.batches} if isinstance(self.request, txn.TransactRequest) else set()
        )

    def failure(self, end: EndReply | TransactionError, *, lost_attempts: int) -> TransactionError | None:
        """Return the failure that the end of a call stands for, None for a success."""
        self.is_lost = self.is_lost or lost_attempts > 0
        error = end if isinstance(end, TransactionError) else failure_of(self.rpc.method, end)
        if error is None or self.rpc is END_TXN:
            return error
        if error.error_class in _NOTHING_CHANGED and not self.is_lost:
            # Given up, and certainly never carried out: nothing is unknown, as after a send that was given up.
            return send_failure(error, is_transactional=True)
        return error

    def leaves_something(self, error: TransactionError) -> bool:
        """Whether an abort must follow a refusal: where an attempt may still arrive, it ends the epoch that would let
        it in; where the server aborted the transaction meanwhile, it is answered with the identity to go on with."""
        return not self.is_all or self.is_lost or error.code == ErrorCode.INVALID_PRODUCER_EPOCH


def identity_in(reply: EndReply) -> Identity | None:
    """Return the identity for the next transaction; None where it stays."""
    if isinstance(reply, txn.EndTxnResponse) and not (
        reply.HasField("producer_id") and reply.HasField("producer_epoch")
    ):
        return None
    return Identity(reply.producer_id, reply.producer_epoch)
