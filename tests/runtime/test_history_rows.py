"""The rows of history: all staged steps can be read, and steps are numbered without gaps whatever happens."""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_runtime.decision import Coordinator, ShardKey
from coordinator_runtime.rows import (
    STEP_BYTES,
    HistoryRow,
    ShardHistory,
    StagedStep,
    steps_backwards,
    steps_of,
)
from coordinator_runtime.store import CommitGroup, Family, StoreDamaged
from tests.harness.memory_store import MemoryStore

SHARD = ShardKey(Coordinator.GROUPS, 7)
OTHER = ShardKey(Coordinator.GROUPS, 8)
_HISTORY_KEY: Final = struct.Struct(">BHQ")


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
    store.write([CommitGroup(store.version() + 1, [history.row(steps)])])


def all_steps(store: MemoryStore) -> list[HistoryRow]:
    return [step for row in store.scan(Family.HISTORY, b"", b"\xff") for step in steps_of(*row)]


def plain(steps: list[HistoryRow]) -> list[Any]:
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
        assert history.next_number == len(durable)
    assert plain(all_steps(store)) == staged(durable)
    assert [step.number for step in all_steps(store)] == list(range(len(durable)))


@given(groups_of_steps, st.data())
def test_the_steps_of_a_key_are_found_from_any_step_on_backwards(
    groups: list[list[StagedStep]], data: st.DataObject
) -> None:
    store = MemoryStore()
    history, neighbour = ShardHistory(store, SHARD), ShardHistory(store, OTHER)
    for steps in groups:
        commit(store, neighbour, steps)
        commit(store, history, steps)
    end = data.draw(st.integers(0, history.next_number), label="end")
    every = [step for step in all_steps(store) if step.shard == SHARD and step.number < end]
    firsts = [
        _HISTORY_KEY.unpack(key)[2] for key, _ in store.scan(Family.HISTORY, b"", b"\xff") if key[2] == SHARD.number
    ]
    for record_type, key in {(step.record_type, step.key) for step in every} | {(0, b"a"), (1, b"c")}:
        rows = list(steps_backwards(store, SHARD, record_type, key, end=end))
        assert [first for first, _found in rows] == [first for first in reversed(firsts) if first < end]
        told = [step for _first, found in rows for step in found]
        assert told == [step for step in reversed(every) if (step.record_type, step.key) == (record_type, key)]


def test_the_numbers_go_on_where_all_but_the_newest_row_was_trimmed() -> None:
    store = MemoryStore()
    history = ShardHistory(store, SHARD)
    for at_ms in range(3):
        commit(
            store,
            history,
            [(1, b"a", at_ms, ("c", "h", "why"), _told(1)), (1, b"b", at_ms, ("c", "h", "why"), _told(1))],
        )
    commit(store, ShardHistory(store, OTHER), [(1, b"a", 5, ("c", "h", "why"), _told(1))])
    newest = _HISTORY_KEY.pack(*SHARD, 4)
    trimmed = (Family.HISTORY, _HISTORY_KEY.pack(*SHARD, 0), newest)
    store.write([CommitGroup(store.version() + 1, [], [trimmed])])
    assert [(step.shard, step.number) for step in all_steps(store)] == [(SHARD, 4), (SHARD, 5), (OTHER, 0)]
    assert ShardHistory(store, SHARD).next_number == 6


def test_what_is_no_row_is_damage() -> None:
    step = (1, b"a", 0, 0, True)
    whom = ("c", "h", "why")
    for spoiled in (
        b"",
        b"\xc1",
        msgspec.msgpack.encode((5, [whom])),
        *(msgspec.msgpack.encode((5, table, [step])) for table in ([], [("c", "h")])),
        msgspec.msgpack.encode((5, [whom], [(1, b"a", 0, -1, True)])),
    ):
        with pytest.raises(StoreDamaged) as damaged:
            list(steps_of(_HISTORY_KEY.pack(*SHARD, 0), spoiled))
        assert damaged.value.family is Family.HISTORY


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
