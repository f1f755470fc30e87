"""InitProducerId of transactional ids that the server has never seen.

A *driver* is a way in which the client makes its requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import Final

from grpc import aio

from bench.load.asking import Asker, SessionAsker, UnaryAsker
from bench.load.stubs import TRANSACTION_TIMEOUT_MS, checked, new_prefix, open_channel
from bench.load.workers import AsyncWorker, Span, run_as_tasks
from bench.results import Run
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.producer.async_producer import AsyncProducer
from coordinator_client.transport.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    endpoint: str
    server_process_id: int
    driver: str
    in_flight: int
    warm_up_s: float
    measured_s: float


Driver = Callable[[Load], Run]


def measure(load: Load) -> Run:
    """Initialise one id after the other, `in_flight` at a time. Raises: LoadFailed."""
    return DRIVERS[load.driver](load)


class _SdkNewcomer:
    """A new producer of the SDK for each id, all on one connection."""

    def __init__(self, connection: Connection, names: Iterator[str]) -> None:
        self._connection, self._names = connection, names

    async def perform(self) -> None:
        await AsyncProducer(self._connection, transactional_id=next(self._names)).init()


class _EncodedNewcomer:
    """An encoded request with a new id each time."""

    def __init__(self, asker: Asker, names: Iterator[str]) -> None:
        self._asker, self._names = asker, names

    async def perform(self) -> None:
        request = txn.InitProducerIdRequest(
            transactional_id=next(self._names), transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        answer = await self._asker.ask("InitProducerId", request.SerializeToString())
        checked(txn.InitProducerIdResponse.FromString(answer))


def by_sdk(load: Load) -> Run:
    """Use asyncio producers of the SDK on one loop, over one session."""
    return _run(load, lambda names: partial(_SdkNewcomer, Connection(load.endpoint, client_id="bench"), names))


def by_encoded_requests(load: Load, *, asker_on: Callable[[aio.Channel], Asker]) -> Run:
    """Send encoded requests on one loop, as unary calls or over one session."""
    return _run(load, lambda names: partial(_EncodedNewcomer, asker_on(open_channel(load.endpoint)), names))


def _run(load: Load, newcomer_with: Callable[[Iterator[str]], Callable[[], AsyncWorker]]) -> Run:
    def newcomers() -> list[AsyncWorker]:
        prefix = new_prefix("new")
        newcomer = newcomer_with(f"{prefix}{number}" for number in count())
        return [newcomer() for _ in range(load.in_flight)]

    return run_as_tasks(newcomers, Span(load.warm_up_s, load.measured_s), load.server_process_id)


DRIVERS: Final[Mapping[str, Driver]] = MappingProxyType(
    {
        "SDK": by_sdk,
        "stubs": partial(by_encoded_requests, asker_on=UnaryAsker),
        "session": partial(by_encoded_requests, asker_on=SessionAsker),
    }
)
