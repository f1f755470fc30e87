"""`txnctl health` against a server in each of the states that it tells apart."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from coordinator_server.build import SERVICE_NAMES
from coordinator_server.exits import ExitStatus
from coordinator_server.shard_health import SHARDS
from tests.cli.terminal import Terminal
from txnctl.commands.waiting import SERVICE


class Loading(health.HealthServicer):
    """The health of a server that goes on loading each time it is asked, until it has loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded_after: int | None = None
        """Questions that find it loading. None = its state stays as it was set."""

    def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        if self.loaded_after is not None and request.service == SERVICE:
            if self.loaded_after == 0:
                self.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
            self.loaded_after -= 1
        return super().Check(request, context)


class Patient(NamedTuple):
    """A server of which only the health is there."""

    address: str
    servicer: Loading


@contextmanager
def of_health(status: int) -> Iterator[Patient]:
    """A server that answers, and whose services have this status."""
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        servicer = Loading()
        for name in SERVICE_NAMES:
            servicer.set(name, status)
        servicer.set("", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield Patient(f"127.0.0.1:{port}", servicer)
        server.stop(None).wait()


@pytest.fixture
def patient() -> Iterator[Patient]:
    """It answers, and its services do not take work."""
    with of_health(health_pb2.HealthCheckResponse.NOT_SERVING) as server:
        yield server


def test_of_two_servers_the_one_that_takes_work_is_reported(txnctl: Terminal, patient: Patient) -> None:
    """The other waits for the lease of their store."""
    with of_health(health_pb2.HealthCheckResponse.SERVING) as serving:
        both = f"{patient.address},{serving.address}"
        assert txnctl("health", "--server", both).well().lines == [f"Server  {serving.address}", "Status  SERVING"]


def test_the_service_that_is_asked_is_one_of_ours() -> None:
    assert SERVICE in SERVICE_NAMES


def test_a_server_that_takes_work_is_well(txnctl: Terminal, patient: Patient) -> None:
    patient.servicer.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    assert txnctl("health", "--server", patient.address).well().lines == [
        f"Server  {patient.address}",
        "Status  SERVING",
    ]


def test_a_server_that_loads_is_alive_and_not_ready(txnctl: Terminal, patient: Patient) -> None:
    ended = txnctl("health", "--server", patient.address, "-o", "json")
    assert ended.status == ExitStatus.PROBLEM
    assert ended.document == {"server": patient.address, "status": "NOT_SERVING"}
    assert txnctl("health", "--server", patient.address, "--alive", "-o", "json").well().document["status"] == "SERVING"


def test_shards_that_failed_are_told_of_and_the_server_is_well(txnctl: Terminal, patient: Patient) -> None:
    patient.servicer.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)
    patient.servicer.set(SHARDS, health_pb2.HealthCheckResponse.NOT_SERVING)
    assert "shard list --state failed" in txnctl("health", "--server", patient.address).well().lines[2]
    patient.servicer.set(SHARDS, health_pb2.HealthCheckResponse.SERVING)
    assert len(txnctl("health", "--server", patient.address).well().lines) == 2


def test_a_missing_server_is_reported_in_words(txnctl: Terminal) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Taken, without a listener.
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        txnctl("health", "--server", address).refused(
            ExitStatus.UNREACHABLE, f"no server answers at {address}", "Connection refused"
        )


def test_one_that_does_not_answer_is_told_so_in_words(txnctl: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        txnctl("health", "--server", address, "--timeout", "200ms").refused(
            ExitStatus.UNREACHABLE, f"no server answers at {address}", "accepts connections there and says nothing"
        )


@pytest.mark.parametrize("loaded_after", [1, 3])
def test_a_server_that_loads_is_waited_for_until_it_takes_work(
    txnctl: Terminal, patient: Patient, loaded_after: int
) -> None:
    patient.servicer.loaded_after = loaded_after
    ended = txnctl("--wait", "100s", "health", "--server", patient.address).well()
    assert "Status  SERVING" in ended.lines
    # It says what it waits for once, however often it asks, and on stderr only.
    assert ended.stderr.count("there and takes no work yet (NOT_SERVING)") == 1
    assert len(ended.stderr.splitlines()) == 1


def test_a_server_that_loads_for_too_long_ends_the_wait_with_the_documented_status(
    txnctl: Terminal, patient: Patient
) -> None:
    ended = txnctl("--wait", "60ms", "health", "--server", patient.address, "-o", "json")
    assert ended.status == ExitStatus.PROBLEM
    assert ended.document == {"server": patient.address, "status": "NOT_SERVING"}
    assert "waiting for at most" in ended.stderr


def test_a_server_that_is_alive_is_enough_where_only_that_is_asked(txnctl: Terminal, patient: Patient) -> None:
    assert txnctl("--wait", "100s", "health", "--alive", "--server", patient.address).well().stderr == ""


def test_every_command_that_asks_a_server_waits_until_it_takes_work(txnctl: Terminal, patient: Patient) -> None:
    for words in (["topic", "list", "--timeout", "50ms"], ["probe", "--count", "1", "--timeout", "50ms"]):
        patient.servicer.set(SERVICE, health_pb2.HealthCheckResponse.NOT_SERVING)
        patient.servicer.loaded_after = 1
        ended = txnctl("--wait", "100s", *words, "--server", patient.address)
        # This server has nothing but its health, so that what comes after the wait fails.
        assert (ended.status, patient.servicer.loaded_after) == (ExitStatus.PROBLEM, -1), ended
        assert "waiting for at most" in ended.stderr


def test_a_wait_for_a_missing_server_ends_as_without_a_wait(txnctl: Terminal) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        txnctl("--wait", "60ms", "health", "--server", address).refused(
            ExitStatus.UNREACHABLE, "waiting for at most", f"no server answers at {address}"
        )
