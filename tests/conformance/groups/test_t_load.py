"""T. System properties: a thousand groups in a steady state, on a real server process."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.heartbeats import GROUPS, MEMBERS, ROUND_SECONDS, SESSION_MS, beat, fill
from tests.conformance.groups.cases import case
from tests.harness.server_process import ServerProcess


@case(350)
@pytest.mark.slow
@pytest.mark.long
def test_of_a_thousand_groups_no_member_is_missed(tmp_path: Path) -> None:
    """The time that a heartbeat takes is measured, not tested: `python -m bench heartbeats`."""
    rounds = SESSION_MS // (ROUND_SECONDS * 1_000) + 1
    fill(tmp_path / "data")
    with ServerProcess(tmp_path / "data") as server:
        answers = [answer for each in beat(server.address, rounds) for answer in each]
    assert [answer for answer in answers if not isinstance(answer, float)] == []
    assert len(answers) == rounds * GROUPS * MEMBERS
