"""Runs the page on an address."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import uvicorn

from txnctl.page.app import Page
from txnctl.page.logins import Logins, ServerAddress

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
CONNECTIONS_MAX: Final = 500
WAITING_MAX: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAddress:
    """Address of the page, and its protection."""

    host: str
    port: int
    names: Sequence[str] = ()
    """Further names under which browsers may call it."""
    certificate_file: str | None = None
    key_file: str | None = None

    @property
    def is_local(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host in LOOPBACK


def serve_page(
    server: ServerAddress, place: PageAddress, announce: Callable[[str], None], *, is_leashed: bool = False
) -> None:
    """Serve the page until a signal ends it. `announce` is given its address once it listens. `is_leashed`: the page
    also ends with its standard input. Raises OSError."""
    is_secure = place.certificate_file is not None
    hosts = frozenset({*LOOPBACK, place.host, *place.names}) if place.is_local or place.names else frozenset()
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((place.host, place.port))
        # Before the announcement: a browser that calls at once then waits for the application, and is not refused.
        listening.listen(WAITING_MAX)
        port = listening.getsockname()[1]
        page = Page(Logins(server), server.endpoint, hosts, is_secure=is_secure)
        config = uvicorn.Config(
            page.app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            limit_concurrency=CONNECTIONS_MAX,
            ssl_certfile=place.certificate_file,
            ssl_keyfile=place.key_file,
        )
        shown = f"[{place.host}]" if ":" in place.host else place.host
        announce(f"{'https' if is_secure else 'http'}://{shown}:{port}/")
        serving = uvicorn.Server(config)
        if is_leashed:
            page.on_start = lambda: asyncio.get_running_loop().add_reader(0, _end_with_input, serving)
        serving.run(sockets=[listening])
    finally:
        listening.close()


def _end_with_input(serving: uvicorn.Server) -> None:
    if not os.read(0, 1):
        asyncio.get_running_loop().remove_reader(0)
        serving.should_exit = True
