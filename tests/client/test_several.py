"""A client that knows several servers with one store, of which one serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator_api.v1 import common_pb2
from coordinator_api.v1 import log_pb2 as log
from coordinator_client import Connection, Rejected
from coordinator_client.calls import DESCRIBE_TOPICS, Deadlines
from coordinator_client.errors import Loss
from coordinator_client.loops import Loop
from coordinator_client.transport.several import Choice, SeveralLooks, addresses_of
from tests.client.world import World

REFUSED = Loss("UNAVAILABLE", "failed to connect to all addresses", is_without_effect=True)


class Server:
    """A server that answers while it is up."""

    is_direct = False

    def __init__(self, loss: Loss | log.DescribeTopicsResponse = REFUSED, *, is_up: bool = False) -> None:
        self.loss = loss
        self.is_up = is_up
        self.asked = 0

    def ask(self, _rpc: Any, _request: Any, *, timeout_ms: int) -> Any:
        self.asked += 1
        return log.DescribeTopicsResponse() if self.is_up else self.loss

    def start(self, rpc: Any, request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> Any:
        on_done(self.ask(rpc, request, timeout_ms=timeout_ms))
        return None

    def close(self) -> None:
        self.is_up = False


def describe(connection: Connection) -> log.DescribeTopicsResponse:
    return connection.ask(
        DESCRIBE_TOPICS, log.DescribeTopicsRequest(), deadlines=Deadlines(total_ms=60_000, attempt_ms=1_000)
    )


@pytest.fixture
def servers() -> dict[str, Server]:
    return {"a:1": Server(is_up=True), "b:1": Server()}


@pytest.fixture
def connection(servers: dict[str, Server]) -> Connection:
    world = World()
    return Connection("a:1, b:1", open_transport=servers.__getitem__, clock=world, random_source=world)


def test_requests_go_to_the_server_that_answers(connection: Connection, servers: dict[str, Server]) -> None:
    servers["a:1"].is_up, servers["b:1"].is_up = False, True
    describe(connection)
    describe(connection)
    assert servers["a:1"].asked == 1
    assert servers["b:1"].asked == 2


@pytest.mark.parametrize("loss", [REFUSED, Loss("DEADLINE_EXCEEDED", "no answer")])
def test_a_request_without_an_answer_is_repeated_at_the_other_server(
    connection: Connection, servers: dict[str, Server], loss: Loss
) -> None:
    describe(connection)
    servers["a:1"].is_up, servers["a:1"].loss = False, loss
    servers["b:1"].is_up = True
    describe(connection)
    assert servers["b:1"].asked == 1
    servers["a:1"].is_up, servers["b:1"].is_up = True, False
    describe(connection)
    assert servers["a:1"].asked == 3


def test_a_server_that_waits_for_the_store_sends_the_client_to_the_other(
    connection: Connection, servers: dict[str, Server]
) -> None:
    waits = log.DescribeTopicsResponse(error_code=common_pb2.ERROR_CODE_NOT_COORDINATOR)
    waits.error_class = common_pb2.ERROR_CLASS_REFRESH
    servers["a:1"].is_up, servers["a:1"].loss = False, waits
    servers["b:1"].is_up = True
    describe(connection)
    describe(connection)
    assert (servers["a:1"].asked, servers["b:1"].asked) == (1, 2)


def test_many_requests_that_were_lost_together_go_on_to_the_next_server_once() -> None:
    choice = Choice(2)
    choice.failed(0)
    choice.failed(0)
    assert choice.place == 1


class Looked:
    """A look that finds a problem, or none."""

    def __init__(self, problem: str | None) -> None:
        self.problem = problem
        self.timeouts_ms: list[int] = []

    def now(self, timeout_ms: int) -> str | None:
        self.timeouts_ms.append(timeout_ms)
        return self.problem

    def soon(self, _loop: Loop, timeout_ms: int, on_done: Callable[[str | None], None]) -> None:
        on_done(self.now(timeout_ms))


def found_by(looks: SeveralLooks, world: World) -> list[str | None]:
    """Return the results of a look: for a caller that blocks, and for one that does not."""
    told: list[str | None] = []
    looks.soon(world, 1_000, told.append)
    return [looks.now(1_000), *told]


def test_the_first_contact_is_made_with_the_server_that_answers() -> None:
    world, choice, silent = World(), Choice(2), Looked("nothing answers there")
    assert found_by(SeveralLooks([silent, Looked(None)], choice, world), world) == [None, None]
    assert choice.place == 1
    # A host that is gone leaves time for the others.
    assert set(silent.timeouts_ms) == {500}


def test_every_problem_is_told_if_no_server_answers() -> None:
    world, choice = World(), Choice(2)
    looks = SeveralLooks([Looked("Connection refused"), Looked("it is no name of a host")], choice, world)
    assert set(found_by(looks, world)) == {"Connection refused; it is no name of a host"}


def test_each_address_is_checked() -> None:
    with pytest.raises(Rejected, match="'b' is no address of a server"):
        Connection("a:1,b")


def test_a_target_of_grpc_keeps_its_commas() -> None:
    assert addresses_of("ipv4:127.0.0.1:1,127.0.0.1:2") == ["ipv4:127.0.0.1:1,127.0.0.1:2"]
