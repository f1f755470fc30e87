"""Plays every transcript beside this file, in the modes that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.combinations import LANE_VARIABLE
from tests.harness.rocks_shelf import RocksShelf
from tests.harness.script import VERBS
from tests.harness.transcript import check, play, read_transcript, written

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))
ON_ROCKS = {"crash_of_a_fused_commit", "crash_between_markers", "rotation"}
"""Played on RocksDB too in the fast suite; the slow one plays all."""


@pytest.mark.parametrize("lane", ["true", "false"], ids=["lane", "no lane"])
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, lane: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LANE_VARIABLE, lane)
    check(path, rewrite=request.config.getoption("--rewrite"))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem in ON_ROCKS else pytest.mark.slow)
        for path in SCENARIOS
        # RocksDB fails when it wants to, and is not copied: tests/store/test_disk_faults.py, test_rocks_recovery.py.
        if path.stem not in ("disk_error", "restore", "restore_split", "restore_two_phase")
    ],
    ids=lambda path: path.stem,
)
def test_scenario_on_rocksdb(path: Path, tmp_path: Path) -> None:
    transcript = read_transcript(path.read_text())
    for mode in transcript.modes:
        shelf = RocksShelf(tmp_path / mode)
        try:
            assert written(transcript, play(transcript, mode, shelf)) == path.read_text()
        finally:
            shelf.close()


def test_every_verb_is_used() -> None:
    used = {command.split()[0] for path in SCENARIOS for command in _commands(path)}
    assert used == set(VERBS)


def _commands(path: Path) -> list[str]:
    return [command for block in read_transcript(path.read_text()).blocks for command in block.commands]
