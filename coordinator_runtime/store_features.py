"""Beginning of a feature in the store of a running server, when it is first needed.

A store in which nothing of the kind was ever written can so still be opened by an older program.
"""

from __future__ import annotations

from coordinator_runtime.decision import CATALOG_KEY
from coordinator_runtime.features import FEATURES_KEY, features_of
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.rows import StagedRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Family, Store


class StoreFeatures:
    """Features of the store of a running server."""

    def __init__(self, runtime: Runtime, store: Store) -> None:
        self._runtime = runtime
        self._durable = frozenset(features_of(store.get(Family.META, FEATURES_KEY)))
        self._beginning: dict[str, Pending[None]] = {}

    def has(self, name: str) -> bool:
        """True if the store durably has the feature."""
        return name in self._durable

    def begin(self, name: str) -> Pending[None]:
        """Add a feature to the store. The reply comes when it is durable, and is shared by all who ask meanwhile.

        Errors: as `Runtime.write_rows`."""
        if self.has(name):
            return settled(None)
        if name not in self._beginning:
            value = ",".join(sorted(self._durable | self._beginning.keys() | {name})).encode()
            rows = StagedRows(newest={(Family.META, FEATURES_KEY): value}, size_bytes=len(FEATURES_KEY) + len(value))
            self._beginning[name] = self._runtime.write_rows(CATALOG_KEY, rows)
            self._beginning[name].on_settled(lambda written: self._began(name, written))
        return self._beginning[name].map(_unchanged)

    def _began(self, name: str, written: Pending[None]) -> None:
        del self._beginning[name]
        if written.error is None:
            self._durable |= {name}


def _unchanged(value: None) -> None:
    return value
