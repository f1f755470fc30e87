"""The history is trimmed by age, from its beginning, and goes on where it was."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.marker import Outcome
from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.history_trim import FOR_EVER, HistoryTrim
from coordinator_runtime.rows import ShardHistory, StagedStep, older_history, steps_of
from coordinator_runtime.store import CommitGroup, Family
from coordinator_runtime.store_readers import ReadsAtOnce
from tests.harness.memory_store import Damage, MemoryStore
from tests.harness.world import World

SHARD = ShardKey(Coordinator.GROUPS, 7)
NEIGHBOURS = (ShardKey(Coordinator.GROUPS, 6), ShardKey(Coordinator.GROUPS, 8))
DAY_MS = 86_400_000


def write(store: MemoryStore, shard: ShardKey, rows: list[tuple[int, int]]) -> None:
    """Rows of so many steps each, at their times."""
    history = ShardHistory(store, shard)
    told = msgspec.Raw(msgspec.msgpack.encode(True))
    for wall_ms, step_count in rows:
        steps: list[StagedStep] = [(1, b"key", wall_ms, ("", "", ""), told)] * step_count
        store.write([CommitGroup(store.version() + 1, [history.row(steps)])])


def times(store: MemoryStore, shard: ShardKey) -> list[int]:
    prefix = bytes([shard.coordinator]) + shard.number.to_bytes(2, "big")
    rows = store.scan(Family.HISTORY, prefix, prefix + b"\xff" * 9)
    return [next(steps_of(*row)).wall_ms for row in rows]


def trim(store: MemoryStore, before_ms: int) -> None:
    old = older_history(store, SHARD, before_ms)
    if old is not None:
        store.write([CommitGroup(store.version() + 1, [], [old])])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), max_size=9), st.integers(0, 50))
def test_what_is_older_goes_but_for_the_newest(gaps: list[tuple[int, int]], before_ms: int) -> None:
    store, wall_ms, rows = MemoryStore(), 0, []
    for gap_ms, step_count in gaps:
        wall_ms += gap_ms
        rows.append((wall_ms, step_count))
    for shard in (*NEIGHBOURS, SHARD):
        write(store, shard, rows)
    next_number = ShardHistory(store, SHARD).next_number
    trim(store, before_ms)
    written = [at_ms for at_ms, _count in rows]
    assert times(store, SHARD) == [at_ms for at_ms in written[:-1] if at_ms >= before_ms] + written[-1:]
    assert [times(store, shard) for shard in NEIGHBOURS] == [written, written]
    assert ShardHistory(store, SHARD).next_number == next_number
    assert older_history(store, SHARD, before_ms) is None


def rounds(world: World, retention_ms: int) -> None:
    for _step in HistoryTrim(world.inside.runtime, ReadsAtOnce(world.shelf.store), retention_ms).round():
        world.settle()


def with_history() -> World:
    world = World()
    world.create_topic("t", 1)
    for number in range(3):
        identity = world.init("a")
        world.settle()
        world.add("a", identity.result(), ["t-0"])
        world.end("a", identity.result(), Outcome.ABORT)
        world.settle()
        world.clock.advance(DAY_MS * (number < 2))
    return world


def steps(world: World) -> int:
    return sum(len([*steps_of(*row)]) for row in world.shelf.store.scan(Family.HISTORY, b"\x03", b"\x04"))


def test_a_world_goes_on_with_what_is_left() -> None:
    world = with_history()
    before = steps(world)
    rounds(world, FOR_EVER)
    assert steps(world) == before
    rounds(world, DAY_MS)
    assert 0 < steps(world) < before
    world.check_replay()
    world.check_stored()
    world.crash()
    world.init("a")
    world.settle()
    world.check_stored()


def test_a_row_that_cannot_be_read_stays_and_holds_up_no_other_shard() -> None:
    world = with_history()
    store = world.shelf.store
    assert isinstance(store, MemoryStore)
    first, _value = next(store.scan(Family.HISTORY, b"\x03", b"\x04"))
    store.damage(Family.HISTORY, first, Damage.BLOCK)
    topics = len([*store.scan(Family.HISTORY, b"\x01", b"\x02")])
    rounds(world, 1)
    assert first in [key for key, _value in store.scan_unverified(Family.HISTORY, b"\x03", b"\x04")]
    assert len([*store.scan(Family.HISTORY, b"\x01", b"\x02")]) == min(topics, 1)
