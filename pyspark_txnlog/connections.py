"""The connection of a process to the server, shared by the tasks that Spark runs in it one after another."""

from __future__ import annotations

import os
from typing import Final, Protocol

from coordinator_client.tls import Tls
from coordinator_client.transport.connection import Connection
from pyspark_txnlog.options import TlsNames

CLIENT_ID: Final = "pyspark-txnlog"

_CONNECTIONS: dict[tuple[int, str, TlsNames | None], Connection] = {}


class OfServer(Protocol):
    """Options that name a server, for a read or for a write."""

    @property
    def endpoint(self) -> str:
        """Address of the server, HOST:PORT."""
        ...

    @property
    def tls_files(self) -> TlsNames | None:
        """TLS files; None = no TLS."""
        ...


def tls_of(options: OfServer) -> Tls | None:
    """Return the TLS settings of the options. Raises Misconfigured if a file is missing on this machine, or is
    invalid."""
    names = options.tls_files
    return None if names is None else Tls(**names._asdict())


def shared_connection(options: OfServer) -> Connection:
    """Return the one connection of this process to the server; its channel opens with the first request.

    It waits for a server that is not up yet. A job may start at the same time, and Spark would restart a failed task.
    It is never closed: Spark keeps a worker process for task after task. A forked process must not inherit it, so the
    process id is part of the key.
    """
    key = (os.getpid(), options.endpoint, options.tls_files)
    if key not in _CONNECTIONS:
        _CONNECTIONS[key] = Connection(options.endpoint, client_id=CLIENT_ID, wait_ms=None, tls=tls_of(options))
    return _CONNECTIONS[key]
