"""Serves `/metrics` over HTTP, on a thread and port of its own, so that a slow scraper holds up nobody."""

from __future__ import annotations

import threading
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server


class MetricsEndpoint:
    """A running endpoint. Made by `serve_metrics`."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:  # noqa: TID251  the library made it
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop answering and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> MetricsEndpoint:
    """Answer scrapes from now on; port 0 takes a free one. Raises OSError where it cannot listen."""
    server, thread = start_http_server(port, host, registry)
    return MetricsEndpoint(server, thread)
