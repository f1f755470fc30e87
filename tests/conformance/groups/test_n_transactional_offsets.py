"""N. Transactional offsets."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator
from group_coordinator.committed.offsets import Offsets
from tests.conformance.groups.cases import case
from tests.harness.committed_offsets import ABORT, COMMIT, Producer, identity
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.world import World
from txn_coordinator.config import TwoPhase

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT

both_modes = pytest.mark.parametrize("two_phase", list(TwoPhase))


def marker_of(producer: Producer, outcome: Outcome, csn: int) -> Marker:
    producer_id, epoch = producer.identity
    return Marker(
        producer_id=producer_id,
        txn_epoch=epoch,
        next_epoch=epoch,
        coordinator_shard=producer.coordinator_shard(),
        coordinator_epoch=1,
        outcome=outcome,
        csn=csn,
    )


def members(world: World, kind: str) -> Any:
    """A member of a classic or of a consumer group."""
    if kind == "classic":
        member: Any = world.classic.subscriber()
        world.classic.form(member, plan={})
    else:
        member = world.consumers.member("m")
        member.joins("foo")
    return member


@case(226)
@both_modes
@pytest.mark.parametrize("kind", ["simple", "classic", "consumer"])
@pytest.mark.parametrize("version", [1, 2])
def test_offsets_of_a_transaction_are_seen_when_it_is_committed(two_phase: TwoPhase, kind: str, version: int) -> None:
    world = group_world(two_phase=two_phase)
    world.offsets.commits({"foo-0": 7})
    said = {} if kind == "simple" else identity(members(world, kind))
    producer = world.offsets.producer(version=version)
    if version == 1:
        producer.adds()
    assert producer.commits({"foo-0": 100, "bar-1": 5}, **said) == {"foo-0": OK, "bar-1": OK}
    assert producer.groups() == [GROUP]
    assert world.offsets.fetches() == {"foo-0": 7}
    producer.ends(COMMIT)
    assert producer.state() == "CompleteCommit"
    assert world.offsets.fetches(stable=True) == world.offsets.fetches() == {"bar-1": 5, "foo-0": 100}
    world.restart()
    assert world.offsets.fetches(stable=True) == {"bar-1": 5, "foo-0": 100}


@case(227)
def test_a_transaction_may_commit_to_a_group_that_does_not_exist_without_a_generation() -> None:
    world = group_world()
    producer = world.offsets.producer()
    assert producer.commits({"foo-0": 1}, generation_id_or_member_epoch=10) == {"foo-0": ErrorCode.ILLEGAL_GENERATION}
    assert producer.groups() == []
    assert producer.commits({"foo-0": 1}, generation_id_or_member_epoch=-1) == {"foo-0": OK}
    assert world.groups.listed() == {GROUP: ("", "Empty", "classic")}


@case(229)
def test_an_old_producer_that_says_nothing_of_the_group_is_accepted() -> None:
    world = group_world()
    members(world, "classic")
    assert world.offsets.producer().commits({"foo-0": 1}, generation_id_or_member_epoch=-1) == {"foo-0": OK}


@case(230)
def test_a_transaction_commits_while_the_group_is_assigned_anew() -> None:
    world = group_world()
    (member,) = world.classic.completing(world.classic.subscriber())
    assert world.classic.describe().group_state == "CompletingRebalance"
    assert world.offsets.producer().commits({"foo-0": 1}, **identity(member)) == {"foo-0": OK}


@case(231)
def test_a_group_has_a_name() -> None:
    world = group_world()
    producer = world.offsets.producer()
    assert producer.commits({"foo-0": 1}, group_id="") == {"foo-0": ErrorCode.INVALID_GROUP_ID}


@case(233)
def test_a_fenced_producer_keeps_nothing() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 1})
    producer = world.offsets.producer()
    world.offsets.producer()
    assert producer.commits({"foo-0": 2}) == {"foo-0": ErrorCode.INVALID_PRODUCER_EPOCH}
    assert world.offsets.fetches("foo-0", stable=True) == {"foo-0": 1}
    someone_else = producer.identity.producer_id + 1
    refused = producer.commits({"foo-0": 2}, producer_id=someone_else)
    assert refused == {"foo-0": ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@case(234)
def test_who_wants_stable_offsets_waits_for_the_transaction_and_is_told_for_which() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 100}, metadata="old")
    producer = world.offsets.producer()
    producer.commits({"foo-0": 200})
    (unstable,) = world.offsets.fetched("foo-0", stable=True).offsets
    assert (code(unstable), unstable.error_class) == (UNSTABLE, ErrorClass.RETRY)
    assert (unstable.committed_offset, unstable.metadata) == (-1, "")
    assert not unstable.HasField("committed_leader_epoch")
    (pending,) = unstable.pending
    told = (pending.transactional_id, pending.producer_id, pending.offset)
    assert told == ("orders", producer.identity.producer_id, 200)
    assert "'orders'" in unstable.error_message
    assert "txnctl abort" in unstable.error_message
    assert world.offsets.fetches("foo-0") == {"foo-0": 100}


@case(235)
def test_all_offsets_are_listed_with_those_that_wait_only_for_who_wants_stable_ones() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 100})
    world.offsets.producer().commits({"foo-0": 200, "bar-0": 1})
    assert world.offsets.fetches(stable=True) == {"bar-0": UNSTABLE, "foo-0": UNSTABLE}
    assert world.offsets.fetches() == {"foo-0": 100}


@case(237)
def test_a_later_commit_wins_over_a_later_marker() -> None:
    world = group_world()
    producer = world.offsets.producer()
    producer.commits({"foo-0": 100})
    world.offsets.commits({"foo-0": 101})
    producer.ends(COMMIT)
    assert world.offsets.fetches("foo-0") == {"foo-0": 101}
    world.restart()
    assert world.offsets.fetches("foo-0") == {"foo-0": 101}


@case(238)
@pytest.mark.parametrize("restarts", [False, True])
def test_of_two_transactions_the_one_that_committed_its_offset_later_wins(restarts: bool) -> None:
    world = group_world()
    five, six = world.offsets.producer("five"), world.offsets.producer("six")
    five.commits({"foo-0": 100})
    six.commits({"foo-0": 200})
    (unstable,) = world.offsets.fetched("foo-0", stable=True).offsets
    assert [each.transactional_id for each in unstable.pending] == ["five", "six"]
    if restarts:
        # Positions are stored: what comes after the restart is later than all before.
        world.restart()
    six.ends(COMMIT)
    assert (world.offsets.fetches("foo-0"), world.offsets.fetches("foo-0", stable=True)) == (
        {"foo-0": 200},
        {"foo-0": UNSTABLE},
    )
    five.ends(COMMIT)
    assert world.offsets.fetches("foo-0") == world.offsets.fetches("foo-0", stable=True) == {"foo-0": 200}
    world.offsets.commits({"foo-0": 3})
    assert world.offsets.fetches("foo-0") == {"foo-0": 3}


@case(239)
def test_the_last_commit_of_a_transaction_counts() -> None:
    world = group_world()
    producer = world.offsets.producer()
    producer.commits({"foo-0": 100})
    producer.commits({"foo-0": 120})
    producer.ends(COMMIT)
    assert world.offsets.fetches("foo-0") == {"foo-0": 120}


@case(241)
def test_what_was_deleted_does_not_come_back_with_the_marker() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 1})
    producer = world.offsets.producer()
    producer.commits({"foo-0": 100, "foo-1": 100})
    assert world.offsets.deletes("foo-0") == {"foo-0": OK}
    producer.ends(COMMIT)
    assert world.offsets.fetches() == {"foo-1": 100}


@case(242)
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_marker_that_comes_again_does_nothing(outcome: Outcome) -> None:
    """With version 1 the late copy has the epoch of the transaction that is open by then."""
    world = group_world()
    producer = world.offsets.producer(version=1)
    producer.adds()
    producer.commits({"foo-0": 100})
    producer.ends(COMMIT)
    settled, csn = world.offsets.state(), producer.csn()
    world.offsets.send_marker(marker_of(producer, outcome, csn))
    assert world.offsets.state() == settled
    producer.adds()
    producer.commits({"foo-0": 200})
    waiting = world.offsets.state()
    for late in range(1, csn + 1):
        world.offsets.send_marker(marker_of(producer, outcome, late))
        assert world.offsets.state() == waiting, late
    producer.ends(COMMIT)
    assert world.offsets.fetches("foo-0", stable=True) == {"foo-0": 200}


@case(243)
@both_modes
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
@pytest.mark.parametrize("kept_groups", range(6))
def test_wherever_the_server_dies_the_offsets_end_as_their_transaction_does(
    two_phase: TwoPhase, outcome: Outcome, kept_groups: int
) -> None:
    """After so many flushes of the commit of the offset, the decision, the marker and COMPLETE."""
    world = group_world(two_phase=two_phase)
    world.offsets.commits({"foo-0": 1})
    producer = world.offsets.producer()
    keeping = world.call(producer.request({"foo-0": 100}))
    ended = None
    for _flush in range(kept_groups):
        if keeping.is_settled and ended is None:
            ended = producer.end(outcome)
        world.flush()
    was_decided = ended is not None and ended.is_settled
    world.crash()
    world.settle()
    world.settle()
    if not was_decided:
        # Only its timeout ends it now.
        world.pass_time(60_001)
    expected = 100 if was_decided and outcome is COMMIT else 1
    assert world.offsets.fetches("foo-0", stable=True) == world.offsets.fetches("foo-0") == {"foo-0": expected}
    assert producer.state() in ("Empty", "CompleteCommit" if expected == 100 else "CompleteAbort")


@case(245)
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_member_that_was_fenced_can_only_abort(kind: str) -> None:
    world = group_world()
    member = members(world, kind)
    producer = world.offsets.producer()
    assert producer.commits({"foo-0": 5}, **identity(member)) == {"foo-0": OK}
    stale = {**identity(member), "generation_id_or_member_epoch": identity(member)["generation_id_or_member_epoch"] + 1}
    response = world.ask(producer.request({"foo-0": 9}, **stale))
    assert (code(response), response.error_class) == (ErrorCode.ILLEGAL_GENERATION, ErrorClass.ABORT)
    producer.ends(ABORT)
    assert world.offsets.fetches("foo-0", stable=True) == {"foo-0": -1}
    assert producer.commits({"foo-0": 6}, **identity(member)) == {"foo-0": OK}


@case(246)
def test_offsets_are_counted_once_and_those_that_wait_apart() -> None:
    world = group_world()
    world.offsets.commits({"foo-0": 1})
    producer = world.offsets.producer()
    producer.commits({"foo-0": 2, "foo-1": 2})
    assert world.offsets.counts() == (2, 2, 1)
    producer.ends(COMMIT)
    assert world.offsets.counts() == (2, 0, 0)
    shards = world.inside.runtime.shards(Coordinator.GROUPS)
    assert sum(shard.part(Offsets).counts().offsets for shard in shards) == 2
