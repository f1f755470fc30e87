"""Logging as a server sets it up, and as it was before afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from coordinator_server.logs import LogFormat
from tests.logs.lines import Lines


@pytest.fixture
def lines() -> Iterator[Lines]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    lines = Lines()
    lines.configure(LogFormat.JSON)
    yield lines
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()
