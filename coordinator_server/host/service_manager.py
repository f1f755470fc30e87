"""Notifications to the service manager that started this process: ready, stopping, alive.

The protocol is systemd's (sd_notify): lines of text in one datagram to a Unix socket that the environment names. It is
a few lines, so no library is used. Without a service manager nothing is sent.
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
"""Longest time for which a service manager that does not read may block the loop."""

_log = structlog.get_logger("server")


class ServiceManager:
    """The service manager that started this process. Every method may be called with or without one; none of them
    raises."""

    def __init__(self, address: str, watchdog_us: int) -> None:
        """Set the address and the watchdog interval. `address` is the path of a Unix socket, or @NAME for one without a
        file; "" means no service manager. `watchdog_us` is the longest permitted silence of the process; 0 means no
        limit."""
        # For the system, the name of a socket without a file begins with a zero byte.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._signs_of_life_seconds = watchdog_us / 2 / 1_000_000

    @classmethod
    def of(cls, environment: Mapping[str, str], process_id: int) -> Self:
        """Return the service manager that the environment names. A watchdog for another process is ignored."""
        watched = environment.get(WATCHDOG_PROCESS_VARIABLE, str(process_id)) == str(process_id)
        span_us = environment.get(WATCHDOG_VARIABLE, "") if watched else ""
        return cls(environment.get(SOCKET_VARIABLE, ""), int(span_us) if span_us.isdecimal() else 0)

    def ready(self, status: str) -> None:
        """Report that the process serves, and send signs of life from now on if a watchdog wants them. Call it on the
        loop: the watchdog must notice a blocked loop."""
        self._tell("READY=1", f"STATUS={status}")
        if self._address and self._signs_of_life_seconds:
            self._give_sign_of_life()

    def busy(self, status: str) -> None:
        """Report that the process does something that takes a while, and is not ready yet."""
        self._tell(f"STATUS={status}")

    def stopping(self, status: str) -> None:
        """Report that the process is shutting down."""
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
