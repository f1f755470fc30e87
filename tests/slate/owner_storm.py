"""Two servers with one lease, whose owner is killed, stopped and ended again and again under producers.

    python -m tests.slate.owner_storm --faults 200 --seed 7

Each fault waits until every producer got something done after the last one. The check at the end is that of any kill
storm: what was acknowledged is read exactly once, by a Kafka consumer and by the SDK, once all producers have ended.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from coordinator_client import Admin
from tests.harness import forked
from tests.harness.object_store import BUCKET, ObjectServer
from tests.harness.patience import looks
from tests.harness.server_process import READY, ServerProcess
from tests.kafka_front.kill_storm import ENVIRONMENT, PARTITIONS, TOPIC, Client, Storm, check_readers

LEASE_TTL_MS: Final = 10_000
FAULTS: Final = ("SIGKILL", "SIGSTOP", "SIGTERM", "SIGKILL")
"""Faults of the owner, one after the other. A stopped one goes on when the other serves, and must end itself."""


class Pair:
    """The two servers, by their part. Takes the place of the one server of a storm."""

    def __init__(self, directory: Path, objects: ObjectServer) -> None:
        objects.wall_seconds = None
        ports = [_free_port(), _free_port()]
        self.kafka = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.owner, self.waits = (
            ServerProcess(
                directory / f"node-{number}",
                *("--store", f"s3://{BUCKET}/storm", "--lease", "--set", f"node_id={number}"),
                *("--set", f"lease_ttl_ms={LEASE_TTL_MS}", "--set", f"kafka_listen=127.0.0.1:{port}"),
                *("--set", "producer_epoch_max=3"),
                environment=objects.environment(),
            )
            for number, port in enumerate(ports, 1)
        )
        self.owner.port, self.waits.port = _free_port(), _free_port()
        self.address = f"{self.owner.address},{self.waits.address}"

    @property
    def output(self) -> str:
        return f"{self.owner.output}\n{self.waits.output}"

    def start(self) -> None:
        """Start both. Returns once one serves and the other waits."""
        self.owner.start()
        self._launch(self.waits)

    def kill(self) -> None:
        self.owner.kill()
        self.waits.kill()

    def fault(self, name: str) -> None:
        """Let the owner suffer a fault. Returns once the other serves, and the former owner waits."""
        former, self.owner, self.waits = self.owner, self.waits, self.owner
        former.send_signal(signal.Signals[name])
        self.owner.read_until(READY)
        if name == "SIGSTOP":
            former.send_signal(signal.SIGCONT)
        former.wait()
        self._launch(former)

    def _launch(self, process: ServerProcess) -> None:
        before = process.output.count("lease_awaited")
        process.launch()
        for _ in looks("the server that waits"):
            if process.output.count("lease_awaited") > before:
                return


class OwnerStorm(Storm):
    """The storm over a pair."""

    def __init__(self, directory: Path, seed: int, clients: Sequence[Client], objects: ObjectServer) -> None:
        super().__init__(directory / "unused", seed, clients)
        self._pair = Pair(directory, objects)
        self.server: Any = self._pair
        self.kafka = self._pair.kafka

    def __enter__(self) -> Self:
        self._pair.start()
        with Admin(self._pair.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        for client in self.clients:
            client.start(self)
        return self

    def strike(self, faults: int) -> None:
        """Let the owner suffer so many faults."""
        for number in range(faults):
            self._wait_for_progress()
            self._pair.fault(FAULTS[number % len(FAULTS)])


def run(directory: Path, seed: int, faults: int) -> int:
    """Go through a storm. Returns the number of transactions that ended. Raises AssertionError for a wrong one."""
    clients = [by("kafka", "kafka-0"), by("sdk", "sdk-0")]
    with ObjectServer() as objects, OwnerStorm(directory, seed, clients, objects) as storm:
        storm.strike(faults)
        storm.calm()
        command = program("read", storm.kafka, clients[0].told[0].group)
        shown = forked.run(command, stdout=subprocess.PIPE, text=True, check=True, env=ENVIRONMENT)
        found = json.loads(shown.stdout)
        check_readers(storm, found["values"], found["offsets"], ended_min=faults)
        return sum(client.ended_count for client in clients)


def by(kind: str, transactional_id: str) -> Client:
    """Return a producer of librdkafka (kafka) or of the SDK (sdk), which knows both servers."""
    return Client(
        transactional_id,
        lambda storm, life: program(
            kind, storm.kafka if kind == "kafka" else storm.server.address, transactional_id, str(life)
        ),
    )


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.kafka_front.killed_producer", *arguments]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def main() -> int:
    """Run one storm by hand."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        ended = run(Path(directory), arguments.seed, arguments.faults)
    print(f"{arguments.faults} faults, {ended} transactions ended: none lost, none twice, none in part")
    return 0


if __name__ == "__main__":
    sys.exit(main())
