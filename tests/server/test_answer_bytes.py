"""Answers that are not taken: the limit of their bytes, and service for the others meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pytest
from grpc import aio
from hypothesis import given
from hypothesis import strategies as st

from bench.raw_http2 import DATA, END_HEADERS, HEADERS, RawPeer, call, frame, message, request_headers
from coordinator_api.v1 import common_pb2, log_pb2, log_pb2_grpc, session_pb2, session_pb2_grpc
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import MEBI
from coordinator_protocol.methods import Method, methods_with
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import COUNTED_BYTES_MIN, CallContext, Connection, KnownConnection
from coordinator_server.grpc_front.grpc_session import GrpcSessions
from coordinator_server.grpc_front.grpc_transport import _Calls
from coordinator_server.grpc_front.native_streams import SessionStream
from coordinator_server.grpc_front.session import SESSION_METHOD, Session, SessionLimits
from coordinator_server.grpc_front.transport_choice import open_transport
from coordinator_server.grpc_front.transports import TransportName, TransportOptions
from coordinator_server.grpc_front.wire.edge import THROTTLE_MS
from coordinator_server.security.authentication import Callers
from coordinator_server.traffic.answer_bytes import AnswerBytes, AnswerLimits
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.one_by_one import OneByOne
from tests.harness.patience import DEADLINE_SECONDS, until
from tests.harness.transports import wanted_transport

HOST = "127.0.0.1"
UNARY = "/a.B/Unary"
ANSWER = bytes(MEBI)
FETCH = "/coordinator_api.v1.LogService/Fetch"
LIMITS = AnswerLimits(bytes_max=100, connection_bytes_max=40)


def refusal(answers: AnswerBytes, connection: Connection) -> str | None:
    """Return the scope whose room is full; None if there is room."""
    before = dict(answers.refused)
    try:
        answers.check(connection)
    except Refused:
        return {scope for scope, count in answers.refused.items() if count > before[scope]}.pop()
    return None


def test_a_connection_that_holds_its_share_finds_no_room_until_it_has_taken_some() -> None:
    answers = AnswerBytes(LIMITS)
    assert refusal(answers, "a") is None
    answers.hold("a", 35)
    assert (refusal(answers, "a"), refusal(answers, "b")) == ("connection", None)
    answers.release("a", 10)
    assert refusal(answers, "a") is None
    answers.release("a", 25)
    assert answers.held_bytes == 0


def test_one_answer_may_be_larger_than_the_share_of_a_connection() -> None:
    answers = AnswerBytes(LIMITS)
    answers.hold("a", 70)
    assert (refusal(answers, "a"), refusal(answers, "b")) == ("connection", None)


def test_one_principal_takes_no_more_than_half_however_many_connections_it_has() -> None:
    answers = AnswerBytes(LIMITS)
    for number in range(5):
        answers.hold(KnownConnection("User:noisy", number), 9)
    assert refusal(answers, KnownConnection("User:noisy", 5)) == "principal"
    other = KnownConnection("User:other", 0)
    assert refusal(answers, other) is None
    answers.hold(other, 5)
    assert refusal(answers, other) is None
    answers.release(KnownConnection("User:noisy", 0), 9)
    answers.release(KnownConnection("User:noisy", 1), 9)
    assert refusal(answers, KnownConnection("User:noisy", 5)) is None


def test_no_answer_finds_room_where_all_of_it_is_taken() -> None:
    answers = AnswerBytes(LIMITS)
    for number in range(10):
        answers.hold(str(number), 10)
    assert refusal(answers, "new") == "server"
    answers.release("0", 10)
    assert refusal(answers, "new") is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5 * MEBI), st.booleans()), max_size=300))
def test_six_that_take_nothing_leave_room_for_a_seventh(steps: list[tuple[int, int, bool]]) -> None:
    answers = AnswerBytes(AnswerLimits())
    held: dict[int, list[int]] = {}
    for connection, size_bytes, takes_one in steps:
        if takes_one and held.get(connection):
            answers.release(connection, held[connection].pop())
        elif refusal(answers, connection) is None:
            answers.hold(connection, size_bytes)
            held.setdefault(connection, []).append(size_bytes)
        assert answers.held_bytes == sum(map(sum, held.values())) <= AnswerLimits().bytes_max
        assert refusal(answers, "seventh") is None


def stand_still(answers: AnswerBytes, connection: Connection, batch_bytes: int) -> None:
    """Ask on a connection for batches of this size, and read nothing, until there is no more to be had."""
    while refusal(answers, connection) is None:
        whole_bytes = min(ANSWER_BYTES_MAX, answers.allowance_bytes(connection)) // batch_bytes * batch_bytes
        size_bytes = max(batch_bytes, whole_bytes)
        try:
            answers.check_answer(size_bytes)
        except Refused:
            return
        answers.hold(connection, size_bytes)


ANSWER_BYTES_MAX = 5 * MEBI
"""The largest answer to a Fetch whose batches are no larger than a mebibyte."""


@pytest.mark.parametrize("batch_bytes", [5_000, 100_000, 900_000, MEBI])
@pytest.mark.parametrize("make", [str, partial(KnownConnection, "User:a"), lambda n: KnownConnection(f"User:{n}", n)])
def test_fifty_that_take_nothing_leave_room_for_a_batch_also_one_after_the_other(
    batch_bytes: int, make: Callable[[int], Connection]
) -> None:
    answers = AnswerBytes(AnswerLimits())
    for number in range(50):
        stand_still(answers, make(number), batch_bytes)
    assert answers.held_bytes <= AnswerLimits().bytes_max
    assert refusal(answers, "newcomer") is None
    answers.check_answer(batch_bytes)


def test_the_first_of_them_may_hold_as_much_as_a_connection_ever_may() -> None:
    answers = AnswerBytes(AnswerLimits())
    stand_still(answers, "first", MEBI)
    assert AnswerLimits().connection_bytes_max - ANSWER_BYTES_MAX < answers.held_bytes


def test_answers_get_shorter_as_room_gets_scarce() -> None:
    answers = AnswerBytes(AnswerLimits())
    allowed = [answers.allowance_bytes("newcomer")]
    for number in range(50):
        stand_still(answers, number, 100_000)
        allowed.append(answers.allowance_bytes("newcomer"))
    assert allowed == sorted(allowed, reverse=True)
    assert allowed[0] >= ANSWER_BYTES_MAX > allowed[-1] > 100_000


def test_an_answer_that_is_larger_than_what_is_left_is_refused_and_a_small_one_never() -> None:
    answers = AnswerBytes(AnswerLimits())
    answers.hold("somebody", AnswerLimits().bytes_max - 1_000)
    assert refusal(answers, "newcomer") is None
    answers.check_answer(COUNTED_BYTES_MIN - 1)
    with pytest.raises(Refused, match="this one has 4096 bytes"):
        answers.check_answer(COUNTED_BYTES_MIN)
    assert answers.refused == {"connection": 0, "principal": 0, "server": 1}


def test_what_ends_a_transaction_or_writes_is_never_refused_for_want_of_room() -> None:
    assert not methods_with(lambda rule: rule.is_large_answer) & {
        Method.END_TXN,
        Method.TRANSACT,
        Method.PRODUCE,
        Method.OFFSET_COMMIT,
        Method.HEARTBEAT,
    }


@dataclass
class Answering:
    """A transport whose handler answers everything with the same bytes."""

    answers: AnswerBytes
    port: int
    calls: list[CallContext]


@asynccontextmanager
async def answering(answer: bytes = ANSWER, later: Pending[bytes] | None = None) -> AsyncIterator[Answering]:
    """`later`: what every call is answered by, instead of at once."""
    answers, calls = AnswerBytes(AnswerLimits()), list[CallContext]()

    def handle(_method: str, _body: bytes, context: CallContext) -> Pending[bytes]:
        calls.append(context)
        return settled(answer) if later is None else later

    transport = open_transport(wanted_transport(), [], SystemClock(), TransportOptions(16 * MEBI))
    port = transport.bind(HOST, 0)
    await transport.start(OneByOne(handle), answers)
    try:
        yield Answering(answers, port, calls)
    finally:
        await transport.stop(0)
        await until(lambda: answers.held_bytes == 0)


@pytest.mark.usefixtures("transport")
async def test_answers_count_until_their_caller_has_read_them() -> None:
    async with answering() as server:
        with RawPeer(server.port) as peer:
            peer.send(b"".join(call(stream, UNARY, b"") for stream in (1, 3, 5)))
            await until(lambda: server.answers.held_bytes == 3 * MEBI)
            peer.open_window()
            for stream in (1, 3):
                peer.open_window(stream)
            reading = asyncio.to_thread(peer.read_until_closed, DEADLINE_SECONDS)
            closing = asyncio.ensure_future(reading)
            await until(lambda: server.answers.held_bytes == MEBI)
            assert len({context.connection for context in server.calls}) == 1
            peer.shut()
            await until(lambda: server.answers.held_bytes == 0)
            await closing


@pytest.mark.usefixtures("transport")
async def test_an_answer_that_comes_after_its_caller_left_does_not_count() -> None:
    """A staged operation cannot be taken back: it is answered nevertheless."""
    later: Pending[bytes] = Pending()
    async with answering(later=later) as server:
        with RawPeer(server.port) as peer:
            peer.send(call(1, UNARY, b""))
            await until(lambda: bool(server.calls))
        await until(lambda: later.is_cancelled)
        later.succeed(ANSWER)
        await until(lambda: server.answers.held_bytes == 0)


@pytest.mark.usefixtures("transport")
async def test_answers_of_a_session_count_until_their_client_has_read_them() -> None:
    async with answering() as server:
        with RawPeer(server.port) as peer:
            peer.send(frame(HEADERS, END_HEADERS, 1, request_headers(SESSION_METHOD)))
            calls = [session_pb2.SessionCall(correlation_id=each, method="Unary") for each in range(40)]
            request = session_pb2.SessionRequest(calls=calls)
            peer.send(frame(DATA, 0, 1, message(request.SerializeToString())))
            await until(lambda: server.answers.held_bytes == 40 * MEBI)
            peer.open_window()
            peer.open_window(1)
            closing = asyncio.ensure_future(asyncio.to_thread(peer.read_until_closed, DEADLINE_SECONDS))
            await until(lambda: server.answers.held_bytes == 0)
            peer.shut()
            await closing


@pytest.mark.usefixtures("transport")
async def test_a_session_that_is_cut_holds_nothing() -> None:
    async with answering() as server:
        with RawPeer(server.port) as peer:
            peer.send(frame(HEADERS, END_HEADERS, 1, request_headers(SESSION_METHOD)))
            calls = [session_pb2.SessionCall(correlation_id=each, method="Unary") for each in range(40)]
            peer.send(frame(DATA, 0, 1, message(session_pb2.SessionRequest(calls=calls).SerializeToString())))
            await until(lambda: server.answers.held_bytes == 40 * MEBI)
        await until(lambda: server.answers.held_bytes == 0)


class Leaving:
    """A call, as grpc.aio shows it."""

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5"

    def time_remaining(self) -> None:
        return None


async def test_an_answer_to_who_leaves_as_it_comes_is_not_held() -> None:
    """gRPC has no use for it then, and does not report when it was sent."""
    answers, called, pending = AnswerBytes(AnswerLimits()), asyncio.Event(), Pending[bytes]()

    def handle(_method: str, _body: bytes, _context: CallContext) -> Pending[bytes]:
        called.set()
        return pending

    calls = _Calls(OneByOne(handle), SystemClock(), GrpcSessions(SystemClock(), Callers(), SessionLimits()), answers)
    serving = asyncio.ensure_future(calls.service(SimpleNamespace(method=UNARY)).unary_unary(b"", Leaving()))
    await called.wait()
    pending.succeed(ANSWER)
    assert answers.held_bytes == MEBI
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert answers.held_bytes == 0


class Network:
    """The compiled transport, as a stream uses it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.wanting_room = 0

    def send(self, body: bytes, *, wants_sent: bool) -> None:
        self.sent.append(body)
        self.wanting_room += wants_sent

    def grant(self, messages: int) -> None: ...

    def end(self, status: int, message: str) -> None: ...

    def wake(self) -> None: ...


