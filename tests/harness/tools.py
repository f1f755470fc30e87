"""Programs that some tests need and that pip cannot install. A machine without one skips those tests aloud; in CI a
skipped test would be a broken promise, so there they fail."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.docs.fences import ROOT

INSTALL: Final = {
    "go": "install Go 1.24 or newer",
    "systemd-analyze": "install systemd 250 or newer",
    "prometheus": "apt-get install prometheus, or another way to get Prometheus 2.42 or newer",
    "promtool": "apt-get install prometheus, or another way to get Prometheus 2.42 or newer",
    "openssl": "apt-get install openssl, 3.0 or newer",
    "curl": "apt-get install curl",
    "git": "apt-get install git, 2.30 or newer",
}


def require_tool(name: str) -> str:
    """The path of the program; without it the test ends here."""
    found = shutil.which(name)
    if found is None:
        _go_without(f"{name} is not installed: {INSTALL[name]}")
    assert found is not None
    return found


def require_ops_python() -> Path:
    """The Python of the environment that `make ops` makes."""
    python = ROOT / ".venv-ops/bin/python"
    if not python.exists():
        _go_without("the environment of `make ops` is not there: run it once")
    return python


def _go_without(reason: str) -> None:
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
