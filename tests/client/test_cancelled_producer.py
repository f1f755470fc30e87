"""A task that uses an asyncio producer is cancelled at any of its waits: its last report agrees with the log."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from coordinator_client import AsyncProducer, OutcomeUnknown, Rejected, TransactionError
from coordinator_client.producer.async_producer import AsyncPreparedTransaction
from coordinator_protocol.methods import Method
from tests.client.interruptions import Interrupter, Interruption, one_of_each
from tests.client.world import World
from tests.harness.long_cases import by_stride, some_or_all

PARTITIONS = 2
SIZE = 3_000
"""Two records of this size do not fit into a batch, so that sends send."""

OPTIONS: dict[str, dict[str, Any]] = {"in parts": {"transact_bytes": 0}, "whole": {}}


class Stage:
    """A world in which tasks run one turn of the loop after the other, and are cancelled at some of the turns."""

    def __init__(self, at: tuple[int, ...], options: dict[str, Any]) -> None:
        self.world = World()
        self.world.server.topics["t"] = PARTITIONS
        self.producer = AsyncProducer(
            self.world.connection(), transactional_id="p", batch_bytes=4_096, buffer_bytes=8_192, **options
        )
        self.turns = 0
        self.told: dict[bytes, bool | None] = {}
        self.values: dict[bytes, list[bytes]] = {}
        self.refusals: list[TransactionError] = []
        self.unsaid = 0
        """Commits whose outcome a cancelled task did not learn."""
        self.swallowed: list[Interruption] = []
        """Those that came in a callback, and that the loop noted."""
        self._at = at

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run one task to its end. Raises: what it ended with, CancelledError too."""
        task = asyncio.create_task(work)
        while not task.done():
            await asyncio.sleep(0)
            self.turns += 1
            if self.turns in self._at:
                task.cancel()
            elif self.turns % 3 == 0 and self.world._events:
                # A loop goes on after an exception in a callback.
                try:
                    self.world._next_event()
                except Interruption as error:
                    self.swallowed.append(error)
        await task

    async def until_done(self, work: Awaitable[bool]) -> bool:
        """Wait for a call that is not cancelled."""
        result: list[bool] = []

        async def call() -> None:
            result.append(await work)

        at, self._at = self._at, ()
        try:
            await self.run(call())
        finally:
            self._at = at
        return result[0]

    async def outcome(self) -> bool | None:
        try:
            return await self.until_done(self.producer.resolve_outcome())
        except Rejected:
            return False
        except OutcomeUnknown:
            return None

    async def transaction(self, name: bytes) -> None:
        """Run a task with one transaction, and note the outcome that it reports."""
        values = self.values[name] = [name + b"%d" % each + bytes(SIZE) for each in range(3)]

        async def work() -> None:
            async with self.producer.transaction() as txn:
                for place, value in enumerate(values):
                    await txn.send("t", value, partition=place % PARTITIONS)

        try:
            await self.run(work())
            self.told[name] = True
        except Interruption:
            self.told[name] = await self.outcome()
        except asyncio.CancelledError as error:
            self.told[name] = await self.outcome()
            has_note = any("resolve_outcome" in note for note in getattr(error, "__notes__", ()))
            self.unsaid += self.told[name] is True and not has_note
        except TransactionError as error:
            self.refusals.append(error)
            self.told[name] = False

    async def prepared(self, name: bytes) -> None:
        """A task that prepares a transaction and commits what it has in hand."""
        values = self.values[name] = [name + b"%d" % each + bytes(SIZE) for each in range(3)]
        decided: list[AsyncPreparedTransaction] = []

        async def work() -> None:
            async with self.producer.transaction() as txn:
                for place, value in enumerate(values):
                    await txn.send("t", value, partition=place % PARTITIONS)
                decided.append(await txn.prepare())
            await decided[0].commit()

        try:
            await self.run(work())
        except asyncio.CancelledError:
            if decided:
                await self.until_done(self._commit(decided[0]))
        self.told[name] = bool(decided)

    async def _commit(self, decided: AsyncPreparedTransaction) -> bool:
        # If the caller knows already that it was committed, there is nothing open any more.
        with suppress(Rejected):
            await decided.commit()
        return True

    def check(self, where: object) -> None:
        self.world.settle()
        there = self.world.server.visible()
        for name, committed in self.told.items():
            found = sorted(value for value in there if value is not None and value.startswith(name))
            wanted = sorted(self.values[name])
            if committed is None:
                assert found in ([], wanted), f"{where}: {name!r} is there in part"
            else:
                assert found == (wanted if committed else []), f"{where}: {name!r} told {committed}"


Act = Callable[[Stage, bytes], Coroutine[Any, Any, None]]


def a_run(act: Act, options: dict[str, Any], at: tuple[int, ...] = ()) -> int:
    """Do three of it with cancellations at these turns, and compare; return how many turns there were."""
    stage = Stage(at, options)

    async def play() -> None:
        for number in range(3):
            await act(stage, b"%d-" % number)
        turns = stage.turns
        stage._at = ()
        await stage.transaction(b"after-")
        assert stage.told[b"after-"], f"{at}: it does not go on: {stage.refusals}"
        stage.turns = turns
        await stage.until_done(closed(stage.producer))

    asyncio.run(play())
    assert not stage.refusals, at
    assert not stage.unsaid, at
    stage.check(at)
    return stage.turns


async def closed(producer: AsyncProducer) -> bool:
    await producer.close()
    return True


ACTS: dict[str, tuple[Act, dict[str, Any]]] = {
    "in parts": (Stage.transaction, {"transact_bytes": 0}),
    "whole": (Stage.transaction, {}),
    "prepared": (Stage.prepared, {"transact_bytes": 0, "two_phase_commit": True}),
}


