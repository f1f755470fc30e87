"""A whole server inside the test's own event loop, on a store in memory: real gRPC, real commit thread, no process.

async with in_process_server() as server:
    stub = transaction_pb2_grpc.TransactionServiceStub(server.channel)
    held = server.store.hold_sync()
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from grpc import aio

from coordinator_runtime.clock import Clock, SystemClock
from coordinator_server.build import SERVICE_NAMES, OpenStore, Server, build, load
from coordinator_server.config import Address, Config
from coordinator_server.transport_choice import open_transport
from coordinator_server.transports import Transport, TransportOptions
from tests.harness.memory_store import MemoryStore
from tests.harness.transports import wanted_transport

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class InProcessServer:
    """A running server and a channel to it."""

    parts: Server
    store: MemoryStore
    transport: Transport
    channel: aio.Channel
    address: Address
    failures: list[Exception] = field(default_factory=list)
    """What the server was told of a failing store."""


@asynccontextmanager
async def in_process_server(
    store: MemoryStore | None = None, clock: Clock | None = None, /, **settings: object
) -> AsyncIterator[InProcessServer]:
    """A server that takes work. `settings` are those of `Config`; `clock` is the system's unless told."""
    store = store or MemoryStore()
    config = Config.model_validate({"data_dir": Path("in-memory"), "shard_count": 4} | settings)
    clock = clock or SystemClock()
    failures: list[Exception] = []
    transport = open_transport(wanted_transport(), SERVICE_NAMES, clock, TransportOptions(config.message_bytes_max))
    address = Address(HOST, transport.bind(HOST, 0))
    parts = build(config, OpenStore(store, lambda _version: None), clock, failures.append)
    await transport.start(parts.dispatcher, parts.answers)
    parts.commits.start()
    try:
        await load(parts, config, address)
        await transport.set_ready(True)
        async with aio.insecure_channel(str(address)) as channel:
            yield InProcessServer(parts, store, transport, channel, address, failures)
    finally:
        await transport.stop(0)
        parts.worker.close()
        parts.payload_worker.close()
        parts.commits.close()
