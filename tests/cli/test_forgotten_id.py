"""The outcome of an expired id is still shown, by a running server and from a stopped directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_client import Producer
from tests.cli.terminal import Terminal
from tests.harness.patience import looks
from tests.harness.server_process import ServerProcess

pytestmark = pytest.mark.slow


def described_once_it_is_forgotten(txnctl: Terminal, server: ServerProcess) -> Any:
    for _ in looks("the state of the id"):
        (row,) = txnctl("describe", "brief", "-o", "json", "--server", server.address).well().document
        if row["state"] == "Dead":
            break
    return row


def test_a_forgotten_id_shows_its_deletion(txnctl: Terminal, tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--set", "transactional_id_expiration_ms=500") as server:
        at = ["--server", server.address]
        txnctl("topic", "create", "t", *at).well()
        with Producer(server.address, transactional_id="brief") as producer, producer.transaction() as transaction:
            transaction.send("t", b"x")
        row = described_once_it_is_forgotten(txnctl, server)
        states = [step["state"] for step in row["history"]]
        assert states[:2] == ["Dead", "CompleteCommit"]
        assert (row["producer_id"], row["partitions"], row["history_complete"]) == (None, [], True)
        assert "expire" in txnctl("describe", "brief", *at).well().stdout
        txnctl("describe", "brief", "--history", "0", *at).refused(1, "TRANSACTIONAL_ID_NOT_FOUND")
        txnctl("describe", "never", *at).refused(1, "TRANSACTIONAL_ID_NOT_FOUND")
        server.terminate()
    dumped = txnctl("log", "dump", "--show", "transactions", "--data-dir", str(tmp_path / "data")).well()
    assert "forgotten" in dumped.lines[-1]
