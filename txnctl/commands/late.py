"""Modules that a command needs only while it runs, each loaded on first use of one of its names. So `txnctl --help`
starts without the SDK, the store and the network. Type checkers see the modules themselves."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import coordinator_client as sdk
    from coordinator_api.v1 import admin_pb2, transaction_pb2
    from coordinator_client import calls
    from txnctl.commands import log_rows, record_format, remote, remote_log, waiting
else:

    class _Late:
        """Stand-in for a module, which is imported on the first attribute access."""

        def __init__(self, name):
            self._name = name

        def __getattr__(self, attribute):
            return getattr(import_module(self._name), attribute)

    sdk = _Late("coordinator_client")
    admin_pb2 = _Late("coordinator_api.v1.admin_pb2")
    transaction_pb2 = _Late("coordinator_api.v1.transaction_pb2")
    calls = _Late("coordinator_client.calls")
    log_rows = _Late("txnctl.commands.log_rows")
    record_format = _Late("txnctl.commands.record_format")
    remote = _Late("txnctl.commands.remote")
    remote_log = _Late("txnctl.commands.remote_log")
    waiting = _Late("txnctl.commands.waiting")

__all__ = [
    "admin_pb2",
    "calls",
    "log_rows",
    "record_format",
    "remote",
    "remote_log",
    "sdk",
    "transaction_pb2",
    "waiting",
]
