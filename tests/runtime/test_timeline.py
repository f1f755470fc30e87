"""Live, durable, taken back: against a model that copies the whole dictionary for every change."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coordinator_runtime.timeline import Journal, TimelineMap

KEYS = st.sampled_from("abcd")
NUMBERS = st.integers(0, 9)
Plain = dict[str, int]


def has_undurable_change(timeline: TimelineMap[str, int], key: str) -> bool:
    """Return whether the map keeps an older value of the key, which is the durable one."""
    timeline.durable(key)
    return key in timeline._replaced


class TimelineMachine(RuleBasedStateMachine):
    """Two maps share one journal, as all shards do. `states` holds a full copy after every change since the last
    durable one; its first entry is what is on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.journal = Journal()
        self.maps: tuple[TimelineMap[str, int], TimelineMap[str, int]] = (
            TimelineMap(self.journal),
            TimelineMap(self.journal),
        )
        self.states: list[tuple[Plain, Plain]] = [({}, {})]
        self.positions: list[int] = [self.journal.position()]

    @property
    def live(self) -> tuple[Plain, Plain]:
        return self.states[-1]

    def _changed(self, which: int, plain: Plain) -> None:
        after = (plain, self.live[1]) if which == 0 else (self.live[0], plain)
        self.states.append(after)
        self.positions.append(self.journal.position())

    @rule(which=st.integers(0, 1), key=KEYS, number=NUMBERS)
    def put(self, which: int, key: str, number: int) -> None:
        self.maps[which].put(key, number)
        self._changed(which, {**self.live[which], key: number})

    @rule(which=st.integers(0, 1), key=KEYS)
    def remove(self, which: int, key: str) -> None:
        self.maps[which].remove(key)
        self._changed(which, {kept: number for kept, number in self.live[which].items() if kept != key})

    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(0, len(self.states) - 1))
        self.journal.roll_back(self.positions[to])
        del self.states[to + 1 :]
        del self.positions[to + 1 :]

    @rule(data=st.data())
    def make_durable(self, data: st.DataObject) -> None:
        to = data.draw(st.integers(0, len(self.states) - 1))
        self.journal.make_durable(self.positions[to])
        del self.states[:to]
        del self.positions[:to]

    @rule(which=st.integers(0, 1), key=KEYS, number=NUMBERS)
    def load(self, which: int, key: str, number: int) -> None:
        """Loading fills an untouched map; here: a key that no undurable change concerns."""
        if any(state[which] is not self.states[0][which] and key in state[which] for state in self.states):
            return
        if key in self.states[0][which] or has_undurable_change(self.maps[which], key):
            return
        with self.journal.loading():
            self.maps[which].put(key, number)
        self.states = [
            ({**state[0], key: number}, state[1]) if which == 0 else (state[0], {**state[1], key: number})
            for state in self.states
        ]

    @invariant()
    def live_readings_agree(self) -> None:
        for timeline, live in zip(self.maps, self.live, strict=True):
            assert dict(timeline.items()) == live
            assert sorted(timeline.values()) == sorted(live.values())
            assert len(timeline) == len(live)
            for key in "abcd":
                assert timeline.get(key) == live.get(key)
                assert (key in timeline) == (key in live)

    @rule()
    def durable_readings_agree(self) -> None:
        """Not after every step, so that some values are never looked up in between."""
        for timeline, live, durable in zip(self.maps, self.live, self.states[0], strict=True):
            assert dict(timeline.durable_items()) == durable
            assert len(list(timeline.durable_items())) == len(durable), "a key is listed twice"
            assert timeline.is_gone <= (not live and not durable)
            for key in "abcd":
                assert timeline.durable(key) == durable.get(key)
                if not has_undurable_change(timeline, key):
                    assert live.get(key) == durable.get(key)


TimelineMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestTimeline = TimelineMachine.TestCase


def test_with_ascending_keys_a_removal_taken_back_restores_the_order() -> None:
    journal = Journal()
    ongoing: TimelineMap[int, str] = TimelineMap(journal, keys_ascend=True)
    for offset in (1, 5, 9):
        ongoing.put(offset, "first offset")
    savepoint = journal.position()
    ongoing.remove(1)
    ongoing.remove(9)
    ongoing.put(12, "first offset")
    journal.roll_back(savepoint)
    assert [offset for offset, _ in ongoing.items()] == [1, 5, 9]


@pytest.mark.parametrize("asked_after", [0, 50, 100])
def test_nothing_is_kept_of_what_is_durable(asked_after: int) -> None:
    journal = Journal()
    timeline: TimelineMap[str, int] = TimelineMap(journal)
    for number in range(100):
        if number == asked_after:
            assert timeline.durable("a") is None
        timeline.put("a", number)
    if asked_after == 100:
        assert timeline.durable("a") is None
    journal.make_durable(journal.position())
    assert len(journal._entries) == 0
    assert timeline._replaced == {}
    assert timeline.durable("a") == 99
