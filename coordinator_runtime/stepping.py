"""Answers that are computed in several turns of the loop. Other callers are served between two steps."""

from __future__ import annotations

from collections.abc import Generator
from itertools import count
from typing import Final, TypeVar

from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import Runtime

T = TypeVar("T")

STEP_TIMER: Final = "answer_step"
"""Kind of the timers of waiting steps."""
_numbers = count()


def in_steps(runtime: Runtime, work: Generator[None, None, T]) -> Pending[T]:
    """Run a generator to its end, the first step now and each further one in a later turn. The reply is its return
    value, or the error that it raises."""
    reply: Pending[T] = Pending()
    key = (STEP_TIMER, next(_numbers))

    def step() -> None:
        try:
            next(work)
        except StopIteration as end:
            reply.succeed(end.value)
        except Exception as error:  # noqa: BLE001  the error is the reply, and is raised where it is awaited
            reply.fail(error)
        else:
            runtime.arm(key, 0, step)

    def cancel() -> None:
        runtime.timers.cancel(key)
        reply.give_up()

    reply.on_cancel = cancel
    step()
    return reply
