"""A server and its producers under kills (SIGKILL), and the check of what readers see afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Final, Self

from coordinator_client import Admin, read
from tests.harness import forked
from tests.harness.kafka_socket import kafka_address
from tests.harness.server_process import ROOT, ServerProcess
from tests.kafka_front.telling import now

TOPIC: Final = "payments"
PARTITIONS: Final = 3
KILLS: Final = 10
PROGRESS: Final = 4
"""How many transactions of each producer come to an end between two kills."""
SETTINGS: Final = ("--set", "producer_epoch_max=3")
"""Epochs run out, so producers get new ids."""


@dataclass(slots=True)
class Told:
    """One transaction, as its producer told it."""

    values: list[str]
    group: str
    offset: int
    fate: str = "unknown"
    life: int = 1
    """Number of the process."""
    began: float = 0.0
    """A time before the first request (s)."""
    partitions: list[int] = field(default_factory=list)
    """Those of the values, if the producer tells them."""
    places: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Offset of each value that was acknowledged with one, and a time afterwards."""
    asked: tuple[str, float] | None = None
    """The end that was asked for, and a time before; None if the producer tells nothing, or got not so far."""
    producer: tuple[int, int] | None = None
    """Producer id and epoch, if the producer tells them."""
    ended: float | None = None
    """A time after the end is known."""


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that happened between two times (s)."""

    what: Any
    since: float
    until: float


@dataclass(slots=True)
class Client:
    """A producer, of which one process follows another."""

    transactional_id: str
    program: Callable[[Storm, int], Sequence[str]]
    """Command of the process of a life, by its number. It prints what `killed_producer` says."""
    kind: str = "client"
    """Kind of its program."""
    news: Condition = field(default_factory=Condition)
    told: list[Told] = field(default_factory=list)
    identities: list[Noted] = field(default_factory=list)
    """Producer id and epoch in each answer to InitProducerId, if the producer tells them."""
    ended_count: int = 0
    """Number of transactions whose end is known."""
    is_gone: bool = False
    """Its process said its last word."""
    _life: int = 0
    _started: float = 0.0
    _of_value: dict[str, Told] = field(default_factory=dict)
    _process: forked.Popen | None = None
    _listener: Thread | None = None

    def start(self, storm: Storm) -> None:
        """Start the next process."""
        self._life += 1
        self.is_gone = False
        self._started = now()
        self._process = forked.Popen(
            self.program(storm, self._life),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        self._listener = Thread(target=self._listen, args=(self._process.stdout,))
        self._listener.start()

    def kill(self) -> int:
        """Kill it, and return the exit status."""
        assert self._process is not None
        self._process.kill()
        return self._gone()

    def end(self) -> None:
        """Let it finish its transaction. It ends well."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._gone() == 0, f"{self.transactional_id} failed"

    def _gone(self) -> int:
        assert self._process is not None
        assert self._listener is not None
        self._listener.join()
        with self._process as process:
            return process.wait()

    def _listen(self, lines: Any) -> None:
        for line in lines:
            said = json.loads(line)
            with self.news:
                self.note(said)
                self.news.notify_all()
        with self.news:
            self.is_gone = True
            self.news.notify_all()

    def note(self, said: dict[str, Any]) -> None:
        """Keep a line of a producer (`telling.py`). One that does not tell the time may have begun with its process."""
        match said:
            case {"began": values}:
                began = said.get("at", self._started)
                place = said["group"], said["offset"]
                told = Told(values, *place, life=self._life, began=began, partitions=said.get("partitions", []))
                self.told.append(told)
                self._of_value.update(dict.fromkeys(values, told))
            case {"sent": value}:
                self._of_value[value].places[value] = said["offset"], said["at"]
            case {"asks": verdict}:
                self.told[-1].asked = verdict, said["at"]
                self.told[-1].producer = tuple(said["producer"]) if "producer" in said else None
            case {"producer": identity}:
                self.identities.append(Noted(tuple(identity), said["since"], said["at"]))
            case {"fate": fate}:
                self.told[-1].fate = fate
                self.told[-1].ended = said.get("at", now())
                self.ended_count += fate != "unknown"


