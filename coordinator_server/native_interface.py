"""The compiled module, if it has the interface that this server knows: its transport, and functions for the core.

Importing this raises ImportError if the module is not installed or has another interface.
"""

from __future__ import annotations

from typing import Final

import txn_native_transport as native

from coordinator_core.row_bytes import RowBytes
from coordinator_protocol.batch import ExamineBatch

__all__ = ["COMPILED_FIELDS", "compiled_examine_batch", "compiled_row_bytes", "native"]

_INTERFACE: Final = 13
if native.INTERFACE != _INTERFACE:
    raise ImportError(f"txn_native_transport has interface {native.INTERFACE}, and this server knows {_INTERFACE}")

compiled_examine_batch: Final[ExamineBatch] = native.examine_batch
compiled_row_bytes: Final = RowBytes(native.transaction_value, native.producer_rows)
COMPILED_FIELDS: Final = native.STORED_FIELDS
"""Classes of the values that `compiled_row_bytes` encodes, and the fields that it knows of each."""
