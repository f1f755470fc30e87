"""Long computations in another process, away from the loop. A thread would share the interpreter.

Only pure functions of values run there: their input is sent along, their result comes back, and the caller checks
whether it still matters (design 8).

The process ends with this one, even if this one is killed: each holds one end of a socket, and not the other's
(`worker_child.py`). A `ProcessPoolExecutor` does not ensure that: its worker holds both ends of the pipe that it reads.
And `multiprocessing` adds a process that tracks resources.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition, Thread  # noqa: TID251  it waits for the other process, which the loop must not
from typing import Any, BinaryIO, Protocol, TypeVar

from coordinator_runtime.pending import Pending
from coordinator_runtime.worker_child import IN_BACKGROUND, receive, request, result, send

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")


class WorkerLost(Exception):
    """The other process died. The computation can be requested again, or done in this process."""


class Worker(Protocol):
    """Computes without holding up the caller."""

    def run(self, function: Callable[[ArgumentT], ResultT], argument: ArgumentT) -> Pending[ResultT]:
        """Return the result of a module-level function, on the loop. Function, argument and result must be picklable.

        Errors: exceptions of the function; WorkerLost."""


class WorkerProcess:
    """Implements `Worker` with one process. It is started when first needed and takes one task after the other."""

    def __init__(self, *, in_background: bool = False) -> None:
        """`in_background`: compute at a low priority (`background.py`)."""
        self._in_background = in_background
        self._life: _Life | None = None
        self._is_closed = False

    def run(self, function: Callable[[ArgumentT], ResultT], argument: ArgumentT) -> Pending[ResultT]:
        pending: Pending[ResultT] = Pending()
        if self._is_closed:
            pending.fail(_stopping())
            return pending
        task = _Task(function, argument, pending)
        # A process that ended takes no task, and the next task gets a new process.
        while self._life is None or not self._life.take(task):
            self._life = _Life(self._in_background)
        return pending

    def close(self) -> None:
        """Start nothing more. Waiting tasks fail; a task in progress ends by itself."""
        self._is_closed = True
        if self._life is not None:
            self._life.end(_stopping())


class _Task:
    """One computation, and the receiver of its result."""

    __slots__ = ("_argument", "_function", "_loop", "_pending")

    def __init__(self, function: Callable[[Any], Any], argument: object, pending: Pending[Any]) -> None:
        self._function = function
        self._argument = argument
        self._pending = pending
        self._loop = asyncio.get_running_loop()

    def request(self) -> bytes:
        return request(self._function, self._argument)

    def succeed(self, found: object) -> None:
        self._soon(self._pending.succeed, found)

    def fail(self, error: Exception) -> None:
        self._soon(self._pending.fail, error)

    def _soon(self, settle: Callable[[Any], None], outcome: object) -> None:
        # After the loop is closed, no caller waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(settle, outcome)


class _Life:
    """One process, and the thread that talks to it: reading and pickling must not hold up the loop."""

    def __init__(self, in_background: bool) -> None:
        self._in_background = in_background
        self._changed = Condition()
        self._waiting: deque[_Task] = deque()
        self._end: WorkerLost | None = None
        Thread(target=self._live, name="worker", daemon=True).start()

    def take(self, task: _Task) -> bool:
        """Queue the task. Return False, and do nothing, after `end`."""
        with self._changed:
            if self._end is None:
                self._waiting.append(task)
                self._changed.notify()
            return self._end is None

    def end(self, error: WorkerLost) -> None:
        """Take no more tasks, and fail those that wait. Idempotent."""
        with self._changed:
            # Set before any task fails: a caller that asks again then must not ask here.
            self._end = self._end or error
            lost, self._waiting = self._waiting, deque()
            self._changed.notify()
        for task in lost:
            task.fail(error)

    def _next(self) -> _Task | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._end)
            return self._waiting.popleft() if self._waiting else None

    def _live(self) -> None:
        # The started process inherits this. An interrupt from the terminal goes to all processes, and only the server
        # handles it; this thread has no use for it either.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        task: _Task | None = None
        try:
            with _started(self._in_background) as (incoming, outgoing):
                while (task := self._next()) is not None:
                    _compute(task, incoming, outgoing)
        except (OSError, EOFError) as error:
            lost = WorkerLost(f"the worker process died ({error})")
            self.end(lost)
            if task is not None:
                task.fail(lost)


def _compute(task: _Task, incoming: BinaryIO, outgoing: BinaryIO) -> None:
    """Let the process compute one task. Raises OSError or EOFError if the process died."""
    try:
        message = task.request()
    except Exception as error:  # noqa: BLE001  a task that cannot be pickled fails alone, with any error of pickle
        task.fail(error)
        return
    send(outgoing, message)
    answer = receive(incoming)
    if answer is None:
        raise EOFError("it closed its end")
    try:
        found = result(answer)
    except Exception as error:  # noqa: BLE001  an error of the function is the answer to the caller
        task.fail(error)
    else:
        task.succeed(found)


@contextmanager
def _started(in_background: bool) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Start the process. On exit, close its socket and wait for its end. Raises OSError."""
    line, child_line = socket.socketpair()
    with line:
        with child_line:
            # Not forked: this process has threads, and a copy of their locks would stay locked for ever.
            program = [sys.executable, "-P", "-m", "coordinator_runtime.worker_child", str(child_line.fileno())]
            process = subprocess.Popen(
                [*program, IN_BACKGROUND] if in_background else program,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)},
                # Inherits only this end, and not the parent's end, whose closing ends it.
                pass_fds=(child_line.fileno(),),
            )
        try:
            with line.makefile("rb") as incoming, line.makefile("wb") as outgoing:
                yield incoming, outgoing
        finally:
            # `with` would close it too late: the process ends when the socket is closed, and only then can it be waited
            # for.
            line.close()
            process.wait()


def _stopping() -> WorkerLost:
    return WorkerLost("the server stops")