class Watcher:
    """A read_committed consumer of librdkafka that reads through the whole storm."""

    def __init__(self, command: Sequence[str]) -> None:
        self.polls: list[Noted] = []
        """Records of each poll by partition."""
        self._process = forked.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self._listener = Thread(target=self._listen, args=(self._process.stdout,))
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Kill it. It has read until then, through all faults."""
        has_failed = self._process.poll() is not None
        self._process.kill()
        self._listener.join()
        with self._process:
            self._process.wait()
        assert error is not None or not has_failed, "the watcher ended on its own"

    def _listen(self, lines: Any) -> None:
        for line in lines:
            said = json.loads(line)
            self.polls.append(Noted(said["polled"], said["since"], said["at"]))


class Storm:
    """A server with its clients. `rage` kills them; `calm` lets all of them end."""

    def __init__(self, directory: Path, seed: int, clients: Sequence[Client]) -> None:
        self._rng = Random(seed)
        self._news = Condition()
        self.server = ServerProcess(directory, *SETTINGS, "--set", "kafka_listen=127.0.0.1:0")
        self.kafka = ""
        """Address of Kafka's protocol."""
        self.clients = clients
        self.faults: list[Noted] = []
        """Faults of servers by their names."""
        self.kills: Counter[tuple[str, int]] = Counter()
        """Number of kills by kind of process and exit status."""
        self.interrupting = 0
        """Number of kills within a transaction of at least one producer."""
        for client in clients:
            client.news = self._news

    def __enter__(self) -> Self:
        self.server.start()
        self.kafka = str(kafka_address(self.server))
        # It comes back where clients look for it.
        self.server.arguments = (*SETTINGS, "--set", f"kafka_listen={self.kafka}")
        with Admin(self.server.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        for client in self.clients:
            client.start(self)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"the server wrote:\n{self.server.output}")
            for client in self.clients:
                client.kill()
        self.server.kill()

    def rage(self, kills: int = KILLS, *, progress: int = PROGRESS) -> None:
        """Kill so often, each time with a transaction under way. `progress`: how many transactions of each producer
        come to an end before a kill."""
        for number in range(kills):
            self._wait_for_progress(progress)
            if number % 3 == 2:
                client = self._rng.choice(self.clients)
                self.kills[client.kind, client.kill()] += 1
                self.interrupting += is_within_transaction(client)
                client.start(self)
            else:
                with self._fault("SIGKILL"):
                    self.server.send_signal(signal.SIGKILL)
                    self.kills["server", self.server.wait()] += 1
                    self.interrupting += any(map(is_within_transaction, self.clients))
                    self.server.start()

    @contextmanager
    def _fault(self, name: str) -> Iterator[None]:
        since = now()
        yield
        self.faults.append(Noted(name, since, now()))

    def calm(self) -> None:
        self._wait_for_progress()
        for client in self.clients:
            client.end()

    def _wait_for_progress(self, progress: int = PROGRESS) -> None:
        """Until every client got something done, and one of them, at random, has just begun a transaction."""
        aims = [client.ended_count + progress for client in self.clients]
        victim = self._rng.choice(self.clients)

        def is_there() -> bool:
            assert not any(client.is_gone for client in self.clients), "a producer ended on its own"
            counts = [client.ended_count for client in self.clients]
            return all(map(int.__ge__, counts, aims)) and victim.told[-1].fate == "unknown"

        with self._news:
            self._news.wait_for(is_there)


def is_within_transaction(client: Client) -> bool:
    """True if the newest transaction of a producer has no end yet."""
    return client.told[-1].fate == "unknown"


ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def check(told: list[Told], values: list[str], who: str) -> None:
    """Raise for the first transaction of which a reader sees something else than its producer was told."""
    seen = Counter(values)
    repeated = [value for value, count in seen.items() if count > 1]
    assert not repeated, f"{who} reads twice: {repeated}"
    for each in told:
        visible = [value for value in each.values if value in seen]
        if each.fate == "committed":
            assert visible == each.values, f"{who} misses a part of {each}: {visible}"
        elif each.fate == "aborted":
            assert not visible, f"{who} reads {visible} of {each}"
        else:
            assert visible in ([], each.values), f"{who} reads {visible} of {each}"
    strange = set(seen) - {value for each in told for value in each.values}
    assert not strange, f"{who} reads what was never written: {strange}"


def check_offset(told: list[Told], offset: int, seen: set[str]) -> None:
    """The offset is that of the last transaction that is visible."""
    committed = [each.offset for each in told if each.fate == "committed" or seen.issuperset(each.values)]
    assert offset == committed[-1], f"{offset} is committed, and not {committed[-1]}"


def check_readers(
    storm: Storm, values: Sequence[Sequence[str]], offsets: dict[str, int], *, ended_min: int = KILLS * PROGRESS
) -> None:
    """Raise unless a Kafka consumer, which found these values by partition and these offsets by group, and the SDK see
    what the producers were told. Each producer must have ended so many transactions."""
    told = [each for client in storm.clients for each in client.told]
    by_sdk: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for record in read(TOPIC, storm.server.address):
        by_sdk[record.partition].append((record.value or b"").decode())
    seen = [value for partition in values for value in partition]
    check(told, seen, "a Kafka consumer")
    assert by_sdk == values, "the SDK and a Kafka consumer read the same, in the same order"
    with Admin(storm.server.address) as admin:
        for client in storm.clients:
            group = client.told[0].group
            if group not in offsets:
                continue
            check_offset(client.told, offsets[group], {*seen})
            (by_admin,) = admin.group_offsets(group)
            assert by_admin.committed is not None
            assert by_admin.committed.offset == offsets[group]
    # A life of the server is no life of a producer that forgets what it knows.
    assert all(client.ended_count >= ended_min for client in storm.clients)
