"""Every decision about one transactional id, as pure functions of its state and the request.

They return the next state, or raise Refused with Kafka's code, in the order of checks that the specification lists.
They do not know shards, markers or storage: `shard` gathers what they need and turns their results into records.

Which identities may still act is in `fencing`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Marker, Outcome
from txn_coordinator.fencing import check_identity, fenced, is_end_retry
from txn_coordinator.state import (
    COMPLETE_STATES,
    IDLE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    ONGOING,
    PREPARE_STATES,
    PREPARED,
    Identity,
    InitAnswer,
    Transaction,
    TransactionState,
    legal_step,
    step,
)

_NO_PARTITIONS: Final[frozenset[int]] = frozenset()
_NO_GROUPS: Final[frozenset[str]] = frozenset()

AllocateProducerId = Callable[[], int]


class InitRequest(Struct, frozen=True, kw_only=True, gc=False):
    """InitProducerId with a transactional id, its arguments checked."""

    transactional_id: str
    txn_timeout_ms: int
    expected: Identity | None = None
    request_id: bytes = b""
    client_txn_version: int = 2
    enable_2pc: bool = False
    """Transactions wait for somebody else's decision, without a timeout."""
    keep_prepared: bool = False
    """An open transaction is kept for that decision, not aborted."""

    @property
    def stored_timeout_ms(self) -> int:
        return NO_TIMEOUT_MS if self.enable_2pc else self.txn_timeout_ms


class EndRequest(Struct, frozen=True, kw_only=True, gc=False):
    """EndTxn, its arguments checked."""

    transactional_id: str
    identity: Identity
    outcome: Outcome
    client_txn_version: int = 2


def check_init_arguments(request: InitRequest, limits: Limits) -> None:
    """Spec transactions 2.2, row 8."""
    if not request.enable_2pc and not 0 < request.txn_timeout_ms <= limits.transaction_max_timeout_ms:
        raise Refused(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction_timeout_ms is {request.txn_timeout_ms}; it must be 1 to {limits.transaction_max_timeout_ms}",
        )


def is_init_repeated(current: Transaction, request: InitRequest) -> bool:
    """True when this very request was answered before: it gets the same answer and changes nothing, so a delayed first
    attempt cannot fence the retry that overtook it (design 6)."""
    return bool(request.request_id) and current.init is not None and current.init.request_id == request.request_id


def initialise(
    current: Transaction, request: InitRequest, *, now_ms: int, limits: Limits, allocate: AllocateProducerId
) -> Transaction:
    """The id after a successful InitProducerId; nothing may be open (spec transactions 2.2, rows Empty and Complete).

    Raises Refused PRODUCER_FENCED where the expected identity is an old one."""
    assert current.state in IDLE, "an open transaction is ended before its id is initialised"
    expected = request.expected
    epoch, last = current.producer_epoch, current.last_producer_epoch
    producer_id, prev_producer_id = current.producer_id, current.prev_producer_id
    shown = None if expected is None else expected.producer_epoch
    if shown is not None and shown == last and last != NO_EPOCH:
        pass  # The reply to the call that made the bump was lost: no second bump. Must precede the exhaustion check.
    elif limits.is_exhausted(epoch) and shown in (None, epoch):
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


def fence(current: Transaction, *, now_ms: int, limits: Limits, allocate: AllocateProducerId) -> Transaction:
    """The id with an epoch that nobody holds; nothing may be open. The answer to the last InitProducerId is forgotten:
    its repetition would hand out an identity that is fenced now (spec transactions 2.8, forced termination [D])."""
    request = InitRequest(
        transactional_id=current.transactional_id,
        txn_timeout_ms=current.txn_timeout_ms,
        client_txn_version=current.client_txn_version,
    )
    initialised = initialise(current, request, now_ms=now_ms, limits=limits, allocate=allocate)
    return replace(initialised, init=None, cause="admin")


def check_open(current: Transaction) -> None:
    """Raises Refused INVALID_TXN_STATE unless a transaction is open that an administrator can abort."""
    if current.state in PREPARED:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction of {current.transactional_id!a} is decided ({current.outcome.name.lower()}) and being "
            "completed; nothing can change that",
        )
    if current.state is not ONGOING:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"no transaction of {current.transactional_id!a} is open (state {current.state.api_name})",
        )


def check_open_longer(current: Transaction, older_than_ms: int, *, now_ms: int) -> None:
    """Raises Refused INVALID_TXN_STATE unless a transaction has been open for longer than this."""
    check_open(current)
    age_ms = now_ms - current.start_ms
    if age_ms <= older_than_ms:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction of {current.transactional_id!a} has been open for {age_ms} ms only",
        )


