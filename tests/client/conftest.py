"""The fixture that every test of the client without a server begins with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator_client.producer.dropped import DROPPED
from tests.client.world import World


@pytest.fixture
def world() -> World:
    """A calm world at time 0."""
    return World()


@pytest.fixture(autouse=True)
def no_producers_of_other_tests() -> Iterator[None]:
    """Forget what a test leaves behind, so that the next one does not warn of it."""
    yield
    DROPPED._watched.clear()
