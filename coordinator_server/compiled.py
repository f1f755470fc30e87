"""Function of the compiled module that a server uses with any transport."""

from __future__ import annotations

from coordinator_protocol.batch import ExamineBatch
from partition_log.codec import examine_batch


def fastest_examine_batch() -> ExamineBatch:
    """Return the compiled function, or the Python one if no usable compiled module is installed."""
    try:
        from coordinator_server.native_interface import compiled_examine_batch
    except ImportError:
        return examine_batch
    return compiled_examine_batch
