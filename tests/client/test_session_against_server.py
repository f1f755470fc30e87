"""The session against a real server: shared by all of a process, broken by crashes, and never carried into a fork."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_client import Admin, AsyncConsumer, AsyncProducer, Connection, Producer, read
from coordinator_client.transport.session_transport import _SHARED
from coordinator_server.grpc_front.transports import TransportName
from tests.harness import forked
from tests.harness.server_process import ROOT, ServerProcess
from tests.harness.transports import skip_what_is_missing

pytestmark = pytest.mark.slow

WAYS = ("grpc_session", "session")

FORK = """
import os, sys
from coordinator_client import Misconfigured, Producer

def commit(producer):
    with producer.transaction() as txn:
        txn.send("t", b"x", partition=0)

def in_child(work):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            work()
        except Misconfigured as told:
            print(told.reason.partition(": start" if ": start" in told.reason else "make the")[2])
        sys.stdout.flush()
        os._exit(0)
    print("child ended with", os.waitpid(child, 0)[1])

def of_its_own():
    with Producer(sys.argv[1], transactional_id="child", transport=sys.argv[2]) as own:
        commit(own)

with Producer(sys.argv[1], transactional_id="parent", transport=sys.argv[2]) as producer:
    commit(producer)
    in_child(lambda: commit(producer))
    in_child(of_its_own)
    commit(producer)
"""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """The two ways of a session, where the compiled transport is installed."""
    if request.param == "session":
        skip_what_is_missing(TransportName.NATIVE)
    return str(request.param)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("session") / "data") as server:
        with Admin(server.address) as admin:
            for topic in ("t", *(f"{end}-{way}" for end in ("in", "out") for way in WAYS)):
                admin.create_topic(topic, 3)
        yield server


def values(server: ServerProcess, topic: str) -> list[bytes]:
    return sorted(record.value or b"" for record in read(topic, server.address))


async def commit(producer: AsyncProducer, topic: str, *sent: bytes) -> None:
    async with producer.transaction() as txn:
        for number, value in enumerate(sent):
            await txn.send(topic, value, partition=number % 3)


async def test_consumers_and_producers_of_a_loop_share_one_session(shared: ServerProcess, way: str) -> None:
    source, target = f"in-{way}", f"out-{way}"
    async with AsyncProducer(shared.address, transport=way) as plain:
        for number in range(9):
            await plain.send(source, b"%d" % number, partition=number % 3)
    with Connection(shared.address, transport=way) as connection:
        consumer = AsyncConsumer(connection, group_id=way, enable_auto_commit=False, auto_offset_reset="earliest")
        consumer.subscribe([source])
        async with consumer, AsyncProducer(connection, transactional_id=f"copier-{way}") as producer:
            copied = 0
            while copied < 9:
                batch = await consumer.poll()
                async with producer.transaction() as txn:
                    for record in batch:
                        await txn.send(target, record.value, partition=record.partition)
                    txn.commit_offsets(consumer, batch)
                copied += len(batch)
            assert len(_SHARED._users) == 1
            committed = await consumer.committed([(source, number) for number in range(3)])
            assert [found and found.offset for found in committed.values()] == [3, 3, 3]
    assert values(shared, target) == [b"%d" % number for number in range(9)]


def test_one_loop_after_the_other_has_a_session_of_its_own(shared: ServerProcess, way: str) -> None:
    before = len(values(shared, "t"))
    with Connection(shared.address, transport=way) as connection:
        producer = AsyncProducer(connection, transactional_id="restless")
        for _ in range(3):
            asyncio.run(commit(producer, "t", b"r"))
    assert not _SHARED._users
    assert len(values(shared, "t")) == before + 3


async def test_a_crash_of_the_server_costs_the_producers_time_only(tmp_path: Path, way: str) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with Admin(server.address) as admin:
            admin.create_topic("t", 3)
        half_done, crashed = asyncio.Semaphore(0), asyncio.Event()

        async def produce(name: int) -> None:
            async with AsyncProducer(connection, transactional_id=f"p{name}") as producer:
                for number in range(20):
                    await commit(producer, "t", *(b"%d-%02d-%d" % (name, number, each) for each in range(3)))
                    if number == 9:
                        half_done.release()
                        await crashed.wait()

        async def crash() -> None:
            for _ in range(4):
                await half_done.acquire()
            crashed.set()
            server.kill()
            server.start()

        with Connection(server.address, transport=way) as connection:
            await asyncio.gather(crash(), *(produce(name) for name in range(8)))
        expected = [b"%d-%02d-%d" % (name, n, each) for name in range(8) for n in range(20) for each in range(3)]
        assert values(server, "t") == sorted(expected)


def test_unary_calls_do_the_same(shared: ServerProcess) -> None:
    before = len(values(shared, "t"))
    with Producer(shared.address, transactional_id="unary", transport="unary") as producer:
        for size in (10, 300_000):
            with producer.transaction() as txn:
                for partition in range(3):
                    txn.send("t", b"u" * size, partition=partition)
        assert not _SHARED._users
    assert len(values(shared, "t")) == before + 6


def test_a_fork_is_told_and_its_parent_goes_on(shared: ServerProcess, way: str) -> None:
    before = len(values(shared, "t"))
    done = forked.run(
        [sys.executable, "-c", FORK, shared.address, way],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")])},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        " producer, reader or consumer inside the child process, and use none before the fork",
        "child ended with 0",
        " processes with 'spawn', or before the first producer, consumer or reader is used",
        "child ended with 0",
    ]
    assert len(values(shared, "t")) == before + 2


ONE_AFTER_THE_OTHER = """
import sys
from coordinator_client import Connection, Consumer, Producer

for number in range(10):
    with Connection(sys.argv[1], transport=sys.argv[2]) as connection:
        with Producer(connection, transactional_id="again") as producer, producer.transaction() as txn:
            txn.send("t", b"x", partition=0)
    with Connection(sys.argv[1], transport=sys.argv[2]) as connection:
        with Consumer(connection, group_id="again", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            while not consumer.poll(timeout_ms=1_000):
                pass
"""


def test_what_was_closed_leaves_nothing_to_those_that_are_opened_next(shared: ServerProcess, way: str) -> None:
    """grpc.aio hands the end of a call to the loop of that call, and complains on another loop where that is closed."""
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, shared.address, way]
    done = forked.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
