"""What the service manager that started this process is told: that it serves, that it stops, that it is alive.

The protocol is systemd's (sd_notify): lines of text in one datagram to a Unix socket that the environment names. It is
a few lines, so there is no library for it here. Where no service manager asks, nothing is sent.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Final, Self

import structlog

SOCKET_VARIABLE: Final = "NOTIFY_SOCKET"
WATCHDOG_VARIABLE: Final = "WATCHDOG_USEC"
WATCHDOG_PROCESS_VARIABLE: Final = "WATCHDOG_PID"

_SEND_SECONDS_MAX: Final = 1.0
"""Longest time for which a service manager that does not read may hold up the loop."""

_log = structlog.get_logger("server")


class ServiceManager:
    """The service manager that started this process. Every method may be called whether or not there is one; none of
    them raises."""

    def __init__(self, address: str, watchdog_us: int) -> None:
        """`address` is the path of a Unix socket, or @NAME for one without a file; "" if nobody asked. `watchdog_us` is
        how long the process may be silent, 0 for ever."""
        # The system's own way to name a socket without a file is a leading zero byte.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._signs_of_life_seconds = watchdog_us / 2 / 1_000_000

    @classmethod
    def of(cls, environment: Mapping[str, str], process_id: int) -> Self:
        """The service manager that the environment names. A watchdog that is meant for another process is ignored."""
        watched = environment.get(WATCHDOG_PROCESS_VARIABLE, str(process_id)) == str(process_id)
        span_us = environment.get(WATCHDOG_VARIABLE, "") if watched else ""
        return cls(environment.get(SOCKET_VARIABLE, ""), int(span_us) if span_us.isdecimal() else 0)

    def ready(self, status: str) -> None:
        """Tell that the process serves, and give signs of life from now on if they are wanted. Call it on the loop: a
        loop that stands still is what a watchdog must notice."""
        self._tell("READY=1", f"STATUS={status}")
        if self._address and self._signs_of_life_seconds:
            self._give_sign_of_life()

    def busy(self, status: str) -> None:
        """Tell that the process does something that takes a while, and is not ready yet."""
        self._tell(f"STATUS={status}")

    def stopping(self, status: str) -> None:
        """Tell that the process is shutting down."""
        self._tell("STOPPING=1", f"STATUS={status}")

    def _give_sign_of_life(self) -> None:
        self._tell("WATCHDOG=1")
        asyncio.get_running_loop().call_later(self._signs_of_life_seconds, self._give_sign_of_life)

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        # A line break in a status would begin another statement.
        text = "\n".join(line.replace("\n", " ") for line in lines)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as plug:
                plug.settimeout(_SEND_SECONDS_MAX)
                plug.connect(self._address)
                plug.sendall(text.encode())
        except OSError as error:
            _log.warning("service_manager_not_told", told=lines[0], reason=error.strerror or str(error))
