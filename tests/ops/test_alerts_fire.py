"""From a server in trouble to an alert that fires in a real Prometheus: the whole way, for the three that page most."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from coordinator_client import Admin, Producer
from tests.harness.rocks_shelf import RocksShelf
from tests.harness.server_process import ServerProcess
from tests.harness.tools import require_tool
from tests.ops.files import ALERT_RULES
from tests.ops.prometheus_process import SEEN, PrometheusProcess, in_a_hurry, metrics_address
from tests.transactions.administered import CLIENT, Administered
from txn_coordinator.state import Identity

WRITER_PAUSE_SECONDS = 0.2


def test_a_hurry_changes_spans_and_nothing_else() -> None:
    text = ALERT_RULES.read_text()
    hurried = in_a_hurry(text)
    assert "for: 5s" in hurried
    assert "offset 10s" in hurried
    assert "[15s]" in hurried
    changed = [(a, b) for a, b in zip(text.split(), hurried.split(), strict=True) if a != b]
    assert {a.replace("m", "s") == b.replace("m", "s") for a, b in changed} == {True}


@contextmanager
def scraped(server: ServerProcess, directory: Path) -> Iterator[PrometheusProcess]:
    """Prometheus once it has seen the server."""
    target = metrics_address(server)
    with PrometheusProcess(directory, target) as prometheus:
        assert prometheus.wait_for(SEEN)["instance"] == target
        yield prometheus


def server_of(directory: Path, **environment: str) -> ServerProcess:
    settings = {"TXN_METRICS_LISTEN": "127.0.0.1:0", "TXN_LOG_FORMAT": "json", **environment}
    return ServerProcess(directory / "data", environment=settings)


@pytest.mark.slow
def test_a_server_that_is_down(tmp_path: Path) -> None:
    require_tool("prometheus")
    with server_of(tmp_path) as server, scraped(server, tmp_path / "prometheus") as prometheus:
        server.kill()
        labels = prometheus.wait_for("TxnDown")
        while "instance" not in labels:
            # Before the first scrape there was no target at all, which the same alert tells.
            labels = prometheus.wait_for("TxnDown")
        (alert,) = (each for each in prometheus.firing() if "instance" in each["labels"])
        assert alert["labels"] == labels
        assert labels["severity"] == "page"
        assert alert["annotations"]["summary"] == f"The server {labels['instance']} does not answer scrapes."


@pytest.mark.slow
@pytest.mark.long
def test_a_hanging_transaction(tmp_path: Path) -> None:
    require_tool("prometheus")
    leave_one_hanging(tmp_path / "data")
    server = server_of(tmp_path, TXN_SHARD_COUNT="2")
    with server, scraped(server, tmp_path / "prometheus") as prometheus:
        labels = prometheus.wait_for("TxnHanging")
        assert (labels["job"], labels["severity"]) == ("txn-coordinator", "page")
        assert "TxnHanging" in {each["labels"]["alertname"] for each in prometheus.firing()}


def leave_one_hanging(data_dir: Path) -> None:
    """A store with a transaction in t-1 that no coordinator knows."""
    shelf = RocksShelf(data_dir)
    world = Administered(shelf=shelf)
    given = world.init_plain(CLIENT)
    world.settle()
    orphan: Identity = given.result()
    world.leave_hanging("t-1", orphan)
    shelf.close()


@pytest.mark.slow
@pytest.mark.long
def test_a_last_stable_offset_that_is_stuck(tmp_path: Path) -> None:
    require_tool("prometheus")
    with server_of(tmp_path) as server:
        with Admin(server.address) as admin:
            admin.create_topic("orders", 1)
        with (
            held_open(server.address),
            others_writing(server.address),
            scraped(server, tmp_path / "prometheus") as prometheus,
        ):
            labels = prometheus.wait_for("TxnLsoStuck")
            assert (labels["topic"], labels["partition"], labels["severity"]) == ("orders", "0", "page")
            (alert,) = (each for each in prometheus.firing() if each["labels"]["alertname"] == "TxnLsoStuck")
            assert alert["annotations"]["summary"] == "Readers of orders-0 stand still while it grows."


@contextmanager
def held_open(address: str) -> Iterator[None]:
    """A transaction that its producer does not end."""
    with (
        Producer(address, transactional_id="slow-1", transaction_timeout_ms=600_000) as producer,
        suppress(_Enough),
        producer.transaction() as transaction,
    ):
        transaction.send("orders", b"held", partition=0)
        producer.flush()
        yield
        raise _Enough


class _Enough(Exception):
    """Ends the transaction: it is aborted."""


@contextmanager
def others_writing(address: str) -> Iterator[None]:
    """Producers that go on, as they do."""
    is_enough = threading.Event()

    def write() -> None:
        with Producer(address, transactional_id="fast-1") as producer:
            while not is_enough.wait(WRITER_PAUSE_SECONDS):
                with producer.transaction() as transaction:
                    transaction.send("orders", b"more", partition=0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        is_enough.set()
        writer.join()