def test_a_stream_that_has_sent_much_goes_on_once_the_network_has_taken_it() -> None:
    answers, network = AnswerBytes(AnswerLimits()), Network()
    call = CallContext(connection="a")
    session = Session(OneByOne(lambda *_: settled(ANSWER)), SystemClock(), call, SessionLimits(), answers)
    stream = SessionStream(session, network)
    for number in range(1, 4):
        calls = [session_pb2.SessionCall(correlation_id=each, method="Unary") for each in (1, 2)]
        stream.message(session_pb2.SessionRequest(calls=calls).SerializeToString())
        stream.turn()
        # One is as much as may be ahead; the other waits for it.
        assert (answers.held_bytes, network.wanting_room) == (2 * MEBI, 2 * number - 1)
        stream.sent()
        stream.turn()
        assert (answers.held_bytes, network.wanting_room) == (MEBI, 2 * number)
        stream.sent()
        assert answers.held_bytes == 0


def test_a_stream_that_is_gone_gives_back_what_it_held() -> None:
    answers = AnswerBytes(AnswerLimits())
    call = CallContext(connection="a")
    session = Session(OneByOne(lambda *_: settled(ANSWER)), SystemClock(), call, SessionLimits(), answers)
    stream = SessionStream(session, Network())
    calls = [session_pb2.SessionCall(correlation_id=each, method="Unary") for each in (1, 2)]
    stream.message(session_pb2.SessionRequest(calls=calls).SerializeToString())
    stream.turn()
    assert answers.held_bytes == 2 * MEBI
    stream.gone()
    stream.gone()
    stream.sent()
    assert answers.held_bytes == 0


