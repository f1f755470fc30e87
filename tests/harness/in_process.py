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
from coordinator_runtime.engine import OpenStore
from coordinator_server.addresses import Address
from coordinator_server.build import SERVICE_NAMES, Outside, Server, build, load
from coordinator_server.grpc_front.transports import TransportOptions
from coordinator_server.idle_sessions import IdleSessions
from coordinator_server.listeners import Identities, Listeners
from coordinator_server.settings.config import Config
from tests.harness.combinations import wanted_lane, wanted_two_phase
from tests.harness.memory_store import MemoryStore
from tests.harness.transports import wanted_transport

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class InProcessServer:
    """A running server and a channel to it."""

    parts: Server
    store: MemoryStore
    listeners: Listeners
    channel: aio.Channel
    address: Address
    failures: list[Exception] = field(default_factory=list)
    """Failures of the store that the server was notified of."""


@asynccontextmanager
async def in_process_server(
    store: MemoryStore | None = None, clock: Clock | None = None, /, **settings: object
) -> AsyncIterator[InProcessServer]:
    """A server that takes work, on a free port unless `listen` says otherwise. `settings` are those of `Config`, on top
    of those of the test's row (tests/harness/combinations.py); `clock` is the system's by default."""
    store = store or MemoryStore()
    always = {"data_dir": Path("in-memory"), "shard_count": 4, "listen": f"{HOST}:0"}
    always |= {"lane": wanted_lane(), "two_phase": wanted_two_phase()}
    config = Config.model_validate(always | settings)
    clock = clock or SystemClock()
    failures: list[Exception] = []
    listeners = Listeners()
    quotas = config.quotas(clock)
    idle = IdleSessions(clock, config.session_idle_ms_max)
    options = TransportOptions(config.message_bytes_max, levels=quotas.budgets, idle=idle)
    name = config.transport if "transport" in settings else wanted_transport()
    identities = Identities.read(config.tokens_file, config.jwt_rules(), config.name_rule(), clock)
    listeners.open(config.all_listeners(), name, SERVICE_NAMES, clock, options, identities)
    address = listeners.first.address
    parts = build(config, OpenStore(store, lambda _version: None), clock, failures.append, Outside(quotas))
    await listeners.start(parts.dispatcher, parts.answers)
    parts.commits.start()
    try:
        await load(parts, config, address)
        await listeners.set_ready(True)
        async with aio.insecure_channel(str(address)) as channel:
            yield InProcessServer(parts, store, listeners, channel, address, failures)
    finally:
        await listeners.stop(0)
        parts.worker.close()
        parts.payload_worker.close()
        parts.compaction_worker.close()
        parts.commits.close()
