"""A client that knows several servers with one store, of which one serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator_api.v1 import common_pb2
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client import Connection, Rejected, Retriable
from coordinator_client.calls import DESCRIBE_TOPICS, FIND_COORDINATOR, Deadlines
from coordinator_client.errors import Loss
from coordinator_client.loops import Loop
from coordinator_client.transport.known_servers import QUESTION_MS, KnownServers, addresses_of, followed_servers
from coordinator_client.transport.several import SeveralLooks
from tests.client.world import World

REFUSED = Loss("UNAVAILABLE", "failed to connect to all addresses", is_without_effect=True)


class Server:
    """A server that answers while it is up."""

    is_direct = False

    def __init__(self, loss: Loss | log.DescribeTopicsResponse = REFUSED, *, is_up: bool = False) -> None:
        self.loss = loss
        self.is_up = is_up
        self.asked = 0
        self.asked_for_servers = 0
        self.named: list[str] = []
        """The servers of its store, as it names them."""

    def ask(self, rpc: Any, _request: Any, *, timeout_ms: int) -> Any:
        if rpc is FIND_COORDINATOR:
            self.asked_for_servers += 1
            return naming(*self.named)
        self.asked += 1
        return log.DescribeTopicsResponse() if self.is_up else self.loss

    def start(self, rpc: Any, request: Any, *, timeout_ms: int, on_done: Callable[[Any], None]) -> Any:
        on_done(self.ask(rpc, request, timeout_ms=timeout_ms))
        return None

    def close(self) -> None:
        self.is_up = False


def naming(*addresses: str) -> txn.FindCoordinatorResponse:
    """An answer that names these servers."""
    answer = txn.FindCoordinatorResponse()
    for host, _, port in (each.rpartition(":") for each in addresses):
        answer.servers.add(host=host.strip("[]"), port=int(port))
    return answer


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
    servers = KnownServers(["a:1", "b:1"], 0)
    for _ in range(2):
        servers.note("a:1", REFUSED, 0)
    assert servers.current == "b:1"


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
    world, servers, silent = World(), KnownServers(["a:1", "b:1"], 0), Looked("nothing answers there")
    looks = SeveralLooks({"a:1": silent, "b:1": Looked(None)}.__getitem__, servers, world)
    assert found_by(looks, world) == [None, None]
    assert servers.current == "b:1"
    # A host that is gone leaves time for the others. The one that answered is looked at first afterwards.
    assert silent.timeouts_ms == [500]


def test_every_problem_is_told_if_no_server_answers() -> None:
    world, servers = World(), KnownServers(["a:1", "b:1"], 0)
    looked = {"a:1": Looked("Connection refused"), "b:1": Looked("it is no name of a host")}
    looks = SeveralLooks(looked.__getitem__, servers, world)
    assert set(found_by(looks, world)) == {"Connection refused; it is no name of a host"}


def test_each_address_is_checked() -> None:
    with pytest.raises(Rejected, match="'b' is no address of a server"):
        Connection("a:1,b")


def test_a_target_of_grpc_keeps_its_commas() -> None:
    assert addresses_of("ipv4:127.0.0.1:1,127.0.0.1:2") == ["ipv4:127.0.0.1:1,127.0.0.1:2"]


class Pair:
    """Two servers of one store, and a client on a manual clock that was given only the first."""

    def __init__(self) -> None:
        self.world = World()
        self.first, self.second = Server(is_up=True), Server(waits())
        self.known = KnownServers(["a:1"], self.world.now_ms)
        self.connection = Connection(
            "a:1",
            open_transport={"a:1": self.first, "b:1": self.second}.__getitem__,
            servers=self.known,
            clock=self.world,
            random_source=self.world,
        )
        self.first.named = ["a:1", "b:1"]
        self.second.named = ["a:1", "b:1"]

    def describe_after(self, ms: int) -> None:
        """Send one more request after some time."""
        self.world.now_ms += ms
        describe(self.connection)

    def take_over(self) -> None:
        """Let the second server serve, and the first be gone."""
        self.first.is_up, self.first.loss, self.second.is_up = False, REFUSED, True
        self.second.named = ["b:1"]


def waits() -> log.DescribeTopicsResponse:
    """The answer of a server that waits for the store."""
    code, kind = common_pb2.ERROR_CODE_NOT_COORDINATOR, common_pb2.ERROR_CLASS_REFRESH
    return log.DescribeTopicsResponse(error_code=code, error_class=kind)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_client_that_was_given_one_server_goes_on_to_the_other_after_its_loss(pair: Pair) -> None:
    pair.describe_after(3_000)
    pair.take_over()
    pair.describe_after(1)
    pair.describe_after(1)
    assert (pair.first.asked, pair.second.asked) == (2, 2)


def test_it_comes_back_to_the_first_one(pair: Pair) -> None:
    pair.describe_after(3_000)
    pair.take_over()
    # The one that took over names only itself. Nothing is forgotten for that.
    pair.describe_after(QUESTION_MS)
    pair.second.is_up, pair.first.is_up = False, True
    pair.describe_after(1)
    assert pair.known.current == "a:1"


def test_a_client_that_was_given_the_server_that_waits_finds_the_owner_at_once(pair: Pair) -> None:
    pair.first.is_up, pair.first.loss, pair.second.is_up = False, waits(), True
    describe(pair.connection)
    assert (pair.first.asked_for_servers, pair.second.asked) == (1, 1)


def test_a_request_that_blocks_nobody_learns_and_follows_too(pair: Pair) -> None:
    pair.world.now_ms += 3_000
    answers: list[Any] = []
    start = pair.connection.transport.start
    start(DESCRIBE_TOPICS, log.DescribeTopicsRequest(), timeout_ms=1_000, on_done=answers.append)
    pair.take_over()
    for _ in range(2):
        start(DESCRIBE_TOPICS, log.DescribeTopicsRequest(), timeout_ms=1_000, on_done=answers.append)
    assert answers == [log.DescribeTopicsResponse(), REFUSED, log.DescribeTopicsResponse()]


def test_a_short_program_never_asks_for_the_servers_and_a_long_one_asks_rarely(pair: Pair) -> None:
    for _ in range(100):
        pair.describe_after(10)
    assert pair.first.asked_for_servers == 0
    for _ in range(100):
        pair.describe_after(QUESTION_MS // 50)
    assert pair.first.asked_for_servers == 2


def test_a_server_that_waits_is_asked_for_the_servers_only_twice_a_second(pair: Pair) -> None:
    pair.first.is_up, pair.first.loss, pair.first.named = False, waits(), []
    with pytest.raises(Retriable):
        pair.connection.ask(
            DESCRIBE_TOPICS, log.DescribeTopicsRequest(), deadlines=Deadlines(total_ms=2_000, attempt_ms=100)
        )
    assert pair.first.asked > 20
    assert pair.first.asked_for_servers <= 5


@pytest.mark.parametrize(
    ("named", "taken"),
    [
        (["a:1", "b:1"], ("a:1", "b:1")),
        # The owner is the one that is lost, so the other one comes first.
        (["c:1", "b:1"], ("a:1", "b:1", "c:1")),
        (["[2001:db8::1]:7", "a:1"], ("a:1", "[2001:db8::1]:7")),
        ([f"h{number}:1" for number in range(99)], ("a:1", *(f"h{number}:1" for number in range(98, 90, -1)))),
    ],
)
def test_named_servers_come_after_the_given_one(named: list[str], taken: tuple[str, ...]) -> None:
    servers = KnownServers(["a:1"], 0)
    servers.learn(naming(*named))
    assert servers.addresses == taken


@pytest.mark.parametrize(
    "wrong",
    ["127.0.0.1:7", "localhost:7", "[::1]:7", "0.0.0.0:7", "[::]:7", "b:0", "b:70000", "unix:/x:0", "b/c:7", ":7"],
)
def test_an_address_that_is_none_or_leads_to_the_machine_of_the_client_is_not_taken(wrong: str) -> None:
    servers = KnownServers(["a:1"], 0)
    servers.learn(naming("a:1", wrong))
    assert servers.addresses == ("a:1",)


def test_a_client_on_the_machine_of_the_servers_takes_such_addresses() -> None:
    servers = KnownServers(["localhost:7"], 0)
    servers.learn(naming("127.0.0.1:7", "127.0.0.1:8"))
    assert servers.addresses == ("localhost:7", "127.0.0.1:8", "127.0.0.1:7")


@pytest.mark.parametrize("answer", [naming(), naming("b:1"), REFUSED])
def test_a_single_server_and_an_older_one_change_nothing(answer: Any) -> None:
    servers = KnownServers(["a:1"], 0)
    servers.learn(naming("a:1", "b:1"))
    servers.learn(answer)
    assert servers.addresses == ("a:1", "b:1")


def test_an_address_that_is_no_longer_named_is_left_for_the_given_one() -> None:
    servers = KnownServers(["a:1"], 0)
    servers.learn(naming("a:1", "b:1"))
    servers.answered("b:1")
    servers.learn(naming("a:1", "c:1"))
    assert servers.current == "b:1"
    servers.note("b:1", REFUSED, 0)
    assert servers.current == "a:1"


def test_all_connections_of_a_process_share_what_one_of_them_learned() -> None:
    first, second = (followed_servers("shared:1", None, 0) for _ in range(2))
    assert first is second
    assert followed_servers("unix:/run/txn.sock", None, 0) is None
