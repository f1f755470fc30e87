"""Decisions about timers while the disk takes its time: the newest one speaks for a timer from the moment it is staged.

So whatever a timer is for (the session of a member, the timeout of a transaction, a sweep), it never acts for a reason
that a decision has taken away which is only not durable yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.decision import ArmTimer, CancelTimer, Decision, Operation, Record, Turn
from tests.runtime.ledger import FIRST, Ledger, LedgerShard, Put, look, put, refuse


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def expiry(number: int, fired: list[int]) -> Operation:
    """Return the operation of a timer: it notes which arming let it run, and writes."""

    def decide(_shard: LedgerShard, _turn: Turn) -> Decision:
        fired.append(number)
        return Decision(records=(Record(FIRST, Put("fired", number)),))

    return Operation(FIRST, decide)


@pytest.mark.parametrize("later", [ArmTimer("t", 100, put("late", 1)), CancelTimer("t")])
@pytest.mark.parametrize("decided", [put, look])
def test_a_staged_decision_makes_the_old_deadline_void(
    ledger: Ledger, later: ArmTimer | CancelTimer, decided: Callable[..., Operation]
) -> None:
    ledger.runtime.write(put("a", 1, effects=(ArmTimer("t", 100, put("expired", 1)),)))
    ledger.driver.flush()
    ledger.runtime.write(put("a", 2))
    ledger.runtime.write(put("a", 3, effects=(later,)) if decided is put else look("a", effects=(later,)))
    ledger.tick(100_000)
    assert "expired" not in ledger.first.live()
    ledger.driver.flush()
    ledger.tick(0)
    assert ("late" in ledger.first.live()) == isinstance(later, ArmTimer)


def test_of_timers_that_are_due_together_one_may_take_away_the_reason_of_another(ledger: Ledger) -> None:
    spare = put("first", 1, effects=(ArmTimer("second", 100, put("second", 2)),))
    timers = (ArmTimer("first", 100, spare), ArmTimer("second", 100, put("second", 1)))
    ledger.runtime.write(put("a", 1, effects=timers))
    ledger.driver.flush()
    ledger.tick(100)
    assert ledger.first.live() == {"a": 1, "first": 1}
    ledger.driver.flush()
    ledger.tick(100)
    assert ledger.first.live()["second"] == 2


def test_a_delay_may_count_from_the_answer(ledger: Ledger) -> None:
    ledger.runtime.write(put("a", 1, effects=(ArmTimer("t", 100, put("expired", 1), since_answer=True),)))
    ledger.tick(1_000)
    ledger.driver.flush()
    ledger.tick(99)
    assert "expired" not in ledger.first.live()
    ledger.tick(1)
    assert "expired" in ledger.first.live()


def test_an_expiry_that_was_refused_gives_way_to_a_staged_decision(ledger: Ledger) -> None:
    ledger.runtime.write(put("a", 1, effects=(ArmTimer("t", 100, refuse(ErrorCode.INVALID_TXN_STATE)),)))
    ledger.driver.flush()
    ledger.runtime.write(put("a", 2))
    ledger.tick(100)  # refused, and the refusal waits for the write above
    ledger.runtime.groups.seal()
    ledger.runtime.write(put("a", 3, effects=(CancelTimer("t"),)))
    ledger.driver.flush(1)
    assert ledger.runtime.timers.next_deadline_ms() is None


def test_what_is_to_be_done_at_once_is_never_put_off(ledger: Ledger) -> None:
    """Otherwise a steady stream of decisions, each before the one before it is durable, would put it off for ever."""
    done: list[int] = []
    for number in range(5):
        ledger.runtime.write(put("a", number, effects=(ArmTimer("soon", 0, expiry(number, done)),)))
        ledger.runtime.groups.seal()
    for _group in range(5):
        ledger.driver.flush(1)
        ledger.tick(0)
    assert done[:1] == [0]


@dataclass
class Decided:
    """The newest decision about a timer."""

    number: int
    decided_ms: int
    timer: ArmTimer | CancelTimer
    due_ms: int | None = None
    """None until it is durable, and for a timer that was cancelled."""

    def settle(self, now_ms: int) -> None:
        if isinstance(self.timer, ArmTimer):
            self.due_ms = (now_ms if self.timer.since_answer else self.decided_ms) + self.timer.delay_ms


class Disk:
    """The groups on their way to the disk, the open one last, each with the decisions that wait for it."""

    def __init__(self) -> None:
        self.sealed: list[list[Decided]] = []
        self.open: list[Decided] | None = None
        """None while nothing is staged."""

    def wait(self, decided: Decided, *, has_record: bool) -> None:
        if has_record and self.open is None:
            self.open = []
        newest = self.open if self.open is not None else (self.sealed or [None])[-1]
        if newest is None:
            decided.settle(decided.decided_ms)
        else:
            newest.append(decided)

    def seal(self) -> None:
        if self.open is not None:
            self.sealed.append(self.open)
            self.open = None

    def flush(self, count: int, now_ms: int) -> None:
        self.seal()
        for decided in [each for group in self.sealed[:count] for each in group]:
            decided.settle(now_ms)
        del self.sealed[:count]


NAMES = st.sampled_from("xyz")
STEPS = st.one_of(
    st.tuples(st.just("arm"), NAMES, st.integers(1, 40), st.booleans(), st.booleans()),
    st.tuples(st.just("cancel"), NAMES, st.just(0), st.just(False), st.booleans()),
    st.tuples(st.just("pass"), st.just(""), st.integers(0, 30), st.just(False), st.just(False)),
    st.tuples(st.just("seal"), st.just(""), st.just(0), st.just(False), st.just(False)),
    st.tuples(st.just("flush"), st.just(""), st.integers(1, 2), st.just(False), st.just(False)),
)


@example(
    [
        ("arm", "x", 5, False, True),
        ("seal", "", 0, False, False),
        ("cancel", "x", 0, False, True),
        ("flush", "", 1, False, False),
        ("pass", "", 20, False, False),
    ]
)
@given(st.lists(STEPS, max_size=60))
def test_a_timer_acts_for_the_newest_decision_when_that_is_due_and_never_else(
    steps: list[tuple[str, str, int, bool, bool]],
) -> None:
    ledger, disk, fired, newest = Ledger(), Disk(), list[int](), dict[str, Decided]()
    for number, (verb, name, size, since_answer, has_record) in enumerate(steps):
        now_ms = ledger.clock.monotonic_ms()
        match verb:
            case "arm" | "cancel":
                arm = ArmTimer(name, size, expiry(number, fired), since_answer=since_answer)
                decided = newest[name] = Decided(number, now_ms, arm if verb == "arm" else CancelTimer(name))
                ledger.runtime.write((put if has_record else _look_at)("a", number, effects=(decided.timer,)))
                disk.wait(decided, has_record=has_record)
            case "seal":
                ledger.runtime.groups.seal()
                disk.seal()
            case "flush":
                ledger.driver.flush(size)
                disk.flush(size, now_ms)
            case "pass":
                now_ms += size
                due = {name: each for name, each in newest.items() if each.due_ms is not None and each.due_ms <= now_ms}
                fired.clear()
                ledger.tick(size)
                assert sorted(fired) == sorted(each.number for each in due.values())
                for name in due:
                    del newest[name]
                if due and disk.open is None:
                    disk.open = []


def _look_at(name: str, _number: int, *, effects: tuple[ArmTimer | CancelTimer, ...]) -> Operation:
    return look(name, effects=effects)
