"""Regular looks on the loop's pool, and their end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

from coordinator_server.regular_looks import RegularLooks


async def test_each_look_is_on_the_pool_and_its_result_comes_to_the_loop() -> None:
    found: asyncio.Queue[str] = asyncio.Queue()
    looks = RegularLooks(lambda: threading.current_thread().name, 0, found.put_nowait)
    looks.start()
    assert [await found.get() != threading.current_thread().name for _ in range(2)] == [True, True]
    looks.stop()


async def test_a_look_that_fails_is_reported_and_the_next_one_comes() -> None:
    loop = asyncio.get_running_loop()
    reported: list[BaseException | None] = []
    loop.set_exception_handler(lambda _loop, context: reported.append(context.get("exception")))
    answers: Iterator[OSError | str] = iter([OSError("gone"), "back"])
    found: asyncio.Future[str] = loop.create_future()

    def look() -> str:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    looks = RegularLooks(look, 0, found.set_result)
    looks.start()
    assert await found == "back"
    looks.stop()
    assert [str(error) for error in reported] == ["gone"]


async def test_none_begins_after_the_stop_even_if_one_is_under_way() -> None:
    """The loop ends its pool when the server is over, and refuses looks from then on."""
    loop = asyncio.get_running_loop()
    begun, may_end = asyncio.Event(), threading.Event()
    reported: list[object] = []
    loop.set_exception_handler(lambda _loop, context: reported.append(context))

    def look() -> None:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait()

    looks: RegularLooks[None] = RegularLooks(look, 0, reported.append)
    looks.start()
    await begun.wait()
    looks.stop()
    may_end.set()
    await loop.shutdown_default_executor()
    for _turn in range(3):
        await asyncio.sleep(0)
    looks.start()
    assert reported == []