@pytest.mark.usefixtures("transport")
async def test_small_answers_are_not_counted() -> None:
    async with answering(bytes(COUNTED_BYTES_MIN - 1)) as server, aio.insecure_channel(f"{HOST}:{server.port}") as line:
        assert len(await line.unary_unary(UNARY)(b"")) == COUNTED_BYTES_MIN - 1
        assert server.answers.held_bytes == 0


async def filled(server: InProcessServer, *, batches: int = 1, batch_bytes: int = MEBI - 1000) -> log_pb2.FetchRequest:
    """A Fetch that is answered with a mebibyte, of a topic with this."""
    log = log_pb2_grpc.LogServiceStub(server.channel)
    await log.CreateTopics(log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=1)]))
    payload = log_pb2.Records(records=[log_pb2.Record(value=bytes(batch_bytes))]).SerializeToString()
    request = log_pb2.ProduceRequest()
    request.batches.add(topic="t", partition=0).batch.CopyFrom(
        log_pb2.RecordBatch(record_count=1, encoding=log_pb2.ENCODING_RECORDS_V1, payload=payload)
    )
    for _ in range(batches):
        assert not (await log.Produce(request)).results[0].error_code
    fetch = log_pb2.FetchRequest(header=common_pb2.RequestHeader(client_id="reader"), max_bytes=MEBI)
    fetch.partitions.add(topic="t", partition=0, fetch_offset=0)
    return fetch


