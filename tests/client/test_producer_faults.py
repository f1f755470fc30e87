"""Faults of the network: a transaction the client calls committed is visible whole and once, one it calls aborted
is not visible, and one it calls unknown is one or the other.

A seed fixes everything; a failure names it, and `explore(seed)` repeats it.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from coordinator_client import Fenced, OutcomeUnknown, Producer, Recoverable, TransactionError
from coordinator_client.producer.state import ProducerStatus
from coordinator_client.values import Identity
from coordinator_protocol.methods import Method
from tests.client.fake_channel import SessionWorld, Weather
from tests.client.world import Fault, World

SEEDS = 60
STEPS = 30
PARTITIONS = 3
VALUE_BYTES = 1_500
"""Two or three of them fill a batch, so that partitions have several."""

FAULTS = [fault for fault in Fault if fault is not Fault.NONE]
STREAM_FAULTS = [weather for weather in Weather if weather is not Weather.NONE]
FAULT_RATES = (0.0, 0.2, 0.6, 1.0)
THROTTLE_RATE = 0.2
THROTTLING = (Method.PRODUCE, Method.TRANSACT, Method.END_TXN, Method.INIT_PRODUCER_ID)
"""Methods whose answers ask for pauses."""


@dataclass
class Attempt:
    """A transaction as its client sees it."""

    values: list[list[bytes]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    is_committed: bool | None = None

    @property
    def flat(self) -> set[bytes]:
        return {value for partition in self.values for value in partition}


class Left(Exception):
    """The body of a transaction that goes wrong."""


class Simulation:
    """One transactional id, used by one producer after the other, over a network that fails as it likes."""

    transact_bytes = 0
    """Every transaction is sent in parts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fault_rate = 0.0
        self.world = self.new_world(seed)
        self.attempts: list[Attempt] = []
        self.ends: Counter[str] = Counter()
        self.numbers = itertools.count()
        self.producer = self.new_producer()

    def new_world(self, seed: int) -> World:
        world = World(seed=seed)
        world.weather = self.weather
        return world

    def weather(self, method: Method) -> Fault:
        return self.random.choice(FAULTS) if self.random.random() < self.fault_rate else Fault.NONE

    def new_producer(self) -> Producer:
        return Producer(
            self.world.connection(),
            transactional_id="p",
            delivery_timeout_ms=1_500,
            batch_bytes=4_096,
            transact_bytes=self.transact_bytes,
        )

    def step(self) -> None:
        self.fault_rate = self.random.choice(FAULT_RATES)
        if self.random.random() < THROTTLE_RATE:
            self.world.throttle(self.random.choice(THROTTLING), self.random.choice((1, 300, 5_000)))
        if self.producer.status is ProducerStatus.COMMITTING and self.random.random() < 0.8:
            if self.random.random() < 0.3:
                self.rival()
            self.resolve()
        elif self.producer.status is ProducerStatus.CLOSED or self.random.random() < 0.05:
            self.producer = self.new_producer()
        elif self.random.random() < 0.1:
            self.rival()
        elif self.random.random() < 0.1:
            self.world.settle()
        else:
            self.transact()

    def transact(self) -> None:
        is_unresolved = self.producer.status is ProducerStatus.COMMITTING
        attempt = Attempt()
        is_fenced = False
        try:
            self.body(attempt)
        except Left:
            attempt.is_committed = False
        except KeyboardInterrupt:
            self.ends["interrupted"] += 1
            attempt.is_committed = None if self.producer.status is ProducerStatus.COMMITTING else False
        except TransactionError as error:
            self.ends[type(error).__name__] += 1
            is_fenced = isinstance(error, Fenced)
            attempt.is_committed = None if error.may_have_committed and not is_unresolved else False
        else:
            assert not is_unresolved, "a transaction was opened while the outcome of the last one was unknown"
            self.ends["committed"] += 1
            attempt.is_committed = True
        self.world.interrupts.clear()
        assert not is_fenced or self.producer.status is ProducerStatus.CLOSED
        if not is_unresolved:
            self.attempts.append(attempt)

    def body(self, attempt: Attempt) -> None:
        is_flushed = self.random.random() < 0.3
        with self.producer.transaction() as txn:
            for partition in range(PARTITIONS):
                for _ in range(self.random.choice((0, 1, 1, 2, 7))):
                    value = b"%012d" % next(self.numbers) * (VALUE_BYTES // 12)
                    txn.send("t", value, partition=partition)
                    attempt.values[partition].append(value)
                    if is_flushed:
                        txn.flush()
            self.mishap()

    def mishap(self) -> None:
        mapping = self.world.server.ids.get("p")
        state = "Empty" if mapping is None else mapping.state
        match self.random.randrange(12):
            case 0:
                raise Left
            case 1 if state == "Ongoing":
                self.world.server.time_out("p")
            case 2 if mapping is not None and state != "Ongoing":
                self.world.server.expire("p")
            case 3:
                self.rival()
            case 4:
                self.world.interrupts[Method.END_TXN] = KeyboardInterrupt()
                self.world.interrupts[Method.TRANSACT] = KeyboardInterrupt()

    def rival(self) -> None:
        self.fault_rate, rate = 0.0, self.fault_rate
        self.new_producer().init()
        self.fault_rate = rate

    def resolve(self) -> None:
        attempt = self.attempts[-1]
        try:
            attempt.is_committed = self.producer.resolve_outcome()
        except (Fenced, OutcomeUnknown, Recoverable) as error:
            self.ends[f"{type(error).__name__} resolved"] += 1
            attempt.is_committed = None if error.may_have_committed else False
        else:
            self.ends[f"resolved {attempt.is_committed}"] += 1

    def check(self) -> None:
        """Compare what the log shows with what the client believes."""
        for partition in range(PARTITIONS):
            batches = self.world.server.logs.get(("t", partition), [])
            visible = [value for batch in batches if batch.outcome for value in batch.values]
            position = 0
            for attempt in self.attempts:
                wanted = attempt.values[partition]
                is_there = bool(wanted) and visible[position : position + len(wanted)] == wanted
                if is_there:
                    assert attempt.is_committed is not False, "aborted, says the client, and visible"
                    position += len(wanted)
                else:
                    assert not (attempt.is_committed and wanted), "committed, says the client, and not visible"
            assert position == len(visible), "visible for no known reason"
        everything = set(self.world.server.visible())
        for attempt in self.attempts:
            assert attempt.flat <= everything or not attempt.flat & everything, "visible in part"

    def succeed(self) -> None:
        """On a calm network, a producer whose identity is current commits one transaction after the other."""
        producer = self.producer
        for _ in range(2):
            with producer.transaction() as txn:
                value = b"%012d" % next(self.numbers)
                txn.send("t", value, partition=0)
            self.attempts.append(Attempt([[value], [], []], is_committed=True))

    def calm_down(self) -> None:
        """On a calm network everything must get on, and what was unknown become known or stay with a rival."""
        self.fault_rate = 0.0
        self.world.interrupts.clear()
        self.world.settle()
        if self.producer.status is ProducerStatus.COMMITTING:
            self.resolve()
            assert self.producer.status is not ProducerStatus.COMMITTING
        self.check()
        mapping = self.world.server.ids.get("p")
        identity = self.producer.identity
        if mapping is None or identity != Identity(mapping.producer_id, mapping.epoch):
            self.producer = self.new_producer()
        self.succeed()
        self.check()


class SessionSimulation(Simulation):
    """The same over a session, whose stream breaks as it likes."""

    def new_world(self, seed: int) -> World:
        world = SessionWorld(seed=seed)
        world.channel.weather = self.stream_weather
        return world

    def stream_weather(self) -> Weather:
        return self.random.choice(STREAM_FAULTS) if self.random.random() < self.fault_rate else Weather.NONE


class WholeSimulation(Simulation):
    """Transactions that fit go in one request, others in parts."""

    transact_bytes = 12_000


class WholeSessionSimulation(SessionSimulation):
    """Both."""

    transact_bytes = 12_000


def explore(seed: int, kind: type[Simulation] = Simulation) -> Counter[str]:
    """Run one seed; return how often each end was met."""
    simulation = kind(seed)
    try:
        for _ in range(STEPS):
            simulation.step()
            simulation.check()
        simulation.calm_down()
    except BaseException as error:
        error.add_note(f"explore({seed}, {kind.__name__})")
        raise
    return simulation.ends


@pytest.mark.parametrize("kind", [Simulation, SessionSimulation, WholeSimulation, WholeSessionSimulation])
def test_what_the_client_says_about_a_transaction_is_true_whatever_the_network_does(kind: type[Simulation]) -> None:
    ends: Counter[str] = Counter()
    for seed in range(SEEDS):
        ends += explore(seed, kind)
    for end in ("committed", "Abortable", "Fenced", "OutcomeUnknown", "Recoverable", "interrupted", "resolved True"):
        assert ends[end] > 10, f"the simulation hardly meets {end!r} any more: {ends}"
