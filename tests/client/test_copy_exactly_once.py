"""The example that copies a topic exactly once: killed at any moment, often, and the server with it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_client import Admin, Producer, read
from examples.demo_parts.flights import records
from tests.docs.fences import ROOT
from tests.harness.flights import require_flights
from tests.harness.server_process import ServerProcess

PROGRAM = ROOT / "examples" / "copy_exactly_once.py"
FLIGHTS = 1_500
KILLS = 16
KILLS_OF_SERVER = frozenset({9})
"""After which kills of a copier the server is killed too."""
LOOKS_MAX = 100_000

pytestmark = pytest.mark.slow


class Copiers:
    """Two processes that copy the flights, each under its own name, for ever."""

    def __init__(self, server: ServerProcess, protocol: str, scratch: Path) -> None:
        self.address = server.address
        self._protocol = protocol
        self._stderr_path = scratch / "copiers.stderr"
        self._processes = [self._start(number) for number in range(2)]

    def __enter__(self) -> Copiers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def kill_and_restart(self, number: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start(number)

    def check(self) -> None:
        """Fail if one of them ended although nobody ended it."""
        assert all(process.poll() is None for process in self._processes), self._stderr_path.read_text()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        options = f"--batch 20 --follow --protocol {self._protocol} --name copier-{number}"
        command = [sys.executable, str(PROGRAM), "--server", self.address, *options.split()]
        with self._stderr_path.open("ab") as stderr:
            return subprocess.Popen(command, stderr=stderr)


class Progress:
    """How far the copy is, as the server tells it."""

    def __init__(self, server: ServerProcess, copiers: Copiers) -> None:
        self._server = server
        self._copiers = copiers

    def offsets(self) -> int:
        """Committed records and markers of the copy."""
        with Admin(self._server.address) as admin:
            return sum(partition.last_stable_offset for partition in admin.describe_topic("flights-out").partitions)

    def wait_for(self, offsets: int, *, looks_max: int) -> None:
        """Return once the copy has this many more, or after so many looks."""
        goal = self.offsets() + offsets
        for _ in range(looks_max):
            self._copiers.check()
            if self.offsets() >= goal:
                return

    def wait_for_all(self) -> None:
        """Return once as many flights as there are were copied, or more."""
        for _ in range(LOOKS_MAX):
            self._copiers.check()
            if self.offsets() >= FLIGHTS and len(copied(self._server)) >= FLIGHTS:
                return
        raise AssertionError(f"only {len(copied(self._server))} of {FLIGHTS} flights were copied")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    require_flights()
    # In the protocol "consumer" the partitions of a copier that was killed go to the other after a session: a short
    # one, or the test would wait for ghosts.
    settings = {
        "TXN_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "1000",
        "TXN_GROUP_CONSUMER_SESSION_TIMEOUT_MS_MIN": "1000",
        "TXN_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "300",
        "TXN_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS_MIN": "100",
    }
    with ServerProcess(tmp_path / "data", environment=settings) as server:
        with Admin(server.address) as admin:
            admin.create_topic("flights-in", 6)
            admin.create_topic("flights-out", 3)
        yield server


def copied(server: ServerProcess) -> list[str]:
    return [json.loads(record.value or b"")["value"] for record in read("flights-out", server.address)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_copiers_that_are_killed_again_and_again_copy_every_flight_once(
    server: ServerProcess, protocol: str, tmp_path: Path
) -> None:
    flights = list(records(1, FLIGHTS + 1))
    with Producer(server.address, transactional_id="load") as producer, producer.transaction() as txn:
        for flight in flights:
            txn.send("flights-in", flight.value, partition=flight.row % 6)
    chance = random.Random(20_131)
    with Copiers(server, protocol, tmp_path) as copiers:
        progress = Progress(server, copiers)
        for kill in range(1, KILLS + 1):
            # When to kill is decided by how far the copy is, or by a moment of start-up; never by a length of time.
            progress.wait_for(chance.randrange(1, 200), looks_max=chance.randrange(1, 200))
            copiers.kill_and_restart(chance.randrange(2))
            if kill in KILLS_OF_SERVER:
                server.kill()
                server.start()
        progress.wait_for_all()
    assert Counter(copied(server)) == Counter(flight.value.decode() for flight in flights)
