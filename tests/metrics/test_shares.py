"""Counts of the records that share groups hand out."""

from __future__ import annotations

from coordinator_server.metrics.families import FAMILIES
from tests.metrics.observed_shares import ObservedShares


def test_records_are_counted_from_their_delivery_to_their_end() -> None:
    observed = ObservedShares()
    found = observed.shares
    found.acquire("a", 5)
    assert observed.readings()["txn_share_acquired_records"] == {(): 5}
    found.acknowledge("a", (0, 0, [1]), (1, 1, [3]), (2, 2, [0]), (3, 3, [2]))
    found.world.pass_time(found.terms.lock_duration_ms)
    found.acquire("b", 5)
    found.end_member("b")
    found.trim(7)
    found.move_log_start()
    assert observed.readings() == {
        "txn_share_deliveries_total": {("first",): 10, ("again",): 2},
        "txn_share_acknowledgements_total": {(): 4},
        "txn_share_settled_total": {("commit",): 0, ("abort",): 0},
        "txn_share_locks_expired_total": {(): 1},
        "txn_share_archived_total": {
            ("rejected",): 1,
            ("gap",): 1,
            ("delivery_limit",): 2,
            ("log_start",): 2,
            ("aborted",): 0,
        },
        "txn_share_dead_letters_total": {
            ("written",): 0,
            ("bare",): 0,
            ("no_topic",): 2,
            ("own_topic",): 0,
            ("removed",): 0,
            ("dropped",): 0,
        },
        "txn_share_due_letters": {(): 0},
        "txn_share_partitions": {(): 1},
        "txn_share_acquired_records": {(): 0},
        "txn_share_pending_records": {(): 0},
    }


def test_everything_that_is_counted_is_published() -> None:
    published = {family.name for family in FAMILIES if family.name.startswith("txn_share_")}
    assert ObservedShares().readings().keys() == published
