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
    """A running endpoint. Made by `serve_metrics`."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:  # noqa: TID251  the library made it
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop answering and free the port. Takes up to half a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> MetricsEndpoint:
    """Answer scrapes from now on; port 0 takes a free one. Raises OSError where it cannot listen."""
    server, thread = start_http_server(port, host, registry)
    server.set_app(_guarded(make_wsgi_app(registry)))
    return MetricsEndpoint(server, thread)


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