SMALL_ROOM = {"answer_bytes_max": 20 * MEBI, "answer_bytes_per_connection_max": 8 * MEBI}


@pytest.mark.usefixtures("transport")
async def test_readers_that_stand_still_hold_no_more_than_they_may_and_the_others_are_served() -> None:
    async with in_process_server(**SMALL_ROOM) as server:
        fetch = await filled(server)
        answers = server.parts.answers
        peers = [RawPeer(server.address.port) for _ in range(4)]
        try:
            for peer in peers:
                peer.send(b"".join(call(2 * n + 1, FETCH, fetch.SerializeToString()) for n in range(90)))
            await until(lambda: answers.refused["connection"] > 300 and server.parts.gatekeeper.unanswered_calls == 0)
            assert 4 * MEBI < answers.held_bytes <= 20 * MEBI
            log = log_pb2_grpc.LogServiceStub(server.channel)
            for _ in range(20):
                response = await log.Fetch(fetch)
                assert [len(result.batches) for result in response.results] == [1], response.error_message
        finally:
            for peer in peers:
                peer.close()
        await until(lambda: answers.held_bytes == 0)


@pytest.mark.usefixtures("transport")
async def test_however_many_stand_still_one_after_the_other_a_newcomer_reads() -> None:
    """Each of them takes as much as it may before the next one comes, and so most of what the others left."""
    async with in_process_server(**SMALL_ROOM) as server:
        fetch = await filled(server, batches=20, batch_bytes=100_000)
        fetch.max_bytes = 15 * MEBI
        answers = server.parts.answers
        log = log_pb2_grpc.LogServiceStub(server.channel)
        shown: list[int] = []
        with ExitStack() as leaving:
            for _ in range(12):
                refused = answers.refused["connection"]
                peer = leaving.enter_context(RawPeer(server.address.port))
                peer.send(b"".join(call(2 * n + 1, FETCH, fetch.SerializeToString()) for n in range(16)))
                await until(lambda refused=refused: answers.refused["connection"] > refused)
                (result,) = (await log.Fetch(fetch)).results
                shown.append(len(result.batches))
            assert answers.held_bytes <= SMALL_ROOM["answer_bytes_max"]
            # Its answers became shorter.
            assert shown[0] == 20 > shown[-1] > 0
        await until(lambda: answers.held_bytes == 0)


