"""A filled server, and a page of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.harness.threaded_server import threaded_server
from tests.page.filled import Filled
from tests.page.visitor import Visitor
from txnctl.page.app import Page
from txnctl.page.logins import Logins, ServerAddress
from txnctl.page.serving import LOOPBACK


@pytest.fixture(scope="package")
def filled() -> Iterator[str]:
    """The address of a server with something of everything. Tests only look at it."""
    with threaded_server() as address:
        everything = Filled(address)
        try:
            yield address
        finally:
            everything.close()


@pytest.fixture
async def visitor(filled: str) -> AsyncIterator[Visitor]:
    logins = Logins(ServerAddress(filled))
    yield Visitor(Page(logins, filled, LOOPBACK).app)
    await logins.close()
