"""`txnctl shard` against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def ask(txnctl: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    with ServerProcess(tmp_path / "data") as server:
        monkeypatch.setenv("TXNCTL_SERVER", server.address)
        yield txnctl


def test_a_shard_leaves_and_comes_back(ask: Terminal) -> None:
    ended = ask("shard", "unload", "transactions", "7")
    assert (ended.status, ended.stdout.split()[-4:]) == (0, ["7", "unloaded", "-", "-"])
    listed = ask("shard", "list", "transactions", "--state", "unloaded", "-o", "json")
    assert json.loads(listed.stdout) == [
        {"coordinator": "transactions", "shard": 7, "state": "unloaded", "coordinator_epoch": None, "reason": None}
    ]
    ended = ask("shard", "load", "transactions", "7")
    assert (ended.status, ended.stdout.split()[-4:]) == (0, ["7", "active", "2", "-"])
    assert ask("shard", "list", "--state", "unloaded").stdout == ""


def test_what_there_is_not_is_told_in_words(ask: Terminal) -> None:
    ended = ask("shard", "load", "transactions", "64")
    assert ended.status != 0
    assert "there is no transactions shard 64" in ended.stderr
