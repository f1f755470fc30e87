"""InitProducerId of transactional ids that the server has never seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from grpc import aio

from bench.load.stubs import TRANSACTION_TIMEOUT_MS, checked, new_prefix, open_channel
from bench.load.workers import Span, run_as_tasks
from bench.results import Run
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceStub

if TYPE_CHECKING:
    from coordinator_api.v1.transaction_pb2_grpc import TransactionServiceAsyncStub


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How many at a time."""

    endpoint: str
    server_process_id: int
    in_flight: int
    warm_up_s: float
    measured_s: float


class _Newcomer:
    """A new name each time."""

    def __init__(self, channel: aio.Channel, prefix: str, numbers: Iterator[int]) -> None:
        self._transactions: TransactionServiceAsyncStub = TransactionServiceStub(channel)
        self._prefix, self._numbers = prefix, numbers

    async def perform(self) -> None:
        checked(
            await self._transactions.InitProducerId(
                txn.InitProducerIdRequest(
                    transactional_id=f"{self._prefix}{next(self._numbers)}",
                    transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
                )
            )
        )


def measure(load: Load) -> Run:
    """Initialise one id after the other, this many at a time."""

    def newcomers() -> list[_Newcomer]:
        channel, prefix, numbers = open_channel(load.endpoint), new_prefix("new"), count()
        return [_Newcomer(channel, prefix, numbers) for _ in range(load.in_flight)]

    return run_as_tasks(newcomers, Span(load.warm_up_s, load.measured_s), load.server_process_id)
