"""The SDK against a real server with quotas: it is asked to pause, and comes back when it may."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator_client import (
    Admin,
    AsyncProducer,
    BatchReader,
    Connection,
    Consumer,
    FetchOptions,
    Producer,
    plan_ranges,
    read,
)
from coordinator_client.arrow_encoding import rows_to_arrow
from coordinator_client.log import LOGGER
from coordinator_client.producer.sink import SinkClient, SinkMember
from coordinator_client.reading.reader import ReadPlan
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow

TRANSACTIONS = 6
VALUE = bytes(30_000)
BYTES_PER_SECOND = 50_000


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server that lets everybody together bring and fetch so much."""
    quotas = tmp_path / "quotas.toml"
    rates = [f"{name}_bytes_per_second = {BYTES_PER_SECOND}" for name in ("produce", "fetch")]
    quotas.write_text("\n".join(["[[quotas]]", 'principal = "User:ANONYMOUS"', *rates]))
    with ServerProcess(tmp_path / "data", "--set", f"quotas_file={quotas}") as server:
        with Admin(server.address) as admin:
            admin.create_topic("t", 1)
        yield server.address


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """Function that returns the SDK's log lines, since its last call, of pauses that answers to a method asked for."""
    caplog.set_level(logging.DEBUG, logger=LOGGER.name)

    def take(method: str) -> list[str]:
        lines = [record.getMessage() for record in caplog.records if record.name == LOGGER.name]
        caplog.clear()
        return [line for line in lines if f" {method} and asks to send no more " in line]

    return take


def check(said: list[str]) -> None:
    """One after the other, nothing is sent too early: so the server asks for pauses and refuses nothing."""
    assert said
    assert not [line for line in said if "refused" in line]


@pytest.mark.long
@pytest.mark.parametrize("transact_bytes", [0, 524_288], ids=["in parts", "whole"])
def test_a_producer_that_is_asked_to_pause_is_never_refused(
    address: str, said: Callable[[str], list[str]], transact_bytes: int
) -> None:
    with Producer(address, transactional_id="p", transact_bytes=transact_bytes) as producer:
        for _ in range(TRANSACTIONS):
            with producer.transaction() as txn:
                txn.send("t", VALUE)
    check(said("Transact" if transact_bytes else "Produce"))


@pytest.mark.long
def test_a_task_of_a_sink_that_is_asked_to_pause_is_never_refused(
    address: str, said: Callable[[str], list[str]]
) -> None:
    with Connection(address) as connection:
        sink = SinkClient(connection, "s", run_id="r")
        member = sink.join(0, attempt="a", transaction_timeout_ms=60_000)
        assert isinstance(member, SinkMember)
        for _ in range(TRANSACTIONS):
            member.send_arrow([("t", 0, rows_to_arrow([(None, VALUE, 0, ())]))])
        member.seal()
        sink.commit(0, [member.identity])
        check(said("Produce"))
        assert len(list(read("t", connection))) == TRANSACTIONS


def test_producers_that_share_a_connection_lose_nothing(address: str, said: Callable[[str], list[str]]) -> None:
    """Several are under way when the first is asked to pause, so some of them may be refused, and come again."""

    async def write(producer: AsyncProducer) -> None:
        async with producer:
            for _ in range(2):
                async with producer.transaction() as txn:
                    await txn.send("t", VALUE)

    async def body() -> None:
        with Connection(address) as connection:
            await asyncio.gather(*[write(AsyncProducer(connection, transactional_id=f"p{each}")) for each in range(4)])

    asyncio.run(body())
    assert said("Transact")
    assert len(list(read("t", address))) == 8


@pytest.mark.long
def test_readers_that_are_asked_to_pause_are_never_refused(address: str, said: Callable[[str], list[str]]) -> None:
    with (
        Producer(address, transactional_id="p", batch_bytes=32_768, transact_bytes=0) as producer,
        producer.transaction() as txn,
    ):
        for _ in range(TRANSACTIONS):
            txn.send("t", VALUE)
            txn.flush()
    with Connection(address) as connection:
        ranges = plan_ranges(connection, "t", ReadPlan())
        assert len(list(BatchReader(connection, ranges, FetchOptions(max_bytes=1)))) == TRANSACTIONS
        check(said("Fetch"))
        count = 0
        with Consumer(connection, group_id="g", auto_offset_reset="earliest", fetch_bytes=1) as consumer:
            consumer.subscribe(["t"])
            while count < TRANSACTIONS:
                count += len(consumer.poll(timeout_ms=60_000))
        check(said("Fetch"))
