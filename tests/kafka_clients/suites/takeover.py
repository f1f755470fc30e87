"""Producers that know one of two servers with a lease. The owner is killed under them, and they go on at the other."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from coordinator_client import Admin, read
from tests.harness.object_store import BUCKET, ObjectServer
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess
from tests.kafka_clients.cache import TOOLCHAINS, build_step, program
from tests.kafka_clients.results import Case, Outcome
from tests.kafka_clients.suite import Place, Suite
from tests.kafka_clients.suites.java import MAVEN_COPY
from tests.kafka_clients.suites.stories import node_modules, npm_pinned

_PROGRAMS: Final = Path(__file__).parent.parent / "programs"
_POM: Final = TOOLCHAINS / "takeover" / "pom.xml"
_TOPIC: Final = "t"
_LEASE_TTL_MS: Final = 5_000
_KILL_AFTER_S: Final = 30
"""Time that a program has to start and to learn of both servers."""
_WORK_S: Final = 90
_PROGRAM_S_MAX: Final = 300

_Prepare = Callable[[Place], tuple[list[str | Path], dict[str, str]]]
"""Builds what a program needs, and returns its command without its arguments, and its environment."""


class _Pair:
    """Two servers of one store. The first serves, and the other waits."""

    def __init__(self, directory: Path, store: ObjectServer) -> None:
        self._ports = [_free_port() for _ in range(4)]
        self.servers = [self._server(directory / f"server-{number}", number, store) for number in (1, 2)]

    @property
    def bootstraps(self) -> list[str]:
        """Addresses for Kafka's protocol: of the owner, and of the server that waits."""
        return [f"127.0.0.1:{port}" for port in self._ports[2:]]

    def _server(self, directory: Path, node_id: int, store: ObjectServer) -> ServerProcess:
        kafka = ("--kafka-listen", f"127.0.0.1:{self._ports[node_id + 1]}")
        settings = ("--set", f"node_id={node_id}", "--set", f"lease_ttl_ms={_LEASE_TTL_MS}")
        arguments = ("--store", f"s3://{BUCKET}/takeover", "--lease", *kafka, *settings)
        server = ServerProcess(directory, *arguments, environment=store.environment())
        server.port = self._ports[node_id - 1]
        return server


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def _pair(directory: Path) -> Iterator[_Pair]:
    with ObjectServer() as store:
        store.wall_seconds = None
        pair = _Pair(directory, store)
        owner, other = pair.servers
        with owner:
            other.launch()
            try:
                for _ in looks("the log of the server that waits"):
                    if "lease_awaited" in other.output:
                        break
                yield pair
            finally:
                other.kill()


def _case(prepare: _Prepare, place: Place, known: int) -> Case:
    """Kill the owner under a producer that knows one server: the owner (0), or the one that waits (1)."""
    name = f"a producer that knows {('the owner', 'the server that waits')[known]} goes on after a kill"
    command, environment = prepare(place)
    with _pair(place.directory / f"pair-{known}") as pair:
        owner, other = pair.servers
        with Admin(owner.address) as admin:
            admin.create_topic(_TOPIC, 1)
        kill = threading.Timer(_KILL_AFTER_S, owner.kill)
        kill.start()
        command += [pair.bootstraps[known], _TOPIC, str(_WORK_S)]
        done = place.run(command, timeout_s=_PROGRAM_S_MAX, environment=environment)
        kill.join()
        problem = _problem(done.status, done.output, [each.value for each in read(_TOPIC, other.address)])
    return Case(name, Outcome.PASSED) if problem is None else Case(name, Outcome.FAILED, problem)


def _problem(status: int | None, output: str, values: Sequence[bytes | None]) -> str | None:
    lines = output.splitlines()
    acknowledged = [line.removeprefix("acknowledged ") for line in lines if line.startswith("acknowledged ")]
    found = Counter(value.decode() for value in values if value is not None)
    lost = [value for value in acknowledged if not found[value]]
    doubled = [value for value, count in found.items() if count > 1]
    if lost or doubled:
        return f"lost {lost[:5]}, there twice {doubled[:5]}, of {len(acknowledged)} acknowledged"
    if status != 0 or len(acknowledged) < 2:
        return f"status {status} after {len(acknowledged)} transactions: {lines[-1][:200] if lines else 'no output'}"
    return None


def _cases(prepare: _Prepare, place: Place) -> list[Case]:
    return [_case(prepare, place, known) for known in (0, 1)]


def _java(version: str, place: Place) -> tuple[list[str | Path], dict[str, str]]:
    def build(target: Path) -> None:
        options = (f"-DoutputDirectory={target / 'lib'}", f"-Dkafka.version={version}")
        build_step([program("mvn"), "-B", "-q", "-f", _POM, *MAVEN_COPY, *options])

    lib = place.cache.once(f"takeover-{version}", [_POM], build) / "lib"
    return [program("java"), "-Xmx300m", "-cp", f"{lib}/*", _PROGRAMS / "Takeover.java"], {}


def _node(place: Place) -> tuple[list[str | Path], dict[str, str]]:
    return [program("node"), _PROGRAMS / "kafkajs_takeover.js"], {"NODE_PATH": str(node_modules(place.cache))}


_CONTENT: Final = "owner killed under a producer that knows one server"

SUITES: Final = (
    *(
        Suite(
            f"takeover-java-{version}",
            "Kafka's Java client",
            version,
            _CONTENT,
            partial(_cases, partial(_java, version)),
        )
        for version in ("3.9.1", "4.3.1")
    ),
    Suite("takeover-kafkajs", "kafkajs", npm_pinned("kafkajs"), _CONTENT, partial(_cases, _node)),
)
