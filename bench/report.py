"""Report of everything that was measured: one table as Markdown for people, and JSON for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from bench.goals import outcomes
from bench.results import RUN_FIELDS, Result, ratio, rivals

_COLUMNS: Final = (
    "case",
    "server",
    "durability",
    "client",
    "figure",
    "spread",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "server us/op",
    "client us/op",
    "server MiB",
    "others' cores",
    "ours : Kafka",
)
_QUANTITIES: Final = ("p50_ms", "p99_ms", "p999_ms", "server_us", "client_us", "server_mib", "other_cores")
_MEDIANS: Final = tuple(name for name in RUN_FIELDS if name not in {"error_kinds", "errors"})
_NOISY_CORES: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All results, with the machine and the settings."""

    machine: Mapping[str, str]
    versions: Mapping[str, str]
    settings: Mapping[str, str]
    """Settings of each Kafka profile, and the durability of each side."""
    command: str
    began: str
    rounds: int
    is_quick: bool
    results: Sequence[Result]
    stories: Mapping[str, str]
    """Output of cases with tables of their own, by name."""


def markdown(report: Report) -> str:
    """Return the report as Markdown: the head, the table, the cases that could not run, and the tables of stories."""
    lines = [f"- {name}: {value}" for part in (report.machine, report.versions) for name, value in part.items()]
    lines += [f"- {name}: {value}" for name, value in report.settings.items()]
    lines += [f"- `{report.command}`, {report.began}, medians of {report.rounds}", ""]
    if report.is_quick:
        lines += ["**A quick run: it shows that everything works. Its figures are not for quoting.**", ""]
    measured = [result for result in report.results if not result.problem]
    if measured:
        lines += table(measured)
    lines += _remarks(report.results)
    lines += [] if report.is_quick else _goals(report.results)
    for name, text in report.stories.items():
        lines += ["", f"## {name}", "", text.rstrip()]
    return "\n".join(lines) + "\n"


def table(results: Sequence[Result]) -> list[str]:
    """Return a line for each contender. Those of a row are together, ours first."""
    lines = [f"| {' | '.join(_COLUMNS)} |", f"|{' --- |' * len(_COLUMNS)}"]
    for result in results:
        figure = result.figure
        assert figure is not None, "only what was measured is shown"
        cells = [
            f"{result.case}: {result.row}",
            result.side,
            result.durability,
            result.contender,
            f"{number(figure)} {result.unit.name}",
            "" if result.spread is None else f"{result.spread:.0%}",
            *(_optional(result.median_of(quantity)) for quantity in _QUANTITIES),
            ratios_in_words(result, results),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def ratios_in_words(result: Result, results: Sequence[Result]) -> str:
    """Return the ratios to each contender of the other side as text; empty for the other side itself."""
    found = ((rival.contender, ratio(result, rival)) for rival in rivals(result, results))
    return ", ".join(f"{times:.2g}x {name}" for name, times in found if times is not None)


def as_json(report: Report) -> dict[str, object]:
    """Return everything as JSON, including each single run."""
    return {
        "machine": dict(report.machine),
        "versions": dict(report.versions),
        "settings": dict(report.settings),
        "command": report.command,
        "began": report.began,
        "rounds": report.rounds,
        "is_quick": report.is_quick,
        "results": [_result_json(result, report.results) for result in report.results],
        "stories": dict(report.stories),
    }


def number(value: float) -> str:
    """Return a number with three significant digits, or with all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _result_json(result: Result, results: Sequence[Result]) -> dict[str, object]:
    found: dict[str, object] = {
        "case": result.case,
        "row": result.row,
        "side": str(result.side),
        "contender": result.contender,
        "durability": result.durability,
        "unit": result.unit.name,
        "is_less_better": result.unit.is_less_better,
    }
    if result.problem:
        return found | {"problem": result.problem, "is_failure": result.is_failure}
    medians = {name: value for name in _MEDIANS if (value := result.median_of(name)) is not None}
    return found | {
        "median": medians,
        "spread": result.spread,
        "errors": result.errors,
        "ratios": {rival.contender: ratio(result, rival) for rival in rivals(result, results)},
        "runs": [asdict(run) for run in result.runs],
    }


def _goals(results: Sequence[Result]) -> list[str]:
    """Return the goals, and the verdict on each."""
    lines = [
        f"| {outcome.goal.case}: {outcome.row} | {outcome.goal.contender} | {outcome.goal.quantity} | "
        f"{number(outcome.figure)} | {number(outcome.goal.must)} | {number(outcome.goal.aim)} | {outcome.verdict} |"
        for outcome in outcomes(results)
    ]
    if not lines:
        return []
    head = ("case", "client", "quantity", "measured", "must", "aim", "reached")
    return ["", "## Goals", "", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines]


def _remarks(results: Sequence[Result]) -> list[str]:
    """Return the remarks that a reader of the table needs."""
    lines = []
    for result in results:
        what = f"{result.case}: {result.row}, {result.side}, {result.contender}"
        if result.problem:
            lines.append(f"- {what}: {'failed' if result.is_failure else 'not run'}: {result.problem}")
        elif result.errors:
            kinds = "; ".join(run.error_kinds for run in result.runs if run.error_kinds)
            lines.append(f"- {what}: {result.errors} operations failed ({kinds})")
    noisy = sum((result.median_of("other_cores") or 0.0) > _NOISY_CORES for result in results)
    if noisy:
        lines.append(f"- during {noisy} of {len(results)} lines others took more than {_NOISY_CORES} cores: too low")
    return ["", *lines] if lines else []


def _optional(value: float | None) -> str:
    return "" if value is None else number(value)