@pytest.mark.usefixtures("transport")
async def test_where_no_room_is_left_for_a_batch_what_is_small_is_still_read() -> None:
    async with in_process_server(**SMALL_ROOM) as server:
        fetch = await filled(server)
        server.parts.answers.hold("somebody", 20 * MEBI - COUNTED_BYTES_MIN)
        log = log_pb2_grpc.LogServiceStub(server.channel)
        response = await log.Fetch(fetch)
        assert (response.error_code, response.throttle_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLE_MS)
        assert not (await log.DescribeTopics(log_pb2.DescribeTopicsRequest())).error_code
        fetch.partitions[0].fetch_offset = 1
        (result,) = (await log.Fetch(fetch)).results
        assert (result.error_code, result.next_offset, len(result.batches)) == (0, 1, 0)
        server.parts.answers.release("somebody", 20 * MEBI - COUNTED_BYTES_MIN)


@pytest.mark.usefixtures("transport")
async def test_a_session_that_reads_nothing_holds_no_more_than_it_may() -> None:
    async with in_process_server(**SMALL_ROOM) as server:
        fetch = await filled(server)
        answers = server.parts.answers
        body = fetch.SerializeToString()
        calls = [session_pb2.SessionCall(correlation_id=n, method="Fetch", body=body) for n in range(500)]
        with RawPeer(server.address.port) as peer:
            peer.send(frame(HEADERS, END_HEADERS, 1, request_headers(SESSION_METHOD)))
            peer.send(frame(DATA, 0, 1, message(session_pb2.SessionRequest(calls=calls).SerializeToString())))
            await until(lambda: answers.refused["connection"] > 400)
            assert answers.held_bytes <= 9 * MEBI


async def test_who_finds_no_room_is_told_in_band_to_come_again_and_may_commit_all_the_same(
    transport: TransportName,
) -> None:
    async with in_process_server(**SMALL_ROOM) as server:
        fetch = await filled(server)
        log = log_pb2_grpc.LogServiceStub(server.channel)
        server.parts.answers.hold("somebody", 20 * MEBI)
        response = await log.Fetch(fetch)
        assert (response.error_code, response.throttle_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLE_MS)
        again = await filled(server)
        server.parts.answers.release("somebody", 20 * MEBI)
        assert not (await log.Fetch(again)).error_code
        assert server.parts.answers.refused == {"connection": 0, "principal": 0, "server": 1}
        await until(lambda: server.parts.answers.held_bytes == 0)


@pytest.mark.usefixtures("transport")
async def test_what_a_waiting_fetch_has_found_counts_until_it_is_answered() -> None:
    async with in_process_server(**SMALL_ROOM) as server:
        fetch = await filled(server)
        fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes = 60_000, 2 * MEBI, 4 * MEBI
        answers = server.parts.answers
        stub = log_pb2_grpc.LogServiceStub(server.channel)
        waiting = stub.Fetch(fetch)
        leaving = stub.Fetch(fetch)
        await until(lambda: answers.held_bytes > 2 * (MEBI - 2000))
        leaving.cancel()
        await until(lambda: answers.held_bytes < MEBI)
        answers.hold("somebody", 20 * MEBI)
        await filled(server)
        assert (await waiting).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert answers.held_bytes == 20 * MEBI


@pytest.mark.usefixtures("transport")
async def test_an_ordinary_session_leaves_nothing_behind() -> None:
    async with in_process_server() as server:
        body = (await filled(server)).SerializeToString()
        stream = session_pb2_grpc.SessionServiceStub(server.channel).Session()
        for number in range(60):
            call = session_pb2.SessionCall(correlation_id=number, method="Fetch", body=body)
            await stream.write(session_pb2.SessionRequest(calls=[call]))
        found = 0
        while found < 60:
            found += len((await stream.read()).answers)
        await until(lambda: server.parts.answers.held_bytes == 0)
        stream.cancel()
