"""Answers that are computed in several turns of the loop. Other callers are served between two steps."""

from __future__ import annotations

from collections.abc import Generator
from itertools import count
from typing import Any, Final, Generic, TypeVar

from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import Runtime

T = TypeVar("T")

STEP_TIMER: Final = "answer_step"
"""Kind of the timers of waiting steps."""
_numbers = count()


AnswerSteps = Generator[Pending[Any] | None, None, T]
"""Work in steps, each of which ends with a yield. The next one comes once the yielded reply is settled, if any."""


def in_steps(runtime: Runtime, work: AnswerSteps[T], *, outlives_caller: bool = False) -> Pending[T]:
    """Run a generator to its end, the first step now and each further one in a later turn. The reply is its return
    value, or the error that it raises.

    A caller that gives up ends it between two steps. `outlives_caller`: it goes on then, because it changes something
    that must not be left half done."""
    steps = _AnswerInSteps(runtime, work)
    reply = steps.reply
    if not outlives_caller:
        reply.on_cancel = steps.cancel
    steps.step()
    return reply


class _AnswerInSteps(Generic[T]):
    """One answer in the making. It lets go of its reply at the end, so that nothing is left to the collector."""

    __slots__ = ("_key", "_runtime", "_work", "reply")

    def __init__(self, runtime: Runtime, work: AnswerSteps[T]) -> None:
        self._runtime = runtime
        self._work = work
        self._key = (STEP_TIMER, next(_numbers))
        self.reply: Pending[T] = Pending()

    def step(self) -> None:
        try:
            before = next(self._work)
        except StopIteration as end:
            self._ended().succeed(end.value)
        except Exception as error:  # noqa: BLE001  the error is the reply, and is raised where it is awaited
            self._ended().fail(error)
        else:
            if before is None:
                self._go_on()
            else:
                before.on_settled(lambda _before: self._go_on())

    def _go_on(self) -> None:
        if not self.reply.is_settled:
            self._runtime.arm(self._key, 0, self.step)

    def cancel(self) -> None:
        self._runtime.timers.cancel(self._key)
        self._ended().give_up()

    def _ended(self) -> Pending[T]:
        reply = self.reply
        reply.on_cancel = None
        return reply
