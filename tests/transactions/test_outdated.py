"""An identity that is over: the answer says whether another producer has the transactional id, or none."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_protocol.errors import CoordinatorError, ErrorClass, ErrorCode, Outdated, Refused, class_of
from coordinator_protocol.marker import Outcome
from coordinator_protocol.methods import Method
from coordinator_runtime.decision import Decision
from coordinator_runtime.pending import Pending
from tests.conformance.transactions.case_world import TIMEOUT_MS, CaseWorld, Client
from tests.harness.world import TransactContents
from tests.transactions.world_of_one import (
    EXHAUSTED,
    ID,
    LIMITS,
    PREV_PRODUCER_ID,
    PRODUCER_ID,
    TURN,
    rotated,
    shard_with,
    transaction,
)
from txn_coordinator.requests import EndTxn
from txn_coordinator.rules import adding, ending, initialising
from txn_coordinator.shard import Initialised, TransactionShard
from txn_coordinator.state import (
    DECIDED,
    NO_EPOCH,
    TAKEN_OVER,
    Identity,
    Transaction,
    TransactionState,
)

# Knowledge of the state


def _states() -> list[Transaction]:
    """Every state after every kind of bump: for its own client, by the server, for a newer instance; rotated or not."""
    found: list[Transaction] = []
    for state, cause, last in product(TransactionState, ("client", "timeout", "init", TAKEN_OVER), (4, NO_EPOCH)):
        found.append(replace(transaction(state, last=last), cause=cause))
        found.append(replace(rotated(state), cause=cause, last_producer_epoch=EXHAUSTED if last == 4 else NO_EPOCH))
    deciding = transaction(TransactionState.PREPARE_ABORT, epoch=EXHAUSTED + 1, last=EXHAUSTED)
    found.append(
        replace(
            deciding, cause="timeout", prev_producer_id=PRODUCER_ID, next_producer_id=8, next_producer_epoch=0, csn=3
        )
    )
    return found


_SHOWN = [
    Identity(producer_id, epoch)
    for producer_id in (PREV_PRODUCER_ID, PRODUCER_ID, 8, 99)
    for epoch in (0, 3, 4, 5, 6, EXHAUSTED)
]

Question = Callable[[TransactionShard, Identity, int], Decision]
_ADDITIONS = adding.Additions(partitions=frozenset({1}))
_QUESTIONS: dict[str, Question] = {
    "add": lambda shard, shown, version: shard.decide_add(ID, shown, _ADDITIONS, TURN, client_txn_version=version),
    "verify": lambda shard, shown, _version: shard.decide_verify(ID, shown, frozenset({1})),
    "prepare": lambda shard, shown, _version: shard.decide_prepare(ID, shown, TURN),
    "commit": lambda shard, shown, version: _end(shard, shown, Outcome.COMMIT, version),
    "abort": lambda shard, shown, version: _end(shard, shown, Outcome.ABORT, version),
}


def _end(shard: TransactionShard, shown: Identity, outcome: Outcome, version: int) -> Decision:
    command = EndTxn(transactional_id=ID, identity=shown, outcome=outcome)
    return shard.decide_end(command, TURN, client_txn_version=version)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("question", _QUESTIONS.values(), ids=_QUESTIONS.keys())
def test_outdated_is_who_can_initialise_without_harm(question: Question, version: int) -> None:
    """The promise of RECOVER: InitProducerId with the identity held gives the current one, no epoch is used up, and
    nothing open is aborted. A fenced producer would be refused there, or would harm another."""
    told: set[bool] = set()
    for before, shown in product(_states(), _SHOWN):
        refusal = _refusal(lambda shard, s=shown: question(shard, s, version), before)  # type: ignore[misc]
        if refusal is None or refusal.code is not ErrorCode.PRODUCER_FENCED:
            continue
        # A transaction that is being completed is waited for, and then it is as it will be.
        settled = ending.complete(before, now_ms=TURN.now_ms) if before.state in DECIDED else before
        answer = _init(settled, shown)
        told.add(isinstance(refusal, Outdated))
        if isinstance(refusal, Outdated):
            assert answer == Initialised(settled.client_identity), f"{shown} in {before}"
            assert before.cause != TAKEN_OVER, f"a newer instance comes: {shown} in {before}"
        else:
            is_harmful = settled.state is TransactionState.ONGOING or settled.cause == TAKEN_OVER
            assert answer == ErrorCode.PRODUCER_FENCED or is_harmful, f"{shown} in {before}"
    assert told == {True, False}


def _refusal(question: Callable[[TransactionShard], Decision], before: Transaction) -> Refused | None:
    try:
        question(shard_with(before))
    except Refused as refusal:
        return refusal
    return None


def _init(before: Transaction, shown: Identity) -> object:
    request = initialising.InitRequest(transactional_id=ID, txn_timeout_ms=1_000, expected=shown)
    try:
        return shard_with(before, limits=LIMITS).decide_init(request, TURN, may_abort_and_init=False).reply
    except Refused as refusal:
        # An outdated producer is asked to call InitProducerId, which must not ask for the same.
        return "told again" if isinstance(refusal, Outdated) else refusal.code


# Answers to a client that knows nothing but classes

Call = Callable[[Client], Pending[Any]]

_CALLS: dict[Method, Call] = {
    Method.ADD_PARTITIONS_TO_TXN: lambda client: client.world.add(
        client.transactional_id, client.identity, ["t-1"], client.context
    ),
    Method.TXN_OFFSET_COMMIT: lambda client: client.world.commit_offset(
        client.transactional_id, client.identity, "g", 1, client.context
    ),
    Method.PRODUCE: lambda client: client.world.produce(
        client.transactional_id, client.identity, "t-0", ["late"], sequence=1, context=client.context
    ),
    Method.PREPARE_TRANSACTION: lambda client: client.world.prepare(
        client.transactional_id, client.identity, client.context
    ),
    Method.END_TXN: lambda client: _ended(client, Outcome.COMMIT),
}


def _ended(client: Client, outcome: Outcome) -> Pending[Any]:
    return client.world.end(client.transactional_id, client.identity, outcome, client.context)


def _transacted(client: Client) -> Pending[Any]:
    contents = TransactContents([("t-0", ["late"], 1)])
    context = replace(client.context, request_id=b"r" * 16)
    return client.world.transact(client.transactional_id, client.identity, contents, Outcome.COMMIT, context)


def _told(method: Method, reply: Pending[Any], world: CaseWorld) -> tuple[ErrorCode, ErrorClass]:
    world.flush()
    try:
        answer = reply.result()
        error = getattr(answer, "error", None)
    except CoordinatorError as refused:
        error = refused
    return (ErrorCode.NONE, ErrorClass.NONE) if error is None else (error.code, class_of(method, error))


def _timed_out(version: int, *, split: bool) -> Client:
    world = CaseWorld(split=split)
    client = world.ongoing(version=version, epoch=4)
    world.tick(TIMEOUT_MS + 1)
    world.settle()
    return client


def _follows(client: Client, what: ErrorClass) -> ErrorClass:
    """Do what a class says, until there is nothing more to do. Where it ended."""
    if what is ErrorClass.ABORT:
        reply = _ended(client, Outcome.ABORT)
        code, what = _told(Method.END_TXN, reply, client.world)
        if code is ErrorCode.NONE:
            client.identity = reply.result().next_identity
            client.sequences.clear()
            return what
        assert what is not ErrorClass.ABORT, "that would go on for ever"
        return _follows(client, what)
    if what is ErrorClass.RECOVER:
        answer = client.init(expected=client.identity)
        return ErrorClass.NONE if isinstance(answer, Identity) else ErrorClass.FENCED
    return what


@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("method", _CALLS)
def test_whose_transaction_timed_out_is_not_fenced(method: Method, version: int, split: bool) -> None:
    client = _timed_out(version, split=split)
    code, what = _told(method, _CALLS[method](client), client.world)
    # For version 1 the harness adds the group first, and that is refused.
    is_data = method is Method.PRODUCE or (method is Method.TXN_OFFSET_COMMIT and version == 2)
    assert code is (ErrorCode.INVALID_PRODUCER_EPOCH if is_data else ErrorCode.PRODUCER_FENCED), "Kafka's code"
    assert what is (ErrorClass.ABORT if method is Method.PRODUCE else ErrorClass.RECOVER)
    assert _follows(client, what) is ErrorClass.NONE
    assert client.identity == Identity(0, 5)
    assert client.add("t-0") is True
    assert client.write("t-0", "after") == 0
    client.commit()
    client.world.settle()
    assert client.world.visible() == ["after"]


def test_a_transact_after_the_timeout_is_not_fenced() -> None:
    client = _timed_out(2, split=False)
    assert _told(Method.TRANSACT, _transacted(client), client.world) == (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorClass.ABORT,
    )
    assert _follows(client, ErrorClass.ABORT) is ErrorClass.NONE
    assert client.identity == Identity(0, 5)


def test_an_abort_after_the_timeout_gives_the_next_identity_to_version_2_only() -> None:
    old, new = _timed_out(1, split=False), _timed_out(2, split=False)
    assert _told(Method.END_TXN, _ended(old, Outcome.ABORT), old.world) == (
        ErrorCode.PRODUCER_FENCED,
        ErrorClass.RECOVER,
    )
    assert new.abort() == Identity(0, 5)


@pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("method", [*_CALLS, Method.TRANSACT])
@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "timed out before"])
def test_who_was_replaced_is_fenced(method: Method, version: int, split: bool, is_late: bool) -> None:
    """It holds even where the transaction had timed out before the newer instance came."""
    if is_late:
        client = _timed_out(version, split=split)
    else:
        client = CaseWorld(split=split).ongoing(version=version, epoch=4)
    rival = client.world.client(version=version)
    while isinstance(rival.init(), int):
        client.world.settle()
    call = _transacted if method is Method.TRANSACT else _CALLS[method]
    if method is Method.TRANSACT and version == 1:
        return
    _code, what = _told(method, call(client), client.world)
    assert what is (ErrorClass.ABORT if method is Method.PRODUCE else ErrorClass.FENCED)
    assert _follows(client, what) is ErrorClass.FENCED
    assert rival.add("t-0") is True


@pytest.mark.parametrize("version", [1, 2])
def test_the_words_say_what_happened(version: int) -> None:
    client = _timed_out(version, split=False)
    with pytest.raises(Refused, match=rf"longer than its timeout of {TIMEOUT_MS} ms, and was aborted\. Call InitProd"):
        _settled(client.world, _ended(client, Outcome.COMMIT)).result()
    client.world.client(version=version).init()
    with pytest.raises(Refused, match="a newer instance or an administrator took over"):
        _settled(client.world, _ended(client, Outcome.COMMIT)).result()


def _settled(world: CaseWorld, reply: Pending[Any]) -> Pending[Any]:
    world.flush()
    return reply
