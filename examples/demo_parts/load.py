"""The load and its planned failures: aborts, a zombie, a killed producer and a killed server.

The loaders run at the same time. The two other producers are each driven by a function that reads from top to bottom,
in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Final, TypeAlias

from coordinator_client.admin.admin import Admin
from coordinator_client.errors import Retriable
from examples.demo_parts.crew import Aborted, Committed, Crew, Opened, ProducerProcess, Refused, Report
from examples.demo_parts.failures import LoadFailed, ProducerFailed
from examples.demo_parts.plan import Assignment, Plan
from examples.demo_parts.producers import be_killed_midway, load, stop_midway
from examples.demo_parts.server import Server

Tell: TypeAlias = Callable[[str], None]

POLL_SECONDS: Final = 0.05
CHECK_SECONDS: Final = 1.0
STUCK_SECONDS: Final = 360.0
"""Longest silence of the load before it fails (s). It is meant for a load that hangs, not for a slow one."""

TIMED_OUT: Final = "CompleteAbort"


@dataclass(slots=True)
class Tally:
    """Totals of the producers' reports."""

    committed: int = 0
    committed_rows: int = 0
    aborted: int = 0
    aborted_rows: int = 0
    """Rows that were appended and aborted, all of them on purpose or as planned."""
    surprises: list[str] = field(default_factory=list)
    """Reasons of transactions that the server aborted and that were repeated. The number of their appended rows is
    unknown."""
    last_commit_at: float = 0.0

    def add(self, report: Report) -> None:
        """Count one report."""
        match report:
            case Committed(rows, at):
                self.committed += 1
                self.committed_rows += rows
                self.last_commit_at = max(self.last_commit_at, at)
            case Aborted(rows, None):
                self.aborted += 1
                self.aborted_rows += rows
            case Aborted(_, str(reason)):
                self.aborted += 1
                self.surprises.append(reason)
            case _:
                raise LoadFailed(f"a producer reported {report}, which was not expected")

    def merge(self, other: Tally) -> None:
        """Add the totals of other producers."""
        self.committed += other.committed
        self.committed_rows += other.committed_rows
        self.aborted += other.aborted
        self.aborted_rows += other.aborted_rows
        self.surprises += other.surprises
        self.last_commit_at = max(self.last_commit_at, other.last_commit_at)


@dataclass(slots=True)
class Outage:
    """The kill of the server and its consequences."""

    rows_before: int
    killed_at: float
    serving_seconds: float
    """Time from the kill until the server took work again."""
    commit_seconds: float = 0.0
    """Time from the kill until the first commit after it; 0 = none yet."""


@dataclass(frozen=True, slots=True)
class Zombie:
    """A producer that was stopped, replaced, resumed and refused."""

    rows: int
    refusal: str
    tally: Tally


@dataclass(frozen=True, slots=True)
class Killed:
    """A producer that was killed, so that its transaction timed out."""

    rows: int
    seconds: float
    """Time from its last durable record until the server had aborted the transaction."""
    tally: Tally


@dataclass(frozen=True, slots=True)
class Loaded:
    """Result of the whole load."""

    tally: Tally
    seconds: float
    """Time from the start of the producers to the last commit, including the outage."""
    outage: Outage
    zombie: Zombie
    killed: Killed


def run_load(server: Server, plan: Plan, tell: Tell) -> Loaded:
    """Load every row of the plan. Raises: LoadFailed, ProducerFailed, ServerFailed."""
    began = time.monotonic()
    # The crew ends first. The stories wait for its members, so they then end, too.
    with ThreadPoolExecutor(2) as stories, Crew() as crew:
        zombie_story = stories.submit(_zombie_story, crew, plan.zombie, tell)
        killed_story = stories.submit(_killed_story, crew, plan.killed, tell)
        tally, outage = _load_through_outage(server, crew, plan, tell)
        zombie, killed = zombie_story.result(), killed_story.result()
    for story in (zombie, killed):
        tally.merge(story.tally)
        tally.aborted += 1
        tally.aborted_rows += story.rows
    return Loaded(tally, tally.last_commit_at - began, outage, zombie, killed)


