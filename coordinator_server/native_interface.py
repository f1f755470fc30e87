"""The compiled module, if it has the interface that this server knows: its transport, and a function for the core.

Importing this raises ImportError if the module is not installed or has another interface.
"""

from __future__ import annotations

from typing import Final

import txn_native_transport as native

from coordinator_protocol.batch import ExamineBatch

__all__ = ["compiled_examine_batch", "native"]

_INTERFACE: Final = 16
if native.INTERFACE != _INTERFACE:
    raise ImportError(f"txn_native_transport has interface {native.INTERFACE}, and this server knows {_INTERFACE}")

compiled_examine_batch: Final[ExamineBatch] = native.examine_batch
