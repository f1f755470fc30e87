"""The history of every kind of step, the newest first, whether outcomes are fused or split.

The scenarios end with the check of the store, which compares the newest step of every id with its state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from coordinator_protocol.marker import Outcome
from tests.conformance.transactions.case_world import EIGHT_DAYS_MS
from tests.harness.world import TransactContents
from tests.transactions.administered import ABORT, CLIENT, COMMIT, RIVAL, Administered
from txn_coordinator.config import TwoPhase
from txn_coordinator.history import StepDescription
from txn_coordinator.state import Identity


@dataclass
class Story:
    """Calls for the id `a`, and their history. If the outcomes are split, the server completes them."""

    play: Callable[[Administered], None]
    told: list[str]
    """Lines of state, cause, client and participants; `*` behind the client: the server where outcomes are split."""


def _transact(world: Administered, identity: Identity, contents: TransactContents, outcome: Outcome) -> None:
    done = world.transact("a", identity, contents, outcome, replace(CLIENT, request_id=b"r" * 16))
    world.settle()
    done.result()


def _ended(world: Administered) -> None:
    identity = world.opened("a", "t-0", "t-1")
    world.commit_offset("a", identity, "readers", 3, CLIENT)
    world.settle()
    world.end("a", identity, COMMIT, CLIENT)


def _transacted(world: Administered) -> None:
    identity = world.ready("a")
    contents = TransactContents([("t-0", ["x"], 0), ("t-1", ["y"], 0)], [("readers", "t-0", 1)])
    _transact(world, identity, contents, COMMIT)


def _transacted_what_was_open(world: Administered) -> None:
    identity = world.opened("a", "t-0")
    _transact(world, identity, TransactContents([("t-1", ["y"], 0)]), ABORT)


def _timed_out(world: Administered) -> None:
    world.opened("a")
    world.tick(60_001)


def _fenced(world: Administered) -> None:
    world.opened("a")
    world.ready("a", RIVAL)


def _fenced_by_hand(world: Administered) -> None:
    world.opened("a")
    world.fence("a")


def _aborted_by_hand(world: Administered) -> None:
    world.opened("a")
    world.abort("a")


def _lost_its_topic(world: Administered) -> None:
    world.opened("a", "t-0", "t-1")
    world.delete_topic("t")


def _prepared_kept_and_decided(world: Administered) -> None:
    identity = world.opened("a")
    prepared = world.prepare("a", identity, CLIENT)
    world.settle()
    prepared.result()
    kept = world.recover("a", RIVAL, enable_2pc=True, keep_prepared=True)
    world.settle()
    world.end("a", kept.result().identity, COMMIT, RIVAL)


def _expired_and_came_back(world: Administered) -> None:
    world.ready("a")
    world.tick(EIGHT_DAYS_MS)
    world.ready("a", RIVAL)


STORIES = {
    "end": Story(
        _ended,
        [
            "CompleteCommit client billing* 0",
            "PrepareCommit client billing 3",
            "Ongoing add billing 3",
            "Ongoing add billing 2",
            "Ongoing add billing 1",
            "Empty init billing 0",
        ],
    ),
    "transact": Story(
        _transacted,
        [
            "CompleteCommit client billing* 0",
            "PrepareCommit client billing 3",
            "Empty init billing 0",
        ],
    ),
    "transact what was open": Story(
        _transacted_what_was_open,
        [
            "CompleteAbort client billing* 0",
            "PrepareAbort client billing 2",
            "Ongoing add billing 1",
            "Empty init billing 0",
        ],
    ),
    "timeout": Story(
        _timed_out,
        [
            "CompleteAbort timeout - 0",
            "PrepareAbort timeout - 1",
            "Ongoing add billing 1",
            "Empty init billing 0",
        ],
    ),
    "fence": Story(
        _fenced,
        [
            "Empty init billing-2 0",
            "CompleteAbort fence billing-2* 0",
            "PrepareAbort fence billing-2 1",
            "Ongoing add billing 1",
            "Empty init billing 0",
        ],
    ),
    "fence by hand": Story(
        _fenced_by_hand,
        [
            "Empty admin txnctl 0",
            "CompleteAbort admin txnctl* 0",
            "PrepareAbort admin txnctl 1",
            "Ongoing add billing 1",
            "Empty init billing 0",
        ],
    ),
    "abort by hand": Story(
        _aborted_by_hand,
        [
            "CompleteAbort admin txnctl* 0",
            "PrepareAbort admin txnctl 1",
            "Ongoing add billing 1",
            "Empty init billing 0",
        ],
    ),
    "topic deleted": Story(
        _lost_its_topic,
        [
            "CompleteAbort topic_deleted - 0",
            "PrepareAbort topic_deleted - 2",
            "Ongoing add billing 2",
            "Ongoing add billing 1",
            "Empty init billing 0",
        ],
    ),
    "prepared, kept and decided": Story(
        _prepared_kept_and_decided,
        [
            "CompleteCommit client billing-2* 0",
            "PrepareCommit client billing-2 1",
            "Ongoing keep billing-2 1",
            "Ongoing prepare billing 1",
            "Ongoing add billing 1",
            "Empty init billing 0",
        ],
    ),
    "expired": Story(
        _expired_and_came_back,
        [
            "Empty init billing-2 0",
            "forgotten expire - -",
            "Empty init billing 0",
        ],
    ),
}


def line(step: StepDescription) -> str:
    state, count = ("forgotten", "-") if step.after is None else (step.after.state_name, step.after.participant_count)
    return f"{state} {step.cause} {step.client_id or '-'} {count}"


@pytest.mark.parametrize("two_phase", list(TwoPhase))
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_the_history_tells_each_step(story: Story, two_phase: TwoPhase) -> None:
    world = Administered(two_phase)
    story.play(world)
    world.settle()
    expected = [
        " ".join(
            (word[:-1] if two_phase is TwoPhase.FUSED else "-") if word.endswith("*") else word for word in told.split()
        )
        for told in story.told
    ]
    found = world.history("a")
    assert found.is_complete
    assert [line(step) for step in found.steps] == expected
    world.crash()
    world.settle()
    assert world.history("a") == found, "the same after a start"
    world.check_stored()


@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_a_decision_tells_what_its_markers_say_and_whom_it_was_for(two_phase: TwoPhase) -> None:
    """The next transaction of the id, with other partitions, changes nothing of what was decided."""
    world = Administered(two_phase)
    identity = world.opened("a", "t-0", "t-1")
    world.commit_offset("a", identity, "readers", 3, CLIENT)
    world.settle()
    ended = world.end("a", identity, COMMIT, CLIENT)
    world.settle()
    following = ended.result().next_identity
    world.produce("a", following, "t-0", ["y"], sequence=0, context=CLIENT)
    world.settle()
    world.end("a", following, ABORT, CLIENT)
    world.settle()
    decisions = [
        step.after.decided
        for step in world.history("a").steps
        if step.after is not None and step.after.state_name.startswith("Prepare") and step.after.decided is not None
    ]
    assert [(each.producer_id, each.txn_epoch, each.next_epoch) for each in decisions] == [
        (following.producer_id, following.producer_epoch, following.producer_epoch + 1),
        (identity.producer_id, identity.producer_epoch, identity.producer_epoch + 1),
    ]
    assert [set(each.partitions) for each in decisions] == [
        {world.ordinal("t-0")},
        {world.ordinal("t-0"), world.ordinal("t-1")},
    ]
    assert [each.groups for each in decisions] == [(), ("readers",)]
