"""Fixtures of the partition log."""

from __future__ import annotations

import pytest

from tests.log.driven_log import DrivenLog


@pytest.fixture
def driven() -> DrivenLog:
    """A log with one topic of two partitions."""
    driven = DrivenLog()
    driven.create(partition_count=2)
    return driven
