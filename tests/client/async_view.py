"""An asyncio producer that a test drives like a blocking one: time passes while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from coordinator_client import AsyncProducer
from coordinator_client.producer.async_producer import AsyncTransaction
from coordinator_client.producer.state import ProducerStatus
from coordinator_client.values import Identity
from tests.client.world import World

T = TypeVar("T")


class Stepper:
    """A loop that goes on only while a caller waits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = asyncio.new_event_loop()

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(self._drive(work))

    def close(self) -> None:
        self._loop.close()

    async def _drive(self, work: Coroutine[Any, Any, T]) -> T:
        task = self._loop.create_task(work)
        while not task.done():
            for _ in range(3):
                await asyncio.sleep(0)
            if not task.done():
                self._world._next_event()
        return task.result()


class ProducerView:
    """`AsyncProducer` with the face of `Producer`."""

    def __init__(self, producer: AsyncProducer, run: Stepper) -> None:
        self.producer = producer
        self.run = run

    @property
    def status(self) -> ProducerStatus:
        return self.producer.status

    @property
    def identity(self) -> Identity | None:
        return self.producer.identity

    def init(self) -> None:
        self.run(self.producer.init())

    def resolve_outcome(self) -> bool:
        return self.run(self.producer.resolve_outcome())

    def transaction(self) -> TransactionView:
        return TransactionView(self.producer.transaction(), self.run)


class TransactionView:
    """`AsyncTransaction` with the face of `Transaction`."""

    def __init__(self, transaction: AsyncTransaction, run: Stepper) -> None:
        self.transaction = transaction
        self.run = run

    def __enter__(self) -> Self:
        self.run(self.transaction.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.transaction.__aexit__(kind, error, trace))

    def send(self, topic: str, value: bytes, *, partition: int) -> None:
        self.run(self.transaction.send(topic, value, partition=partition))

    def flush(self) -> None:
        self.run(self.transaction.flush())
