"""The producers as processes of their own, each with a line to the demo on which it reports what it did.

Processes, because one is stopped and one is killed, as it happens to programs. One line each, because a process that is
killed while it writes to a line that others share would leave it locked.
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
"""Longer than the producers themselves wait for the server: their own error says more than ours."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction is committed: its rows, and when the answer came (monotonic seconds)."""

    rows: int
    at: float


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction is aborted. `reason` is None where that was the purpose; then all its rows had been appended."""

    rows: int
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A transaction is open and these rows of it are durable in the log."""

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
    """One producer at work."""

    def __init__(self, role: Role, assignment: Assignment) -> None:
        # Started afresh, not forked: gRPC does not survive a fork.
        context = multiprocessing.get_context("spawn")
        self.line, child_line = context.Pipe()
        self.name = assignment.transactional_id
        self._process = context.Process(target=_live, args=(role, assignment, child_line), daemon=True)
        self._process.start()
        child_line.close()

    @property
    def process_id(self) -> int:
        """The process id that the operating system gave the producer."""
        assert self._process.pid is not None
        return self._process.pid

    def reports(self) -> Iterator[Report]:
        """Yield its reports until it ends. Raises: ProducerFailed."""
        while (report := self.next_report()) is not None:
            yield report

    def next_report(self) -> Report | None:
        """Return its next report, or None where it ended as it should. Raises: ProducerFailed."""
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
        """Return its next report of this kind. Raises: ProducerFailed where it ends without one."""
        for report in self.reports():
            if isinstance(report, kind):
                return report
        raise ProducerFailed(f"producer {self.name} ended without being {kind.__name__.lower()}")

    def go_on(self) -> None:
        """Let it go on from where it waits."""
        self.line.send("go on")

    def wake(self) -> None:
        """Continue it where it stopped itself."""
        os.kill(self.process_id, signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL, whatever it is doing."""
        self._process.kill()
        self._process.join()


class Crew:
    """All producers that were started; none outlives it."""

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
    """Stop this process as a suspended machine does; return once it is woken. It ends with the demo also while it is
    stopped, for which another process has to wait, since nothing of this one runs."""
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
"""Waits until the demo is gone. A number that was given to another process meanwhile is not that of its parent."""


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
    # When the demo is gone, nobody is left to report to.
    with suppress(EOFError, BrokenPipeError):
        role(assignment, line)
