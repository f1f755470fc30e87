from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator_client import Admin
from tests.cli.terminal import Terminal
from tests.harness.threaded_server import threaded_server


@pytest.fixture
def txnctl(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


@pytest.fixture
def ask(txnctl: Terminal, server: str, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The terminal, with the `server` of the module in the environment."""
    monkeypatch.setenv("TXNCTL_SERVER", server)
    return txnctl


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    """Address of a server in this process, for all tests of a module."""
    with threaded_server() as address:
        yield address


@pytest.fixture
def orders(shared: str) -> Iterator[str]:
    """The shared server, with the topic "orders" of two partitions, and cleared of groups and topics afterwards."""
    with Admin(shared) as admin:
        admin.create_topic("orders", 2)
        yield shared
        for group in admin.list_groups():
            members = [each.member_id for each in admin.describe_group(group.group_id).members]
            admin.remove_members(group.group_id, members)
            admin.delete_group(group.group_id)
        for topic in admin.describe_topics():
            admin.delete_topic(topic.name)
