"""A reply is settled once, passes through maps and steps, and can be given up."""

from __future__ import annotations

import asyncio
from typing import Never

import pytest

from coordinator_protocol.errors import ErrorCode, Refused, UnknownOutcome
from coordinator_runtime.pending import Pending, all_of, failed, settled
from tests.harness.garbage import nothing_left_to_the_collector


class Broken(Exception):
    pass


def broken(_value: object) -> Never:
    raise Broken


def refused(_value: object) -> Never:
    raise Refused(ErrorCode.INVALID_REQUEST, "")


def test_the_first_settling_counts() -> None:
    reply: Pending[int] = Pending()
    reply.succeed(1)
    reply.succeed(2)
    reply.fail(Broken())
    assert reply.result() == 1


def test_callbacks_are_called_once_and_at_once_when_the_reply_is_there() -> None:
    calls: list[int] = []
    reply: Pending[int] = Pending()
    reply.on_settled(lambda done: calls.append(done.result()))
    reply.succeed(1)
    reply.succeed(2)
    reply.on_settled(lambda done: calls.append(done.result() + 10))
    assert calls == [1, 11]


def test_map_transforms_the_value_and_lets_errors_pass() -> None:
    assert settled(2).map(lambda value: value * 3).result() == 6
    with pytest.raises(Broken):
        failed(Broken()).map(lambda value: value).result()
    with pytest.raises(Broken):
        settled(2).map(broken).result()


def test_then_goes_on_with_another_reply() -> None:
    second: Pending[int] = Pending()
    both = settled(1).then(lambda _one: second)
    assert not both.is_settled
    second.succeed(2)
    assert both.result() == 2
    with pytest.raises(Broken):
        settled(1).then(broken).result()
    with pytest.raises(Broken):
        settled(1).then(lambda _one: failed(Broken())).result()


def test_recover_turns_an_error_into_a_value() -> None:
    assert failed(Broken()).recover(lambda _error: 7).result() == 7
    assert settled(1).recover(lambda _error: 7).result() == 1
    with pytest.raises(Broken):
        failed(KeyError()).recover(broken).result()


def test_cancel_reaches_the_reply_under_way() -> None:
    cancelled: list[str] = []
    first: Pending[int] = Pending()
    second: Pending[int] = Pending()
    first.on_cancel = lambda: cancelled.append("first")
    second.on_cancel = lambda: cancelled.append("second")
    chain = first.then(lambda _one: second).map(lambda value: value).recover(lambda _error: 0)
    first.succeed(1)
    chain.cancel()
    chain.cancel()
    assert cancelled == ["second"]


def test_a_caller_that_gave_up_starts_no_further_step() -> None:
    first: Pending[int] = Pending()
    started: list[int] = []

    def start(value: int) -> Pending[int]:
        started.append(value)
        return settled(value)

    chain = first.then(start)
    chain.cancel()
    first.succeed(1)
    assert started == []
    with pytest.raises(UnknownOutcome):
        chain.result()


def test_an_answer_is_completed_for_a_caller_that_gave_up() -> None:
    first: Pending[int] = Pending()
    chain = first.then(lambda value: settled(value + 1), outlives_caller=True)
    chain.cancel()
    first.succeed(1)
    assert chain.result() == 2


def test_a_settled_reply_cannot_be_given_up() -> None:
    cancelled: list[str] = []
    reply: Pending[int] = Pending()
    reply.on_cancel = lambda: cancelled.append("reply")
    reply.succeed(1)
    reply.cancel()
    assert cancelled == []
    assert not reply.is_cancelled


def test_what_a_caller_that_left_gave_up_is_settled() -> None:
    reply: Pending[int] = Pending()
    reply.on_cancel = reply.give_up
    chain = reply.map(lambda value: value)
    chain.cancel()
    with pytest.raises(Refused, match="gave up"):
        chain.result()


def test_a_settled_reply_leaves_nothing_to_the_collector() -> None:
    """Work left for a caller that leaves leads back to the reply, and so do the frames of a refusal."""
    with nothing_left_to_the_collector():
        for error in (None, Refused(ErrorCode.INVALID_REQUEST, "")):
            reply: Pending[int] = Pending()
            reply.on_cancel = lambda kept=reply: kept.give_up()
            chain = reply.map(refused).then(settled)
            if error is None:
                reply.succeed(1)
            else:
                reply.fail(error)
            assert isinstance(chain.error, Refused)
        del reply, chain, error


def test_what_is_dropped_has_its_answer_and_starts_no_further_step() -> None:
    steps: list[int] = []
    first: Pending[int] = Pending()
    dropped: list[str] = []
    first.on_cancel = lambda: dropped.append("first")

    def second(value: int) -> Pending[int]:
        steps.append(value)
        return settled(value)

    both = first.then(second).map(lambda value: value)
    both.drop(Broken())
    both.drop(Broken())
    with pytest.raises(Broken):
        both.result()
    first.succeed(1)
    assert (steps, dropped) == ([], ["first"])


def test_all_of_waits_for_everyone_and_answers_in_order() -> None:
    parts: list[Pending[int]] = [Pending(), Pending(), Pending()]
    together = all_of(parts)
    parts[2].succeed(3)
    parts[0].succeed(1)
    assert not together.is_settled
    parts[1].succeed(2)
    assert together.result() == [1, 2, 3]
    assert all_of([]).result() == []


def test_all_of_answers_the_first_error_once_everyone_is_through() -> None:
    parts: list[Pending[int]] = [Pending(), Pending()]
    together = all_of(parts)
    parts[1].fail(Broken())
    assert not together.is_settled
    parts[0].succeed(1)
    with pytest.raises(Broken):
        together.result()


def test_all_of_gives_everyone_up() -> None:
    cancelled: list[int] = []
    parts: list[Pending[int]] = [Pending(), Pending()]
    for number, part in enumerate(parts):
        part.on_cancel = lambda number=number: cancelled.append(number)  # type: ignore[misc]
    all_of(parts).cancel()
    assert cancelled == [0, 1]


async def test_a_reply_can_be_awaited() -> None:
    assert await settled(1) == 1
    later: Pending[int] = Pending()
    asyncio.get_running_loop().call_soon(later.succeed, 2)
    assert await later == 2
    with pytest.raises(Broken):
        await failed(Broken())


async def test_a_cancelled_task_gives_its_reply_up() -> None:
    reply: Pending[int] = Pending()
    given_up: list[bool] = []
    reply.on_cancel = lambda: given_up.append(True)

    async def wait() -> int:
        return await reply

    task = asyncio.get_running_loop().create_task(wait())
    asyncio.get_running_loop().call_soon(task.cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert given_up == [True]
    reply.succeed(1)  # Late, and without effect.
