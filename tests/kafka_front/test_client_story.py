"""A client of others: librdkafka goes through transactions, groups, fencing and a share group, on a server process."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.harness import forked
from tests.harness.server_process import ROOT, ServerProcess

pytestmark = pytest.mark.slow

STORY: Final = ROOT / "tests" / "kafka_clients" / "programs" / "confluent_story.py"
LISTENER: Final = re.compile(r"Kafka's protocol on (?P<address>\S+:\d+)")
SETTINGS: Final = ("--set", "kafka_listen=127.0.0.1:0", "--set", "group_session_timeout_ms_min=100")


def test_a_pipeline_runs_with_librdkafka(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="the environment is older than the lock")
    with ServerProcess(tmp_path / "data", *SETTINGS) as server:
        address = server.read_until(LISTENER)["address"]
        told = forked.run([sys.executable, STORY, address], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.splitlines() == [
        "ok create topics",
        "ok idempotent produce, group consume",
        "ok aborted and open records are hidden",
        "ok commit shows them",
        "ok offsets in a transaction",
        "ok a zombie is fenced",
        "ok the consumer protocol (KIP-848)",
        "ok a share group: accept, release, reject (KIP-932)",
        "ok a share group: implicit acknowledgements",
        "ok watermarks, offsets by time, deletion",
    ]
