"""One line for records that nobody processed, and for locks that expired."""

from __future__ import annotations

from coordinator_server.logs import LogFormat
from tests.logs.lines import Lines
from tests.metrics.observed_shares import ObservedShares


def test_what_nobody_processed_has_a_line(lines: Lines) -> None:
    lines.configure(LogFormat.JSON)
    found = ObservedShares().shares
    of_partition = {"group_id": found.group_id, "ordinal": found.key.ordinal}
    found.acquire("a", 5)
    lines.text()
    found.acknowledge("a", (0, 2, [1, 0, 2]))
    assert lines.events() == []
    found.acknowledge("a", (3, 3, [3]))
    rejected = {"event": "records_rejected", "level": "info", **of_partition, "offset": 3, "next_offset": 4}
    assert lines.only() == rejected
    found.world.pass_time(found.terms.lock_duration_ms)
    expired = {"event": "lock_expired", "level": "info", **of_partition, "member_id": "a", "records": 1}
    assert lines.only() == expired
    found.acquire("b", 1)
    found.end_member("b")
    (given_up, _other) = lines.events()
    assert {name: given_up[name] for name in ("event", "level", "offset", "next_offset", "deliveries")} == {
        "event": "records_given_up",
        "level": "warning",
        "offset": 2,
        "next_offset": 3,
        "deliveries": 2,
    }
    assert "handle the records by hand" in given_up["advice"]
