"""The instructions counted per transaction, and the message where they cannot be counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.instructions import LOADS, CannotCount, Counted, main, stretches

ROOT = Path(__file__).resolve().parents[2]

IN_EACH_RUN = {"Transact in a session"}
"""Loads that `make test` has; the long target has the others."""


def test_a_machine_without_valgrind_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "valgrind and vgdb cannot be found: install the package `valgrind`" in said.err


def test_each_stretch_has_a_file_for_each_thread(tmp_path: Path) -> None:
    for name, total in [("1-01", 100), ("1-02", 20), ("2-01", 300), ("2-12", 7), ("2-02", 30)]:
        (tmp_path / f"counts.{name}").write_text(f"version: 1\npart: 1\n\nfn=(1)\n1 {total}\n\ntotals: {total}\n")
    (tmp_path / "counts-01").write_text("totals: 5\n")
    assert stretches(tmp_path) == [Counted(100, 120), Counted(300, 337)]


def test_a_stretch_that_was_not_written_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(CannotCount, match="wrote nothing of stretch 1"):
        stretches(tmp_path)


@pytest.mark.parametrize(
    "load",
    [load if load in IN_EACH_RUN else pytest.param(load, marks=[pytest.mark.slow, pytest.mark.long]) for load in LOADS],
)
def test_what_is_counted_are_transactions_that_the_server_takes(load: str) -> None:
    program = """
import sys
from bench import instructions
told = []
instructions._SETTLE_S = 0
instructions._monitor = lambda *words: told.append(" ".join(words))
instructions.live(sys.argv[1], sys.argv[2])
print(told)
"""
    command = [sys.executable, "-c", program, load, str(ROOT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(["instrumentation on", "dump", "dump", "instrumentation off"])
