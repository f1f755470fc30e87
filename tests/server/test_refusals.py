"""Every refusal is counted, and the audit log tells of it."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest

from coordinator_client import Admin, Misconfigured
from coordinator_protocol.acls import Permission, ResourceType
from coordinator_runtime.ports import CallContext
from coordinator_server.security.audit import AuditLog
from tests.harness.guarded_server import SUPER_USERS
from tests.harness.manual_clock import ManualClock
from tests.harness.server_process import ServerProcess
from tests.ops.prometheus_process import metrics_address

STRANGER = CallContext(principal="User:stranger", host="10.0.0.2", client_id="c", method="Fetch")
READ_TOPIC = (Permission.READ, ResourceType.TOPIC)


def test_all_are_counted_by_what_was_asked() -> None:
    audit = AuditLog(ManualClock(), lambda *_line, **_told: None)
    assert set(audit.refusals().values()) == {0}
    for number in range(100):
        audit.refused(STRANGER, *READ_TOPIC, f"secret-{number}")
    audit.refused(STRANGER, Permission.READ, ResourceType.GROUP, "g")
    assert audit.refusals()["read", "topic"] == 100
    assert sum(audit.refusals().values()) == 101


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
        assert server.output.count('"event": "refused"') == 3
        assert "User:ANONYMOUS" in server.output
