"""Rounds: all contenders take turns, and one that cannot take part says why once."""

from __future__ import annotations

from bench.results import CannotRun, LoadFailed
from bench.runner import measure
from tests.bench.fakes import contender, row, without


def test_contenders_take_turns_round_by_round() -> None:
    order: list[str] = []
    contenders = [contender("a", iter([1.0, 2.0, 3.0]), order), contender("b", iter([4.0, 5.0, 6.0]), order)]
    first, second = measure({"case": [row(*contenders)]}, 3, lambda _: None)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert [run.figure for run in first.runs] == [1, 2, 3]
    assert [run.figure for run in second.runs] == [4, 5, 6]


def test_who_cannot_run_is_not_asked_again_and_the_others_go_on() -> None:
    absent = without(CannotRun("no Maven"))
    present, missing = measure({"case": [row(contender("a", iter([1.0, 2.0]), []), absent)]}, 2, lambda _: None)
    assert len(present.runs) == 2
    assert (missing.problem, missing.is_failure, missing.runs) == ("no Maven", False, ())


def test_a_load_that_fails_is_a_failure() -> None:
    (failed,) = measure({"case": [row(without(LoadFailed("it fell over")))]}, 1, lambda _: None)
    assert (failed.problem, failed.is_failure) == ("it fell over", True)


def test_progress_counts_every_measurement() -> None:
    said: list[str] = []
    list(measure({"case": [row(contender("a", iter([1.0, 2.0]), []), without(CannotRun("no Maven")))]}, 2, said.append))
    assert [line.partition("  ")[0] for line in said] == ["[1/4", "[2/4", "[3/4"]
    assert "no Maven" in said[1]
