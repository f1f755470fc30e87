"""The session as a client has it: the calls of one message, the owner of each answer, and the effect of a broken
stream."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import session_pb2
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client import Connection, Misconfigured, Producer
from coordinator_client.calls import FETCH, INIT_PRODUCER_ID, OFFSET_COMMIT
from coordinator_client.errors import Loss
from coordinator_client.transport.session import DRAINING, SESSION_ENDED
from coordinator_client.transport.session_transport import ANSWERS_PER_TURN, LOOK_MS
from coordinator_protocol.methods import Method
from tests.client.consumers import T0, FakeCluster, values
from tests.client.fake_channel import BROKEN, FakeChannel, SessionWorld, Weather
from tests.client.producers import commit, producer_in
from tests.client.world import Held

INIT = txn.InitProducerIdRequest


@pytest.fixture
def world() -> SessionWorld:
    return SessionWorld()


class Asked:
    """A request on its way, and what became of it."""

    def __init__(self, world: SessionWorld, rpc: Any = INIT_PRODUCER_ID, request: Any = None, **options: Any) -> None:
        self.answers: list[Any] = []
        timeout_ms = options.pop("timeout_ms", 30_000)
        self.call = world.session.start(
            rpc, INIT() if request is None else request, timeout_ms=timeout_ms, on_done=self.answers.append
        )

    @property
    def answer(self) -> Any:
        (answer,) = self.answers
        return answer


def names(world: SessionWorld) -> list[int]:
    """Return the number of calls in each message."""
    return [len(message) for message in world.channel.messages]


def test_what_is_asked_in_one_turn_goes_into_one_message(world: SessionWorld) -> None:
    asked = [Asked(world) for _ in range(5)]
    world.settle()
    assert names(world) == [5]
    assert [each.answer.producer_id for each in asked] == [101, 102, 103, 104, 105]


def test_nothing_is_sent_before_the_server_has_greeted(world: SessionWorld) -> None:
    world.channel.refusal = Loss("UNAVAILABLE", "connection refused")
    asked = Asked(world)
    world.settle()
    assert world.channel.messages == []
    assert asked.answer == Loss("UNAVAILABLE", "UNAVAILABLE: connection refused", is_without_effect=True)


def test_answers_find_their_way_in_any_order(world: SessionWorld) -> None:
    world.channel.foresee(Weather.REVERSED)
    order: list[int] = []
    asked = [Asked(world, request=INIT(transactional_id=name)) for name in "abc"]
    for number, each in enumerate(asked):
        each.answers = _Ordered(order, number)
        each.call.on_done = each.answers.append  # type: ignore[attr-defined]
    world.settle()
    assert order == [2, 1, 0]
    ids = [world.server.ids[name].producer_id for name in "abc"]
    assert [each.answer.producer_id for each in asked] == ids


@pytest.mark.parametrize("calls", [2, 16, 2 * ANSWERS_PER_TURN])
def test_answers_are_reported_in_turns_so_that_what_follows_from_the_first_is_sent_meanwhile(
    world: SessionWorld, calls: int
) -> None:
    asked = [Asked(world) for _ in range(calls)]
    follow_up: list[Asked] = []
    asked[0].call.on_done = lambda _: follow_up.append(Asked(world))  # type: ignore[attr-defined]
    seen: list[int] = []
    asked[-1].call.on_done = lambda _: seen.append(len(world.channel.messages))  # type: ignore[attr-defined]
    world.settle()
    assert names(world) == [calls, 1]
    assert follow_up[0].answer.producer_id
    assert seen == [2], "what followed from the first answer was under way when the last was reported"


def test_answers_that_came_are_reported_though_the_stream_broke_meanwhile(world: SessionWorld) -> None:
    asked = [Asked(world) for _ in range(2 * ANSWERS_PER_TURN)]
    asked[0].call.on_done = lambda _: world.channel.streams[0].end()  # type: ignore[attr-defined]
    world.settle()
    assert all(each.answer.producer_id for each in asked[1:])


class _Ordered(list[Any]):
    """Answers that note when they came."""

    def __init__(self, order: list[int], number: int) -> None:
        super().__init__()
        self._order, self._number = order, number

    def append(self, answer: Any) -> None:
        self._order.append(self._number)
        super().append(answer)


def test_no_more_is_under_way_than_the_server_wants(world: SessionWorld) -> None:
    world.channel.limits.calls_in_flight_max = 2
    asked = [Asked(world) for _ in range(5)]
    world.settle()
    assert names(world) == [2, 2, 1]
    assert all(each.answer.producer_id for each in asked)


def test_a_full_window_holds_the_next_message_back_until_an_answer_comes(world: SessionWorld) -> None:
    world.channel.limits.calls_in_flight_max = 1
    world.channel.foresee(Weather.SILENT)
    first, second = Asked(world, timeout_ms=5_000), Asked(world, timeout_ms=60_000)
    world.pause(4_000)
    assert names(world) == [1]
    assert (first.answers, second.answers) == ([], [])
    world.pause(1_000 + LOOK_MS)
    assert first.answer.status == "DEADLINE_EXCEEDED"
    assert second.answer.producer_id
    assert world.channel.cancels == [1]


def test_a_message_grows_no_larger_than_the_server_takes(world: SessionWorld) -> None:
    world.channel.limits.message_bytes_max = 1_000
    for _ in range(7):
        Asked(world, request=INIT(transactional_id="x" * 400))
    world.settle()
    assert names(world) == [2, 2, 2, 1]
    assert max(world.channel.sizes) <= 1_000


def test_what_is_taken_back_counts_in_the_size_of_a_message(world: SessionWorld) -> None:
    world.channel.limits.message_bytes_max = 1_000
    world.channel.foresee(Weather.SILENT)
    given_up = [Asked(world, request=INIT(), timeout_ms=60_000) for _ in range(15)]
    world.settle()
    for each in given_up:
        each.call.cancel()
    Asked(world, request=INIT(transactional_id="x" * (1_000 - 64 - 3)))
    world.settle()
    assert (names(world)[-2:], len(world.channel.cancels)) == ([0, 1], 15)
    assert max(world.channel.sizes) <= 1_000


def test_what_is_too_large_for_any_message_has_a_call_of_its_own(world: SessionWorld) -> None:
    world.channel.limits.message_bytes_max = 1_000
    large, small = Asked(world, request=INIT(transactional_id="x" * 2_000)), Asked(world)
    world.settle()
    assert large.answer.producer_id
    assert small.answer.producer_id
    assert (names(world), world.channel.calls) == ([1], [Method.INIT_PRODUCER_ID])


def test_what_went_as_a_call_of_its_own_may_have_been_done_when_it_is_not_wanted_any_more(world: SessionWorld) -> None:
    world.channel.limits.message_bytes_max = 1_000
    world.server.handle(Method.INIT_PRODUCER_ID, lambda _: Held())
    large = Asked(world, request=INIT(transactional_id="x" * 2_000))
    world.settle()
    assert world.channel.calls == [Method.INIT_PRODUCER_ID]
    large.call.cancel()
    world.settle()
    assert large.answer == Loss("CANCELLED", "cancelled by the client", is_without_effect=False)


def test_a_fetch_has_a_call_of_its_own_so_that_nothing_waits_behind_it(world: SessionWorld) -> None:
    held = Held()
    world.server.handle(Method.FETCH, lambda _: held)
    fetch = Asked(world, FETCH, FETCH.request_type())
    other = Asked(world)
    world.settle()
    assert other.answer.producer_id
    assert (world.channel.calls, fetch.answers) == ([Method.FETCH], [])
    held.give(FETCH.parse(b""))
    world.settle()
    assert fetch.answer == FETCH.parse(b"")
    Asked(world, FETCH, FETCH.request_type()).call.cancel()


def test_what_is_not_wanted_any_more_is_taken_back(world: SessionWorld) -> None:
    kept, unsent = Asked(world), Asked(world)
    unsent.call.cancel()
    world.settle()
    assert names(world) == [1]
    assert unsent.answer.is_without_effect
    assert kept.answer.producer_id
    world.channel.foresee(Weather.SILENT)
    sent = Asked(world)
    world.pause(10)
    sent.call.cancel()
    world.settle()
    assert sent.answer == Loss("CANCELLED", "cancelled by the client")
    assert world.channel.cancels == [2]


@pytest.mark.parametrize("weather", [Weather.LOST_MESSAGE, Weather.HALF, Weather.LOST_ANSWERS, Weather.LATE])
def test_a_broken_stream_tells_what_was_sent_from_what_was_not(world: SessionWorld, weather: Weather) -> None:
    world.channel.limits.calls_in_flight_max = 2
    world.channel.foresee(weather)
    asked = [Asked(world) for _ in range(3)]
    world.settle()
    assert [each.answer.status for each in asked] == ["UNAVAILABLE"] * 3
    assert [each.answer.is_without_effect for each in asked] == [False, False, True]
    again = Asked(world)
    world.settle()
    assert again.answer.producer_id
    assert len(world.channel.streams) == 2


def test_an_answer_that_comes_after_its_stream_broke_changes_nothing(world: SessionWorld) -> None:
    asked = Asked(world)
    world.pause(2)
    (stream,) = world.channel.streams
    assert names(world) == [1]
    stream.end()
    stream.is_open = True
    world.settle()
    assert asked.answer.status == "UNAVAILABLE"


def test_how_a_stream_ends_says_nothing_about_what_it_carried(world: SessionWorld) -> None:
    asked = Asked(world)
    world.pause(2)
    world.channel.streams[0].end(Loss("INVALID_ARGUMENT", "correlation id 1 belongs to another"))
    assert asked.answer.status == "UNAVAILABLE"
    assert "correlation id 1" in asked.answer.detail


def test_a_caller_who_is_not_let_in_is_told_so(world: SessionWorld) -> None:
    world.channel.refusal = Loss("UNAUTHENTICATED", "who are you?")
    with pytest.raises(Misconfigured, match="who are you"):
        producer_in(world).init()


def test_a_status_in_place_of_an_answer_is_a_loss(world: SessionWorld) -> None:
    world.server.handle(Method.INIT_PRODUCER_ID, lambda _: Loss("INTERNAL", "a defect"))
    asked = Asked(world)
    world.settle()
    assert asked.answer == Loss("INTERNAL", "a defect")


def test_an_answer_that_cannot_be_read_is_a_loss(world: SessionWorld) -> None:
    world.channel.foresee(Weather.SILENT)
    asked = Asked(world)
    world.pause(2)
    world.channel.streams[0].say(answers=[session_pb2.SessionAnswer(correlation_id=1, body=b"\xff\xff")])
    world.settle()
    assert asked.answer.status == "INTERNAL"


def test_a_session_that_is_ending_answers_what_it_has_and_what_begins_goes_over_the_next_one(
    world: SessionWorld,
) -> None:
    held = Held()
    world.server.handle(Method.OFFSET_COMMIT, lambda _: held)
    waiting = Asked(world, OFFSET_COMMIT, group.OffsetCommitRequest(group_id="g"))
    world.pause(5)
    world.channel.streams[0].say(is_draining=True)
    world.pause(5)
    after = Asked(world)
    world.pause(5)
    assert after.answer.producer_id
    assert (len(world.channel.streams), waiting.answers) == (2, [])
    first, second = world.channel.streams
    answer = session_pb2.SessionAnswer(correlation_id=1, body=group.OffsetCommitResponse().SerializeToString())
    first.say(answers=[answer])
    world.pause(5)
    assert waiting.answer == group.OffsetCommitResponse()
    first.end(SESSION_ENDED)
    assert Asked(world).answers == []
    world.pause(5)
    assert [first.is_open, second.is_open, len(world.channel.streams)] == [False, True, 2]


def test_what_was_not_sent_yet_when_a_session_ends_had_no_effect(world: SessionWorld) -> None:
    world.channel.limits.calls_in_flight_max = 1
    world.channel.foresee(Weather.SILENT)
    sent, unsent = Asked(world), Asked(world)
    world.pause(2)
    world.channel.streams[0].say(is_draining=True)
    world.pause(2)
    assert (sent.answers, unsent.answer) == ([], DRAINING)


def test_calls_on_a_session_that_is_ending_may_be_given_up_or_come_too_late(world: SessionWorld) -> None:
    world.channel.foresee(Weather.SILENT)
    given_up, late = Asked(world), Asked(world, timeout_ms=5_000)
    world.pause(2)
    world.channel.streams[0].say(is_draining=True)
    world.pause(2)
    world.channel.foresee(Weather.SILENT)
    other = Asked(world, timeout_ms=60_000)
    world.pause(2)
    given_up.call.cancel()
    world.pause(5_000 + LOOK_MS)
    assert (given_up.answer.status, late.answer.status, other.answers) == ("CANCELLED", "DEADLINE_EXCEEDED", [])
    assert world.channel.cancels == [1, 2]
    assert not any(each.answer.is_without_effect for each in (given_up, late))


def test_what_the_server_did_not_answer_when_it_ended_a_session_well_had_no_effect(world: SessionWorld) -> None:
    world.channel.foresee(Weather.SILENT)
    asked = Asked(world)
    world.pause(2)
    world.channel.streams[0].end(SESSION_ENDED)
    assert (asked.answer.status, asked.answer.is_without_effect) == ("UNAVAILABLE", True)


def test_a_closed_session_reports_what_waits_on_the_one_before(world: SessionWorld) -> None:
    world.channel.foresee(Weather.SILENT)
    asked = Asked(world)
    world.pause(2)
    world.channel.streams[0].say(is_draining=True)
    world.pause(5)
    world.session.close()
    world.settle()
    assert "the connection was closed" in asked.answer.detail
    assert [stream.is_open for stream in world.channel.streams] == [False]


def test_a_server_without_sessions_gets_a_call_for_each_request(world: SessionWorld) -> None:
    world.channel.refusal = Loss("UNIMPLEMENTED", "method not found")
    asked = [Asked(world), Asked(world)]
    world.settle()
    assert all(each.answer.producer_id for each in asked)
    assert world.session.is_unary
    with producer_in(world) as producer:
        assert commit(producer, b"x") > 0
    assert world.server.visible() == [b"x"]
    assert (len(world.channel.streams), world.channel.messages) == (1, [])


def test_a_closed_session_reports_what_waits(world: SessionWorld) -> None:
    asked = Asked(world)
    world.pause(2)
    world.session.close()
    world.settle()
    assert "the connection was closed" in asked.answer.detail
    assert world.channel.is_closed
    late = Asked(world)
    world.settle()
    assert late.answer.is_without_effect


@pytest.mark.parametrize("weather", [weather for weather in Weather if weather is not Weather.NONE])
@pytest.mark.parametrize("message", range(4))
def test_a_stream_that_breaks_in_any_call_costs_time_and_nothing_else(
    world: SessionWorld, weather: Weather, message: int
) -> None:
    """Init, produce and end; the deadline is far away."""
    world.channel.foresee(*[Weather.NONE] * message, weather)
    with producer_in(world) as producer:
        assert commit(producer, b"a", b"b") > 0
        assert commit(producer, b"c") > 0
    assert world.server.visible() == [b"a", b"b", b"c"]


@pytest.mark.parametrize("weather", [Weather.LOST_MESSAGE, Weather.LOST_ANSWERS, Weather.LATE])
def test_an_offset_commit_is_reported_lost_once(world: SessionWorld, weather: Weather) -> None:
    world.channel.foresee(weather)
    world.server.handle(Method.OFFSET_COMMIT, lambda _: group.OffsetCommitResponse())
    asked = Asked(world, OFFSET_COMMIT, group.OffsetCommitRequest(group_id="g"))
    world.settle()
    assert asked.answer == Loss("UNAVAILABLE", f"the session ended: {BROKEN}")


class SessionCluster(FakeCluster):
    """A consumer whose heartbeats and commits go over a session."""

    def __init__(self) -> None:
        super().__init__(SessionWorld())

    @property
    def channel(self) -> FakeChannel:
        assert isinstance(self.world, SessionWorld)
        return self.world.channel


@pytest.mark.parametrize("weather", list(Weather))
@pytest.mark.parametrize("message", range(5))
def test_a_stream_that_breaks_costs_a_consumer_neither_its_place_nor_a_record(weather: Weather, message: int) -> None:
    cluster = SessionCluster()
    cluster.topic.append(0, b"a", b"b")
    cluster.group.give(0)
    cluster.channel.foresee(*[Weather.NONE] * message, weather)
    consumer = cluster.member(enable_auto_commit=False)
    assert values(consumer.poll(timeout_ms=100_000)) == [b"a", b"b"]
    consumer.commit()
    assert cluster.group.offsets == {T0: 2}
    consumer.close()
    assert {name for sent in cluster.channel.messages for name in sent} >= {"ConsumerGroupHeartbeat", "OffsetCommit"}
    assert set(cluster.channel.calls) == {"Fetch"}


def test_producers_of_one_process_share_one_stream(world: SessionWorld) -> None:
    connection = world.connection()
    with Producer(connection, transactional_id="p") as one, Producer(connection, transactional_id="q") as two:
        commit(one, b"1")
        commit(two, b"2")
    assert sorted(filter(None, world.server.visible())) == [b"1", b"2"]
    assert len(world.channel.streams) == 1
    assert world.methods().count(Method.TRANSACT) == 2


def test_a_transport_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Misconfigured, match="transport is 'pigeon' and must be one of session, grpc_session, unary"):
        Connection("h:1", transport="pigeon")
