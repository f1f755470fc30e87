"""Two working trees in turns: what is compared with what, what counts as reached, and that it runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench.alternate import ROWS, Goal, main, ratio_of, table, verdict
from bench.results import LoadFailed, Run, Side
from tests.bench.fakes import result

ROOT = Path(__file__).resolve().parent.parent.parent


def runs(*figures: float) -> list[Run]:
    return [Run(figure=figure, server_us=None if figure < 0 else 10 * figure) for figure in figures]


def test_the_rounds_are_compared_and_not_the_medians() -> None:
    """A machine that becomes slower is slower for both."""
    found = ratio_of(runs(30, 20, 10), runs(20, 10, 10), "figure")
    assert found is not None
    assert (found.middle, found.lowest, found.highest) == (1.5, 1, 2)
    assert str(found) == "1.50 (1.00 to 2.00)"


def test_what_was_not_measured_is_not_compared() -> None:
    assert ratio_of(runs(1), runs(-1), "server_us") is None
    assert verdict(Goal(server_us_max=0.65), None, None) == "server time 0.65: missed"


def test_a_rate_must_rise_and_processor_time_must_fall() -> None:
    goal, better, worse = Goal(1.35, 0.65), ratio_of(runs(2), runs(1), "figure"), ratio_of(runs(1), runs(2), "figure")
    assert verdict(goal, better, worse) == "rate 1.35: reached, server time 0.65: reached"
    assert verdict(goal, worse, better) == "rate 1.35: missed, server time 0.65: missed"
    assert verdict(Goal(), worse, better) == ""


def test_the_table_says_who_failed_and_what_was_reached() -> None:
    here, there = result(Side.OURS, "here", 3, 3), result(Side.OURS, "there", 2, 2)
    failed = replace(there, runs=(), problem=str(LoadFailed("it fell over")))
    lines = table([(ROWS[0], here, there), (ROWS[1], here, failed)], has_goals=True)[2:]
    assert "| 3 txn/s | 2 txn/s | 1.50 (1.50 to 1.50) | 30 | 20 | 1.50 (1.50 to 1.50) |" in lines[0]
    assert lines[0].endswith("| rate 1.35: reached, server time 0.65: missed |")
    assert "| failed: it fell over |" in lines[1]
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("made", "rows", "message"),
    [
        ([], [], "holds no coordinator_server"),
        (["coordinator_server"], [], "run `make venv` there first"),
        (["coordinator_server", ".venv"], ["--rows", "sorting"], "there is no such row; there are: SDK, 64"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    made: list[str], rows: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in made:
        (tmp_path / name).mkdir()
    with pytest.raises(SystemExit):
        main([str(tmp_path), *rows])
    assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.long
def test_a_tree_is_compared_with_itself(tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    stores.mkdir()
    command = [sys.executable, "-m", "bench.alternate", str(ROOT), "--quick", "--rows", "ids", "--dir", str(stores)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| new ids over sessions, 64 at a time |" in done.stdout
    assert list(stores.iterdir()) == []
