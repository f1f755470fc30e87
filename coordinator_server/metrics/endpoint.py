"""Serves `/metrics` over HTTP or HTTPS, on its own threads and port, so that a slow scraper delays no caller."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from typing import Final
from wsgiref.simple_server import WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server

from coordinator_server.security.reloading_credentials import ReloadingCredentials
from coordinator_server.security.server_tls import NewestContext

PATH: Final = "/metrics"

_SILENCE_SECONDS_MAX: Final = 30.0
"""Longest time for which a scraper may neither send nor take anything over TLS."""

_log = structlog.get_logger("metrics")


class MetricsEndpoint:
    """A running endpoint. Made by `listen_for_scrapes`."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:  # noqa: TID251  the library made it
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def publish(self, registry: CollectorRegistry) -> None:
        """Answer scrapes from the registry from now on."""
        self._server.set_app(_guarded(make_wsgi_app(registry)))

    def close(self) -> None:
        """Stop answering and free the port. Takes up to half a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def listen_for_scrapes(host: str, port: int, credentials: ReloadingCredentials | None = None) -> MetricsEndpoint:
    """Take the port (0 for any free one) before the rest of the server exists. Scrapes fail with a reason until
    `publish`. With credentials it speaks HTTPS. Raises OSError if it cannot listen."""
    server, thread = start_http_server(port, host, CollectorRegistry())
    server.set_app(_nothing_yet)
    if credentials is not None:
        # In the thread of the request. The library's own TLS makes the handshake in the accepting thread, where one
        # silent scraper would block all others.
        vars(server)["finish_request"] = SafeRequests(server.finish_request, credentials).finish
    return MetricsEndpoint(server, thread)


class SafeRequests:
    """Makes the TLS handshake before each request is read, with the newest credentials."""

    def __init__(
        self, finish_request: Callable[[socket.socket, tuple[str, int]], object], credentials: ReloadingCredentials
    ) -> None:
        self._finish = finish_request
        self._newest = NewestContext(credentials)

    def finish(self, plug: socket.socket, caller: tuple[str, int]) -> None:
        """Serve one connection, if the handshake succeeds."""
        plug.settimeout(_SILENCE_SECONDS_MAX)
        try:
            with self._newest.of_handshake().wrap_socket(plug, server_side=True) as safe:
                self._finish(safe, caller)
        except OSError as error:
            _log.info("scrape_refused", host=caller[0], reason=str(error))


def _nothing_yet(_environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    return _plain(start_response, "503 Service Unavailable", "no metrics yet: the store is being opened")


def _guarded(publish: WSGIApplication) -> WSGIApplication:
    """Answer a failed scrape with 503 and log one line. The library would write a traceback to stderr, among the log
    lines."""

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            return _plain(start_response, "404 Not Found", f"the metrics are at {PATH}")
        try:
            return publish(environ, start_response)
        except Exception as error:  # noqa: BLE001  whatever it was, Prometheus must see that the scrape failed
            _log.warning("scrape_failed", failure=f"{type(error).__name__}: {error}")
            return _plain(start_response, "503 Service Unavailable", f"no metrics: {error}")

    return application


def _plain(start_response: StartResponse, status: str, text: str) -> Iterable[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{text}\n".encode()]