def check_foreign_marker(current: Transaction, ordinal: int, marker: Marker, *, coordinator_epoch: int) -> None:
    """Raises Refused INVALID_TXN_STATE unless a marker that came from outside is just what was decided here: nothing
    but a durable Prepare state decides. Its coordinator epoch may be an older one, but none of the future: the
    partition would fence this coordinator with it, and no transaction of the producer could ever end there."""
    if (
        current.state in PREPARED
        and ordinal in current.partitions
        and replace(marker, coordinator_epoch=0) == marker_of(current, 0)
        and marker.coordinator_epoch <= coordinator_epoch
    ):
        return
    raise Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"producer id {marker.producer_id} belongs to {current.transactional_id!a} of this server, for which this was "
        "not decided: end its transaction with EndTxn or AbortTransactions",
    )


def keep(
    current: Transaction, request: InitRequest, *, now_ms: int, limits: Limits, allocate: AllocateProducerId
) -> Transaction:
    """The open transaction in the hands of a newer instance, which alone may end it: only the identity of the client
    moves on, so what was noted beside the outside decision names the transaction however often it is kept (spec
    transactions 10). With `enable_2pc` it stops timing out; without, its timeout is what it was."""
    assert current.state is ONGOING, "only an open transaction can be kept"
    client, shown = current.client_identity, request.expected
    prev_producer_id, last = NO_PRODUCER_ID, NO_EPOCH if shown is None else shown.producer_epoch
    if current.is_kept and shown is not None and shown.producer_epoch == current.last_producer_epoch:
        # The reply to the call that kept it was lost: no second bump, as in `initialise`.
        next_client, prev_producer_id = client, current.prev_producer_id
    elif limits.is_exhausted(client.producer_epoch):
        next_client, prev_producer_id = Identity(allocate(), 0), client.producer_id
    else:
        next_client = Identity(client.producer_id, client.producer_epoch + 1)
    return step(
        current,
        ONGOING,
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


def check_not_prepared(current: Transaction) -> None:
    """What has been decided must be finished first, whoever asks for whatever (spec transactions 2.6 [D])."""
    if current.state in PREPARED:
        raise Refused(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"the last transaction of {current.transactional_id!r} is decided and being completed; try again",
        )


def _check_not_closed(current: Transaction) -> None:
    """What awaits an outside decision must stay what was decided on (spec transactions 10). Even what is in it already
    may not be added again: the answer would let a batch in."""
    if current.is_closed:
        reason = "is prepared" if current.prepared_ms is not None else "was kept to be recovered"
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"the open transaction of {current.transactional_id!r} {reason} and takes no more; commit it or abort it",
        )


class Additions(Struct, frozen=True, kw_only=True, gc=False):
    """What a request wants in the transaction."""

    partitions: frozenset[int] = frozenset()
    groups: frozenset[str] = frozenset()


def add(
    current: Transaction,
    identity: Identity,
    additions: Additions,
    *,
    now_ms: int,
    limits: Limits,
    client_txn_version: int,
) -> Transaction | None:
    """The transaction with the additions, opened if none was open; None when it has them already and nothing needs to
    be written (spec transactions 2.3)."""
    check_not_prepared(current)
    check_identity(current, identity)
    return _with(current, additions, now_ms=now_ms, limits=limits, client_txn_version=client_txn_version)


def _with(
    current: Transaction, additions: Additions, *, now_ms: int, limits: Limits, client_txn_version: int
) -> Transaction | None:
    """The same, once it is known that the owner asks and that nothing is being completed."""
    _check_not_closed(current)
    is_open = current.state is ONGOING
    if is_open and additions.partitions <= current.partitions and additions.groups <= current.groups:
        return None
    partitions = current.partitions | additions.partitions
    groups = current.groups | additions.groups
    if len(partitions) + len(groups) > limits.partitions_per_transaction_max:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the transaction would have {len(partitions) + len(groups)} partitions and groups; "
            f"at most {limits.partitions_per_transaction_max} are allowed",
        )
    return replace(
        current,
        state=legal_step(current, ONGOING),
        partitions=partitions,
        groups=groups,
        start_ms=current.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        client_txn_version=client_txn_version,
        cause="add",
        transact_id=b"",
    )


