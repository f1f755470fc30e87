"""Measures rows in rounds: each contender once, then each again, so that a slow phase of the machine affects all of
them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.case import Contender, Row
from bench.report import number
from bench.results import CannotRun, LoadFailed, Result, Run


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress messages of a run."""

    total: int
    """Number of measurements if all contenders can run."""
    say: Callable[[str], None]
    began_s: float

    def tell(self, done: int, what: str) -> None:
        """Print one line."""
        minutes, seconds = divmod(int(time.monotonic() - self.began_s), 60)
        self.say(f"[{done}/{self.total}  {minutes}:{seconds:02}] {what}")


def measure(rows: Mapping[str, Sequence[Row]], rounds: int, say: Callable[[str], None]) -> Iterable[Result]:
    """Yield the results of every row, by case, as soon as its rounds are over."""
    total = rounds * sum(len(row.contenders) for group in rows.values() for row in group)
    progress, done = Progress(total, say, time.monotonic()), 0
    for case, group in rows.items():
        for row in group:
            yield from _rounds(case, row, rounds, progress, done)
            done += rounds * len(row.contenders)


def _rounds(case: str, row: Row, rounds: int, progress: Progress, done: int) -> list[Result]:
    runs: list[list[Run]] = [[] for _ in row.contenders]
    problems: dict[int, Exception] = {}
    for _ in range(rounds):
        for place, contender in enumerate(row.contenders):
            done += 1
            if place in problems:
                continue
            what = f"{case}: {row.label}, {contender.side}, {contender.name}"
            try:
                run = contender.measure()
            except (CannotRun, LoadFailed) as problem:
                problems[place] = problem
                progress.tell(done, f"{what}: {problem}")
            else:
                runs[place].append(run)
                progress.tell(done, f"{what}: {number(run.figure)} {row.unit.name}")
    return [
        _result(case, row, contender, runs[place], problems.get(place))
        for place, contender in enumerate(row.contenders)
    ]


def _result(case: str, row: Row, contender: Contender, runs: list[Run], problem: Exception | None) -> Result:
    return Result(
        case=case,
        row=row.label,
        unit=row.unit,
        side=contender.side,
        contender=contender.name,
        durability=contender.durability,
        runs=tuple(runs),
        problem="" if problem is None else str(problem),
        is_failure=isinstance(problem, LoadFailed),
    )
