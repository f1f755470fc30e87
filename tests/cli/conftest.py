from __future__ import annotations

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture
def txnctl(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)
