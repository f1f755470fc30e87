"""Serves `/metrics` over HTTP, on threads and a port of its own, so that a slow scraper holds up nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final
from wsgiref.simple_server import WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server

PATH: Final = "/metrics"

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
        """Answer scrapes from now on with what the registry has."""
        self._server.set_app(_guarded(make_wsgi_app(registry)))

    def close(self) -> None:
        """Stop answering and free the port. Takes up to half a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def listen_for_scrapes(host: str, port: int) -> MetricsEndpoint:
    """Take the port, 0 for a free one, before anything else of the server is there; until `publish`, scrapes fail with
    a reason. Raises OSError where it cannot listen."""
    server, thread = start_http_server(port, host, CollectorRegistry())
    server.set_app(_nothing_yet)
    return MetricsEndpoint(server, thread)


def _nothing_yet(_environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    return _plain(start_response, "503 Service Unavailable", "no metrics yet: the store is being opened")


def _guarded(publish: WSGIApplication) -> WSGIApplication:
    """A scrape that fails is answered with 503 and one line in the log; the library would write a traceback to stderr,
    where the log lines are."""

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
