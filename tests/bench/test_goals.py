"""Goals of the benchmarks: reported in words of the row, from the figures of one run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.goals import GOALS, outcomes
from bench.registry import CASES
from bench.report import markdown
from bench.results import Result, Run, Side
from bench.scale import FULL
from tests.bench.fakes import arena, report, result

ROW = "3 x 1 KiB, 64 producers, commit"
STOCK = replace(result(Side.KAFKA, "Java, stock", 100, row=ROW), case="transactions")


def sdk(*runs: Run) -> Result:
    return replace(result(Side.OURS, "SDK", row=ROW), case="transactions", runs=runs)


@pytest.mark.parametrize(("per_second", "verdict"), [(299, "missed"), (300, "must"), (400, "aim")])
def test_throughput_is_judged_by_its_ratio_to_kafka_in_the_same_row(per_second: float, verdict: str) -> None:
    (found,) = outcomes([sdk(Run(figure=per_second)), STOCK])
    assert (found.figure, found.verdict) == (per_second / 100, verdict)


@pytest.mark.parametrize(("p99_ms", "verdict"), [(31.0, "missed"), (30.0, "must"), (20.0, "aim")])
def test_of_times_the_lower_is_the_better(p99_ms: float, verdict: str) -> None:
    (found,) = outcomes([sdk(Run(figure=1, p99_ms=p99_ms))])
    assert (found.goal.quantity, found.figure, found.verdict) == ("p99_ms", p99_ms, verdict)


def test_processor_time_is_judged_by_itself_and_as_a_part_of_kafkas() -> None:
    theirs = replace(STOCK, runs=(Run(figure=100, server_us=1_000),))
    found = {
        each.goal.quantity: (each.figure, each.verdict)
        for each in outcomes([sdk(Run(figure=400, server_us=200)), theirs])
    }
    assert found["server_us"] == (200, "missed")
    assert found["server_us, times Java, stock"] == (0.2, "must")


@pytest.mark.parametrize(("p99_ms", "verdict"), [(21.0, "missed"), (20.0, "must"), (10.0, "aim")])
def test_the_front_is_judged_by_kafkas_latency_in_the_same_row(p99_ms: float, verdict: str) -> None:
    row = "Java, 3 x 100 B, 16 producers"
    ours, theirs = (
        replace(result(side, name, row=row), case="kafka_front", runs=(Run(figure=1, p99_ms=latency_ms),))
        for side, name, latency_ms in ((Side.OURS, "Java", p99_ms), (Side.KAFKA, "Java, stock", 20.0))
    )
    found = {each.goal.quantity: each.verdict for each in outcomes([ours, theirs])}
    assert found["p99_ms, times Java, stock"] == verdict


def test_what_was_not_measured_is_not_judged() -> None:
    absent = replace(STOCK, runs=(), problem="no Maven")
    assert list(outcomes([sdk(Run(figure=1)), absent])) == []
    assert list(outcomes([replace(sdk(), problem="it fell over"), STOCK])) == []


def test_every_goal_is_about_something_that_a_full_run_measures(tmp_path: Path) -> None:
    place = arena(tmp_path, FULL)
    measured = {
        (name, row.label, contender.name)
        for name, case in CASES.items()
        for row in case.rows(place)
        for contender in row.contenders
    }
    for goal in GOALS:
        assert any(
            (goal.case, goal.contender) == (case, contender) and label.startswith(goal.row)
            for case, label, contender in measured
        ), f"{goal.case}: {goal.row}, {goal.contender}"


def test_the_report_ends_with_the_goals_unless_it_was_a_quick_run() -> None:
    results = (sdk(Run(figure=333)), STOCK)
    assert f"| transactions: {ROW} | SDK | times Java, stock | 3.33 | 3 | 4 | must |" in markdown(report(*results))
    assert "## Goals" not in markdown(report(*results, is_quick=True))
