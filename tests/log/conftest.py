"""Fixtures of the partition log."""

from __future__ import annotations

import pytest

from tests.log.log_room import LogRoom


@pytest.fixture
def room() -> LogRoom:
    """A log with one topic of two partitions."""
    room = LogRoom()
    room.create(partition_count=2)
    return room
