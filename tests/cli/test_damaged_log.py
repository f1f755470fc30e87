"""Commands for a stopped directory on a damaged store: they name the damage, and go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_server.exits import ExitStatus
from tests.cli.terminal import Terminal
from tests.harness.server_process import ServerProcess
from tests.server.test_damage import LARGE, create, flip, log_of, produce

pytestmark = pytest.mark.slow


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """A directory with three batches, the second of them damaged."""
    with ServerProcess(tmp_path / "data") as server:
        with log_of(server) as log:
            create(log)
            for value in (b"before", LARGE, b"behind"):
                produce(log, 0, value)
        assert server.terminate() == ExitStatus.OK
    flip(tmp_path / "data" / "segments", "*.segment", LARGE)
    return str(tmp_path / "data")


@pytest.mark.parametrize("show", ["batches", "records"])
def test_a_dump_marks_what_is_damaged_and_goes_on(txnctl: Terminal, damaged: str, show: str) -> None:
    rows = txnctl("log", "dump", "t", "--data-dir", damaged, "--show", show, "-o", "json").well().objects
    assert [row.get("base_offset", row.get("offset")) for row in rows] == [0, 1, 2]
    assert ["corrupt" in row for row in rows] == [False, True, False]
    lines = txnctl("log", "dump", "t", "--data-dir", damaged, "--show", show).well().lines
    assert [("goes on at 2" in line, "0000000001.segment" in line) for line in lines] == [
        (False, False),
        (True, True),
        (False, False),
    ]


def test_the_verification_names_it_and_examines_the_rest(txnctl: Terminal, damaged: str) -> None:
    ended = txnctl("store", "verify", damaged, "-o", "json")
    assert ended.status == ExitStatus.PROBLEM
    [batches] = [check for check in ended.document["checks"] if check["check"] == "batches"]
    assert batches["examined"] == 2
    [violation] = batches["violations"]
    assert "t-0: the records from offset 1 to 1 cannot be read" in violation
