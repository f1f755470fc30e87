"""Functions that the compiled transport brings along for everybody, whichever transport a server uses."""

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
"""The classes of values that rows are made of, and their fields."""


def fastest_examine_batch() -> ExamineBatch:
    """The compiled function, or the same in Python where none is installed that this server knows."""
    try:
        from coordinator_server.native_interface import compiled_examine_batch
    except ImportError:
        return examine_batch
    return compiled_examine_batch


def fastest_row_bytes() -> RowBytes:
    """The compiled functions, or the same in Python where none are installed that know all fields which are stored."""
    try:
        from coordinator_server.native_interface import COMPILED_FIELDS, compiled_row_bytes
    except ImportError:
        return IN_PYTHON
    return compiled_row_bytes if knows_all_fields(COMPILED_FIELDS) else IN_PYTHON


def knows_all_fields(known: Mapping[str, Collection[str]]) -> bool:
    """Whether what is known of the stored values is all that there is: what is not known would be lost."""
    return {name: frozenset(fields) for name, fields in known.items()} == STORED_FIELDS
