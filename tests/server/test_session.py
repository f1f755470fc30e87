"""The session stream: calls in, answers out, without a network; and the same over a real port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import CoroutineType

import grpc
import pytest
from grpc import aio

from coordinator_api.v1 import session_pb2, session_pb2_grpc, transaction_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.limits import MEBI
from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.grpc_front.session import SESSION_METHOD, Session, SessionLimits
from coordinator_server.grpc_front.transports import TransportName
from tests.harness.manual_clock import ManualClock
from tests.harness.one_by_one import OneByOne
from tests.harness.patience import until
from tests.server.test_grpc_transport import Served, serve

Call = session_pb2.SessionCall
Response = session_pb2.SessionResponse


class HandledSession:
    """A session, whose handler answers "now" at once and keeps everything else."""

    def __init__(self, limits: SessionLimits | None = None) -> None:
        self.clock = ManualClock()
        self.calls: list[tuple[str, bytes, CallContext]] = []
        self.waiting: dict[bytes, Pending[bytes]] = {}
        self.cancelled: list[bytes] = []
        self.session = Session(
            OneByOne(self._handle), self.clock, CallContext(host="10.0.0.1"), limits or SessionLimits()
        )

    def _handle(self, method: str, body: bytes, call: CallContext) -> Pending[bytes]:
        self.calls.append((method, body, call))
        if method == "now":
            return settled(body.upper())
        if method == "unknown":
            return failed(Unanswered(CallStatus.UNIMPLEMENTED, "no such method"))
        pending: Pending[bytes] = Pending()
        pending.on_cancel = lambda: self.cancelled.append(body)
        self.waiting[body] = pending
        return pending

    def send(self, *calls: session_pb2.SessionCall, cancels: tuple[int, ...] = (), client_id: str = "") -> None:
        request = session_pb2.SessionRequest(calls=calls, cancels=cancels)
        if client_id:
            request.header.client_id = client_id
        self.session.receive(request.SerializeToString())

    def answers(self) -> dict[int, bytes]:
        """By correlation id, everything that there is to take now."""
        found = {}
        while (body := self.session.take()) is not None:
            found.update({result.correlation_id: result.body for result in Response.FromString(body).answers})
        return found


def call(correlation_id: int, body: bytes, method: str = "later", timeout_ms: int = 0) -> session_pb2.SessionCall:
    return Call(correlation_id=correlation_id, method=method, body=body, timeout_ms=timeout_ms)


def test_the_first_answer_greets_with_the_limits() -> None:
    handled = HandledSession(SessionLimits(calls_in_flight_max=7, message_bytes_max=1000))
    handled.send(call(1, b"a", "now"))
    body = handled.session.take()
    assert body is not None
    response = Response.FromString(body)
    assert response.hello == session_pb2.SessionHello(calls_in_flight_max=7, message_bytes_max=1000)
    assert [(result.correlation_id, result.body) for result in response.answers] == [(1, b"A")]
    assert handled.session.take() is None


def test_calls_begin_in_the_order_sent_and_are_answered_as_they_are_done() -> None:
    handled = HandledSession()
    handled.send(call(1, b"a"), call(2, b"b"), call(3, b"c", "now"))
    assert [body for _, body, _ in handled.calls] == [b"a", b"b", b"c"]
    assert handled.answers() == {3: b"C"}
    handled.waiting[b"b"].succeed(b"done b")
    handled.waiting[b"a"].succeed(b"done a")
    assert list(handled.answers().items()) == [(2, b"done b"), (1, b"done a")]


def test_who_calls_and_for_how_long_reaches_the_handler() -> None:
    handled = HandledSession()
    handled.send(call(1, b"a", timeout_ms=500), call(2, b"b"), client_id="loader")
    (_, _, first), (_, _, second) = handled.calls
    assert (first.host, first.client_id, second.client_id) == ("10.0.0.1", "loader", "loader")
    assert first.deadline_ms == handled.clock.monotonic_ms() + 500
    assert second.deadline_ms is None


def test_a_status_comes_in_place_of_a_body() -> None:
    handled = HandledSession()
    handled.send(call(1, b"a", "unknown"))
    body = handled.session.take()
    assert body is not None
    (result,) = Response.FromString(body).answers
    assert (result.status, result.status_message) == (grpc.StatusCode.UNIMPLEMENTED.value[0], "no such method")


def test_a_cancelled_call_is_dropped_if_it_still_can_be() -> None:
    handled = HandledSession()
    handled.send(call(1, b"a"), call(2, b"b"))
    handled.send(cancels=(1, 99))
    assert handled.cancelled == [b"a"]
    handled.waiting[b"a"].fail(Unanswered(CallStatus.CANCELLED, "the caller gave up"))
    handled.waiting[b"b"].succeed(b"done")
    assert handled.answers() == {1: b"", 2: b"done"}


def test_a_correlation_id_in_use_ends_the_stream() -> None:
    handled = HandledSession()
    handled.send(call(1, b"a"))
    with pytest.raises(Unanswered, match="correlation id 1"):
        handled.send(call(1, b"b"))
    handled.waiting[b"a"].succeed(b"done")
    handled.send(call(1, b"c", "now"))


def test_what_stands_before_a_correlation_id_in_use_has_begun() -> None:
    handled = HandledSession()
    handled.send(call(1, b"a"))
    with pytest.raises(Unanswered, match="correlation id 1"):
        handled.send(call(2, b"b"), call(1, b"c"), call(3, b"d"))
    assert [body for _, body, _ in handled.calls] == [b"a", b"b"]


def test_garbage_ends_the_stream() -> None:
    with pytest.raises(Unanswered) as failure:
        HandledSession().session.receive(b"\xff\xff\xff")
    assert failure.value.status is CallStatus.INVALID_ARGUMENT


def test_more_calls_than_may_be_under_way_are_not_even_parsed() -> None:
    empty_calls, empty_cancels = b"\x12\0" * 5, b"\x1a\x05" + bytes(5)
    for body in (empty_calls, b"\xa3\x06\xa4\x06" * 5, empty_cancels):
        handled = HandledSession(SessionLimits(calls_in_flight_max=4))
        with pytest.raises(Unanswered, match="more than 4 calls or cancellations") as failure:
            handled.session.receive(body)
        assert failure.value.status is CallStatus.INVALID_ARGUMENT
        assert handled.calls == []


def test_a_client_id_that_is_too_long_is_not_kept() -> None:
    handled = HandledSession()
    with pytest.raises(Unanswered, match="client id is longer"):
        handled.send(call(1, b"a"), client_id="x" * 1_001)
    assert handled.calls == []
    handled.send(call(1, b"a"), client_id="x" * 1_000)


def test_a_client_with_too_much_under_way_is_not_read_until_it_is_answered() -> None:
    handled = HandledSession(SessionLimits(calls_in_flight_max=2))
    told = []
    handled.session.on_capacity = lambda: told.append("room")
    handled.send(call(1, b"a"), call(2, b"b"))
    assert not handled.session.has_capacity
    handled.waiting[b"a"].succeed(b"done")
    assert not handled.session.has_capacity, "its answer is not taken yet"
    handled.answers()
    assert handled.session.has_capacity
    assert told == ["room"]


def test_answers_are_spread_over_messages_of_the_largest_size() -> None:
    handled = HandledSession(SessionLimits(message_bytes_max=100))
    for number in range(3):
        handled.send(call(number, b"x" * 70, "now"))
    handled.send(call(9, b"x"))
    handled.waiting[b"x"].succeed(b"x" * 500)
    sizes = []
    while (body := handled.session.take()) is not None:
        sizes.append([len(result.body) for result in Response.FromString(body).answers])
    assert sizes == [[70], [70], [70], [500]]


def test_a_lost_stream_drops_what_waits_and_says_nothing_more() -> None:
    handled = HandledSession()
    handled.send(call(1, b"a"), call(2, b"b"))
    handled.answers()
    handled.session.close()
    assert handled.cancelled == [b"a", b"b"]
    handled.waiting[b"a"].succeed(b"done")
    assert handled.session.take() is None


def test_a_server_that_stops_says_so_and_ends_once_everything_is_answered() -> None:
    handled = HandledSession()
    handled.send(call(1, b"a"))
    handled.answers()
    handled.session.announce_stop()
    body = handled.session.take()
    assert body is not None
    assert Response.FromString(body).is_draining
    assert not handled.session.is_finished
    handled.waiting[b"a"].succeed(b"done")
    assert not handled.session.is_finished
    assert handled.answers() == {1: b"done"}
    handled.session.stop_lingering()
    assert handled.session.is_finished


def test_a_call_that_comes_after_the_client_was_told_is_refused_and_nothing_of_it_begins() -> None:
    handled = HandledSession()
    handled.send(call(1, b"a"))
    handled.session.announce_stop()
    handled.answers()
    handled.send(call(2, b"b"), call(3, b"c", "now"))
    assert [body for _, body, _ in handled.calls] == [b"a"]
    refused = {2: b"later: COORDINATOR_NOT_AVAILABLE", 3: b"now: COORDINATOR_NOT_AVAILABLE"}
    assert handled.answers() == refused
    assert not handled.session.is_finished, "what was begun before is answered"
    handled.waiting[b"a"].succeed(b"done")
    assert handled.answers() == {1: b"done"}
    assert not handled.session.is_finished, "more may be on its way"
    handled.send(call(4, b"d"))
    assert list(handled.answers()) == [4]
    handled.session.stop_lingering()
    assert handled.session.is_finished


def test_a_client_that_was_told_and_closes_its_side_is_not_waited_for() -> None:
    handled = HandledSession()
    handled.session.announce_stop()
    handled.answers()
    assert not handled.session.is_finished
    handled.session.half_close()
    assert handled.session.is_finished


def test_a_message_that_is_too_large_begins_nothing() -> None:
    handled = HandledSession(SessionLimits(message_bytes_max=1_000))
    handled.send(call(1, b"a"))
    overhead = len(session_pb2.SessionRequest(calls=[call(2, bytes(960))]).SerializeToString()) - 960
    with pytest.raises(Unanswered, match=r"a message of 1001 bytes .*message_bytes_max is 1000") as failure:
        handled.send(call(2, bytes(1_001 - overhead)))
    assert failure.value.status is CallStatus.RESOURCE_EXHAUSTED
    assert len(handled.calls) == 1
    handled.send(call(2, bytes(1_000 - overhead)))
    assert len(handled.calls) == 2


# Over a real port


@pytest.fixture
async def served(transport: TransportName) -> AsyncIterator[Served]:
    async with serve() as one:
        yield one


def find(key: str) -> bytes:
    return transaction_pb2.FindCoordinatorRequest(keys=[key]).SerializeToString()


async def test_calls_go_there_and_back(served: Served) -> None:
    stream = session_pb2_grpc.SessionServiceStub(served.channel).Session()
    request = session_pb2.SessionRequest(
        calls=[call(number, find(f"k{number}"), "FindCoordinator") for number in range(5)]
    )
    request.header.client_id = "loader"
    await stream.write(request)
    results: list[session_pb2.SessionAnswer] = []
    while len(results) < 5:
        results.extend((await stream.read()).answers)
    keys = [transaction_pb2.FindCoordinatorResponse.FromString(result.body).coordinators[0].key for result in results]
    assert keys == [f"k{number}" for number in range(5)]
    assert {(context.host, context.client_id) for context in served.servicer.contexts} == {("127.0.0.1", "loader")}
    await stream.done_writing()
    assert await stream.read() == aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_client_that_goes_away_drops_its_calls(served: Served) -> None:
    stream = session_pb2_grpc.SessionServiceStub(served.channel).Session()
    end = transaction_pb2.EndTxnRequest(transactional_id="a").SerializeToString()
    await stream.write(session_pb2.SessionRequest(calls=[call(1, end, "EndTxn")]))
    await served.end_txn_arrived()
    stream.cancel()
    await served.servicer.cancelled.wait()


def tasks_of_sessions() -> list[CoroutineType[object, object, object]]:
    """Return the coroutines that run or wait in the modules of sessions."""
    running = [task.get_coro() for task in asyncio.all_tasks()]
    own = [each for each in running if isinstance(each, CoroutineType)]
    return [each for each in own if each.cr_code.co_filename.endswith("_session.py") and "test" not in each.__name__]


@pytest.mark.parametrize("is_full", [False, True], ids=["with room", "without room"])
async def test_a_client_that_goes_away_leaves_no_task_and_no_complaint(served: Served, is_full: bool) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    stream = session_pb2_grpc.SessionServiceStub(served.channel).Session()
    end = transaction_pb2.EndTxnRequest(transactional_id="a").SerializeToString()
    count = (await stream.read()).hello.calls_in_flight_max if is_full else 1
    await stream.write(session_pb2.SessionRequest(calls=[call(number, end, "EndTxn") for number in range(count)]))
    await served.end_txn_arrived(count)
    stream.cancel()
    await served.servicer.cancelled.wait()
    await until(lambda: not tasks_of_sessions())
    # Work that follows from the end of a task comes in the next turn.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert complaints == []


async def test_a_broken_rule_leaves_no_task_and_no_complaint(served: Served) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
    stream = served.channel.stream_stream(SESSION_METHOD)()
    await stream.write(b"\xff\xff\xff")
    assert session_pb2.SessionResponse.FromString(await stream.read()).HasField("hello")
    with pytest.raises(aio.AioRpcError):
        await stream.read()
    await until(lambda: not tasks_of_sessions())
    # Work that follows from the end of a task comes in the next turn.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert complaints == []


async def test_a_broken_rule_ends_the_stream_with_its_reason(served: Served) -> None:
    stream = served.channel.stream_stream(SESSION_METHOD)()
    await stream.write(b"\xff\xff\xff")
    assert session_pb2.SessionResponse.FromString(await stream.read()).HasField("hello")
    with pytest.raises(aio.AioRpcError, match="SessionRequest") as failure:
        await stream.read()
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_defect_in_reading_ends_the_stream_with_an_error_and_drops_its_calls(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_session: Session, _body: bytes) -> None:
        raise RuntimeError("ours")

    stream = session_pb2_grpc.SessionServiceStub(served.channel).Session()
    end = transaction_pb2.EndTxnRequest(transactional_id="a").SerializeToString()
    await stream.write(session_pb2.SessionRequest(calls=[call(1, end, "EndTxn")]))
    await served.end_txn_arrived()
    assert (await stream.read()).HasField("hello")
    with monkeypatch.context() as patch:
        patch.setattr(Session, "receive", broken)
        await stream.write(session_pb2.SessionRequest(calls=[call(2, find("k"), "FindCoordinator")]))
        with pytest.raises(aio.AioRpcError) as failure:
            await stream.read()
    assert failure.value.code() in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
    await served.servicer.cancelled.wait()
    assert [found.key for found in await answered_in_a_new_session(served)] == ["k"], "other calls are unharmed"


async def test_a_defect_in_the_first_message_ends_the_stream_with_an_error(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_session: Session, _body: bytes) -> None:
        raise RuntimeError("ours")

    with monkeypatch.context() as patch:
        patch.setattr(Session, "receive", broken)
        stream = served.channel.stream_stream(SESSION_METHOD)()
        await stream.write(b"")
        with pytest.raises(aio.AioRpcError) as failure:
            await read_to_the_end(stream)
    assert failure.value.code() in {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}


async def read_to_the_end(stream: aio.StreamStreamCall[bytes, bytes]) -> None:
    while await stream.read() != aio.EOF:
        pass


async def answered_in_a_new_session(served: Served) -> list[transaction_pb2.Coordinator]:
    stream = session_pb2_grpc.SessionServiceStub(served.channel).Session()
    await stream.write(session_pb2.SessionRequest(calls=[call(1, find("k"), "FindCoordinator")]))
    answers: list[session_pb2.SessionAnswer] = []
    while not answers:
        answers.extend((await stream.read()).answers)
    stream.cancel()
    return list(transaction_pb2.FindCoordinatorResponse.FromString(answers[0].body).coordinators)


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize(
    ("taken_bytes_max", "told_bytes_max", "words"),
    [(2 * MEBI, MEBI, f"message_bytes_max is {MEBI}"), (100_000, 100_000, "100000")],
    ids=["than sessions take", "than the server takes"],
)
async def test_a_message_that_is_too_large_ends_the_stream_and_nothing_of_it_is_begun(
    taken_bytes_max: int, told_bytes_max: int, words: str
) -> None:
    async with serve(message_bytes_max=taken_bytes_max) as served:
        stream = session_pb2_grpc.SessionServiceStub(served.channel).Session()
        end = transaction_pb2.EndTxnRequest(transactional_id="a").SerializeToString()
        await stream.write(session_pb2.SessionRequest(calls=[call(1, end, "EndTxn")]))
        await served.end_txn_arrived()
        assert (await stream.read()).hello.message_bytes_max == told_bytes_max
        large = transaction_pb2.EndTxnRequest(transactional_id="x" * told_bytes_max).SerializeToString()
        await stream.write(session_pb2.SessionRequest(calls=[call(2, end, "EndTxn"), call(3, large, "EndTxn")]))
        with pytest.raises(aio.AioRpcError, match=words) as failure:
            await stream.read()
        assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await served.servicer.cancelled.wait()
        assert len(served.servicer.waiting) == 1


async def test_what_crosses_the_news_of_a_stop_is_refused_in_words(served: Served) -> None:
    stream = session_pb2_grpc.SessionServiceStub(served.channel).Session()
    end = transaction_pb2.EndTxnRequest(transactional_id="a").SerializeToString()
    await stream.write(session_pb2.SessionRequest(calls=[call(1, end, "EndTxn")]))
    await served.end_txn_arrived()
    await served.transport.announce_stop()
    await stream.write(session_pb2.SessionRequest(calls=[call(2, end, "EndTxn")]))
    results: list[session_pb2.SessionAnswer] = []
    while not results:
        results.extend((await stream.read()).answers)
    refused = transaction_pb2.EndTxnResponse.FromString(results[0].body)
    assert results[0].correlation_id == 2
    assert (refused.error_code, refused.error_class) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorClass.REFRESH)
    served.servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse(csn=7))
    assert [answer.correlation_id for answer in (await stream.read()).answers] == [1]
    assert await stream.read() == aio.EOF
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_server_that_stops_ends_its_sessions(served: Served) -> None:
    stream = session_pb2_grpc.SessionServiceStub(served.channel).Session()
    end = transaction_pb2.EndTxnRequest(transactional_id="a").SerializeToString()
    await stream.write(session_pb2.SessionRequest(calls=[call(1, end, "EndTxn")]))
    await served.end_txn_arrived()
    assert (await stream.read()).HasField("hello")
    await served.transport.announce_stop()
    assert (await stream.read()).is_draining
    served.servicer.waiting[0].succeed(transaction_pb2.EndTxnResponse(csn=7))
    (result,) = (await stream.read()).answers
    assert transaction_pb2.EndTxnResponse.FromString(result.body).csn == 7
    assert await stream.read() == aio.EOF
