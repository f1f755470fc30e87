"""Every refusal is counted, and one that comes again and again is one line in a while."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest
from structlog.testing import capture_logs

from coordinator_client import Admin, Misconfigured
from coordinator_protocol.acls import Permission, ResourceType
from coordinator_runtime.ports import CallContext
from coordinator_server import refusals
from coordinator_server.refusals import PAUSE_MS, Refusals
from tests.harness.guarded_server import SUPER_USERS
from tests.harness.manual_clock import ManualClock
from tests.harness.server_process import ServerProcess
from tests.ops.prometheus_process import metrics_address

STRANGER = CallContext(principal="User:stranger", host="10.0.0.2", client_id="c", method="Fetch")
READ_TOPIC = (Permission.READ, ResourceType.TOPIC)


def test_all_are_counted_and_few_are_written() -> None:
    clock = ManualClock()
    refused = Refusals(clock)
    assert set(refused.counts().values()) == {0}
    with capture_logs() as lines:
        for number in range(100):
            refused(STRANGER, *READ_TOPIC, f"secret-{number}")
        refused(STRANGER, Permission.READ, ResourceType.GROUP, "g" * 1_000)
        clock.advance(PAUSE_MS)
        refused(STRANGER, *READ_TOPIC, "another")
    assert refused.counts()["read", "topic"] == 101
    assert sum(refused.counts().values()) == 102
    assert [(line["resource_type"], line["resource_name"], line["unwritten"]) for line in lines] == [
        ("topic", "secret-0", 0),
        ("group", "g" * 200, 0),
        ("topic", "another", 99),
    ]
    assert lines[0] | {"resource_name": "", "unwritten": 0} == {
        "event": "refused",
        "log_level": "warning",
        "principal": "User:stranger",
        "host": "10.0.0.2",
        "client_id": "c",
        "method": "Fetch",
        "operation": "read",
        "resource_type": "topic",
        "resource_name": "",
        "unwritten": 0,
    }


def test_many_principals_do_not_fill_the_log(monkeypatch) -> None:
    monkeypatch.setattr(refusals, "REMEMBERED_MAX", 3)
    clock = ManualClock()
    refused = Refusals(clock)
    with capture_logs() as lines:
        for number in range(10):
            refused(CallContext(principal=f"User:{number}"), *READ_TOPIC, "t")
        clock.advance(PAUSE_MS)
        refused(CallContext(principal="User:11"), *READ_TOPIC, "t")
    assert [line["principal"] for line in lines] == ["User:0", "User:1", "User:2", "User:11"]
    assert refused.counts()["read", "topic"] == 11


@pytest.mark.slow
def test_the_metrics_and_the_log_of_a_server_tell_of_them(tmp_path: Path) -> None:
    environment = {SUPER_USERS: "User:root", "TXN_METRICS_LISTEN": "127.0.0.1:0", "TXN_LOG_FORMAT": "json"}
    server = ServerProcess(tmp_path / "data", module="tests.harness.guarded_server", environment=environment)
    with server, Admin(server.address) as admin:
        for _attempt in range(3):
            with pytest.raises(Misconfigured, match="may not create topic 'secret'"):
                admin.create_topic("secret")
        with urlopen(f"http://{metrics_address(server)}/metrics") as page:
            published = page.read().decode()
        assert 'txn_access_refusals_total{operation="create",resource_type="topic"} 3.0' in published
        assert 'txn_access_refusals_total{operation="read",resource_type="topic"} 0.0' in published
        assert "txn_access_enforced 1.0" in published
        assert "txn_access_acls 0.0" in published
        assert "secret" not in published
        assert server.output.count('"event": "refused"') + server.output.count('"event":"refused"') == 1
        assert "User:ANONYMOUS" in server.output
