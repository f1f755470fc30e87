from __future__ import annotations

import pytest

from tests.fast_path.taking import Taken


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    """The calls that fast paths take from now on."""
    return Taken(monkeypatch)
