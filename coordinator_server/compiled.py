"""Functions of the compiled module that a server uses with any transport."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from coordinator_core.row_bytes import IN_PYTHON, RowBytes
from coordinator_protocol.batch import ExamineBatch
from partition_log.codec import examine_batch
from partition_log.state import CachedBatch, LastMarker, OpenTransaction, ProducerEntry
from txn_coordinator.state import Identity, InitAnswer, Member, Transaction

STORED_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "Identity": frozenset(Identity._fields),
    **{
        stored.__name__: frozenset(stored.__struct_fields__)
        for stored in (CachedBatch, InitAnswer, LastMarker, Member, OpenTransaction, ProducerEntry, Transaction)
    },
}
"""Classes of the values in stored rows, and the fields of each."""


def fastest_examine_batch() -> ExamineBatch:
    """Return the compiled function, or the Python one if no usable compiled module is installed."""
    try:
        from coordinator_server.native_interface import compiled_examine_batch
    except ImportError:
        return examine_batch
    return compiled_examine_batch


def fastest_row_bytes() -> RowBytes:
    """Return the compiled encoders if they know all stored fields, else the Python ones."""
    try:
        from coordinator_server.native_interface import COMPILED_FIELDS, compiled_row_bytes
    except ImportError:
        return IN_PYTHON
    return compiled_row_bytes if knows_all_fields(COMPILED_FIELDS) else IN_PYTHON


def knows_all_fields(known: Mapping[str, Collection[str]]) -> bool:
    """Return True if `known` has exactly the stored fields. An encoder would lose fields that it does not know."""
    return {name: frozenset(fields) for name, fields in known.items()} == STORED_FIELDS
