"""The loop thread that blocking consumers share, for real."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from coordinator_client.loops import THREAD_NAME, BackgroundLoop, background_loop
from tests.harness.garbage import nothing_left_to_the_collector


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


def test_calls_run_in_order_in_a_thread_of_that_name() -> None:
    inbox: SimpleQueue[object] = SimpleQueue()
    loop = BackgroundLoop()
    for number in range(3):
        loop.call_soon(lambda number=number: inbox.put(number))
    loop.call_soon(lambda: inbox.put(threading.current_thread().name))
    assert [inbox.get() for _ in range(4)] == [0, 1, 2, THREAD_NAME]
    loop.stop()


def test_timers_run_at_their_time_unless_they_are_cancelled() -> None:
    inbox: SimpleQueue[str] = SimpleQueue()
    loop = BackgroundLoop()
    loop.call_after(20, lambda: inbox.put("second"))
    loop.call_after(1, lambda: inbox.put("cancelled")).cancel()
    loop.call_after(10, lambda: inbox.put("first"))
    assert [inbox.get() for _ in range(2)] == ["first", "second"]
    loop.stop()


def test_there_is_one_as_long_as_it_is_used() -> None:
    one, two = background_loop(), background_loop()
    assert one is two
    (thread,) = threads()
    one.release()
    assert background_loop() is one
    one.release()
    one.release()
    thread.join()
    assert one.is_over
    three = background_loop()
    assert three is not one
    one.release()
    assert not three.is_over
    three.release()


def test_a_loop_that_has_ended_hears_of_what_was_cancelled_late() -> None:
    ended = background_loop()
    assert isinstance(ended, BackgroundLoop)
    ended.release()
    ended.asyncio_loop.call_soon_threadsafe(print)
    after = background_loop()
    after.release()
    assert ended.asyncio_loop.is_closed(), "and holds nothing of the system for ever"


def test_a_loop_that_has_ended_leaves_nothing_to_the_collector() -> None:
    with nothing_left_to_the_collector():
        loop = BackgroundLoop()
        loop.stop()
        del loop
