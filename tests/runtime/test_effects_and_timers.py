"""Effects start after durability, in order; timers expire once, on the monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.clock import FORGOTTEN_AT_ONCE, Timers
from coordinator_runtime.decision import ArmTimer, CancelTimer
from coordinator_runtime.runtime import EXPIRE_AGAIN_MS, TIMERS_US_MAX
from tests.runtime.ledger import Ledger, look, put, put_unless, refuse, remove


@dataclass(frozen=True, slots=True)
class Said:
    """An effect that only wants to be heard."""

    word: str


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def heard(ledger: Ledger) -> list[str]:
    words: list[str] = []
    ledger.runtime.handle_effect(Said, lambda said: words.append(said.word))
    return words


class TestEffects:
    def test_an_effect_starts_when_its_operation_is_durable(self, ledger: Ledger, heard: list[str]) -> None:
        ledger.runtime.write(put("a", 1, effects=(Said("one"), Said("two"))))
        ledger.runtime.groups.seal()
        assert heard == []
        ledger.driver.flush()
        assert heard == ["one", "two"]

    def test_an_effect_without_records_waits_for_the_state_it_was_decided_on(
        self, ledger: Ledger, heard: list[str]
    ) -> None:
        ledger.runtime.write(put("a", 1, effects=(Said("first"),)))
        ledger.runtime.write(look("a", effects=(Said("second"),)))
        assert heard == []
        ledger.driver.flush()
        assert heard == ["first", "second"]

    def test_an_effect_without_records_on_durable_state_starts_at_once(self, ledger: Ledger, heard: list[str]) -> None:
        ledger.runtime.write(look("a", effects=(Said("now"),)))
        assert heard == ["now"]

    def test_a_refused_operation_has_no_effects(self, ledger: Ledger, heard: list[str]) -> None:
        ledger.runtime.write(put("a", 1, effects=(Said("never"),), joins=(refuse(),)))
        ledger.driver.settle()
        assert heard == []

    def test_answers_come_before_effects(self, ledger: Ledger, heard: list[str]) -> None:
        ledger.runtime.write(put("a", 1, effects=(Said("effect"),))).on_settled(lambda _reply: heard.append("answer"))
        ledger.driver.flush()
        assert heard == ["answer", "effect"]


class TestTimers:
    def test_a_timer_expires_after_its_delay_counted_from_the_decision(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1, effects=(ArmTimer("t", 100, put("expired", 1)),)))
        ledger.clock.advance(40)
        ledger.driver.flush()
        ledger.tick(59)
        assert "expired" not in ledger.first.live()
        ledger.tick(1)
        assert "expired" in ledger.first.live()

    def test_a_cancelled_timer_does_not_expire(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1, effects=(ArmTimer("t", 100, put("expired", 1)),)))
        ledger.runtime.write(put("a", 2, effects=(CancelTimer("t"),)))
        ledger.driver.flush()
        ledger.tick(1000)
        assert ledger.first.live() == {"a": 2}

    def test_a_step_of_the_wall_clock_moves_no_deadline(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1, effects=(ArmTimer("t", 100, put("expired", 1)),)))
        ledger.driver.flush()
        ledger.clock.step_wall(1_000_000)
        ledger.tick(99)
        ledger.clock.step_wall(-2_000_000)
        assert "expired" not in ledger.first.live()
        ledger.tick(1)
        assert "expired" in ledger.first.live()

    def test_an_expiry_that_is_refused_comes_again(self, ledger: Ledger) -> None:
        """Otherwise a timeout that met a passing refusal would leave its transaction open for ever."""
        expiry = put_unless("expired", 1, busy="busy")
        ledger.runtime.write(put("busy", 1, effects=(ArmTimer("t", 100, expiry),)))
        ledger.driver.flush()
        ledger.tick(100)
        ledger.runtime.write(remove("busy"))
        ledger.driver.flush()
        ledger.tick(EXPIRE_AGAIN_MS - 1)
        assert "expired" not in ledger.first.live()
        ledger.tick(1)
        assert "expired" in ledger.first.live()

    def test_an_expiry_that_was_refused_gives_way_to_a_timer_armed_since(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1, effects=(ArmTimer("t", 100, refuse(ErrorCode.INVALID_TXN_STATE)),)))
        ledger.driver.flush()
        ledger.runtime.write(put("a", 2))
        ledger.tick(100)  # refused, and the refusal waits for the write above
        ledger.runtime.arm("t", 5_000, lambda: None)
        ledger.driver.flush()
        ledger.tick(EXPIRE_AGAIN_MS)
        assert ledger.runtime.timers.next_deadline_ms() == ledger.clock.monotonic_ms() + 5_000 - EXPIRE_AGAIN_MS


def busy_timers(ledger: Ledger, *deadlines: tuple[str, int], took_us: int = TIMERS_US_MAX) -> list[str]:
    """Timers by name and delay, each of which takes so long. The names of those that ran."""
    ran: list[str] = []

    def run(name: str) -> None:
        ran.append(name)
        ledger.clock.take_us(took_us)

    for name, delay_ms in deadlines:
        ledger.runtime.arm(name, delay_ms, partial(run, name))
    return ran


class TestManyAtOnce:
    def test_those_that_take_too_long_for_one_turn_are_run_in_several_in_their_order(self, ledger: Ledger) -> None:
        ran = busy_timers(ledger, ("third", 20), ("first", 10), ("second", 10), ("later", 60_000))
        ledger.tick(20)
        assert ran == ["first"]
        ledger.runtime.run_due_timers()
        ledger.runtime.run_due_timers()
        ledger.runtime.run_due_timers()
        assert ran == ["first", "second", "third"]

    def test_short_ones_share_a_turn(self, ledger: Ledger) -> None:
        ran = busy_timers(ledger, ("a", 1), ("b", 1), ("c", 1), ("d", 1), took_us=TIMERS_US_MAX // 3 + 1)
        ledger.tick(1)
        assert ran == ["a", "b", "c"]
        ledger.runtime.run_due_timers()
        assert ran == ["a", "b", "c", "d"]

    def test_one_that_is_armed_again_and_again_keeps_no_other_one_waiting(self, ledger: Ledger) -> None:
        ran = busy_timers(ledger, ("b", 5), ("c", 5))

        def step() -> None:
            ran.append("step")
            ledger.runtime.arm("step", 0, step)
            ledger.clock.take_us(TIMERS_US_MAX)

        ledger.runtime.arm("step", 5, step)
        ledger.tick(5)
        for _turn in range(4):
            ledger.runtime.run_due_timers()
        assert ran == ["b", "c", "step", "step", "step"]

    def test_one_that_was_cancelled_between_two_turns_does_not_run(self, ledger: Ledger) -> None:
        ran = busy_timers(ledger, ("a", 1), ("b", 1), ("c", 1))
        ledger.tick(1)
        ledger.runtime.timers.cancel("b")
        ledger.runtime.run_due_timers()
        assert ran == ["a", "c"]
        assert ledger.runtime.timers.next_deadline_ms() is None


class TestTheHeap:
    @given(
        st.lists(
            st.one_of(
                st.tuples(st.just("arm"), st.integers(0, 5), st.integers(0, 50)),
                st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
                st.tuples(st.just("pass"), st.just(0), st.integers(0, 30)),
            ),
            max_size=200,
        )
    )
    def test_it_fires_what_a_plain_list_would_fire(self, steps: list[tuple[str, int, int]]) -> None:
        timers = Timers()
        fired: list[tuple[int, int]] = []
        expected: list[tuple[int, int]] = []
        model: dict[int, tuple[int, int]] = {}  # key -> deadline, order of arming
        now_ms = 0
        for order, (verb, key, number) in enumerate(steps):
            if verb == "arm":
                deadline_ms = now_ms + number
                timers.arm(key, deadline_ms, lambda key=key, deadline_ms=deadline_ms: fired.append((key, deadline_ms)))  # type: ignore[misc]
                model[key] = (deadline_ms, order)
            elif verb == "cancel":
                timers.cancel(key)
                model.pop(key, None)
            else:
                now_ms += number
                for action in timers.due(now_ms):
                    action()
                due = sorted((deadline, order, key) for key, (deadline, order) in model.items() if deadline <= now_ms)
                for deadline, _order, key_due in due:
                    expected.append((key_due, deadline))
                    del model[key_due]
            assert fired == expected
            assert len(timers) == len(model)
            assert timers.by_kind() == {str(key): 1 for key in model}
            assert timers.next_deadline_ms() == min((deadline for deadline, _ in model.values()), default=None)

    def test_what_was_replaced_is_forgotten_some_at_a_time(self) -> None:
        timers = Timers()
        for deadline_ms in (1_000, 2_000):
            for number in range(1_000):
                timers.arm(number, deadline_ms, lambda: None)
        looks = 0
        while timers.next_deadline_ms() == 1_000:
            looks += 1
            assert [*timers.due(999)] == []
        assert looks * FORGOTTEN_AT_ONCE <= 1_000 <= 2 * (looks + 1) * FORGOTTEN_AT_ONCE
        assert timers.next_deadline_ms() == 2_000
        assert len([*timers.due(2_000)]) == 1_000

    def test_a_run_drops_few_of_those_that_were_replaced(self) -> None:
        timers = Timers()
        for deadline_ms in (1_000, 2_000):
            for number in range(1_000):
                timers.arm(number, deadline_ms, lambda: None)
        timers.arm("late", 1_500, lambda: None)
        runs = 1
        while not [*timers.due(1_500)]:
            runs += 1
        assert runs == 1_000 // FORGOTTEN_AT_ONCE

    def test_rearming_for_ever_does_not_grow_the_heap(self) -> None:
        timers = Timers()
        for number in range(10_000):
            timers.arm("t", number, lambda: None)
        assert len(timers._heap) < 200
