"""The example that copies a topic exactly once: killed at any moment, often, and the server with it."""

from __future__ import annotations

import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator_client import Admin, Producer, read
from examples.demo_parts.flights import records
from tests.docs.fences import ROOT
from tests.harness import forked
from tests.harness.flights import require_flights
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess

PROGRAM = ROOT / "examples" / "copy_exactly_once.py"
FLIGHTS = 1_000
KILLS = 12
KILLS_OF_SERVER = frozenset({7})
"""Kills of a copier after which the server is killed too."""
LOOKS_MAX = 10_000

pytestmark = pytest.mark.slow


class Copy:
    """Two topics on the server: flights, and what was copied of them."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        self.server = server
        self.name, self.source, self.target = name, f"{name}-in", f"{name}-out"
        with Admin(server.address) as admin:
            admin.create_topic(self.source, 6)
            admin.create_topic(self.target, 3)

    def load(self, first: int, end: int) -> Counter[str]:
        """Commit the flights of these rows, and return them."""
        flights = list(records(first, end))
        with Producer(self.server.address, transactional_id=self.name) as producer, producer.transaction() as txn:
            for flight in flights:
                txn.send(self.source, flight.value, partition=flight.row % 6)
        return Counter(flight.value.decode() for flight in flights)

    def copied(self) -> Counter[str]:
        """Every flight that committed readers see in the copy, and how often."""
        return Counter(json.loads(record.value or b"")["value"] for record in read(self.target, self.server.address))

    def offsets(self) -> int:
        """Committed records and markers of the copy."""
        with Admin(self.server.address) as admin:
            return sum(partition.last_stable_offset for partition in admin.describe_topic(self.target).partitions)


class Copiers:
    """Two processes that copy the flights, each under its own name, for ever."""

    def __init__(self, copy: Copy, protocol: str, scratch: Path) -> None:
        self._copy = copy
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

    @contextmanager
    def stopped(self, number: int) -> Iterator[None]:
        """Stop one of them for a while, unknown to itself."""
        self._processes[number].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._processes[number].send_signal(signal.SIGCONT)

    def wait_for_more(self, offsets: int, *, looks_max: int) -> None:
        """Return once the copy has this many more, or after so many looks."""
        goal = self._copy.offsets() + offsets
        for _ in range(looks_max):
            self._check()
            if self._copy.offsets() >= goal:
                return

    def wait_for_flights(self, count: int) -> None:
        """Return once so many were copied, or more."""
        for _ in looks(f"the copies of {count} flights"):
            self._check()
            if self._copy.offsets() >= count and self._copy.copied().total() >= count:
                return

    def _check(self) -> None:
        """Fail if one of them ended by itself."""
        assert all(process.poll() is None for process in self._processes), self._stderr_path.read_text()

    def _start(self, number: int) -> forked.Popen:
        copy = self._copy
        where = f"--server {copy.server.address} --source {copy.source} --target {copy.target} --group {copy.name}"
        who = f"--name {copy.name}-{number} --protocol {self._protocol}"
        how = "--batch 20 --timeout-ms 1500 --follow"
        with self._stderr_path.open("ab") as stderr:
            return forked.Popen([sys.executable, str(PROGRAM), *f"{where} {who} {how}".split()], stderr=stderr)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    require_flights()
    # In the protocol "consumer" the partitions of a copier that was killed go to the other after a session: a short
    # one, or the test would wait for ghosts.
    settings = {
        "TXN_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "1000",
        "TXN_GROUP_CONSUMER_SESSION_TIMEOUT_MS_MIN": "1000",
        "TXN_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": "300",
        "TXN_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS_MIN": "100",
    }
    with ServerProcess(tmp_path_factory.mktemp("copy") / "data", environment=settings) as server:
        yield server


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_copiers_that_are_killed_again_and_again_copy_every_flight_once(
    server: ServerProcess, protocol: str, tmp_path: Path
) -> None:
    copy, rng = Copy(server, f"killed-{protocol}"), random.Random(20_131)
    flights = copy.load(1, FLIGHTS + 1)
    with Copiers(copy, protocol, tmp_path) as copiers:
        for kill in range(1, KILLS + 1):
            # The progress of the copy, or a moment of start-up, decides when to kill; never a length of time.
            copiers.wait_for_more(rng.randrange(1, 200), looks_max=rng.randrange(1, 200))
            copiers.kill_and_restart(rng.randrange(2))
            if kill in KILLS_OF_SERVER:
                server.kill()
                server.start()
        copiers.wait_for_flights(FLIGHTS)
    assert copy.copied() == flights


def test_a_copier_that_hangs_while_the_other_takes_over_copies_nothing_twice(
    server: ServerProcess, tmp_path: Path
) -> None:
    copy = Copy(server, "hanging")
    flights = copy.load(1, FLIGHTS + 1)
    with Copiers(copy, "consumer", tmp_path) as copiers:
        copiers.wait_for_more(FLIGHTS // 4, looks_max=LOOKS_MAX)
        with copiers.stopped(0):
            copiers.wait_for_flights(FLIGHTS)
        # It wakes up with a batch in hand, maybe in a transaction that was aborted meanwhile.
        flights += copy.load(FLIGHTS + 1, FLIGHTS + 301)
        copiers.wait_for_flights(FLIGHTS + 300)
    assert copy.copied() == flights
