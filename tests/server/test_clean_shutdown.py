"""A server is stopped while many producers write: they know the outcome of their last request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from coordinator_client import Abortable, Admin, AsyncProducer, Connection, Retriable, read
from coordinator_server.exits import ExitStatus
from coordinator_server.grpc_front.transports import TransportName
from tests.harness.server_process import ServerProcess
from tests.harness.transports import skip_what_is_missing

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("transport")]

PRODUCERS = 64
GIVE_UP_MS = 8_000
"""Time that a producer tries while the server is gone."""


class Crowd:
    """Producers that write numbered transactions, over one connection: half of them in one request, half in several."""

    def __init__(self, address: str, way: str) -> None:
        self.connection = Connection(address, transport=way)
        self.committed: list[bytes] = []
        self.undone: dict[int, bytes] = {}
        """Last transaction that was reported as not done, by producer."""
        self.all_write = asyncio.Event()
        self._writing: set[int] = set()

    async def write_until_the_server_is_gone(self, name: int) -> None:
        """Raises OutcomeUnknown where the answer says so."""
        async with self.producer(name) as producer:
            for number in range(1_000_000):
                value = b"%d-%d" % (name, number)
                try:
                    await self.commit(producer, name, value)
                except (Retriable, Abortable):
                    self.undone[name] = value
                    return
                self._writing.add(name)
                if len(self._writing) == PRODUCERS:
                    self.all_write.set()

    async def write_again(self, name: int, value: bytes) -> None:
        async with self.producer(name) as producer:
            await self.commit(producer, name, value)

    def producer(self, name: int) -> AsyncProducer:
        return AsyncProducer(self.connection, transactional_id=f"p{name}", delivery_timeout_ms=GIVE_UP_MS)

    async def commit(self, producer: AsyncProducer, name: int, value: bytes) -> None:
        async with producer.transaction() as txn:
            for partition in range(2):
                await txn.send("t", value, partition=partition)
                if name % 2:
                    await producer.flush()
        self.committed.append(value)


@pytest.mark.long
@pytest.mark.parametrize("way", ["session", "grpc_session"])
async def test_a_server_that_is_told_to_stop_leaves_no_outcome_unknown(tmp_path: Path, way: str) -> None:
    if way == "session":
        skip_what_is_missing(TransportName.NATIVE)
    with ServerProcess(tmp_path / "data") as server:
        with Admin(server.address) as admin:
            admin.create_topic("t", 2)
        crowd = Crowd(server.address, way)
        writing = asyncio.gather(*map(crowd.write_until_the_server_is_gone, range(PRODUCERS)))
        await crowd.all_write.wait()
        assert await asyncio.to_thread(server.terminate) == ExitStatus.OK
        await writing
        assert crowd.undone.keys() == set(range(PRODUCERS))
        server.start()
        await asyncio.gather(*(crowd.write_again(*each) for each in crowd.undone.items()))
        crowd.connection.close()
        found = [(record.partition, record.value) for record in read("t", server.address)]
        assert sorted(found) == sorted((partition, value) for partition in range(2) for value in crowd.committed)