def verify(current: Transaction, identity: Identity, partitions: frozenset[int]) -> frozenset[int]:
    """Those of the partitions that are in the open transaction (spec transactions 2.3, verify_only)."""
    check_identity(current, identity)
    check_not_prepared(current)
    _check_not_closed(current)
    return partitions & current.partitions if current.state is ONGOING else frozenset()


def check_group(current: Transaction, identity: Identity, group: str) -> None:
    """Raises Refused unless the group is in the open transaction, as `verify`; INVALID_TXN_STATE where it is not."""
    check_identity(current, identity)
    check_not_prepared(current)
    _check_not_closed(current)
    if current.state is not ONGOING or group not in current.groups:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"group {group!a:.300} is not in the transaction of {current.transactional_id!a}; call AddOffsetsToTxn "
            "before TxnOffsetCommit, or use client version 2, which adds it by itself",
        )


def promise(current: Transaction, identity: Identity, *, now_ms: int) -> Transaction | None:
    """The transaction, prepared for an outside decision: from here on the server never ends it alone, and nothing is
    added to it. None when it is already (spec transactions 10, PrepareTransaction)."""
    check_not_prepared(current)
    check_identity(current, identity)
    if current.state is not ONGOING:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"no transaction of {current.transactional_id!r} is open that could be prepared "
            f"(state {current.state.api_name})",
        )
    if current.prepared_ms is not None:
        return None
    return step(current, ONGOING, prepared_ms=now_ms, last_update_ms=now_ms, cause="prepare")


class EndVerdict(Enum):
    """What an EndTxn means for the state it finds."""

    PREPARE = auto()
    """Decide the outcome now."""
    REPEATED = auto()
    """It was decided and completed by an earlier attempt: answer as then."""


def end(current: Transaction, request: EndRequest) -> EndVerdict:
    """Judge an EndTxn (spec transactions 2.6, both tables)."""
    if request.client_txn_version >= 2:
        return _end_v2(current, request)
    check_identity(current, request.identity)
    check_not_prepared(current)
    if current.state is ONGOING:
        return EndVerdict.PREPARE
    if current.state is not TransactionState.EMPTY and current.outcome is request.outcome:
        return EndVerdict.REPEATED
    raise _nothing_to_end(current, request.outcome)


def _end_v2(current: Transaction, request: EndRequest) -> EndVerdict:
    check_not_prepared(current)
    shown = request.identity
    is_retry = is_end_retry(current, shown)
    if current.state is ONGOING:
        return EndVerdict.PREPARE
    if not is_retry:
        if request.outcome is Outcome.ABORT:
            # The client does not know whether anything was added: an empty abort, with a bump.
            return EndVerdict.PREPARE
        raise _nothing_to_end(current, request.outcome)
    if current.outcome is request.outcome:
        return EndVerdict.REPEATED
    if current.outcome is Outcome.ABORT:
        # Not an EndTxn of this client: the server aborted, by timeout or for a newer instance (KAFKA-20785), or this
        # client itself with an InitProducerId.
        raise fenced(current, shown)
    raise _nothing_to_end(current, request.outcome)


class TransactRequest(Struct, frozen=True, gc=False):
    """Transact, its arguments checked, without what it writes."""

    transactional_id: str
    identity: Identity
    outcome: Outcome
    request_id: bytes
    additions: Additions = Additions()


def transact(current: Transaction, request: TransactRequest, *, now_ms: int, limits: Limits) -> Transaction | None:
    """The transaction with all that the request brings, whose outcome is to be decided next. None when this very
    request was answered before: it gets the same answer and changes nothing (design 6).

    Raises Refused as `add`; INVALID_PRODUCER_EPOCH where the server aborted the transaction meanwhile,
    INVALID_TXN_STATE where it has ended otherwise, INVALID_REQUEST for the request id of the transaction before."""
    check_not_prepared(current)
    is_known = current.transact_id == request.request_id
    if is_end_retry(current, request.identity):
        if is_known and current.outcome is request.outcome:
            return None
        raise _ended_otherwise(current, request)
    if is_known:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the transaction of {current.transactional_id!a} before this one was ended under the same request_id; "
            "every transaction needs its own, and only its retries have it too",
        )
    if request.additions.partitions or request.additions.groups:
        added = _with(current, request.additions, now_ms=now_ms, limits=limits, client_txn_version=2)
        return current if added is None else added
    return current


def check_something_to_end(opened: Transaction, request: TransactRequest) -> None:
    """Judge a Transact that adds nothing as EndTxn is judged. Raises Refused INVALID_TXN_STATE."""
    if opened.state is not ONGOING and request.outcome is Outcome.COMMIT:
        raise _nothing_to_end(opened, request.outcome)


