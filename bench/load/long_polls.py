"""Fetches that wait and find nothing, one connection each. Operations are Fetches; the figure is the server's
processor time for one (us). A *driver* is a protocol."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from grpc import aio

from bench.load.kafka_frames import KafkaLine, fetch_request, is_empty_fetch
from bench.load.stubs import checked
from bench.load.workers import AsyncWorker, Span, run_as_tasks
from bench.results import LoadFailed, Run
from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1.log_pb2_grpc import LogServiceStub

if TYPE_CHECKING:
    from coordinator_api.v1.log_pb2_grpc import LogServiceAsyncStub

WAIT_MS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Settings of the load."""

    bootstrap: str
    """Address of the protocol of the driver."""
    server_process_id: int
    driver: str
    connections: int
    topic: str
    """An empty topic."""
    warm_up_s: float
    measured_s: float


class _KafkaPoll:
    """One connection for Kafka's protocol."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._request = fetch_request(load.topic, 0, 0, WAIT_MS)
        self._line: KafkaLine | None = None

    async def perform(self) -> None:
        """Fetch from a topic without new records, and wait."""
        if self._line is None:
            self._line = await KafkaLine.open(self._load.bootstrap)
        began_s = time.monotonic()
        answer = await self._line.ask(self._request)
        if not is_empty_fetch(answer, self._load.topic):
            raise LoadFailed(f"a Fetch of an empty topic returned {answer[:80]!r}")
        _check_wait(began_s)


class _GrpcPoll:
    """One connection for gRPC."""

    def __init__(self, load: Load) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        self._logs: LogServiceAsyncStub = LogServiceStub(aio.insecure_channel(load.bootstrap, options=options))
        self._request = log.FetchRequest(max_wait_ms=WAIT_MS, isolation_level=common.ISOLATION_LEVEL_READ_COMMITTED)
        self._request.partitions.add(topic=load.topic, partition=0, fetch_offset=0)

    async def perform(self) -> None:
        """Fetch from a topic without new records, and wait."""
        began_s = time.monotonic()
        reply = checked(await self._logs.Fetch(self._request))
        if any(checked(each).batches for each in reply.results):
            raise LoadFailed("a Fetch of an empty topic returned records")
        _check_wait(began_s)


def _check_wait(began_s: float) -> None:
    waited_s = time.monotonic() - began_s
    if waited_s * 1_000 < WAIT_MS / 2:
        raise LoadFailed(f"a Fetch waited {waited_s:.3f} s only")


_POLLS: Final[Mapping[str, Callable[[Load], AsyncWorker]]] = MappingProxyType({"kafka": _KafkaPoll, "gRPC": _GrpcPoll})


def measure(load: Load) -> Run:
    """Poll. Raises LoadFailed, also if the system does not tell the processor time of a process."""
    poll = _POLLS[load.driver]
    span = Span(load.warm_up_s, load.measured_s)
    run = run_as_tasks(lambda: [poll(load) for _ in range(load.connections)], span, load.server_process_id)
    if run.server_us is None:
        raise LoadFailed("the server's processor time is not known")
    return replace(run, figure=run.server_us)
