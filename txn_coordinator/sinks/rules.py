"""Rules of a sink: the runs that may join and decide a batch, and the outcome of members of other batches.

Source: docs/decisions/0039-one-decision-for-many-members.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Outcome
from coordinator_protocol.names import ID_BYTES_MAX, check_transactional_id
from txn_coordinator.sink_state import Sink
from txn_coordinator.state import OUTCOMES, Identity, Transaction, TransactionState

MEMBERS_MAX: Final = 10_000
"""Largest number of open members of one sink at a time."""
FENCED_RUNS_REMEMBERED: Final = 8
_ATTEMPT_BYTES_MAX: Final = 50
"""Bytes of a member's transactional id that the server needs besides the sink's name."""
_NAME_BYTES_MAX: Final = ID_BYTES_MAX - _ATTEMPT_BYTES_MAX
_LABEL_BYTES_MAX: Final = 200


class JoinRequest(Struct, frozen=True, kw_only=True):
    """JoinBatch."""

    sink: str
    run_id: str
    batch_id: int
    attempt: str
    txn_timeout_ms: int
    request_id: bytes


class CommitRequest(Struct, frozen=True, kw_only=True):
    """CommitBatch."""

    sink: str
    run_id: str
    batch_id: int
    members: Sequence[Identity]


class AbortRequest(Struct, frozen=True, kw_only=True):
    """AbortBatch."""

    sink: str
    run_id: str | None
    """None if an operator asks, on behalf of every run."""
    batch_id: int | None
    """None for the open batch."""


def check_name(sink: str) -> None:
    """Raise Refused unless this may name a sink: a valid transactional id of at most `_NAME_BYTES_MAX` bytes."""
    if not sink:
        raise _bad("the name of the sink is empty; give the sink a name")
    check_transactional_id(sink)
    if len(sink.encode()) > _NAME_BYTES_MAX:
        raise _bad(f"the name of the sink has {len(sink.encode())} bytes of at most {_NAME_BYTES_MAX}; shorten it")


def check_run(run_id: str, batch_id: int) -> None:
    """Raise Refused unless these may be a run and its batch."""
    if not run_id or len(run_id.encode()) > _LABEL_BYTES_MAX:
        raise _bad(f"run_id has {len(run_id.encode())} bytes; it must have 1 to {_LABEL_BYTES_MAX}")
    if batch_id < 0:
        raise _bad(f"batch_id is {batch_id}; batches are numbered from 0")


def check_join(request: JoinRequest, limits: Limits) -> None:
    """Raise Refused unless some sink could take this JoinBatch."""
    check_run(request.run_id, request.batch_id)
    if len(request.attempt.encode()) > _LABEL_BYTES_MAX:
        raise _bad(f"attempt has {len(request.attempt.encode())} bytes of at most {_LABEL_BYTES_MAX}; shorten it")
    if not request.request_id:
        raise _bad(
            "JoinBatch needs a request_id, so that it can be repeated when its answer is lost: send 16 random bytes, "
            "the same for every attempt to send it"
        )
    if not 0 < request.txn_timeout_ms <= limits.transaction_max_timeout_ms:
        raise Refused(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction_timeout_ms is {request.txn_timeout_ms}; it must be 1 to {limits.transaction_max_timeout_ms}",
        )


def join(sink: Sink | None, request: JoinRequest, members: Sequence[Transaction], *, now_ms: int) -> Sink:
    """Return the sink after a join of a batch.

    A new run fences the previous one and gives up its undecided members. A later batch of the same run gives up those
    of the earlier one. A batch that is committed already (`is_committed`) takes no members and changes nothing. So the
    run that committed the newest batch is known until another one writes.

    Raises Refused: PRODUCER_FENCED for an earlier run; INVALID_TXN_STATE for a batch before the one that the run writes
    now; INVALID_REQUEST for too many members.
    """
    if sink is None:
        return Sink(
            name=request.sink,
            run_id=request.run_id,
            batch_id=request.batch_id,
            txn_timeout_ms=request.txn_timeout_ms,
            last_update_ms=now_ms,
        )
    _check_not_fenced(sink, request.run_id)
    if is_committed(sink, request.batch_id):
        return sink
    if request.run_id != sink.run_id:
        sink = give_up(sink, members)
        fenced = (*sink.fenced_run_ids, sink.run_id)[-FENCED_RUNS_REMEMBERED:]
        sink = replace(sink, run_id=request.run_id, fenced_run_ids=fenced)
    elif request.batch_id < sink.batch_id:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"run {request.run_id!a} of sink {sink.name!a:.300} writes batch {sink.batch_id} already and cannot go "
            f"back to batch {request.batch_id}; begin a new run",
        )
    if request.batch_id != sink.batch_id:
        sink = give_up(sink, members)
    live = sum(1 for member in members if member.state is TransactionState.ONGOING)
    if live >= MEMBERS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"sink {sink.name!a:.300} has {live} members and at most {MEMBERS_MAX} are allowed; let fewer tasks write",
        )
    # Changes with every member are stored in the member; a sink is stored only for changes of its own.
    if (sink.batch_id, sink.txn_timeout_ms) != (request.batch_id, request.txn_timeout_ms):
        sink = replace(sink, batch_id=request.batch_id, txn_timeout_ms=request.txn_timeout_ms, last_update_ms=now_ms)
    return sink


def is_committed(sink: Sink, batch_id: int) -> bool:
    return batch_id <= sink.last_batch_id


def check_member(sink: Sink | None, member: Transaction) -> None:
    """Raise Refused PRODUCER_FENCED if a member has a certain outcome, or if its sink does not exist."""
    if sink is None or sink.outcome_of(member) is not None:
        raise given_up(member.transactional_id)


def given_up(transactional_id: str) -> Refused:
    """Return the refusal of a write by a member that has ended."""
    return Refused(
        ErrorCode.PRODUCER_FENCED,
        f"{transactional_id!a:.300} is no member any more: its batch was decided, or it was given up, for a newer run "
        "or because nothing happened for too long; stop writing",
    )


def judge_commit(
    sink: Sink | None, request: CommitRequest, members: Mapping[int, Transaction]
) -> Sequence[Transaction] | None:
    """Return the members to commit; None if the batch is committed already.

    `members` are those of the sink that are not complete, by producer id.

    Raises Refused: TRANSACTIONAL_ID_NOT_FOUND; PRODUCER_FENCED for another run; CONCURRENT_TRANSACTIONS while the
    previous decision is carried out. For a member: TRANSACTION_ABORTABLE if it was given up; INVALID_TXN_STATE if it is
    not sealed, or of another batch; INVALID_REQUEST if it is named twice.
    """
    if sink is None:
        raise Refused(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"sink {request.sink!a:.300} is not known: no member joined a batch of it",
        )
    _check_not_fenced(sink, request.run_id)
    if request.run_id != sink.run_id:
        raise _fenced(sink, request.run_id)
    if is_committed(sink, request.batch_id):
        return None
    if sink.committing:
        raise Refused(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"batch {sink.last_batch_id} of sink {sink.name!a:.300} is decided and being completed; try again",
        )
    if len(set(request.members)) != len(request.members):
        raise _bad("a member is named twice; name each once")
    return [_chosen(sink, request, identity, members) for identity in request.members]


def _chosen(sink: Sink, request: CommitRequest, identity: Identity, members: Mapping[int, Transaction]) -> Transaction:
    member = members.get(identity.producer_id)
    named = f"member with producer id {identity.producer_id} and epoch {identity.producer_epoch}"
    if member is None or member.identity != identity or member.state is not TransactionState.ONGOING:
        raise _abortable(named)
    if sink.outcome_of(member) is not None:
        raise _abortable(named)
    assert member.member is not None, "members of a sink are members"
    if member.member.batch_id != request.batch_id:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"the {named} belongs to batch {member.member.batch_id}, not to batch {request.batch_id}",
        )
    if member.prepared_ms is None:
        raise Refused(
            ErrorCode.INVALID_TXN_STATE, f"the {named} is not sealed: SealMember must be answered before CommitBatch"
        )
    return member


def _abortable(named: str) -> Refused:
    return Refused(
        ErrorCode.TRANSACTION_ABORTABLE,
        f"the sink has no {named} to commit: it was given up, because nothing happened for too long, say; nothing was "
        "committed: abort the batch and write it again",
    )


def committed(sink: Sink, batch_id: int, csn: int, members: Sequence[Transaction], *, now_ms: int) -> Sink:
    """Return the sink with its decision, not carried out yet. Every member that was not chosen is given up, sealed or
    not."""
    return replace(
        give_up(sink, members),
        last_batch_id=batch_id,
        last_csn=csn,
        last_update_ms=now_ms,
    )


def give_up(sink: Sink, members: Sequence[Transaction]) -> Sink:
    """Return the sink after its undecided members were given up."""
    below = max((member.producer_id for member in members), default=-1) + 1
    return replace(sink, given_up_below=max(sink.given_up_below, below))


def applies(sink: Sink, request: AbortRequest) -> bool:
    """Return True if an AbortBatch concerns the open batch. Otherwise it is late, and changes nothing."""
    return request.run_id in (None, sink.run_id) and request.batch_id in (None, sink.batch_id)


def idle_ms(sink: Sink, members: Sequence[Transaction], *, now_ms: int) -> int:
    """Return the time without activity: no member joined, took a partition or sealed, and the sink did not change."""
    return now_ms - max([sink.last_update_ms, *(member.last_update_ms for member in members)])


def _check_not_fenced(sink: Sink, run_id: str) -> None:
    if run_id in sink.fenced_run_ids:
        raise _fenced(sink, run_id)


def _fenced(sink: Sink, run_id: str) -> Refused:
    return Refused(
        ErrorCode.PRODUCER_FENCED,
        f"run {run_id!a} of sink {sink.name!a:.300} is not the one that writes: run {sink.run_id!a} is; stop this one",
    )


def _bad(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, text)


def standing(sink: Sink, member: Transaction) -> str:
    """Return the state of a member, for people: open, sealed, committing or given_up."""
    outcome = OUTCOMES.get(member.state, sink.outcome_of(member))
    if outcome is not None:
        return "committing" if outcome is Outcome.COMMIT else "given_up"
    return "open" if member.prepared_ms is None else "sealed"
