"""Batches that are too large for one commit group, and many of them."""

from __future__ import annotations

import itertools
import time

import pytest

from coordinator_runtime.ports import CallContext
from tests.sinks.room import SinkRoom
from txn_coordinator.config import TwoPhase
from txn_coordinator.sinks.decisions import PARTICIPANTS_AT_ONCE

MEMBERS, PARTITIONS = 200, 50


def large_batch(room: SinkRoom) -> list[str]:
    """A sealed batch of so many members in so many partitions, and not decided; the partitions."""
    names = [f"t-{number}" for number in range(PARTITIONS)]
    members = []
    for number in range(MEMBERS):
        member = room.member(0)
        assert room.write(member, names[number % PARTITIONS], f"r{number}") is None
        for name in names:
            if name not in member.sequences:
                pending = room.world.produce(member.transactional_id, member.identity, name, ["x"], sequence=0)
                pending.on_settled(lambda _done: None)
                member.sequences[name] = 1
        room.world.flush()
        room.seal(member)
        members.append(member)
    pending_commit = room.ask_commit(0, members)
    room.world.flush()
    pending_commit.result()
    return names


@pytest.mark.slow
@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_a_batch_of_200_members_in_50_partitions_is_carried_out_in_slices(two_phase: TwoPhase) -> None:
    """The decision is one step, and no step after it takes more markers than a slice or a member has."""
    room = SinkRoom(two_phase=two_phase, partition_count=PARTITIONS)
    names = large_batch(room)
    seconds, appended = [], []
    for _ in range(100_000):
        before = sum(room.world.read(name, is_raw=True).high_watermark for name in names[:1])
        began = time.perf_counter()
        room.world.tick(1)
        is_busy = room.world.flush()
        seconds.append(time.perf_counter() - began)
        appended.append(sum(room.world.read(name, is_raw=True).high_watermark for name in names[:1]) - before)
        described = room.describe()
        assert described.sink is not None
        if not is_busy and not described.members and not described.sink.committing:
            break
    print(f"longest turn {max(seconds) * 1_000:.1f} ms of {len(seconds)}")
    assert max(appended) <= max(1, PARTICIPANTS_AT_ONCE // PARTITIONS) + 1, "markers of one partition in one turn"
    for name in names:
        assert len(room.seen(name)) == MEMBERS
        assert not room.world.remembered(name)
    room.world.check_stored()


@pytest.mark.slow
def test_ten_thousand_micro_batches_leave_nothing_but_what_they_wrote() -> None:
    room = SinkRoom()
    counts = []
    for batch_id in itertools.count():
        room.commit(batch_id, room.written(batch_id, "a"), room.written(batch_id, "b"))
        if batch_id in (10, 10_000):
            counts.append((room.row_counts(), room.members_in_memory()))
        if batch_id == 10_000:
            break
    assert counts[0] == counts[1]
    assert room.world.read("t-0", fetch_offset=0).high_watermark == 10_001 * 4


def test_who_may_join_is_told_while_a_large_decision_is_carried_out() -> None:
    """The next batch begins at once; its decision waits for the one before."""
    room = SinkRoom(two_phase=TwoPhase.SPLIT)
    first = room.written(0, "a")
    held = room.ask_commit(0, [first])
    room.world.flush()
    assert held.is_settled
    second = room.written(1, "b")
    decided = room.ask_commit(1, [second])
    room.answer(decided)
    room.settle()
    assert room.seen("t-0") == ["a", "b"]
    assert room.world.inside.core.transactions.sinks.describe_sinks([], CallContext())[0].name == "spark/query"
