"""How a producer gets its identity, and gives it up for a new one: InitProducerId.

A lost answer is asked for again with the very same request, so that a producer cannot fence itself. An identity that is
of no use any more is renewed by naming it: if a rival has taken the id over meanwhile, the name does not match, and
nothing is taken from the rival.
"""

from __future__ import annotations

from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.errors import PASSING, OutcomeUnknown, TransactionError
from coordinator_client.methods import INIT_PRODUCER_ID
from coordinator_client.progress import ProducerProgress
from coordinator_client.retrying_call import RetryingCall
from coordinator_client.state import Goal, Identity, ProducerStatus
from coordinator_protocol.errors import ErrorClass

_S = ProducerStatus


class IdentityRequests:
    """Asks for the identity of one producer."""

    def __init__(self, progress: ProducerProgress) -> None:
        self._progress = progress
        self._given_up: Identity | None = None
        """The identity that the next request names, because it is to replace that one."""
        self._request: txn.InitProducerIdRequest | None = None
        """What was sent and not answered."""

    def start(self, now_ms: int) -> None:
        """Ask for an identity, under the goal RECOVER without aborting what an earlier producer left open."""
        progress = self._progress
        keeps = progress.goal is Goal.RECOVER
        if self._request is None or self._request.keep_prepared != keeps:
            self._request = self._new_request(keep_prepared=keeps)
        progress.step(_S.INITIALISING)
        call = RetryingCall(INIT_PRODUCER_ID, self._request, deadlines=progress.plan.deadlines, now_ms=now_ms)
        progress.flights.start(call, self._ended)

    def renew(self) -> None:
        """Give the identity up; the next use asks for a new one."""
        progress = self._progress
        if progress.is_transactional:
            progress.drop_sends()
            self._given_up = progress.identity
        progress.adopt(None)
        progress.step(_S.UNINITIALISED)

    def _new_request(self, *, keep_prepared: bool) -> txn.InitProducerIdRequest:
        plan = self._progress.plan
        request = txn.InitProducerIdRequest(header=self._progress.sender.header())
        if plan.transactional_id is not None:
            request.transactional_id = plan.transactional_id
            request.transaction_timeout_ms = plan.transaction_timeout_ms
            request.enable_2pc = plan.two_phase_commit
            request.keep_prepared = keep_prepared
            if self._given_up is not None:
                request.expected_producer_id, request.expected_producer_epoch = self._given_up
        return request

    def _ended(self, end: txn.InitProducerIdResponse | TransactionError, _now_ms: int) -> None:
        progress = self._progress
        if not isinstance(end, TransactionError) or end.error_class not in PASSING:
            # Where no definite answer came, the next try repeats this very request.
            self._request = None
        if isinstance(end, TransactionError):
            if isinstance(end, OutcomeUnknown):
                end.action = "Try again: the same request is repeated, so it cannot fence its own first attempt."
            self._failed(end)
            return
        self._given_up = None
        progress.adopt(Identity(end.producer_id, end.producer_epoch))
        if not end.HasField("ongoing_producer_id"):
            progress.step(_S.READY)
            return
        progress.prepared = Identity(end.ongoing_producer_id, end.ongoing_producer_epoch)
        progress.failure, progress.is_transaction_sent = None, True
        progress.step(_S.PREPARED)

    def _failed(self, error: TransactionError) -> None:
        progress = self._progress
        if error.error_class in (ErrorClass.FENCED, ErrorClass.MISCONFIGURED):
            progress.close_because(error)
            return
        progress.step(_S.UNINITIALISED)
        if progress.goal in (Goal.INIT, Goal.RECOVER, Goal.BEGIN):
            progress.finish(error)
            return
        progress.sender.waiting.drop_unsent()
        progress.note_failure(error)
