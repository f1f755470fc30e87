"""AbortTransactions and FenceProducers: what an administrator does, step by step as the coordinator itself would."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.ports import AllowAll, CallContext, Permission, ResourceType
from tests.transactions.administered import ABORT, ADMIN, CLIENT, COMMIT, Administered
from txn_coordinator import administration
from txn_coordinator.administration import ActResults
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity, TransactionState

BOTH = pytest.mark.parametrize("two_phase", list(TwoPhase))


def codes(done: ActResults) -> list[ErrorCode]:
    return [ErrorCode.NONE if each.error is None else each.error.code for each in done.results]


def ids(done: ActResults) -> list[str]:
    return [each.transactional_id for each in done.results]


def refusal(done: object) -> CoordinatorError:
    assert isinstance(done, ActResults)
    (result,) = done.results
    assert result.error is not None
    return result.error


# Abort


@BOTH
def test_an_open_transaction_is_aborted_as_a_timeout_would(two_phase: TwoPhase) -> None:
    world = Administered(two_phase)
    identity = world.opened("a", "t-0", "t-1")
    (result,) = world.abort("a").results
    assert result.acted is not None
    assert (result.acted.fenced, result.acted.before.state) == (identity, TransactionState.ONGOING)
    found = world.describe("a")
    assert (found.state, found.cause, found.txn_timeout_ms) == (TransactionState.COMPLETE_ABORT, "admin", 60_000)
    assert found.identity == Identity(identity.producer_id, identity.producer_epoch + 1)
    for partition in ("t-0", "t-1"):
        reading = world.read(partition)
        assert (reading.values, reading.last_stable_offset, reading.high_watermark) == ([], 2, 2)


def test_the_aborted_producer_is_fenced_but_may_abort_and_go_on() -> None:
    world = Administered()
    identity = world.opened("a")
    world.abort("a")
    late = world.produce("a", identity, "t-0", ["late"], sequence=1, context=CLIENT)
    commit = world.end("a", identity, COMMIT, CLIENT)
    world.settle()
    error = late.result().error
    assert error is not None
    assert error.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(Refused, match="aborted by an administrator"):
        commit.result()
    aborted = world.end("a", identity, ABORT, CLIENT)
    world.settle()
    assert aborted.result().next_identity == Identity(identity.producer_id, identity.producer_epoch + 1)


def test_a_dry_run_says_the_same_and_changes_nothing() -> None:
    world = Administered()
    identity = world.opened("a")
    before, version = world.describe("a"), world.inside.runtime.groups.durable_version
    (result,) = world.abort("a", dry_run=True).results
    assert result.acted is not None
    assert result.acted.fenced == identity
    assert world.fence("a", dry_run=True).results == world.abort("a", dry_run=True).results
    assert (world.describe("a"), world.inside.runtime.groups.durable_version) == (before, version)
    assert world.abort("a").results == [result]


def test_nothing_open_and_nothing_known_are_told_apart() -> None:
    world = Administered()
    world.ready("idle")
    world.opened("open")
    done = world.abort("idle", "open", "ghost", "")
    assert codes(done) == [
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NONE,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]


def test_what_is_decided_is_never_aborted() -> None:
    world = Administered(TwoPhase.SPLIT)
    identity = world.opened("a")
    ended = world.end("a", identity, COMMIT, CLIENT)
    world.flush()
    assert ended.is_settled
    selection = administration.Selection(transactional_ids=["a"])
    aborted = world.administration.abort(selection, CLIENT, dry_run=False)
    world.settle()
    assert "is decided (commit)" in refusal(aborted.result()).message
    assert world.describe("a").state is TransactionState.COMPLETE_COMMIT
    assert world.read("t-0").values == ["x"]


def test_a_prefix_means_open_ones_only_and_the_oldest_comes_first() -> None:
    world = Administered()
    world.opened("job-2")
    world.tick(1_000)
    world.opened("job-1")
    world.ready("job-3")
    world.opened("other")
    assert ids(world.abort(prefix="job-", dry_run=True)) == ["job-2", "job-1"]
    assert ids(world.abort(prefix="job-")) == ["job-2", "job-1"]
    assert ids(world.abort(prefix="job-")) == []
    assert world.describe("other").state is TransactionState.ONGOING


def test_an_age_is_strict_and_joins_a_prefix() -> None:
    world = Administered()
    world.opened("job-old")
    world.opened("other-old")
    world.tick(5_000)
    world.opened("job-new")
    assert ids(world.abort(older_than_ms=5_000, dry_run=True)) == []
    world.tick(1)
    assert sorted(ids(world.abort(older_than_ms=5_000, dry_run=True))) == ["job-old", "other-old"]
    assert "for 1 ms only" in refusal(world.abort("job-new", older_than_ms=1)).message
    assert ids(world.abort(prefix="job-", older_than_ms=5_000)) == ["job-old"]


def test_a_promise_to_an_outside_decision_is_broken_by_name_only() -> None:
    world = Administered()
    identity = world.opened("a")
    prepared = world.prepare("a", identity)
    world.settle()
    assert prepared.result() == identity
    assert ids(world.abort(prefix="a")) == []
    assert ids(world.fence(prefix="a")) == []
    assert ids(world.abort(older_than_ms=0)) == []
    assert codes(world.abort("a")) == [ErrorCode.NONE]
    assert world.describe("a").state is TransactionState.COMPLETE_ABORT


def test_too_many_are_aborted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Administered()
    for number in range(5):
        world.opened(f"job-{number}")
    monkeypatch.setattr(administration, "IDS_MAX", 2)
    done = [world.abort(prefix="job-") for _ in range(3)]
    assert [(len(each.results), each.remaining) for each in done] == [(2, 3), (2, 1), (1, 0)]
    with pytest.raises(Refused, match="5 transactional ids are selected"):
        world.fence(prefix="job-")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "nothing is selected"),
        ({"ids": ["a"], "prefix": "b"}, "name one of them"),
        ({"ids": ["a", "a"]}, "named twice"),
        ({"ids": [str(number) for number in range(1_001)]}, "1001 ids"),
        ({"older_than_ms": -1}, "must not be negative"),
    ],
)
def test_a_selection_that_is_none_is_refused(fields: dict[str, object], said: str) -> None:
    world = Administered()
    named = fields.pop("ids", [])
    assert isinstance(named, list)
    for act in (world.abort, world.fence):
        with pytest.raises(Refused, match=said):
            act(*named, **fields)  # type: ignore[arg-type]


class NotSecret(AllowAll):
    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return (context, permission, name) != (ADMIN, Permission.WRITE, "secret")


def test_only_ids_that_the_caller_may_write_are_touched() -> None:
    world = Administered(authorizer=NotSecret())
    world.opened("secret")
    assert codes(world.abort("secret")) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert codes(world.fence("secret")) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert ids(world.abort(prefix="sec")) == []
    assert world.describe("secret").state is TransactionState.ONGOING


# Fence


@BOTH
def test_fencing_aborts_what_is_open_and_leaves_no_way_back(two_phase: TwoPhase) -> None:
    world = Administered(two_phase)
    identity = world.opened("a")
    (result,) = world.fence("a").results
    assert result.acted is not None
    assert (result.acted.fenced, result.acted.before.state) == (identity, TransactionState.ONGOING)
    found = world.describe("a")
    assert (found.state, found.cause, found.txn_timeout_ms) == (TransactionState.EMPTY, "admin", 60_000)
    assert found.identity == Identity(identity.producer_id, identity.producer_epoch + 2)
    for attempt in (
        world.end("a", identity, ABORT, CLIENT),
        world.init("a", CLIENT, expected=identity),
        world.add("a", identity, ["t-0"], CLIENT),
    ):
        world.settle()
        with pytest.raises(Refused) as fenced:
            attempt.result()
        assert fenced.value.code is ErrorCode.PRODUCER_FENCED
    assert world.read("t-0").values == []
    assert world.ready("a") == Identity(identity.producer_id, identity.producer_epoch + 3)


@BOTH
def test_an_old_transaction_is_fenced_although_its_id_is_idle_once_it_is_aborted(two_phase: TwoPhase) -> None:
    world = Administered(two_phase)
    identity = world.opened("a")
    world.tick(1_000)
    assert codes(world.fence("a", older_than_ms=999)) == [ErrorCode.NONE]
    found = world.describe("a")
    assert (found.state, found.cause) == (TransactionState.EMPTY, "admin")
    assert found.identity == Identity(identity.producer_id, identity.producer_epoch + 2)


def test_an_idle_id_is_fenced_too_and_a_repeated_init_gets_no_fenced_identity() -> None:
    world = Administered()
    context = CallContext(client_id="billing", request_id=b"r" * 16)
    identity = world.ready("a", context)
    (result,) = world.fence("a").results
    assert result.acted is not None
    assert (result.acted.fenced, result.acted.before.state) == (identity, TransactionState.EMPTY)
    assert world.ready("a", context) == Identity(identity.producer_id, identity.producer_epoch + 2)


def test_a_prefix_fences_idle_ids_as_well() -> None:
    world = Administered()
    world.ready("job-idle")
    world.opened("job-open")
    assert sorted(ids(world.fence(prefix="job-"))) == ["job-idle", "job-open"]
    world.tick(10)
    world.opened("job-open")
    world.tick(10)
    assert ids(world.fence(prefix="job-", older_than_ms=5)) == ["job-open"]


def test_fencing_waits_for_what_is_being_completed() -> None:
    world = Administered(TwoPhase.SPLIT)
    identity = world.opened("a")
    ended = world.end("a", identity, COMMIT, CLIENT)
    world.flush()
    assert ended.is_settled
    assert codes(world.fence("a")) == [ErrorCode.NONE]
    assert world.read("t-0").values == ["x"]
    assert world.describe("a").state is TransactionState.EMPTY


def test_what_was_fenced_stays_fenced_after_a_crash() -> None:
    world = Administered(TwoPhase.SPLIT)
    identity = world.opened("a")
    selection = administration.Selection(transactional_ids=["a"])
    fenced = world.administration.fence(selection, CLIENT, dry_run=False)
    world.flush()
    assert not fenced.is_settled
    world.crash()
    world.settle()
    assert world.describe("a").state is TransactionState.COMPLETE_ABORT
    refused = world.end("a", identity, COMMIT, CLIENT)
    world.settle()
    with pytest.raises(Refused, match="aborted by an administrator"):
        refused.result()
    world.check_replay()
