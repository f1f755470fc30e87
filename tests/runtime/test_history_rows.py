"""The rows of history: whatever was staged is told again, and steps are numbered without gaps whatever happens."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.rows import (
    STEP_BYTES,
    ShardHistory,
    StagedStep,
    Step,
    steps_backwards,
    steps_of,
)
from coordinator_runtime.store import CommitGroup, Family
from tests.harness.memory_store import MemoryStore

SHARD = ShardKey(Coordinator.GROUPS, 7)
OTHER = ShardKey(Coordinator.GROUPS, 8)


def _told(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


names = st.text(max_size=5)
times_ms = st.integers(0, 2**42)
told_values = (
    st.none() | st.booleans() | st.integers(0, 2**31) | st.tuples(st.integers(0, 9), st.lists(names, max_size=2))
)
staged_steps = st.builds(
    lambda record_type, key, at_ms, whom, told: (record_type, key, at_ms, whom, _told(told)),
    st.integers(0, 255),
    st.sampled_from([b"a", b"aa", b"b", b"\x00\xff"]),
    times_ms,
    st.tuples(names, names, names),
    told_values,
)
groups_of_steps = st.lists(st.lists(staged_steps, min_size=1, max_size=6), min_size=1, max_size=6)


def commit(store: MemoryStore, history: ShardHistory, steps: list[StagedStep]) -> None:
    history.end += len(steps)
    store.write([CommitGroup(store.version() + 1, [history.row(steps)])])


def all_steps(store: MemoryStore) -> list[Step]:
    return [step for row in store.scan(Family.HISTORY, b"", b"\xff") for step in steps_of(*row)]


def plain(steps: list[Step]) -> list[Any]:
    """Steps as they were staged, without their numbers."""
    return [
        (step.record_type, step.key, step.wall_ms, (step.client_id, step.host, step.cause), bytes(step.told))
        for step in steps
    ]


def staged(steps: list[StagedStep]) -> list[Any]:
    return [(*step[:4], bytes(step[4])) for step in steps]


@given(groups_of_steps, st.data())
def test_what_was_staged_is_told_in_order_over_crashes_and_restarts(
    groups: list[list[StagedStep]], data: st.DataObject
) -> None:
    store = MemoryStore()
    history, durable = ShardHistory(store, SHARD), []
    for steps in groups:
        commit(store, history, steps)
        if data.draw(st.booleans(), label="is synced"):
            store.sync()
            durable = [*durable, *steps]
        else:
            store = store.crash()
            history = ShardHistory(store, SHARD)
        assert history.next_number == history.end == len(durable)
    assert plain(all_steps(store)) == staged(durable)
    assert [step.number for step in all_steps(store)] == list(range(len(durable)))


@given(groups_of_steps, st.integers(1, 8))
def test_the_steps_of_a_key_are_found_from_the_newest_on_in_parts(
    groups: list[list[StagedStep]], steps_max: int
) -> None:
    store = MemoryStore()
    history, neighbour = ShardHistory(store, SHARD), ShardHistory(store, OTHER)
    for steps in groups:
        commit(store, neighbour, steps)
        commit(store, history, steps)
    for key in (b"a", b"aa", b"c"):
        found, end = [], history.end
        while end:
            part, reached = steps_backwards(store, SHARD, key, end=end, steps_max=steps_max)
            assert reached < end, "every part gets further"
            found, end = [*found, *part], reached
        assert found == [step for step in reversed(all_steps(store)) if step.shard == SHARD and step.key == key]


def test_a_step_that_is_not_durable_yet_lies_behind_the_end_that_was_named() -> None:
    store = MemoryStore()
    history = ShardHistory(store, SHARD)
    commit(store, history, [(1, b"a", 5, ("c", "h", "early"), _told(1))])
    end = history.end
    commit(store, history, [(1, b"a", 6, ("c", "h", "late"), _told(2))])
    (found,), reached = steps_backwards(store, SHARD, b"a", end=end, steps_max=10)
    assert (found.cause, reached) == ("early", 0)


@given(st.lists(staged_steps, min_size=1, max_size=20))
def test_a_row_is_about_as_large_as_was_counted(steps: list[StagedStep]) -> None:
    _family, _key, row = ShardHistory(MemoryStore(), SHARD).row(steps)
    assert row is not None
    shared = 16 + sum(5 + len(name.encode()) for whom in {step[3] for step in steps} for name in whom)
    assert len(row) <= shared + sum(STEP_BYTES + len(step[1]) + len(step[4]) for step in steps)


def test_what_a_newer_program_adds_to_the_arrays_is_passed_over() -> None:
    step = (1, b"a", 0, 0, {"state": 9}, "more")
    row = msgspec.msgpack.encode((5, [("c", "h", "why", "more")], [step], "more"))
    (found,) = steps_of(b"\x04\x00\x07" + bytes(8), row)
    assert (found.shard, found.cause, msgspec.msgpack.decode(found.told)) == (SHARD, "why", {"state": 9})
