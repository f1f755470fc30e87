"""Producers in their own processes, each with a pipe to the demo for its reports.

They are processes because one is stopped and one is killed, as happens to real programs. Each has a pipe of its own,
because a process that is killed while it writes to a shared one would leave it locked.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

from examples.demo_parts.failures import ProducerFailed
from examples.demo_parts.plan import Assignment

PATIENCE_SECONDS: Final = 360
"""Time to wait for a report (s). It is longer than the producers themselves wait for the server, because their own
errors say more."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction is committed: its rows, and the time of the reply (monotonic seconds)."""

    rows: int
    at: float


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction is aborted. `reason` is None for an abort on purpose; then all its rows had been appended."""

    rows: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A transaction is open, and these rows of it are durable in the log."""

    rows: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The producer was fenced."""

    error: str


Report: TypeAlias = Committed | Aborted | Opened | Refused
Line: TypeAlias = "Connection[Report, str]"
Role: TypeAlias = Callable[[Assignment, Line], None]
ReportT = TypeVar("ReportT", Committed, Aborted, Opened, Refused)


class ProducerProcess:
    """A running producer."""

    def __init__(self, role: Role, assignment: Assignment) -> None:
        # Spawned, not forked: gRPC does not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.line, child_line = context.Pipe()
        self.name = assignment.transactional_id
        self._process = context.Process(target=_live, args=(role, assignment, child_line), daemon=True)
        self._process.start()
        child_line.close()

    @property
    def process_id(self) -> int:
        """Process id of the producer."""
        assert self._process.pid is not None
        return self._process.pid

    def reports(self) -> Iterator[Report]:
        """Yield its reports until it ends. Raises: ProducerFailed."""
        while (report := self.next_report()) is not None:
            yield report

    def next_report(self) -> Report | None:
        """Return its next report, or None if it ended without an error. Raises: ProducerFailed."""
        if not self.line.poll(PATIENCE_SECONDS):
            raise ProducerFailed(f"producer {self.name} reported nothing for {PATIENCE_SECONDS} s")
        try:
            report: Report = self.line.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            if self._process.exitcode:
                raise ProducerFailed(f"producer {self.name} failed; what it says is above") from None
            return None
        return report

    def expect(self, kind: type[ReportT]) -> ReportT:
        """Return its next report of this kind. Raises: ProducerFailed if it ends without one."""
        for report in self.reports():
            if isinstance(report, kind):
                return report
        raise ProducerFailed(f"producer {self.name} ended without being {kind.__name__.lower()}")

    def go_on(self) -> None:
        """Let a waiting producer continue."""
        self.line.send("go on")

    def wake(self) -> None:
        """Resume a producer that stopped itself."""
        os.kill(self.process_id, signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL at any point of its work."""
        self._process.kill()
        self._process.join()


class Crew:
    """All started producers; none of them outlives it."""

    def __init__(self) -> None:
        self.is_over = Event()
        self._members: list[ProducerProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_over.set()
        for member in self._members:
            member.kill()

    def start(self, role: Role, assignment: Assignment) -> ProducerProcess:
        """Start a producer in this role."""
        if self.is_over.is_set():
            raise ProducerFailed("the demo is over")
        member = ProducerProcess(role, assignment)
        self._members.append(member)
        return member


def stop_this_producer() -> None:
    """Stop this process like a suspended machine; return once it is resumed.

    It must end with the demo even while it is stopped. Nothing of this process runs then, so another process waits for
    the end of the demo."""
    with subprocess.Popen([sys.executable, "-c", _GUARD, str(os.getpid())], stdin=_demo().sentinel) as guard:
        os.kill(os.getpid(), signal.SIGSTOP)
        guard.kill()


_GUARD: Final = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
stopped = int(sys.argv[1])
while os.read(0, 1):
    pass
if os.getppid() == stopped:
    os.kill(stopped, signal.SIGKILL)
"""
"""Program that waits until the demo is gone. It compares its parent's id, because the id could belong to another
process by then."""


def _demo() -> multiprocessing.process.BaseProcess:
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a producer"
    return parent


def _end_with_the_demo() -> None:
    _demo().join()
    os._exit(1)


def _live(role: Role, assignment: Assignment, line: Line) -> None:
    # Ctrl-C in the terminal reaches all processes; the demo ends this one itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_the_demo, daemon=True).start()
    # Once the demo is gone, there is no reader for reports.
    with suppress(EOFError, BrokenPipeError):
        role(assignment, line)
