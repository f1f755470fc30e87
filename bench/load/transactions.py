"""Transactions back to back: one record to each partition of a topic, then a commit or an abort.

A *driver* is a way in which the client makes its requests. A new driver is one more function in `DRIVERS`. Everything
else follows from its name, including the rows of the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from grpc import aio

from bench.load.asking import Asker, SessionAsker, UnaryAsker
from bench.load.sdk import PARTITIONS, AsyncSdkProducer, Story, ThreadedSdkProducer
from bench.load.stubs import StubProducer, new_prefix, open_channel
from bench.load.transact import TransactProducer, transact_request
from bench.load.workers import Span, run_as_tasks, run_in_threads
from bench.results import Run
from coordinator_client.tls import Tls
from coordinator_client.transport.connection import Connection
from coordinator_client.transport.transport import GRPC_SESSION, SESSION, UNARY

SDK_GRPC: Final = "SDK, grpc.aio"
"""The SDK without the compiled transport, even if that is installed."""
SDK_THREADS: Final = "SDK, blocking"
"""The blocking SDK, with a thread for each producer. Their requests share the session."""
SDK_UNARY: Final = "SDK, blocking, unary"
"""The blocking SDK with a unary call for each request instead of the session."""
THREE_CALLS: Final = "stubs, three calls"
"""AddPartitionsToTxn, Produce and EndTxn. All others add partitions with the first batch."""
UNARY_TRANSACT: Final = "stubs, Transact"
FALLBACKS: Final = frozenset({SDK_GRPC, SDK_THREADS, SDK_UNARY, THREE_CALLS, UNARY_TRANSACT})
"""Slower drivers, which are measured in two rows for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    endpoint: str
    server_process_id: int
    driver: str
    producers: int
    value_bytes: int
    warm_up_s: float
    measured_s: float
    operations_max: int | None = None
    committed: bool = True
    topic: str
    tls: Mapping[str, str] | None = None
    """TLS files for the drivers of the SDK; None = without TLS."""

    @property
    def story(self) -> Story:
        return Story(self.topic, os.urandom(self.value_bytes), self.committed)

    @property
    def span(self) -> Span:
        return Span(self.warm_up_s, self.measured_s, self.operations_max)


Driver = Callable[[Load], Run]


def measure(load: Load) -> Run:
    """Run the transactions. Raises: LoadFailed."""
    return DRIVERS[load.driver](load)


def by_sdk(load: Load, *, transport: str) -> Run:
    """Use asyncio producers of the SDK on one loop, over one session."""

    def producers() -> list[AsyncSdkProducer]:
        tls = None if load.tls is None else Tls(**load.tls)
        connection = Connection(load.endpoint, client_id="bench", transport=transport, tls=tls)
        prefix, story = new_prefix("sdk"), load.story
        return [AsyncSdkProducer(connection, f"{prefix}{number}", story) for number in range(load.producers)]

    return run_as_tasks(producers, load.span, load.server_process_id)


def by_threads(load: Load, *, transport: str) -> Run:
    """Use blocking producers of the SDK, each in a thread."""
    prefix, story = new_prefix("sdk"), load.story
    with Connection(load.endpoint, client_id="bench", transport=transport) as connection:
        numbers = range(load.producers)
        openers = [partial(ThreadedSdkProducer, connection, f"{prefix}{number}", story) for number in numbers]
        return run_in_threads(openers, load.span, load.server_process_id)


def by_stubs(load: Load, *, adds_first: bool = False) -> Run:
    """Use unary stubs on one loop, over one channel."""

    def producers() -> list[StubProducer]:
        channel, prefix = open_channel(load.endpoint), new_prefix("stubs")
        return [producer(channel, f"{prefix}{number}") for number in range(load.producers)]

    def producer(channel: aio.Channel, transactional_id: str) -> StubProducer:
        made = StubProducer(channel, transactional_id, topic=load.topic, partition_count=PARTITIONS)
        made.adds_first = adds_first
        made.set_transaction(load.value_bytes, committed=load.committed)
        return made

    return run_as_tasks(producers, load.span, load.server_process_id)


def by_transact(load: Load, *, asker_on: Callable[[aio.Channel], Asker]) -> Run:
    """Send one Transact for each transaction, as unary calls or over one session."""

    def producers() -> list[TransactProducer]:
        asker, prefix = asker_on(open_channel(load.endpoint)), new_prefix("transact")
        requests = (
            transact_request(
                f"{prefix}{number}",
                load.topic,
                range(PARTITIONS),
                value_bytes=load.value_bytes,
                committed=load.committed,
            )
            for number in range(load.producers)
        )
        return [TransactProducer(asker, request) for request in requests]

    return run_as_tasks(producers, load.span, load.server_process_id)


DRIVERS: Final[Mapping[str, Driver]] = MappingProxyType(
    {
        "SDK": partial(by_sdk, transport=SESSION),
        SDK_GRPC: partial(by_sdk, transport=GRPC_SESSION),
        SDK_THREADS: partial(by_threads, transport=SESSION),
        SDK_UNARY: partial(by_threads, transport=UNARY),
        "stubs": by_stubs,
        THREE_CALLS: partial(by_stubs, adds_first=True),
        UNARY_TRANSACT: partial(by_transact, asker_on=UnaryAsker),
        "session, Transact": partial(by_transact, asker_on=SessionAsker),
    }
)
