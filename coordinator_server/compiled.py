"""Functions that the compiled transport brings along for everybody, whichever transport a server uses."""

from __future__ import annotations

from coordinator_protocol.batch import ExamineBatch
from partition_log.codec import examine_batch


def fastest_examine_batch() -> ExamineBatch:
    """The compiled function, or the same in Python where none is installed that this server knows."""
    try:
        from coordinator_server.native_exchange import compiled_examine_batch
    except ImportError:
        return examine_batch
    return compiled_examine_batch
