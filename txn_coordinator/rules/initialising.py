"""InitProducerId: an identity for a producer, with an epoch that fences every earlier holder of the id."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from txn_coordinator.fencing import fenced
from txn_coordinator.rules.ending import AllocateProducerId
from txn_coordinator.state import (
    IDLE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    Identity,
    InitAnswer,
    Transaction,
    TransactionState,
    step,
)


class InitRequest(Struct, frozen=True, kw_only=True, gc=False):
    """InitProducerId with a transactional id and checked arguments."""

    transactional_id: str
    txn_timeout_ms: int
    expected: Identity | None = None
    request_id: bytes = b""
    client_txn_version: int = 2
    enable_2pc: bool = False
    """True if transactions wait for an outside decision, without a timeout."""
    keep_prepared: bool = False
    """True if an open transaction is kept for that decision, not aborted."""

    @property
    def stored_timeout_ms(self) -> int:
        return NO_TIMEOUT_MS if self.enable_2pc else self.txn_timeout_ms


def check_init_arguments(request: InitRequest, limits: Limits) -> None:
    """Raise Refused for an invalid timeout (spec transactions 2.2, row 8)."""
    if not request.enable_2pc and not 0 < request.txn_timeout_ms <= limits.transaction_max_timeout_ms:
        raise Refused(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction_timeout_ms is {request.txn_timeout_ms}; it must be 1 to {limits.transaction_max_timeout_ms}",
        )


def is_init_repeated(current: Transaction, request: InitRequest) -> bool:
    """Return True if this very request was answered before: it gets the same answer and changes nothing.

    So a delayed first attempt cannot fence the retry that overtook it (design 6).
    """
    return bool(request.request_id) and current.init is not None and current.init.request_id == request.request_id


def begin(request: InitRequest, producer_id: int, now_ms: int) -> Transaction:
    """Return a new id, before `initialise`."""
    return Transaction(
        transactional_id=request.transactional_id,
        producer_id=producer_id,
        txn_timeout_ms=request.stored_timeout_ms,
        last_update_ms=now_ms,
    )


def initialise(
    current: Transaction, request: InitRequest, *, now_ms: int, limits: Limits, allocate: AllocateProducerId
) -> Transaction:
    """Return the id after a successful InitProducerId; nothing may be open (spec transactions 2.2, rows Empty and
    Complete).

    Raises Refused PRODUCER_FENCED if the expected identity is an old one.
    """
    assert current.state in IDLE, "an open transaction is ended before its id is initialised"
    expected = request.expected
    epoch, last = current.producer_epoch, current.last_producer_epoch
    producer_id, prev_producer_id = current.producer_id, current.prev_producer_id
    shown = None if expected is None else expected.producer_epoch
    if shown is not None and shown == last and last != NO_EPOCH:
        pass  # The reply to the call that made the bump was lost: no second bump. Must precede the exhaustion check.
    elif epoch >= limits.producer_epoch_max - 1 and shown in (None, epoch):
        prev_producer_id, producer_id = producer_id, allocate()
        last = NO_EPOCH if shown is None else epoch
        epoch = 0
    elif shown is None:
        epoch, last, prev_producer_id = epoch + 1, NO_EPOCH, NO_PRODUCER_ID
    elif epoch in (NO_EPOCH, shown):
        epoch, last, prev_producer_id = epoch + 1, epoch, NO_PRODUCER_ID
    else:
        assert expected is not None
        raise fenced(current, expected)
    return step(
        current,
        TransactionState.EMPTY,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last,
        prev_producer_id=prev_producer_id,
        txn_timeout_ms=request.stored_timeout_ms,
        partitions=frozenset(),
        groups=frozenset(),
        start_ms=-1,
        last_update_ms=now_ms,
        client_txn_version=request.client_txn_version,
        init=InitAnswer(request.request_id, Identity(producer_id, epoch)),
        cause="init",
        transact_id=b"",
    )


def keep(
    current: Transaction, request: InitRequest, *, now_ms: int, limits: Limits, allocate: AllocateProducerId
) -> Transaction:
    """Return the open transaction after a newer instance took it over, which alone may end it (spec transactions 10).

    Only the identity of the client changes. So the identity stored with the outside decision names the transaction,
    however often it is kept. With `enable_2pc` it stops timing out; without, its timeout is unchanged.
    """
    assert current.state is TransactionState.ONGOING, "only an open transaction can be kept"
    client, shown = current.client_identity, request.expected
    prev_producer_id, last = NO_PRODUCER_ID, NO_EPOCH if shown is None else shown.producer_epoch
    if current.is_kept and shown is not None and shown.producer_epoch == current.last_producer_epoch:
        # The reply to the call that kept it was lost: no second bump, as in `initialise`.
        next_client, prev_producer_id = client, current.prev_producer_id
    elif client.producer_epoch >= limits.producer_epoch_max - 1:
        next_client, prev_producer_id = Identity(allocate(), 0), client.producer_id
    else:
        next_client = Identity(client.producer_id, client.producer_epoch + 1)
    return step(
        current,
        TransactionState.ONGOING,
        next_producer_id=next_client.producer_id,
        next_producer_epoch=next_client.producer_epoch,
        last_producer_epoch=last,
        prev_producer_id=prev_producer_id,
        txn_timeout_ms=NO_TIMEOUT_MS if request.enable_2pc else current.txn_timeout_ms,
        last_update_ms=now_ms,
        client_txn_version=request.client_txn_version,
        init=InitAnswer(request.request_id, next_client, current.identity),
        cause="keep",
    )


def fence(current: Transaction, *, now_ms: int, limits: Limits, allocate: AllocateProducerId) -> Transaction:
    """Return the id with an epoch that no client holds; nothing may be open (spec transactions 2.8, forced termination
    [D]).

    The answer to the last InitProducerId is dropped: its repetition would hand out an identity that is fenced now.
    """
    request = InitRequest(
        transactional_id=current.transactional_id,
        txn_timeout_ms=current.txn_timeout_ms,
        client_txn_version=current.client_txn_version,
    )
    initialised = initialise(current, request, now_ms=now_ms, limits=limits, allocate=allocate)
    return replace(initialised, init=None, cause="admin")
