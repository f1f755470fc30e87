"""An in-process server on a loop in a thread of its own, for clients that block: the commands of txnctl, and the
blocking half of the SDK. Real gRPC, a store in memory, and a few milliseconds instead of a process.

with threaded_server() as address:
    Admin(address).create_topic("orders")
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import structlog

from tests.harness.in_process import in_process_server


@contextmanager
def threaded_server(**settings: object) -> Iterator[str]:
    """The address of a server that takes work until the end of the block. `settings` are those of `Config`."""
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        end = asyncio.Event()
        async with in_process_server(None, **settings) as server:
            started.set_result((str(server.address), asyncio.get_running_loop(), end))
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            # The thread that waits for the server must hear of it; later there is none any more.
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="threaded_server")
    # Its log would go to the stdout of the commands under test.
    with structlog.testing.capture_logs():
        thread.start()
        address, loop, end = started.result()
        try:
            yield address
        finally:
            loop.call_soon_threadsafe(end.set)
            thread.join()
