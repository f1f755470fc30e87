"""Results and contenders without a measurement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.arena import Arena
from bench.case import Contender, Row
from bench.kafka.settings import PROFILES
from bench.report import Report
from bench.results import TRANSACTIONS_PER_SECOND, CannotRun, LoadFailed, Result, Run, Side, Unit
from bench.scale import QUICK, Scale


def arena(directory: Path, scale: Scale = QUICK) -> Arena:
    """One in which nothing was started; Kafka takes part in its two usual profiles."""
    return Arena(directory, directory, scale, [PROFILES["stock"], PROFILES["tuned"]], lambda _: None)


def result(side: Side, contender: str, *figures: float, unit: Unit = TRANSACTIONS_PER_SECOND, row: str = "r") -> Result:
    runs = tuple(Run(figure=figure, server_us=10 * figure) for figure in figures)
    return Result(case="c", row=row, unit=unit, side=side, contender=contender, durability=f"{side} disk", runs=runs)


def report(*results: Result, is_quick: bool = False) -> Report:
    return Report(
        machine={"processor": "abacus"},
        versions={"Python": "3.11"},
        settings={"Kafka, stock": "defaults"},
        command="python -m bench",
        began="2026-11-21 16:00 UTC",
        rounds=3,
        is_quick=is_quick,
        results=results,
        stories={"load_ids": "a table of its own"},
    )


def row(*contenders: Contender) -> Row:
    return Row("r", TRANSACTIONS_PER_SECOND, contenders)


def contender(name: str, figures: Iterator[float], order: list[str]) -> Contender:
    """One that measures these figures and notes its turn."""

    def measure() -> Run:
        order.append(name)
        return Run(figure=next(figures))

    return Contender(Side.OURS, name, "none", measure)


def without(problem: CannotRun | LoadFailed) -> Contender:
    """One that cannot be measured."""

    def measure() -> Run:
        raise problem

    return Contender(Side.KAFKA, "absent", "none", measure)
