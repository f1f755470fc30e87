"""Features of a store, for tests of what needs one and not of how it begins."""

from __future__ import annotations

from coordinator_runtime.pending import Pending, settled


class EveryFeature:
    """A store that has every feature already."""

    def has(self, name: str) -> bool:
        return True

    def begin(self, name: str) -> Pending[None]:
        return settled(None)
