"""Messages to a service manager: by a real socket, and by a real server that starts and ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import structlog

from coordinator_api.v1 import transaction_pb2, transaction_pb2_grpc
from coordinator_server.exits import ExitStatus
from coordinator_server.host.service_manager import (
    SOCKET_VARIABLE,
    WATCHDOG_PROCESS_VARIABLE,
    WATCHDOG_VARIABLE,
    ServiceManager,
)
from tests.harness.failing_server import ERROR_VARIABLE, POISON, STEP_VARIABLE
from tests.harness.patience import DEADLINE_SECONDS, TRANSACTION_TIMEOUT_MS
from tests.harness.server_process import ServerProcess

US_PER_SECOND = 1_000_000


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(DEADLINE_SECONDS)
        yield ear


def told(ear: socket.socket) -> list[str]:
    return ear.recv(4096).decode().split("\n")


def manager(ear: socket.socket, *, pid: int = 7, **environment: str) -> ServiceManager:
    return ServiceManager.of({SOCKET_VARIABLE: str(ear.getsockname()), **environment}, pid)


async def test_it_is_told_what_the_process_does(listening: socket.socket) -> None:
    manager(listening).busy("opening")
    assert told(listening) == ["STATUS=opening"]
    manager(listening).ready("serving")
    assert told(listening) == ["READY=1", "STATUS=serving"]
    manager(listening).stopping("broken:\nREADY=1")
    assert told(listening) == ["STOPPING=1", "STATUS=broken: READY=1"]


def test_a_socket_without_a_file_is_found_by_its_name() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("")  # The system chooses a name.
        name = ear.getsockname()
        ServiceManager.of({SOCKET_VARIABLE: "@" + name[1:].decode()}, 7).busy("there")
        assert told(ear) == ["STATUS=there"]


async def test_signs_of_life_come_twice_as_often_as_they_must(listening: socket.socket) -> None:
    span = {WATCHDOG_VARIABLE: str(US_PER_SECOND // 50), WATCHDOG_PROCESS_VARIABLE: "7"}
    manager(listening, **span).ready("serving")
    seen = [await asyncio.to_thread(told, listening) for _ in range(4)]
    assert seen == [["READY=1", "STATUS=serving"], ["WATCHDOG=1"], ["WATCHDOG=1"], ["WATCHDOG=1"]]


@pytest.mark.parametrize(
    "environment",
    [{}, {WATCHDOG_VARIABLE: "1000", WATCHDOG_PROCESS_VARIABLE: "8"}, {WATCHDOG_VARIABLE: "soon"}],
    ids=["not asked for", "meant for another process", "not a number"],
)
async def test_without_a_watchdog_there_are_no_signs_of_life(
    listening: socket.socket, environment: dict[str, str]
) -> None:
    manager(listening, **environment).ready("serving")
    assert told(listening)[0] == "READY=1"
    await asyncio.sleep(0)
    listening.setblocking(False)
    with pytest.raises(BlockingIOError):
        told(listening)


def test_without_a_service_manager_nothing_is_sent_and_nothing_fails() -> None:
    with structlog.testing.capture_logs() as lines:
        ServiceManager.of({}, 7).busy("alone")
    assert lines == []


def test_one_that_is_gone_is_told_of_in_the_log_and_the_server_goes_on(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        ServiceManager.of({SOCKET_VARIABLE: str(tmp_path / "gone")}, 7).stopping("bye")
    assert [(line["event"], line["told"], line["reason"]) for line in lines] == [
        ("service_manager_not_told", "STOPPING=1", "No such file or directory")
    ]


@pytest.mark.slow
def test_a_server_says_when_it_serves_and_when_it_goes(listening: socket.socket, tmp_path: Path) -> None:
    environment = {SOCKET_VARIABLE: str(listening.getsockname())}
    with ServerProcess(tmp_path / "data", environment=environment) as server:
        assert server.terminate() == ExitStatus.OK
    assert told(listening) == [f"STATUS=opening the store in {tmp_path / 'data'}"]
    assert told(listening) == ["STATUS=loading the state"]
    assert told(listening) == ["READY=1", f"STATUS=serving gRPC on {server.address}"]
    assert told(listening) == ["STOPPING=1", "STATUS=draining after SIGTERM"]


@pytest.mark.slow
def test_a_server_whose_store_fails_says_so(listening: socket.socket, tmp_path: Path) -> None:
    environment = {SOCKET_VARIABLE: str(listening.getsockname()), ERROR_VARIABLE: "EIO", STEP_VARIABLE: "sync"}
    with ServerProcess(tmp_path / "data", module="tests.harness.failing_server", environment=environment) as server:
        with grpc.insecure_channel(server.address) as channel:
            stub = transaction_pb2_grpc.TransactionServiceStub(channel)
            request = transaction_pb2.InitProducerIdRequest(
                transactional_id=POISON, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
            )
            stub.InitProducerId(request, timeout=DEADLINE_SECONDS)
        assert server.wait() == ExitStatus.FAILED
    seen = [told(listening) for _ in range(4)]
    assert seen[2][0] == "READY=1"
    assert seen[3][0] == "STOPPING=1"
    assert seen[3][1].startswith("STATUS=failed: ")
