"""The calls that fast paths take."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator_core.fast_path import FastPath


class Taken:
    """The calls that every fast path took, in their order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._calls: list[tuple[str, str]] = []
        for method in ("transact", "produce", "commit", "initialise"):
            patch.setattr(FastPath, method, self._noting(method, getattr(FastPath, method)))

    def _noting(self, method: str, take: Callable[..., object]) -> Callable[..., object]:
        def noting(lane: FastPath, name: str, *call: object) -> object:
            result = take(lane, name, *call)
            if result is not None:
                self._calls.append((method, name))
            return result

        return noting

    def ids(self, of: str = "transact") -> list[str]:
        """The transactional ids that one function took calls of."""
        return [name for method, name in self._calls if method == of]

    def count(self, of: str) -> int:
        return len(self.ids(of))
