"""Request handlers that write transactions: a FastAPI application with a pool of producers.

    pip install fastapi uvicorn
    .venv/bin/txnctl dev                                                      in one terminal
    .venv/bin/uvicorn --factory examples.request_handlers:application         in another
    curl -X POST 'http://127.0.0.1:8000/transfers?source=alice&target=bob&amount=30'

A producer has one transaction at a time, and so a request that came while another one is being served would wait. A
pool has several producers, each with a transactional id of its own that stays the same over restarts. Run each process
with another TXN_SLOT: two processes with the same ids fence each other.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Self

from coordinator_client import (
    Abortable,
    AsyncAdmin,
    AsyncProducer,
    AsyncTransaction,
    Connection,
    OutcomeUnknown,
    Recoverable,
    Retriable,
    stable_id,
)

TOPIC: Final = "transfers"
PRODUCERS: Final = 8
"""Number of transactions at once; requests beyond it wait for a free producer."""


class ProducerPool:
    """Producers that wait for work. All share one session with the server."""

    def __init__(self, connection: Connection, app: str, size: int) -> None:
        self._producers = [
            AsyncProducer(connection, transactional_id=stable_id(app, process=number)) for number in range(size)
        ]
        self._free: asyncio.LifoQueue[AsyncProducer] = asyncio.LifoQueue()
        for producer in self._producers:
            self._free.put_nowait(producer)

    async def __aenter__(self) -> Self:
        # Fences the previous process of this slot now, and not at the first request.
        await asyncio.gather(*[producer.init() for producer in self._producers])
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*[producer.close() for producer in self._producers])

    @asynccontextmanager
    async def one(self) -> AsyncIterator[AsyncProducer]:
        """Lend a producer for the time of a block."""
        producer = await self._free.get()
        try:
            yield producer
        finally:
            self._free.put_nowait(producer)


def application(endpoint: str | None = None) -> Any:  # noqa: ANN401  FastAPI is needed only here
    """Return the application, with its pool opened at the start and closed at the end."""
    from fastapi import FastAPI, HTTPException

    server = endpoint or os.environ.get("TXNCTL_SERVER", "127.0.0.1:7070")
    pool: ProducerPool

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        nonlocal pool
        async with AsyncExitStack() as stack:
            connection = stack.enter_context(Connection(server))
            await AsyncAdmin(connection).create_topic(TOPIC, 2, is_existing_ok=True)
            pool = await stack.enter_async_context(ProducerPool(connection, "transfers-api", PRODUCERS))
            yield

    app = FastAPI(lifespan=lifespan)

    async def transfer(source: str, target: str, amount: int) -> dict[str, int | None]:
        async def book(txn: AsyncTransaction) -> list[int | None]:
            sent = [
                await txn.send(TOPIC, b"%d" % -amount, key=source.encode()),
                await txn.send(TOPIC, b"%d" % amount, key=target.encode()),
            ]
            await txn.flush()
            return [each.offset for each in sent]

        async with pool.one() as producer:
            try:
                out, into = await producer.run(book)
            except (Abortable, Recoverable, Retriable) as error:
                raise HTTPException(503, f"nothing was booked; try again: {error.reason}") from error
            except OutcomeUnknown as error:
                raise HTTPException(504, f"it is not known if this was booked: {error.reason}") from error
        return {"out": out, "into": into}

    app.add_api_route("/transfers", transfer, methods=["POST"])
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Request handlers that write transactions, with FastAPI.")
    parser.add_argument("endpoint", nargs="?", default="127.0.0.1:7070", metavar="HOST:PORT")
    parser.add_argument("--port", type=int, default=8000, metavar="PORT", help="port to listen on (default: 8000)")
    chosen = parser.parse_args()
    import uvicorn

    uvicorn.run(application(chosen.endpoint), port=chosen.port)
