"""Servers of one run of the benchmark, started when they are first needed and ended together."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from bench.processes import pause, resume
from bench.programs import begin, load_command, output_of, run_of_output
from bench.results import CannotRun, Run
from bench.scale import Scale
from bench.server import OwnServer
from coordinator_client.admin.admin import Admin

if TYPE_CHECKING:
    from bench.kafka.broker import Broker
    from bench.kafka.kafka_server import Front
    from bench.kafka.settings import Profile
    from bench.kafka.toolchain import Toolchain

TOPIC: Final = "three"
"""Topic of three partitions on every server."""
PARTITIONS: Final = 3
WITH_FRONT: Final = ("--set", "kafka_listen=127.0.0.1:0")
"""Arguments of a server of ours that speaks Kafka's protocol beside gRPC."""
_WARM_UP_PRODUCERS: Final = 64
_SETTLE_S: Final = 1.0
"""Time that a resumed server gets for what was due meanwhile."""

T = TypeVar("T")


@dataclass(slots=True)
class Arena:
    """Servers that cases measure on.

    A shared server lives from its first use to the end, because a broker needs a while to become fast. Asking for it
    pauses the others until they are asked for, because an idle broker takes 3 to 4 % of a processor."""

    directory: Path
    """Directory of everything that is written."""
    cache: Path
    """Directory of builds, which are kept for the next run."""
    scale: Scale
    profiles: Sequence[Profile]
    """Kafka profiles that take part, in the order of the table; empty for our server alone."""
    say: Callable[[str], None]
    own_processors: str | None = None
    """Processors for our servers, in the notation of taskset; None for all, like the brokers."""
    _own: OwnServer | None = field(default=None, init=False)
    _own_with_front: OwnServer | None = field(default=None, init=False)
    _front: Front | None = field(default=None, init=False)
    _brokers: dict[str, Broker] = field(default_factory=dict, init=False)
    _toolchain: Toolchain | CannotRun | None = field(default=None, init=False)
    _prepared: dict[tuple[str, str], object] = field(default_factory=dict, init=False)
    _paused: set[int] = field(default_factory=set, init=False)
    """Processes of shared servers that are not measured now."""
    _scratch_count: int = field(default=0, init=False)

    def own(self) -> OwnServer:
        """Return our shared server. Raises: LoadFailed."""
        if self._own is None:
            self._own = self.new_own("ours")
            self._own.start()
            create_topic(self._own, TOPIC)
        self._let_run(self._own)
        return self._own

    def new_own(self, name: str, arguments: Sequence[str] = ()) -> OwnServer:
        """Return a server on a new directory, not started. The caller ends it."""
        return OwnServer(self.scratch(name), arguments=arguments, processors=self.own_processors)

    def own_with_front(self) -> OwnServer:
        """Return our shared server that speaks Kafka's protocol, too. Raises: LoadFailed."""
        if self._own_with_front is None:
            self._own_with_front = self.new_own("front", WITH_FRONT)
            self._own_with_front.start()
            create_topic(self._own_with_front, TOPIC)
        self._let_run(self._own_with_front)
        return self._own_with_front

    def front(self) -> Front:
        """Return that server as Kafka's clients see it. Raises: CannotRun, LoadFailed."""
        from bench.kafka.kafka_server import Front

        server = self.own_with_front()
        if self._front is None:
            self._front = Front(self.toolchain(), server)
        return self._front

    def broker(self, profile: Profile) -> Broker:
        """Return the shared broker of a profile, warmed up. Raises: CannotRun, LoadFailed."""
        known = self._brokers.get(profile.name)
        if known is None:
            known = self.new_broker(profile)
            self.say(f"starting Kafka ({profile.name}) and warming it up for {self.scale.broker_warm_up_s:.0f} s")
            self._pause_all()
            known.start()
            self._brokers[profile.name] = known
            known.create_topic(TOPIC)
            settings = {"topic": TOPIC, "bytes": 1_024, "committed": True, "producers": _WARM_UP_PRODUCERS}
            known.load("transactions", **settings, warm_up=0, measured=self.scale.broker_warm_up_s)
        self._let_run(known)
        return known

    def new_broker(self, profile: Profile) -> Broker:
        """Return a broker on a new directory, not started. The caller ends it. Raises: CannotRun."""
        from bench.kafka.broker import Broker

        toolchain = self.toolchain()
        try:
            return Broker(toolchain, profile, self.scratch(f"kafka-{profile.name}"))
        except CannotRun as problem:
            # A failed build would fail for the next contender, too, and each attempt takes minutes.
            self._toolchain = problem
            raise

    def toolchain(self) -> Toolchain:
        """Return JDK and Maven, looked up once. Raises: CannotRun."""
        from bench.kafka.toolchain import find_toolchain

        if self._toolchain is None:
            try:
                self._toolchain = find_toolchain(self.cache, self.say)
            except CannotRun as problem:
                self._toolchain = problem
        if isinstance(self._toolchain, CannotRun):
            raise self._toolchain
        return self._toolchain

    def versions(self) -> dict[str, str]:
        """Return the versions of JDK, Kafka and Spark; empty if Kafka takes no part or cannot run."""
        try:
            return self.toolchain().versions() if self.profiles else {}
        except CannotRun:
            return {}

    def once(self, server: str, what: str, prepare: Callable[[], T]) -> T:
        """Prepare something on a shared server, such as a full topic, when it is first needed. Raises the errors of
        `prepare`."""
        key = (server, what)
        if key not in self._prepared:
            self.say(f"preparing {what} on {server}")
            self._prepared[key] = prepare()
        found: T = self._prepared[key]  # type: ignore[assignment]  # what this key was given
        return found

    def scratch(self, name: str) -> Path:
        """Return a new directory."""
        self._scratch_count += 1
        made = self.directory / f"{self._scratch_count:03}-{name}"
        made.mkdir(parents=True)
        return made

    def load(self, program: str, server: OwnServer, **settings: object) -> Run:
        """Run a load program on a server of ours. Raises: LoadFailed."""
        command, environment = load_command(program, {**of_server(server), **settings})
        return run_of_output(output_of(command, f"the load program {program}", environment))

    def begin_load(self, program: str, server: OwnServer, **settings: object) -> subprocess.Popen[str]:
        """Start a load program that waits for a line on its standard input. Raises: LoadFailed."""
        command, environment = load_command(program, {**of_server(server), **settings})
        return begin(command, environment)

    def _let_run(self, server: Broker | OwnServer) -> None:
        """Pause the other shared servers, and resume this one."""
        is_paused = server.process_id in self._paused
        self._pause_all(server.process_id)
        if is_paused:
            resume(server.process_id)
            self._paused.remove(server.process_id)
            time.sleep(_SETTLE_S)

    def _pause_all(self, but: int | None = None) -> None:
        shared = [self._own, self._own_with_front, *self._brokers.values()]
        for process_id in {server.process_id for server in shared if server is not None} - self._paused - {but}:
            pause(process_id)
            self._paused.add(process_id)

    def close(self) -> None:
        """End every shared server."""
        for process_id in self._paused:
            resume(process_id)
        for server in (self._own, self._own_with_front):
            if server is not None:
                server.stop()
        for broker in self._brokers.values():
            broker.kill()


def of_server(server: OwnServer) -> dict[str, object]:
    """Return the settings that every load program needs to find its server."""
    return {"endpoint": server.endpoint, "server_process_id": server.process_id}


def create_topic(server: OwnServer, topic: str) -> None:
    """Create a topic of three partitions."""
    with Admin(server.endpoint, client_id="bench") as admin:
        admin.create_topic(topic, PARTITIONS)


def delete_topic(server: OwnServer, topic: str) -> None:
    """Delete a topic with its records."""
    with Admin(server.endpoint, client_id="bench") as admin:
        admin.delete_topic(topic)
