"""The way in: connections are accepted, get a place, and make their TLS handshake.

Places are bounded, and taken before the handshake. So a silent peer holds no more than a place, for a short time.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from coordinator_server.kafka_front.abuses import Abuses
from coordinator_server.kafka_front.connection import KafkaConnection

HANDSHAKE_SECONDS_MAX: Final = 10.0
"""Time for the TLS handshake of a new connection."""
ACCEPT_PAUSE_SECONDS: Final = 0.1
"""Pause after the system gave no connection, usually because too many files are open."""


class Entrance:
    """Accepts the connections of one address, until it is closed. On the loop only."""

    def __init__(
        self,
        plug: socket.socket,
        context: ssl.SSLContext | None,
        connect: Callable[[str], KafkaConnection],
        abuses: Abuses,
    ) -> None:
        """Set up the entrance. `connect` makes the connection of a host."""
        self._plug = plug
        self._context = context
        self._handshake_seconds_max = None if context is None else HANDSHAKE_SECONDS_MAX
        self._connect = connect
        self._abuses = abuses
        self._accepting: asyncio.Task[None] | None = None
        self._entering: set[asyncio.Task[None]] = set()

    def open(self, backlog: int) -> None:
        """Accept connections from now on."""
        self._plug.setblocking(False)
        self._plug.listen(backlog)
        self._accepting = asyncio.get_running_loop().create_task(self._accept_all())

    def close(self) -> None:
        """Accept no more. Handshakes that have begun end by themselves, or with their connections."""
        if self._accepting is not None:
            self._accepting.cancel()

    async def _accept_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, address = await loop.sock_accept(self._plug)
                except OSError as error:
                    self._abuses.count("not_taken", "", str(error))
                    await _pause()
                    continue
                self._enter(accepted, str(address[0]))
        finally:
            self._plug.close()

    def _enter(self, accepted: socket.socket, host: str) -> None:
        connection = self._connect(host)
        if not connection.enter():
            # Closed at once: a peer that waited in the system's queue would not learn of it.
            accepted.close()
            return
        task = asyncio.get_running_loop().create_task(self._shake_hands(accepted, connection))
        connection.before_it_is_made(partial(_hang_up, accepted))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    async def _shake_hands(self, accepted: socket.socket, connection: KafkaConnection) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_seconds_max,
            )
        except OSError as error:
            connection.never_made(str(error))


def _hang_up(accepted: socket.socket) -> None:
    """End a handshake as its peer would. A task that is cancelled does not close the connection in every loop."""
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)


async def _pause() -> None:
    over = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(ACCEPT_PAUSE_SECONDS, over.set_result, None)
    await over
