"""The fixture that every test of the client without a server begins with."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.client.world import World


@pytest.fixture
def world() -> World:
    """A calm world at time 0."""
    return World()


@pytest.fixture(autouse=True)
def no_word_of_dropped_producers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the log of one test free of what the last one left behind."""
    logger = logging.getLogger("coordinator_client.dropped")
    logger.disabled = request.module.__name__.rpartition(".")[2] != "test_comfort"
    yield
    logger.disabled = False
