"""Batches that are too large for one commit group, and many of them."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import NamedTuple

import pytest

from bench.processes import resident_mib
from coordinator_runtime.decision import IDS_REMEMBERED
from coordinator_runtime.ports import CallContext
from coordinator_runtime.store import Family
from tests.harness.world import World
from tests.sinks.world import sink_world
from txn_coordinator.config import TwoPhase
from txn_coordinator.sinks.decisions import PARTICIPANTS_AT_ONCE

MEMBERS, PARTITIONS = 200, 50
MICRO_BATCHES = 10_000
WRITTEN = (Family.LOG, Family.ABORTED, Family.HISTORY)
ROW_BYTES_MAX = 600
"""Memory of the process for a row at most: key, value and the places that lead to them."""


def large_batch(world: World) -> list[str]:
    """A sealed batch of so many members in so many partitions, and not decided; the partitions."""
    names = [f"t-{number}" for number in range(PARTITIONS)]
    members = []
    for number in range(MEMBERS):
        member = world.sinks.member(0)
        assert world.sinks.write(member, names[number % PARTITIONS], f"r{number}") is None
        for name in names:
            if name not in member.sequences:
                pending = world.produce(member.transactional_id, member.identity, name, ["x"], sequence=0)
                pending.on_settled(lambda _done: None)
                member.sequences[name] = 1
        world.flush()
        world.sinks.seal(member)
        members.append(member)
    pending_commit = world.sinks.ask_commit(0, members)
    world.flush()
    pending_commit.result()
    return names


@pytest.mark.slow
@pytest.mark.parametrize("two_phase", [TwoPhase.FUSED, pytest.param(TwoPhase.SPLIT, marks=pytest.mark.long)])
def test_a_batch_of_200_members_in_50_partitions_is_carried_out_in_slices(two_phase: TwoPhase) -> None:
    """The decision is one step, and no step after it takes more markers than a slice or a member has."""
    world = sink_world(two_phase=two_phase, partition_count=PARTITIONS)
    names = large_batch(world)
    seconds, appended = [], []
    for _ in range(100_000):
        before = sum(world.read(name, is_raw=True).high_watermark for name in names[:1])
        began = time.perf_counter()
        world.tick(1)
        is_busy = world.flush()
        seconds.append(time.perf_counter() - began)
        appended.append(sum(world.read(name, is_raw=True).high_watermark for name in names[:1]) - before)
        described = world.sinks.describe()
        assert described.sink is not None
        if not is_busy and not described.members and not described.sink.committing:
            break
    print(f"longest turn {max(seconds) * 1_000:.1f} ms of {len(seconds)}")
    assert max(appended) <= max(1, PARTICIPANTS_AT_ONCE // PARTITIONS) + 1, "markers of one partition in one turn"
    for name in names:
        assert len(world.sinks.seen(name)) == MEMBERS
        assert not world.remembered(name)
    world.check_stored()


class Standing(NamedTuple):
    """Members and rows after a number of micro-batches."""

    members: int
    kept: dict[Family, int]
    """Rows of families that must not grow."""
    written: dict[Family, int]
    """Rows of families that grow with what is written: log, outcomes, history."""
    rows: int
    """All of them, which the store of this test holds in memory: a key and a value each."""
    blocks: int
    """Pieces of memory that Python has handed out in this process and not got back."""
    resident_mib: float


def standing(world: World) -> Standing:
    gc.collect()
    return Standing(
        members=world.sinks.members_in_memory(),
        kept=world.sinks.row_counts(),
        written=world.sinks.row_counts(*WRITTEN),
        rows=sum(world.sinks.row_counts(*Family).values()),
        blocks=sys.getallocatedblocks(),
        resident_mib=resident_mib(os.getpid()) or 0.0,
    )


@pytest.mark.slow
@pytest.mark.long
def test_ten_thousand_micro_batches_leave_nothing_but_what_they_wrote() -> None:
    """Each has a member in two partitions, and one that is not chosen."""
    world = sink_world()
    found: dict[int, Standing] = {}
    for batch_id in range(MICRO_BATCHES + 1):
        world.sinks.written(batch_id, "loser", partitions=("t-0",))
        world.sinks.commit(batch_id, world.sinks.written(batch_id, "a"))
        if batch_id in (10, 20, 1_000, MICRO_BATCHES):
            found[batch_id] = standing(world)
    first, second, early, late = found.values()
    assert (first.members, first.kept) == (late.members, late.kept)
    for family in WRITTEN:
        of_ten = second.written[family] - first.written[family]
        assert late.written[family] - first.written[family] == of_ten * (MICRO_BATCHES - 10) // 10, family
    # One row in the log for each batch of records and each marker, and one outcome for each producer that readers must
    # leave out.
    assert second.written[Family.LOG] - first.written[Family.LOG] == 10 * 6
    assert second.written[Family.ABORTED] - first.written[Family.ABORTED] == 10
    rows = late.rows - early.rows
    print(f"{rows} rows, {late.blocks - early.blocks} blocks, {late.resident_mib - early.resident_mib:.1f} MiB more")
    assert late.blocks - early.blocks < 2 * rows + 2 * IDS_REMEMBERED + 1_000, "less than one of a batch stays"
    assert late.resident_mib - early.resident_mib < rows * ROW_BYTES_MAX / 2**20


def test_who_may_join_is_told_while_a_large_decision_is_carried_out() -> None:
    """The next batch begins at once; its decision waits for the one before."""
    world = sink_world(two_phase=TwoPhase.SPLIT)
    first = world.sinks.written(0, "a")
    held = world.sinks.ask_commit(0, [first])
    world.flush()
    assert held.is_settled
    second = world.sinks.written(1, "b")
    decided = world.sinks.ask_commit(1, [second])
    world.sinks.answer(decided)
    world.sinks.settle()
    assert world.sinks.seen("t-0") == ["a", "b"]
    assert world.inside.core.transactions.sinks.describe_sinks([], CallContext())[0].name == "spark/query"
