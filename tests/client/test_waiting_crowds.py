"""A crowd of producers on one connection whose principal has a rate: few calls are refused, and the rate is used."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from coordinator_api.v1 import transaction_pb2
from coordinator_client.calls import TRANSACT, Deadlines, RetryingCall
from coordinator_client.flights import Flights
from coordinator_client.throttle import Throttle
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_protocol.throttling import PAUSE_MS_MAX
from coordinator_server.traffic.quotas.bucket import full, pause_us, taken

THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


@dataclass
class Server:
    """Serves as `Metering` does: a caller without debt, at any cost of its call."""

    rate: int
    size: int
    served: int = 0
    refused: int = 0

    def __post_init__(self) -> None:
        self.bucket = full(self.rate, 0)

    def answers(self, calls: int, now_ms: int) -> list[transaction_pb2.TransactResponse]:
        """The answers to calls that come in one message."""
        now_us = now_ms * 1_000
        if pause_us(self.bucket, now_us):
            self.refused += calls
            pause_ms = self.pause_ms(now_us)
            return [transaction_pb2.TransactResponse(error_code=THROTTLED, throttle_ms=pause_ms)] * calls
        self.served += calls
        self.bucket = taken(self.bucket, self.size * calls, now_us)
        return [transaction_pb2.TransactResponse(throttle_ms=self.pause_ms(now_us))] * calls

    def pause_ms(self, now_us: int) -> int:
        return min(-(-pause_us(self.bucket, now_us) // 1_000), PAUSE_MS_MAX)


class Crowd:
    """Producers that begin a transaction as soon as the one before is answered."""

    def __init__(self, size: int, throttle: Throttle, *, are_one_message: bool = False) -> None:
        self._random = random.Random(1)
        self._are_one_message = are_one_message
        self._producers = [Flights(self) for _ in range(size)]
        self.waits_ms: list[int] = []
        for producer in self._producers:
            producer.throttle = throttle

    def request_id(self) -> bytes:
        return self._random.randbytes(16)

    def fraction(self) -> float:
        return self._random.random()

    def run(self, server: Server, ms: range) -> None:
        """A request is a millisecond on its way, and so is an answer."""
        for producer in self._producers:
            if not producer:
                self._begin(producer, ms.start)
        on_the_way: list[tuple[int, Flights, int, int, transaction_pb2.TransactResponse]] = []
        for now_ms in ms:
            while on_the_way and on_the_way[0][0] <= now_ms:
                _, producer, *answered = on_the_way.pop(0)
                producer.on_answer(*answered, now_ms)
            sent = [(each, sent) for each in self._producers for sent in each.transmissions(now_ms)]
            messages = [sent] if self._are_one_message else [[each] for each in sent]
            for message in messages:
                answers = server.answers(len(message), now_ms + 1)
                for (producer, call), answer in zip(message, answers, strict=True):
                    on_the_way.append((now_ms + 2, producer, call.flight, call.attempt, answer))

    def _begin(self, producer: Flights, begun_ms: int) -> None:
        def ended(end: object, now_ms: int) -> None:
            assert isinstance(end, transaction_pb2.TransactResponse), "a pause is no failure"
            self.waits_ms.append(now_ms - begun_ms)
            self._begin(producer, now_ms)

        request, deadlines = transaction_pb2.TransactRequest(), Deadlines(total_ms=120_000)
        producer.start(RetryingCall(TRANSACT, request, deadlines=deadlines, now_ms=begun_ms), ended)


SECONDS = 4
SIZE = 1_100


def crowd_at(server: Server, producers: int, *, are_one_message: bool = False, seconds: int = SECONDS) -> Crowd:
    crowd = Crowd(producers, Throttle("fake:1"), are_one_message=are_one_message)
    crowd.run(server, range(seconds * 1_000))
    return crowd


@pytest.mark.parametrize("are_one_message", [False, True], ids=["one_by_one", "in_one_message"])
@pytest.mark.parametrize(
    ("rate", "refused_max"), [(100_000, 0.2), (1_000_000, 0.4), (20_000_000, 0.2)], ids=["low", "middle", "high"]
)
def test_a_crowd_uses_its_rate_and_is_hardly_refused(rate: int, refused_max: float, are_one_message: bool) -> None:
    """With all going on at the end of a pause, 806 of 898 calls at the low rate were refused, and 1,329 of 2,249
    at the middle one. The higher rates leave less time between two calls than an answer needs."""
    server = Server(rate, SIZE)
    crowd = crowd_at(server, 64, are_one_message=are_one_message)
    asked = server.served + server.refused
    assert server.served >= 0.95 * rate * SECONDS / SIZE
    assert server.refused <= refused_max * asked, f"{server.refused} of {asked}"
    fair_ms = 64 * SIZE * 1_000 / rate
    assert max(crowd.waits_ms) <= 2 * fair_ms + 500, "no caller is passed over for long"


def test_a_crowd_that_is_known_is_refused_nothing_more() -> None:
    server = Server(100_000, SIZE)
    crowd = crowd_at(server, 64)
    server.refused = 0
    crowd.run(server, range(SECONDS * 1_000, 3 * SECONDS * 1_000))
    assert server.refused == 0


@pytest.mark.parametrize("size", [500, 1_100, 50_000])
def test_who_is_alone_waits_for_the_pause_and_no_longer(size: int) -> None:
    server = Server(100_000, size)
    crowd = crowd_at(server, 1, seconds=10)
    assert server.refused == 0
    assert server.served >= 10 * 100_000 / size
    assert max(crowd.waits_ms) <= size // 100 + 3


def throttled(pause_ms: int, now_ms: int, *, served: int = 1) -> Throttle:
    """Return one on which each call was asked to wait for as long as the others."""
    throttle = Throttle("fake:1")
    for number in range(served):
        throttle.note(Method.TRANSACT, (number + 1) * pause_ms, now_ms, is_refused=False)
    return throttle


def call_at(now_ms: int) -> RetryingCall[Any, Any]:
    return RetryingCall(
        TRANSACT, transaction_pb2.TransactRequest(), deadlines=Deadlines(total_ms=120_000), now_ms=now_ms
    )


def held(throttle: Throttle, calls: Sequence[RetryingCall[Any, Any]], now_ms: int) -> list[int | None]:
    for call in calls:
        throttle.hold(call, now_ms)
    return [call.due_ms for call in calls]


def test_calls_that_wait_go_one_after_the_other() -> None:
    throttle = throttled(100, 0, served=4)
    assert held(throttle, [call_at(0) for _ in range(4)], 0) == [400, 500, 600, 700]


def test_a_pause_that_comes_meanwhile_puts_all_off_and_keeps_their_order() -> None:
    throttle = throttled(100, 0)
    calls = [call_at(0) for _ in range(3)]
    assert held(throttle, calls, 0) == [100, 200, 300]
    calls[0].begin_attempt(100)
    throttle.note(Method.TRANSACT, 1_000, 150, is_refused=False)
    gap_ms = 100
    assert held(throttle, calls[1:2], 200) == [1_150]
    assert held(throttle, calls[2:], 300) == [1_150 + gap_ms]
    late = call_at(310)
    (due_ms,) = held(throttle, [late], 310)
    assert due_ms is not None
    assert due_ms > 1_150 + gap_ms, "who comes last goes last"


def test_no_slot_is_later_than_the_longest_pause() -> None:
    throttle = throttled(PAUSE_MS_MAX // 2, 0)
    dues_ms = held(throttle, [call_at(0) for _ in range(5)], 0)
    assert dues_ms == [PAUSE_MS_MAX // 2] + [PAUSE_MS_MAX] * 4


def test_once_all_have_gone_a_call_goes_at_once() -> None:
    throttle = throttled(100, 0)
    calls = [call_at(0) for _ in range(2)]
    assert held(throttle, calls, 0) == [100, 200]
    assert held(throttle, [call_at(150)], 150) == [300], "while one waits, it waits behind"
    assert held(throttle, [call_at(301)], 301) == [301]


def test_what_a_call_costs_leaves_out_the_time_without_calls() -> None:
    throttle = throttled(100, 0)
    throttle.note(Method.TRANSACT, 100, 60_000, is_refused=False)
    throttle.note(Method.TRANSACT, 100, 120_000, is_refused=False)
    assert held(throttle, [call_at(120_000) for _ in range(2)], 120_000) == [120_100, 120_200]


def test_a_call_that_is_repeated_goes_behind_those_that_wait() -> None:
    throttle = throttled(100, 0)
    calls = [call_at(0) for _ in range(2)]
    assert held(throttle, calls, 0) == [100, 200]
    calls[0].begin_attempt(100)
    refused = transaction_pb2.TransactResponse(error_code=THROTTLED)
    assert calls[0].on_answer(refused, now_ms=101, jitter=1.0) is None
    assert held(throttle, calls[:1], 110) == [300]


def test_an_answer_with_an_earlier_end_takes_nothing_from_what_calls_cost() -> None:
    throttle = throttled(100, 0)
    throttle.note(Method.TRANSACT, 50, 20, is_refused=False)
    assert throttle.until_ms(Method.TRANSACT) == 100
    assert held(throttle, [call_at(20) for _ in range(2)], 20) == [100, 150]


def test_the_time_in_which_calls_waited_for_their_slots_is_what_calls_cost() -> None:
    throttle = throttled(100, 0)
    assert held(throttle, [call_at(0) for _ in range(2)], 0) == [100, 200]
    throttle.note(Method.TRANSACT, 100, 250, is_refused=False)
    assert held(throttle, [call_at(250) for _ in range(2)], 250) == [350, 500]


def test_what_was_late_once_is_not_late_for_ever() -> None:
    throttle = throttled(100, 0)
    calls = [call_at(0) for _ in range(2)]
    held(throttle, calls, 0)
    throttle.note(Method.TRANSACT, 1_000, 150, is_refused=False)
    assert held(throttle, calls[1:], 200) == [1_150]
    throttle.note(Method.TRANSACT, 100, 10_000, is_refused=False)
    assert held(throttle, [call_at(10_000)], 10_000) == [10_100]


def test_a_slot_is_late_only_once_it_has_come() -> None:
    throttle = throttled(100, 0)
    first = call_at(0)
    assert held(throttle, [first], 0) == [100]
    throttle.note(Method.TRANSACT, 1_000, 50, is_refused=False)
    second = call_at(60)
    assert held(throttle, [second], 60) == [100 + (100 + 950) // 2]
    assert held(throttle, [first], 100) == [1_050]


def test_no_slot_that_is_late_is_later_than_the_longest_pause() -> None:
    half_ms = PAUSE_MS_MAX // 2
    throttle = throttled(half_ms, 0)
    calls = [call_at(0) for _ in range(2)]
    assert held(throttle, calls, 0) == [half_ms, PAUSE_MS_MAX]
    throttle.note(Method.TRANSACT, half_ms // 2, half_ms - 1, is_refused=False)
    held(throttle, calls[:1], half_ms)
    assert held(throttle, [call_at(half_ms)], half_ms) == [half_ms + PAUSE_MS_MAX]
