"""The two servers of a storm: each is started again whenever it ended, as a service manager does, and the owner suffers
faults."""

from __future__ import annotations

import signal
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition, Thread
from typing import Final

from coordinator_client.clock import SystemClock
from coordinator_server.exits import ExitStatus
from tests.harness.object_store import BUCKET, ObjectServer
from tests.harness.server_process import READY, ServerFailed, ServerProcess
from tests.slate.cuts import LINKS, NodeNetwork

SIGNALS: Final = ("SIGKILL", "SIGSTOP", "SIGTERM", "SIGKILL")
"""Faults of the owner, one after the other. A stopped one goes on when the other serves, and must end itself."""
CUTS: Final[dict[str, Sequence[str]]] = {"store": ("store",), "clients": ("clients",), "both": LINKS}
"""Links that a cut takes from the owner."""
_CLIENTS_AWAY_MS: Final = 5_000
"""Length of a cut from the clients only. The owner keeps the lease meanwhile."""
_LOOK_MS: Final = 50
_WRONG_ENDS: Final = {ExitStatus.USAGE, ExitStatus.ADDRESS_REFUSED}


class Node:
    """One server, which runs again and again until `end`."""

    def __init__(self, process: ServerProcess, news: Condition) -> None:
        self.process = process
        self.is_serving = False
        self.statuses: Counter[int] = Counter()
        """Number of ends by exit status."""
        self._news = news
        self._waits_before = 0
        self._is_over = False
        self._keeper = Thread(target=self._keep, name=f"keeper of {process.address}", daemon=True)

    @property
    def is_waiting(self) -> bool:
        """True if it waits for the lease, since its newest start."""
        return self.process.is_running and self._wait_count() > self._waits_before

    def start(self) -> None:
        self._keeper.start()

    def end(self) -> None:
        """End the server, without another start."""
        self._is_over = True
        while self._keeper.is_alive():
            if self.process.is_running:
                self.process.send_signal(signal.SIGKILL)
            SystemClock().pause(_LOOK_MS)

    def _keep(self) -> None:
        while not self._is_over:
            self._waits_before = self._wait_count()
            self.process.launch()
            try:
                self.process.read_until(READY)
            except ServerFailed:
                status = self.process.wait()
            else:
                self._note(is_serving=True)
                status = self.process.wait()
            self.statuses[status] += 1
            self._note(is_serving=False)

    def _wait_count(self) -> int:
        return self.process.output.count("lease_awaited")

    def _note(self, *, is_serving: bool) -> None:
        with self._news:
            self.is_serving = is_serving
            self._news.notify_all()


class Pair:
    """The two servers, by their part. Takes the place of the one server of a storm."""

    def __init__(
        self, directory: Path, objects: ObjectServer, lease_ttl_ms: int, networks: Sequence[NodeNetwork] = ()
    ) -> None:
        """`networks`: one for each server, if these are to be cut."""
        objects.wall_seconds = None
        self._news = Condition()
        self._networks = networks
        kafka = []
        self.nodes = []
        for number in (1, 2):
            network = networks[number - 1] if networks else None
            host = network.host if network else "127.0.0.1"
            kafka.append(f"{host}:{_free_port()}")
            process = ServerProcess(
                directory / f"node-{number}",
                *("--store", f"s3://{BUCKET}/storm", "--lease", "--set", f"node_id={number}"),
                *("--set", f"lease_ttl_ms={lease_ttl_ms}", "--set", f"kafka_listen={kafka[-1]}"),
                *("--set", "producer_epoch_max=3", *(("--insecure",) if network else ())),
                environment=objects.environment(network.store_host if network else "127.0.0.1"),
                prefix=network.prefix if network else (),
            )
            process.host, process.port = host, _free_port()
            self.nodes.append(Node(process, self._news))
        self.kafka = ",".join(kafka)
        self.address = ",".join(each.process.address for each in self.nodes)

    @property
    def output(self) -> str:
        return "\n".join(each.process.output for each in self.nodes)

    @property
    def statuses(self) -> Counter[int]:
        """Number of ends of both by exit status."""
        return self.nodes[0].statuses + self.nodes[1].statuses

    def start(self) -> None:
        """Start both. Returns once one serves and the other waits."""
        for node in self.nodes:
            node.start()
        self.owner_of_settled()

    def kill(self) -> None:
        for node in self.nodes:
            node.end()

    def owner_of_settled(self) -> Node:
        """Return the server that serves, once the other waits."""
        while True:
            wrong = _WRONG_ENDS & {*self.statuses}
            assert not wrong, f"a server cannot start, status {wrong}"
            for owner, other in (self.nodes, self.nodes[::-1]):
                if owner.is_serving and owner.process.is_running and not other.is_serving and other.is_waiting:
                    return owner
            SystemClock().pause(_LOOK_MS)

    def fault(self, name: str) -> None:
        """Let the owner suffer a signal or a cut, by its name. Returns once one serves again and the other waits."""
        owner = self.owner_of_settled()
        if name in CUTS:
            self._cut(owner, name)
        else:
            self._send(owner, signal.Signals[name])
        self.owner_of_settled()

    def _send(self, owner: Node, number: signal.Signals) -> None:
        ends = owner.statuses.total()
        owner.process.send_signal(number)
        if number == signal.SIGSTOP:
            self._await(lambda: self._other(owner).is_serving)
            owner.process.send_signal(signal.SIGCONT)
        self._await(lambda: owner.statuses.total() > ends)

    def _cut(self, owner: Node, name: str) -> None:
        network = self._networks[self.nodes.index(owner)]
        network.cut(CUTS[name])
        if name == "clients":
            SystemClock().pause(_CLIENTS_AWAY_MS)
        else:
            self._await(lambda: self._other(owner).is_serving)
        network.heal()

    def _other(self, node: Node) -> Node:
        return self.nodes[1 - self.nodes.index(node)]

    def _await(self, is_there: Callable[[], bool]) -> None:
        with self._news:
            self._news.wait_for(is_there)


def _free_port() -> int:
    with socket.create_server(("", 0)) as found:
        port: int = found.getsockname()[1]
        return port