@some_or_all
@pytest.mark.parametrize(("act", "options"), ACTS.values(), ids=ACTS)
def test_a_cancel_at_each_turn_leaves_told_what_is_true(
    act: Act, options: dict[str, Any], stride: int, request: pytest.FixtureRequest
) -> None:
    for at in by_stride(request.config, range(1, a_run(act, options) + 1), stride):
        a_run(act, options, (at,))


@pytest.mark.parametrize(("act", "options"), ACTS.values(), ids=ACTS)
def test_a_second_cancel_while_the_first_is_handled(act: Act, options: dict[str, Any]) -> None:
    choose = random.Random(53)
    turns = a_run(act, options)
    for _ in range(40):
        first = choose.randrange(1, turns + 1)
        a_run(act, options, (first, first + choose.randrange(1, 6)))


def an_interrupted_run(options: dict[str, Any], at: tuple[int, ...] = ()) -> Interrupter:
    """The same under a signal handler that raises at these lines, in the task or in a callback of its loop."""
    stage = Stage((), options)
    interrupter = Interrupter(at, with_events=True)

    async def play() -> None:
        with interrupter:
            for number in range(3):
                try:
                    await stage.transaction(b"%d-" % number)
                except Interruption:
                    # It came in a callback while no task waited, and out of the loop.
                    stage.told[b"%d-" % number] = await stage.outcome()
        for number in range(2):
            await stage.transaction(name := b"after%d-" % number)
            if stage.told[name]:
                break
        assert stage.told[name], f"{at} {interrupter.raised}: it does not go on: {stage.refusals}"

    asyncio.run(play())
    stage.check((at, interrupter.raised))
    return interrupter


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=way, marks=[pytest.mark.slow, pytest.mark.long] if way == "in parts" else [])
        for way, options in OPTIONS.items()
    ],
)
def test_an_exception_at_each_line_leaves_told_what_is_true(options: dict[str, Any]) -> None:
    seen = () if options == OPTIONS["in parts"] else an_interrupted_run(OPTIONS["in parts"]).places
    for at in one_of_each(an_interrupted_run(options).places, seen=set(seen)):
        an_interrupted_run(options, (at,))


# Several tasks.


def test_tasks_may_send_at_the_same_time_more_than_the_buffer_holds() -> None:
    stage = Stage((), {})
    values = [b"%d" % number + bytes(SIZE) for number in range(20)]

    async def play() -> None:
        producer = AsyncProducer(stage.world.connection(), batch_bytes=4_096, buffer_bytes=8_192)

        async def work() -> None:
            await asyncio.gather(
                *(producer.send("t", value, partition=n % PARTITIONS) for n, value in enumerate(values))
            )
            await producer.close()

        await stage.run(work())

    asyncio.run(play())
    assert sorted(stage.world.server.visible()) == sorted(values)


def test_a_call_beside_another_tasks_call_is_refused_by_name() -> None:
    stage = Stage((), {})

    async def play() -> None:
        producer = AsyncProducer(stage.world.connection())
        await stage.until_done(sent(producer))
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        for call in (producer.flush, producer.init, producer.close):
            with pytest.raises(Rejected, match="another task waits for this producer to flush"):
                await call()
        while not flushing.done():
            stage.world._next_event()
            await asyncio.sleep(0)
        await flushing
        await producer.close()

    asyncio.run(play())
    assert stage.world.server.visible() == [b"x"]


async def sent(producer: AsyncProducer) -> bool:
    await producer.send("t", b"x", partition=0)
    return True


def test_a_task_that_insists_on_a_transaction_does_not_end_that_of_another_task() -> None:
    stage = Stage((), {})

    async def play() -> None:
        producer = AsyncProducer(stage.world.connection(), transactional_id="p")
        has_begun, may_end = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with producer.transaction() as txn:
                await txn.send("t", b"x", partition=0)
                has_begun.set()
                await may_end.wait()

        working = asyncio.create_task(work())
        while not has_begun.is_set():
            await asyncio.sleep(0)
            if stage.world._events:
                stage.world._next_event()
        for _ in range(3):
            with pytest.raises(Rejected, match="a transaction is open already"):
                await producer.transaction().__aenter__()
        may_end.set()
        while not working.done():
            await asyncio.sleep(0)
            if stage.world._events:
                stage.world._next_event()
        await working
        await producer.close()

    asyncio.run(play())
    assert stage.world.server.visible() == [b"x"]


def test_sends_of_several_tasks_to_a_topic_that_is_not_there_are_all_refused() -> None:
    stage = Stage((), {})

    async def play() -> list[object]:
        producer = AsyncProducer(stage.world.connection())
        results: list[object] = []

        async def work() -> None:
            sends = (producer.send("missing", b"x", partition=0) for _ in range(4))
            results.extend(await asyncio.gather(*sends, return_exceptions=True))

        await stage.run(work())
        await stage.until_done(closed(producer))
        return results

    results = asyncio.run(play())
    assert [type(result) for result in results] == [Rejected] * 4


def test_a_partition_that_a_topic_does_not_have_is_refused_and_not_looked_for_again() -> None:
    stage = Stage((), {})

    async def play() -> None:
        producer = AsyncProducer(stage.world.connection())

        async def work() -> None:
            await producer.send("t", b"x", partition=0)
            with pytest.raises(Rejected, match="has the partitions 0 to 1, and 5 was named"):
                await producer.send("t", b"x", partition=5)

        await stage.run(work())
        await stage.until_done(closed(producer))

    asyncio.run(play())
    assert len(stage.world.requests(Method.DESCRIBE_TOPICS)) == 2
