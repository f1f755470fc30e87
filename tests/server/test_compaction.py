"""A server in a process of its own compacts a topic, and its readers find what is left, also after a kill."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator_client import Admin, Producer, read
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess

KEYS = 6
EAGER = {"cleanup_policy": "compact", "max_compaction_lag_ms": "1", "min_dirty_ratio": "0"}


def write(server: ServerProcess, topic: str, count: int) -> None:
    """Records of all keys, each large enough for a segment, in transactions of a few."""
    with Producer(server.address, transactional_id="w") as producer:
        for first in range(0, count, KEYS):
            with producer.transaction() as txn:
                for number in range(first, first + KEYS):
                    key = b"%d" % (number % KEYS)
                    txn.send(topic, b"%d " % number + os.urandom(40_000), key=key, partition=0)


def numbers(server: ServerProcess, topic: str) -> list[tuple[bytes | None, bytes]]:
    return sorted((record.key, (record.value or b"").split(b" ")[0]) for record in read(topic, server.address))


def wait_until_compacted(server: ServerProcess, topic: str, expected: list[tuple[bytes | None, bytes]]) -> None:
    for _ in looks("the newest record of each key alone"):
        if numbers(server, topic) == expected:
            return


@pytest.mark.slow
def test_only_the_newest_records_stay_and_a_kill_changes_nothing(tmp_path: Path) -> None:
    environment = {"TXN_COMPACTION_CHECK_INTERVAL_MS": "50"}
    with ServerProcess(tmp_path / "data", environment=environment) as server:
        with Admin(server.address) as admin:
            admin.create_topic("t", config=EAGER)
        write(server, "t", 60)
        newest: list[tuple[bytes | None, bytes]] = [(b"%d" % key, b"%d" % (54 + key)) for key in range(KEYS)]
        wait_until_compacted(server, "t", newest)
        server.kill()
        server.start()
        assert numbers(server, "t") == newest
        write(server, "t", 30)
        newest = [(b"%d" % key, b"%d" % (24 + key)) for key in range(KEYS)]
        wait_until_compacted(server, "t", newest)
        server.terminate()
