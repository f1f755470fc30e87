"""Plays every transcript beside this file in the modes that it names, with a fast path and without: in two of these
four ways, so that each story meets each mode and each lane, and these meet each other in its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path

import pytest

from tests.harness.combinations import LANE_VARIABLE
from tests.harness.rocks_shelf import RocksShelf
from tests.harness.script import VERBS
from tests.harness.transcript import check, file_says, play, read_transcript, written
from txn_coordinator.config import TwoPhase

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))
ON_ROCKS = {"crash_of_a_fused_commit", "crash_between_markers", "rotation"}
"""Played on RocksDB too in `make fast`; `make test-long` plays all."""
ON_BUCKET = {"crash_between_markers"}
"""Played in a bucket too in `make fast`; `make test-long` plays all."""


def mode_in_turn(path: Path, modes: Sequence[TwoPhase], *, lane: bool) -> TwoPhase:
    """The one of the modes of a story in which it is played with a fast path, or without."""
    return modes[(SCENARIOS.index(path) + lane) % len(modes)]


@pytest.mark.parametrize("lane", [True, False], ids=["lane", "no lane"])
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, *, lane: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LANE_VARIABLE, str(lane).lower())
    if request.config.getoption("--rewrite"):
        check(path, rewrite=True)
    transcript = read_transcript(path.read_text())
    file_says(path, written(transcript, play(transcript, mode_in_turn(path, transcript.modes, lane=lane))))


def test_a_story_is_played_in_each_of_its_modes_and_these_meet_both_lanes() -> None:
    modes = tuple(TwoPhase)
    for one, other in pairwise(SCENARIOS):
        ways = [[(lane, mode_in_turn(path, modes, lane=lane)) for lane in (True, False)] for path in (one, other)]
        assert all({mode for _, mode in way} == set(modes) for way in ways)
        assert {*ways[0], *ways[1]} == set(product((True, False), modes))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem in ON_ROCKS else (pytest.mark.slow, pytest.mark.long))
        for path in SCENARIOS
        # RocksDB fails when it wants to, and is not copied: tests/store/test_disk_faults.py, test_rocks_recovery.py.
        if path.stem not in ("disk_error", "restore", "restore_split", "restore_two_phase")
    ],
    ids=lambda path: path.stem,
)
def test_scenario_on_rocksdb(path: Path, tmp_path: Path) -> None:
    """With a fast path, in the mode in which that is not played in memory."""
    transcript = read_transcript(path.read_text())
    shelf = RocksShelf(tmp_path / "store")
    try:
        file_says(path, written(transcript, play(transcript, mode_in_turn(path, transcript.modes, lane=False), shelf)))
    finally:
        shelf.close()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem in ON_BUCKET else (pytest.mark.slow, pytest.mark.long))
        for path in SCENARIOS
        # As above; a bucket is backed up by its versions.
        if path.stem not in ("disk_error", "restore", "restore_split", "restore_two_phase")
    ],
    ids=lambda path: path.stem,
)
def test_scenario_in_a_bucket(path: Path) -> None:
    """A crash is a second server that fences the first."""
    pytest.importorskip("slatedb", reason="the extra objectstore is not installed")
    from tests.harness.bucket_shelf import BucketShelf

    transcript = read_transcript(path.read_text())
    shelf = BucketShelf()
    try:
        file_says(path, written(transcript, play(transcript, mode_in_turn(path, transcript.modes, lane=False), shelf)))
    finally:
        shelf.close()


STORY = "# One commit.\n\ntopic t 1\ninit p1 orders\nproduce p1 t-0 a\n\nend p1 commit\nsettle\n\nfetch t-0\n"


def test_a_story_that_changed_fails_with_the_difference_and_says_how_to_accept_it(tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_text(STORY)
    check(path, rewrite=True)
    told = path.read_text()
    check(path, rewrite=False)
    path.write_text(told.replace("\nfetch t-0\n", "\nfetch t-0 raw\n"))
    with pytest.raises(pytest.fail.Exception) as failed:
        check(path, rewrite=False)
    said = str(failed.value).splitlines()
    assert said[0].startswith("story.txt tells another story.")
    assert said[1].endswith("::test_scenario[story-lane]' --rewrite")
    assert said[2:4] == ["--- story.txt", "+++ played now"]
    # The command stands above the difference, so that the place is found.
    assert [line for line in said[4:] if not line.startswith("@@")] == [
        " ",
        " fetch t-0 raw",
        " ----",
        "-t-0: 0:a | next 2",
        "+t-0: 0:a 1:[commit 0/0] | next 2",
    ]
    check(path, rewrite=True)
    check(path, rewrite=False)


def test_a_story_that_differs_between_the_modes_fails_with_the_difference(tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_text(STORY.replace("settle\n", ""))
    with pytest.raises(pytest.fail.Exception, match=r"another story in split(?s:.*)\n-t-0: 0:a .*\n\+t-0: nothing"):
        check(path, rewrite=True)
    assert "settle" not in path.read_text()


def test_every_verb_is_used() -> None:
    used = {command.split()[0] for path in SCENARIOS for command in _commands(path)}
    assert used == set(VERBS)


def _commands(path: Path) -> list[str]:
    return [command for block in read_transcript(path.read_text()).blocks for command in block.commands]
