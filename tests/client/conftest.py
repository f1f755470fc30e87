"""The fixture that every test of the client without a server begins with."""

from __future__ import annotations

import pytest

from tests.client.world import World


@pytest.fixture
def world() -> World:
    """A calm world at time 0."""
    return World()
