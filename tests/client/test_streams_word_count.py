"""The example whose workers share the tasks of a word count: three processes, one killed, and every count is exact."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.docs.fences import ROOT
from tests.harness import forked
from tests.harness.server_process import ServerProcess

PROGRAM = ROOT / "examples" / "streams_word_count.py"
SENTENCES = 200
SESSION_MS = 3_000

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_every_count_is_exact_though_a_worker_is_killed(tmp_path: Path) -> None:
    least = ("group_streams_session_timeout_ms_min=1000", "group_streams_heartbeat_interval_ms_min=500")
    settings = [word for setting in least for word in ("--set", setting)]
    with ServerProcess(tmp_path / "data", *settings) as server:
        command = [sys.executable, str(PROGRAM), "--server", server.address, "--session-ms", str(SESSION_MS)]
        command += ["--sentences", str(SENTENCES), "--kills", "1"]
        done = forked.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    killed, result = done.stdout.splitlines()
    assert killed.startswith("killed worker")
    assert result.startswith(f"{5 * SENTENCES} words, ")
    assert result.endswith(" 0 wrong counts")