def _ended_otherwise(current: Transaction, request: TransactRequest) -> Refused:
    if current.outcome is Outcome.ABORT and not current.transact_id:
        # KIP-588: the producer can go on, once it has heard that with the EndTxn that this code asks for.
        return Refused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"the transaction was aborted meanwhile (cause: {current.cause}), nothing was written: abort it, which "
            "tells the identity to go on with",
        )
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of {current.transactional_id!a} with epoch {request.identity.producer_epoch} was ended by "
        f"another request ({current.outcome.name.lower()}); nothing was written",
    )


class Ending(Struct, frozen=True, gc=False):
    """How a transaction is to end, and why."""

    outcome: Outcome
    bumps_epoch: bool
    """True for clients of version 2, and for every abort by the server: the next transaction has a new epoch."""
    cause: str
    transact_id: bytes = b""
    """Of the Transact that asks for it."""


def prepare(
    current: Transaction, ending: Ending, *, csn: int, now_ms: int, limits: Limits, allocate: AllocateProducerId
) -> Transaction:
    """The decided transaction. If the ending bumps the epoch, it carries the epoch that fences the old one, and at
    exhaustion the producer id to go on with (spec transactions 3.3 - 3.5). A kept one may hold three ids: that of its
    markers, that of the client who ends it, and that of the next transaction (spec transactions 10)."""
    bumps_epoch, is_kept, txn_epoch = ending.bumps_epoch, current.is_kept, current.producer_epoch
    epoch, last_epoch, prev_producer_id = txn_epoch, current.last_producer_epoch, current.prev_producer_id
    next_producer_id, next_epoch = current.next_producer_id, current.next_producer_epoch
    if bumps_epoch or is_kept:
        # The markers of a kept transaction fence its first owner in the partitions, whatever the client speaks.
        epoch = min(txn_epoch + 1, limits.producer_epoch_max)
    if bumps_epoch:
        producer_id, last_epoch = current.client_identity
        # Otherwise, nobody can still be retrying across the last rotation from here on; a name kept longer would let a
        # zombie of that id pass `check_expected` once the epochs meet again.
        is_exhausted = limits.is_exhausted(last_epoch)
        prev_producer_id = producer_id if is_exhausted or is_kept else NO_PRODUCER_ID
        if is_exhausted:
            next_producer_id, next_epoch = allocate(), 0
        elif is_kept:
            # Once more, although keeping it bumped already: else a delayed copy of this EndTxn could end the next one.
            next_epoch = last_epoch + 1
    return replace(
        current,
        state=legal_step(current, PREPARE_STATES[ending.outcome]),
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        prev_producer_id=prev_producer_id,
        next_producer_id=next_producer_id,
        next_producer_epoch=next_epoch,
        start_ms=current.start_ms if current.state is ONGOING else now_ms,
        last_update_ms=now_ms,
        txn_epoch=txn_epoch,
        csn=csn,
        cause=ending.cause,
        transact_id=ending.transact_id,
    )


def complete(prepared: Transaction, *, now_ms: int) -> Transaction:
    """The transaction once every participant has its marker."""
    assert prepared.state in PREPARED, "only what is decided can be completed"
    producer_id, producer_epoch = prepared.client_identity
    return replace(
        prepared,
        state=legal_step(prepared, COMPLETE_STATES[prepared.state]),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        partitions=_NO_PARTITIONS,
        groups=_NO_GROUPS,
        last_update_ms=now_ms,
        txn_epoch=NO_EPOCH,
        prepared_ms=None,
    )


def marker_of(prepared: Transaction, coordinator_epoch: int) -> Marker:
    """The marker that tells every participant; sent again unchanged, but for the epoch of the coordinator."""
    return Marker(
        producer_id=prepared.producer_id,
        txn_epoch=prepared.txn_epoch,
        next_epoch=prepared.producer_epoch,
        coordinator_epoch=coordinator_epoch,
        outcome=prepared.outcome,
        csn=prepared.csn,
    )


def is_due(current: Transaction, *, identity: Identity, start_ms: int) -> bool:
    """True when an abort meant for this transaction still concerns the one that is open now (spec transactions 5)."""
    return current.state is ONGOING and current.identity == identity and current.start_ms == start_ms


def _nothing_to_end(current: Transaction, outcome: Outcome) -> Refused:
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"cannot {outcome.name.lower()}: no transaction of {current.transactional_id!r} is open "
        f"(state {current.state.api_name})",
    )
