"""Long computations, away from the loop: in another process, because a thread would hold the same interpreter.

Only pure functions of values go there: what they need is sent along, what they find comes back, and whoever asked looks
whether that still matters (design 8).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from coordinator_runtime.pending import Pending

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")


class WorkerLost(Exception):
    """The other process died. What it was to compute can be asked for again, or computed here."""


class Worker(Protocol):
    """Computes, and does not hold up who asks."""

    def run(self, function: Callable[[ArgumentT], ResultT], argument: ArgumentT) -> Pending[ResultT]:
        """The result of a function of a module, on the loop. Function, argument and result must be picklable.

        Errors: what the function raises; WorkerLost."""


class WorkerProcess:
    """Implements `Worker` with one process, which is started when it is first needed and takes one task after the
    other."""

    def __init__(self) -> None:
        self._executor: ProcessPoolExecutor | None = None
        self._is_closed = False

    def run(self, function: Callable[[ArgumentT], ResultT], argument: ArgumentT) -> Pending[ResultT]:
        loop = asyncio.get_running_loop()
        answer: Pending[ResultT] = Pending()
        if self._is_closed:
            answer.fail(WorkerLost("the server stops"))
            return answer

        executor = self._started()

        def on_done(future: Future[ResultT]) -> None:
            # Runs on a thread of the executor; after the loop closed nobody waits any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._answer, answer, future, executor)

        try:
            executor.submit(function, argument).add_done_callback(on_done)
        except BrokenProcessPool as broken:
            self._drop(executor)
            answer.fail(WorkerLost(f"the worker process died ({broken})"))
        return answer

    def close(self) -> None:
        """Start nothing more; what waits is told so, and what is under way ends by itself."""
        self._is_closed = True
        # Kept, because an executor that nobody knows any more cancels nothing.
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def _answer(self, answer: Pending[Any], future: Future[Any], executor: ProcessPoolExecutor) -> None:
        if future.cancelled():
            answer.fail(WorkerLost("the server stops"))
            return
        error = future.exception()
        if isinstance(error, BrokenProcessPool):
            self._drop(executor)
            answer.fail(WorkerLost(f"the worker process died ({error})"))
        elif isinstance(error, Exception):
            answer.fail(error)
        elif error is not None:
            answer.fail(WorkerLost(f"the worker process was ended ({error!r})"))
        else:
            answer.succeed(future.result())

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            # Not forked: this process has threads, and a copy of their locks would stay locked for ever. An interrupt
            # from the terminal goes to all processes, and is the server's to answer. A function of this module would
            # make the new process import all that this one does.
            self._executor = ProcessPoolExecutor(
                1,
                mp_context=get_context("spawn"),
                initializer=signal.signal,
                initargs=(signal.SIGINT, signal.SIG_IGN),
            )
        return self._executor

    def _drop(self, executor: ProcessPoolExecutor) -> None:
        """The next task gets a new process. Each task that was lost with this one says so, and the first may have a
        successor at work before the last is heard."""
        if self._executor is executor:
            self._executor = None
        executor.shutdown(wait=False, cancel_futures=True)
