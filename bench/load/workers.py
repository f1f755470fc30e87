"""Workers that do one operation after the other, in threads or as tasks of one loop, and their measurement.

A failed worker is counted and replaced, as in an application; its operation is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import uvloop

from bench.results import LoadFailed, Run
from bench.window import Window, with_latencies

FAILURES_MAX: Final = 1_000
"""Number of failures that ends a measurement with an error."""


class Worker(Protocol):
    """One client that works in a thread of its own."""

    def perform(self) -> None:
        """Do one operation."""
        ...

    def close(self) -> None: ...


class AsyncWorker(Protocol):
    """One client among many on one loop."""

    async def perform(self) -> None:
        """Do one operation."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """Duration of a load. Ends at the first limit that is reached, but not before one operation has ended."""

    warm_up_s: float
    measured_s: float
    operations_max: int | None = None
    """Largest number of operations of all workers together in the measured time."""
    first_s_max: float = 120.0
    """Extra time to wait for the first operation to end (s). On a busy machine a short span may pass without one, but a
    load that hangs must end."""


@dataclass(slots=True)
class _Log:
    """Results of the workers. They share it, because a list append is atomic."""

    operations_max: int | None
    on_enough: Callable[[], object]
    """Called when the requested number of operations is reached."""
    on_first: Callable[[], object]
    """Called at the first measured operation."""
    latencies_us: list[int] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    is_measured: bool = False
    is_over: bool = False

    def fail(self, error: Exception) -> None:
        self.failures[type(error).__name__] += 1
        if self.failures.total() > FAILURES_MAX:
            raise LoadFailed(f"{FAILURES_MAX} operations failed, the last with {error}") from error

    def add(self, began_ns: int) -> None:
        if self.is_measured:
            self.latencies_us.append((time.perf_counter_ns() - began_ns) // 1_000)
            self.on_first()
            if len(self.latencies_us) == self.operations_max:
                self.on_enough()

    def close(self, window: Window) -> Run:
        self.is_measured = False
        run = window.close(len(self.latencies_us))
        self.is_over = True
        if not run.operations:
            raise LoadFailed(f"no operation ended in {run.elapsed_s:.1f} s; {self.failures.total()} failed")
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.failures.items()))
        return replace(with_latencies(run, self.latencies_us), errors=self.failures.total(), error_kinds=kinds)


def run_in_threads(openers: Sequence[Callable[[], Worker]], span: Span, server_process_id: int) -> Run:
    """Run a worker per opener, each in its own thread. Raises LoadFailed if a worker cannot be opened."""
    enough, first, opened = threading.Event(), threading.Event(), threading.Barrier(len(openers) + 1)
    log = _Log(span.operations_max, enough.set, first.set)
    problems: list[Exception] = []

    def work(opener: Callable[[], Worker]) -> None:
        try:
            worker = opener()
        except Exception as error:  # noqa: BLE001  it is raised where the workers were started
            problems.append(error)
            opened.abort()
            return
        opened.wait()
        try:
            while not log.is_over:
                began_ns = time.perf_counter_ns()
                try:
                    worker.perform()
                except Exception as error:  # noqa: BLE001  counted by its kind, and the worker is replaced
                    log.fail(error)
                    worker = opener()
                else:
                    log.add(began_ns)
            worker.close()
        except Exception as error:  # noqa: BLE001  raised below
            problems.append(error)
            enough.set()
            first.set()

    threads = [threading.Thread(target=work, args=(opener,), daemon=True) for opener in openers]
    for thread in threads:
        thread.start()
    try:
        opened.wait()
    except threading.BrokenBarrierError:
        raise LoadFailed(f"a worker could not be opened: {problems[0]!r}") from problems[0]
    time.sleep(span.warm_up_s)
    log.is_measured, window = True, Window(server_process_id)
    enough.wait(span.measured_s)
    first.wait(span.first_s_max)
    run = log.close(window)
    for thread in threads:
        thread.join()
    if problems:
        raise LoadFailed(f"a worker failed: {problems[0]!r}") from problems[0]
    return run


def run_as_tasks(opener: Callable[[], Sequence[AsyncWorker]], span: Span, server_process_id: int) -> Run:
    """Run the workers on one loop, on which the opener is called. Raises: LoadFailed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_run_tasks(opener, span, server_process_id))
        except ExceptionGroup as several:
            first = several.exceptions[0]
            raise (first if isinstance(first, LoadFailed) else LoadFailed(f"a worker failed: {first!r}")) from several


async def _run_tasks(opener: Callable[[], Sequence[AsyncWorker]], span: Span, server_process_id: int) -> Run:
    enough, first = asyncio.Event(), asyncio.Event()
    log = _Log(span.operations_max, enough.set, first.set)

    async def work(worker: AsyncWorker) -> None:
        while not log.is_over:
            began_ns = time.perf_counter_ns()
            try:
                await worker.perform()
            except Exception as error:  # noqa: BLE001  counted by its kind; such a worker begins anew by itself
                log.fail(error)
            else:
                log.add(began_ns)

    async with asyncio.TaskGroup() as group:
        for worker in opener():
            group.create_task(work(worker))
        await asyncio.sleep(span.warm_up_s)
        log.is_measured, window = True, Window(server_process_id)
        for event, seconds in ((enough, span.measured_s), (first, span.first_s_max)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), seconds)
        return log.close(window)
