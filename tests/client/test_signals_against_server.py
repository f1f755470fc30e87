"""Real signals whose handler raises, beside a real server: nothing is lost, skipped, or misreported."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from coordinator_client import Admin
from tests.harness import forked
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("TXN_TEST_SIGNAL_SECONDS", "6"))
"""A minute in the long run."""


@pytest.mark.long
def test_signals_at_random_moments_leave_told_what_is_true(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with Admin(server.address) as admin:
            admin.create_topic("signals", 2)
        command = [sys.executable, "-m", "tests.client.signals_program", server.address, "signals", str(SECONDS)]
        ended = forked.run(command, capture_output=True, text=True, timeout=10 * SECONDS + 120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "under" in ended.stdout
