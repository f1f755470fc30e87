"""Form of a growth."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.load.asking import SessionAsker
from bench.load.stubs import open_channel

AT_ONCE: Final = 256
"""Number of requests under way together."""


class NoRoom(Exception):
    """The machine has no room for the next point. The message says of what."""


@dataclass(frozen=True, slots=True)
class Place:
    """Server that is grown."""

    endpoint: str
    directory: Path
    """Directory on the disk that the server writes to."""
    process_id: int = 0
    kafka: str = ""
    """Address for Kafka's clients; empty if the growth does not ask for it (`Growth.settings`)."""


class Growth(ABC):
    """Work that a server is given. One object grows one server, from nothing on."""

    settings: Sequence[str] = ()
    """Settings of the server, as `name=value`."""

    @abstractmethod
    async def grow(self, place: Place, have: int, to: int) -> None:
        """Give the server the work from one amount to the next; it may have been started anew in between. Raises:
        NoRoom, LoadFailed, Refusal."""

    async def close(self) -> None:
        """Let go of what is held."""
        return


async def ask_all(endpoint: str, requests: Iterable[tuple[str, bytes]], on_answer: Callable[[bytes], object]) -> None:
    """Send requests (method, body) over a session of its own, many at a time, and pass on the answers in order."""
    async with open_channel(endpoint) as channel:
        asker = SessionAsker(channel)
        waiting: list[Awaitable[bytes]] = []
        for method, body in requests:
            waiting.append(asker.ask(method, body))
            if len(waiting) == AT_ONCE:
                await _pass_on(waiting, on_answer)
        await _pass_on(waiting, on_answer)
        await asker.close()


async def _pass_on(waiting: list[Awaitable[bytes]], on_answer: Callable[[bytes], object]) -> None:
    for answer in await asyncio.gather(*waiting):
        on_answer(answer)
    waiting.clear()
