"""The way to a server: opened late, shared, and never across a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from queue import SimpleQueue

import pytest

from coordinator_client import Connection, Misconfigured, Producer, Rejected, read
from coordinator_client.calls import DESCRIBE_TOPICS
from coordinator_client.errors import Loss
from coordinator_client.process import THIS_PROCESS
from coordinator_client.transport.grpc_transport import _SHARED, UnaryTransport
from tests.client.world import World

NO_SERVER = "127.0.0.1:9"


def test_nothing_is_opened_at_construction() -> None:
    opened: list[str] = []

    world = World()

    def open_transport(endpoint: str) -> World:
        opened.append(endpoint)
        return world

    connection = Connection("h:1", open_transport=open_transport, clock=world, random_source=world)
    producer = Producer(connection, transactional_id="p")
    records = read("t", connection)
    assert opened == []
    producer.init()
    assert opened == ["h:1"]
    producer.close()
    del records


def test_a_connection_that_was_handed_in_is_not_closed_with_the_producer() -> None:
    world = World()
    connection = world.connection()
    Producer(connection, transactional_id="p").init()
    with Producer(connection, transactional_id="p") as producer:
        producer.init()
    assert not world.is_closed
    connection.close()
    assert world.is_closed
    with pytest.raises(Rejected, match="the connection to fake:1 is closed"):
        Producer(connection, transactional_id="p").init()


def test_the_name_of_the_program_goes_into_every_header() -> None:
    world = World()
    producer = Producer(world.connection(client_id="billing"), transactional_id="p")
    with producer.transaction() as txn:
        txn.send("t", b"x")
    assert {request.header.client_id for _, request in world.sent} == {"billing"}


def test_a_fork_is_told_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    producer = Producer(world.connection(), transactional_id="p")
    producer.init()
    monkeypatch.setattr(THIS_PROCESS, "process_id", -1)
    sent = len(world.sent)
    with pytest.raises(Misconfigured, match="make the producer, reader or consumer inside the child"):
        producer.transaction().__enter__()
    producer.close()
    assert len(world.sent) == sent
    assert not world.is_closed, "the parent still uses it"


def test_connections_of_one_process_to_one_endpoint_share_a_channel() -> None:
    of_others = set(_SHARED._channels)
    one, two = UnaryTransport(NO_SERVER), UnaryTransport(NO_SERVER)
    assert len(set(_SHARED._channels) - of_others) == 1
    one.close()
    loss = two.ask(DESCRIBE_TOPICS, DESCRIBE_TOPICS.request_type(), timeout_ms=2_000)
    assert isinstance(loss, Loss)
    assert loss.status == "UNAVAILABLE"
    two.close()
    assert set(_SHARED._channels) == of_others


def test_a_loss_is_reported_to_the_caller() -> None:
    transport, clock = UnaryTransport(NO_SERVER), Connection(NO_SERVER).clock
    inbox: SimpleQueue[object] = SimpleQueue()
    transport.start(DESCRIBE_TOPICS, DESCRIBE_TOPICS.request_type(), timeout_ms=2_000, on_done=inbox.put)
    loss = clock.take(inbox, 10_000)
    assert isinstance(loss, Loss)
    assert loss.status == "UNAVAILABLE"
    call = transport.start(DESCRIBE_TOPICS, DESCRIBE_TOPICS.request_type(), timeout_ms=60_000, on_done=inbox.put)
    call.cancel()
    assert isinstance(clock.take(inbox, 10_000), Loss)
    transport.close()


CORE = ("coordinator_client.producer.core", "coordinator_client.producer.rules", "coordinator_client.consumer.core")


@pytest.mark.parametrize("module", CORE)
def test_the_core_needs_neither_clock_nor_socket_nor_thread(module: str) -> None:
    """Imports are looked at in a process of their own: what this one has loaded says nothing."""
    probe = (
        f"import sys, {module}\n"
        "ours = [name for name in sys.modules if name.startswith('coordinator_client.')]\n"
        "doors = {'clock', 'random_source', 'loops', 'reading.batch_reader', 'reading.reader', 'admin.admin'}\n"
        "doors |= {'groups.engine', 'groups.shells', 'consumer.consumers', 'consumer.async_consumer'}\n"
        "doors |= {'producer.producer', 'producer.shell', 'producer.async_producer', 'producer.asyncio_shell'}\n"
        "rooms = ('transport.',)\n"
        "inner = [name for name in ours if not name.partition('.')[2].startswith(rooms)]\n"
        "core = [sys.modules[name] for name in inner if name.partition('.')[2] not in doors]\n"
        "banned = {'time', 'grpc', 'threading', 'random', 'uuid', 'socket', 'asyncio', 'queue'}\n"
        "print([m.__name__ for m in core for x in vars(m).values() if getattr(x, '__name__', '') in banned])\n"
        "print('grpc' in sys.modules, 'pyarrow' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=path_of_ours())
    assert done.stdout.splitlines()[0] == "[]"


def path_of_ours() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_importing_the_package_opens_nothing_and_loads_no_arrow() -> None:
    probe = (
        "import threading, sys\n"
        "import coordinator_client\n"
        "from coordinator_client.transport.grpc_transport import _SHARED\n"
        "print(_SHARED._channels, 'pyarrow' in sys.modules, threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=path_of_ours())
    assert done.stdout.strip() == "{} False 1"
