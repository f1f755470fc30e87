"""The drawing of one transaction: its steps in the lanes of client, coordinator and participants, in two phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from coordinator_client.descriptions.transactions import TransactionStep
from txnctl.page.words import clock, duration, visible

LEFT: Final = 120
"""Width of the names of the lanes."""
STEP: Final = 200
"""Distance of two steps."""
INDENT: Final = 45
"""Distance of a step from the edge of its phase."""
LANES: Final = {"client": 62, "coordinator": 132, "participants": 202}
"""Height of each lane, by its name."""
HEIGHT: Final = 250
_OPEN: Final = "Ongoing"
_PREPARED: Final = ("PrepareCommit", "PrepareAbort")
_COMPLETE: Final = ("CompleteCommit", "CompleteAbort")
_CLIENT_CAUSES: Final = frozenset({"init", "add", "client", "prepare", "keep", "join"})
CAUSES: Final = {
    "init": "a producer initialised the id",
    "add": "the client added a partition or group",
    "client": "the client asked for it",
    "fence": "a newer producer took the id",
    "timeout": "the transaction was open for longer than its timeout",
    "admin": "an administrator ended it",
    "topic_deleted": "a topic of the transaction was deleted",
    "prepare": "the client prepared it for an outside decision",
    "keep": "a newer instance kept the prepared transaction",
    "lost_line": "acknowledged writes were lost, and it was aborted",
    "expire": "the id was not used for long, and was forgotten",
    "join": "a member joined a batch of a sink",
    "decision": "the sink decided its batch",
    "given_up": "the sink gave the member up",
}
"""Causes of steps, for people."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One step in the drawing."""

    x: int
    title: str
    """State after the step."""
    kind: str
    """open, commit, abort or idle: the colour."""
    cause: str
    time: str
    gap: str
    """Time since the step before."""
    count: int = 1
    """Number of steps that are drawn as one."""
    from_client: bool = False
    to_participants: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of the drawing with a background of its own."""

    x: int
    width: int
    title: str
    kind: str


@dataclass(slots=True)
class Drawing:
    """All coordinates of a transaction's drawing."""

    width: int
    marks: list[Mark]
    phases: list[Phase]
    summary: str
    """The drawing in words."""
    height: int = HEIGHT
    left: int = LEFT
    lanes: dict[str, int] = field(default_factory=lambda: dict(LANES))


def kind_of(state: str) -> str:
    """Return the kind of a state: open, commit, abort or idle."""
    if state == _OPEN:
        return "open"
    if state.endswith("Commit"):
        return "commit"
    return "abort" if state.endswith("Abort") else "idle"


def cause_words(step: TransactionStep) -> str:
    """Return the cause of a step in words."""
    if step.cause == "client" and step.state in _COMPLETE:
        return "all markers are written"
    return CAUSES.get(step.cause, visible(step.cause))


def drawing(history: Sequence[TransactionStep]) -> Drawing | None:
    """Return the drawing of the newest transaction of a history, which has the newest step first; None if there is no
    step of one."""
    steps = _newest_transaction(history)
    if not steps:
        return None
    runs = _runs(steps)
    marks: list[Mark] = []
    for at, run in enumerate(runs):
        first, last = run[0], run[-1]
        before = runs[at - 1][-1] if at else None
        marks.append(
            Mark(
                x=LEFT + INDENT + STEP * at,
                title=last.state,
                kind=kind_of(last.state),
                cause=last.cause,
                time=clock(first.at_ms),
                gap="" if before is None else duration(max(0, first.at_ms - before.at_ms)),
                count=len(run),
                from_client=last.cause in _CLIENT_CAUSES and last.state not in _COMPLETE,
                to_participants=last.state in (_OPEN, *_COMPLETE),
            )
        )
    summary = "; ".join(f"{mark.time} {mark.title} ({mark.cause})" for mark in marks)
    return Drawing(LEFT + STEP * len(marks), marks, _phases(marks), summary)


def _newest_transaction(history: Sequence[TransactionStep]) -> list[TransactionStep]:
    """Return the steps of the newest transaction, the oldest first."""
    found: list[TransactionStep] = []
    for step in history:
        is_inside = step.state == _OPEN or step.state in _PREPARED
        if found and not is_inside:
            break
        if is_inside or (step.state in _COMPLETE and not found):
            found.append(step)
    return found[::-1]


def _runs(steps: Sequence[TransactionStep]) -> list[list[TransactionStep]]:
    """Join the steps that only add to an open transaction."""
    runs: list[list[TransactionStep]] = []
    for step in steps:
        if runs and step.state == _OPEN == runs[-1][-1].state and step.cause == "add":
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _phases(marks: Sequence[Mark]) -> list[Phase]:
    names = {_OPEN: ("open", "Work"), **dict.fromkeys(_PREPARED, ("first", "Phase 1: decision"))}
    names |= dict.fromkeys(_COMPLETE, ("second", "Phase 2: markers"))
    phases: list[Phase] = []
    for mark in marks:
        kind, title = names.get(mark.title, ("open", mark.title))
        if phases and phases[-1].kind == kind:
            last = phases.pop()
            phases.append(Phase(last.x, last.width + STEP, title, kind))
        else:
            phases.append(Phase(mark.x - INDENT, STEP, title, kind))
    return phases
