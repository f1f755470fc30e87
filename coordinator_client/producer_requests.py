"""The requests of a producer that are not batches: who it is, and how its transaction ends."""

from __future__ import annotations

from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.batching import Accumulator
from coordinator_client.sending import CorePlan
from coordinator_client.state import Identity


def init_request(
    plan: CorePlan, header: RequestHeader, expected: Identity | None, *, keep_prepared: bool
) -> txn.InitProducerIdRequest:
    """Ask for an identity. `expected`: the one that is held, where it is renewed and nothing taken over."""
    request = txn.InitProducerIdRequest(header=header)
    if plan.transactional_id is not None:
        request.transactional_id = plan.transactional_id
        request.transaction_timeout_ms = plan.transaction_timeout_ms
        request.enable_2pc = plan.two_phase_commit
        request.keep_prepared = keep_prepared
        if expected is not None:
            request.expected_producer_id = expected.producer_id
            request.expected_producer_epoch = expected.producer_epoch
    return request


def prepare_request(
    plan: CorePlan, header: RequestHeader, identity: Identity, sent: Accumulator
) -> txn.PrepareTransactionRequest:
    """Promise that what was sent can be committed, whatever crashes."""
    assert plan.transactional_id is not None, "only transactions are prepared"
    return txn.PrepareTransactionRequest(
        header=header,
        transactional_id=plan.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        last_sequences=sent.last_sequences(),
    )


def end_request(
    plan: CorePlan, header: RequestHeader, identity: Identity, *, committed: bool, sent: Accumulator | None
) -> txn.EndTxnRequest:
    """End the transaction. `sent`: what the log must hold for a commit; None: it was checked when it was prepared."""
    assert plan.transactional_id is not None, "only transactions end"
    return txn.EndTxnRequest(
        header=header,
        transactional_id=plan.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=committed,
        last_sequences=sent.last_sequences() if committed and sent is not None else (),
    )