def _load_through_outage(server: Server, crew: Crew, plan: Plan, tell: Tell) -> tuple[Tally, Outage]:
    tally, outage = Tally(), None
    rows = sum(loader.end - loader.first for loader in plan.loaders)
    loaders = {member.line: member for member in (crew.start(load, assignment) for assignment in plan.loaders)}
    shown, heard_at = 0, time.monotonic()
    while loaders:
        ready = wait(list(loaders), CHECK_SECONDS)
        server.check()
        if ready:
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > STUCK_SECONDS:
            raise LoadFailed(f"no producer got on for {STUCK_SECONDS:.0f} s")
        for line in [line for line in loaders if line in ready]:
            report = loaders[line].next_report()
            if report is None:
                del loaders[line]
            elif isinstance(report, Opened):
                outage = _kill_server(server, loaders[line], report, tally, tell)
            else:
                tally.add(report)
                if outage is not None and isinstance(report, Committed) and not outage.commit_seconds:
                    outage.commit_seconds = max(0.0, report.at - outage.killed_at)
        if (done := 10 * tally.committed_rows // rows) > shown:
            shown = done
            tell(f"{10 * done} % loaded")
    if outage is None or not outage.commit_seconds:
        raise LoadFailed("the load was over before the server was killed in the middle of it")
    return tally, outage


def _kill_server(server: Server, loader: ProducerProcess, opened: Opened, tally: Tally, tell: Tell) -> Outage:
    """Kill the server and start it again, while at least one transaction is half done and the producers go on."""
    killed_at = time.monotonic()
    server.kill()
    loader.go_on()
    server.start()
    outage = Outage(tally.committed_rows, killed_at, time.monotonic() - killed_at)
    tell(
        f"server killed after {tally.committed_rows:,} rows, with {opened.rows:,} more in a transaction half done; "
        f"serving again after {outage.serving_seconds:.1f} s"
    )
    return outage


def _zombie_story(crew: Crew, assignment: Assignment, tell: Tell) -> Zombie:
    zombie = crew.start(stop_midway, assignment)
    opened = zombie.expect(Opened)
    tell(f"producer {zombie.process_id} stopped in its transaction, {opened.rows:,} rows sent; a successor takes over")
    tally = _follow(crew.start(load, assignment))
    # Repeated, because the first signal could come before the producer has stopped itself.
    while not zombie.line.poll(POLL_SECONDS):
        zombie.wake()
    refused = zombie.expect(Refused)
    tell(f"producer {zombie.process_id} woke up and was refused: it is a zombie")
    return Zombie(opened.rows, refused.error, tally)


def _killed_story(crew: Crew, assignment: Assignment, tell: Tell) -> Killed:
    tally = Tally()
    victim = crew.start(be_killed_midway, assignment)
    while not isinstance(report := victim.next_report(), Opened):
        if report is None:
            raise ProducerFailed(f"producer {victim.name} ended before it was killed")
        tally.add(report)
    opened_at = time.monotonic()
    victim.kill()
    tell(f"producer {victim.process_id} killed in its transaction, {report.rows:,} rows sent")
    _await_timeout(crew, assignment)
    seconds = time.monotonic() - opened_at
    tell(f"its transaction was aborted by the server, {seconds:.1f} s later; a successor takes over")
    tally.merge(_follow(crew.start(load, assignment)))
    return Killed(report.rows, seconds, tally)


def _await_timeout(crew: Crew, assignment: Assignment) -> None:
    """Return once the server has aborted the open transaction, which no other program touches."""
    deadline = time.monotonic() + STUCK_SECONDS
    # Each call has a short deadline, so that the end of the demo is noticed while the server is dead.
    with Admin(assignment.endpoint, client_id="demo", deadline_ms=1_000) as admin:
        while not crew.is_over.wait(POLL_SECONDS):
            if time.monotonic() > deadline:
                raise LoadFailed(f"the transaction of {assignment.transactional_id} did not time out")
            try:
                state = admin.describe_transaction(assignment.transactional_id).state
            except Retriable:
                continue
            if state == TIMED_OUT:
                return
    raise LoadFailed("the demo is over")


def _follow(member: ProducerProcess) -> Tally:
    """Return the totals of a loader, once it is done."""
    tally = Tally()
    for report in member.reports():
        tally.add(report)
    return tally
