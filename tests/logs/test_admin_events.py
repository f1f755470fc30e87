"""One line per administrative act, with its principal; and one for each fault that only an administrator can mend."""

from __future__ import annotations

import pytest

from coordinator_protocol.marker import Marker, Outcome
from coordinator_server.events.observer import EventObserver, GroupObserver
from coordinator_server.metrics.groups import GroupNumbers
from coordinator_server.metrics.partitions import LogNumbers
from coordinator_server.metrics.transactions import TransactionNumbers
from coordinator_server.security.audit import AuditLog
from partition_log.foreign_markers import DecidedMarker, WriteTxnMarkers
from tests.harness.world import partition_name
from tests.logs.lines import Lines, partition
from tests.transactions.administered import ADMIN, CLIENT, Administered
from txn_coordinator.state import Identity

BY_ADMIN = {"client_id": "txnctl", "host": "10.0.0.9"}


class Watched(Administered):
    """Counts and logs."""

    def watch(self) -> None:
        self.numbers = TransactionNumbers()
        self.numbers.load([])
        groups = GroupObserver(GroupNumbers(), partition)
        observer = EventObserver(
            self.numbers,
            LogNumbers(),
            groups,
            clock=self.clock,
            catalog=self.inside.catalog,
            audit=AuditLog(self.clock, lambda *_line, **_told: None),
        )
        self.inside.runtime.on_event = observer
        self.hanging.on_found = observer.hanging_found
        self.inside.sender.on_fenced = observer.coordinator_fenced

    def fenced_by_admin(self) -> object:
        return self.numbers.readings(0)["txn_coordinator_fenced_total"]["admin",]


@pytest.fixture
def world(lines: Lines) -> Watched:
    world = Watched()
    world.watch()
    lines.text()
    return world


def test_an_abort(world: Watched, lines: Lines) -> None:
    world.opened("billing")
    world.abort("billing")
    event = lines.only()
    assert event == BY_ADMIN | {
        "event": "transaction_aborted_by_admin",
        "level": "info",
        "transactional_id": "billing",
        "producer_id": 0,
        "old_epoch": 0,
        "producer_epoch": 1,
        "old_state": "Ongoing",
        "new_state": "PrepareAbort",
        "cause": "admin",
    }
    assert world.fenced_by_admin() == 1


def test_a_fence_of_an_idle_id(world: Watched, lines: Lines) -> None:
    world.ready("billing")
    world.fence("billing")
    event = lines.only()
    assert event == BY_ADMIN | {
        "event": "fenced_by_admin",
        "level": "info",
        "transactional_id": "billing",
        "producer_id": 0,
        "old_epoch": 0,
        "producer_epoch": 1,
        "old_state": "Empty",
        "new_state": "Empty",
        "cause": "admin",
    }
    assert world.fenced_by_admin() == 1


def test_a_fence_that_aborts_first_is_one_fence(world: Watched, lines: Lines) -> None:
    world.opened("billing")
    world.fence("billing")
    assert lines.only()["event"] == "transaction_aborted_by_admin"
    assert world.fenced_by_admin() == 1


def test_a_dry_run_is_no_act(world: Watched, lines: Lines) -> None:
    world.opened("billing")
    world.abort("billing", dry_run=True)
    world.fence("billing", dry_run=True)
    assert lines.events() == []
    assert world.fenced_by_admin() == 0


def test_a_hanging_transaction_is_told_once_and_so_is_its_end(world: Watched, lines: Lines) -> None:
    world.leave_hanging("t-1", Identity(world.ready("gone").producer_id, 0))
    world.hanging.audit()
    world.hanging.audit()
    event = lines.only()
    assert (event["event"], event["level"], event["reason"]) == ("hanging_transaction", "error", "not_open")
    assert (event["topic"], event["partition"], event["transactional_id"]) == ("t", 1, "gone")
    world.hanging.abort(world.ordinal("t-1"), None, ADMIN, dry_run=False)
    world.settle()
    event = lines.only()
    assert event == BY_ADMIN | {
        "event": "hanging_transaction_aborted",
        "level": "warning",
        "topic": "t",
        "partition": 1,
        "producer_id": 0,
        "producer_epoch": 0,
    }


def test_a_marker_from_outside(world: Watched, lines: Lines) -> None:
    world.opened("billing")
    world.abort("billing")
    given = world.init_plain(CLIENT)
    world.settle()
    foreigner = given.result()
    world.leave_hanging("t-1", foreigner)
    lines.text()
    marker = Marker(
        producer_id=foreigner.producer_id,
        txn_epoch=0,
        next_epoch=1,
        coordinator_shard=0,
        coordinator_epoch=1,
        outcome=Outcome.COMMIT,
        csn=1,
    )
    for _ in range(2):
        written = world.foreign_markers.write(WriteTxnMarkers([DecidedMarker(marker, (partition_name("t-1"),))]), ADMIN)
        world.settle()
        ((_producer_id, (result,)),) = written.result()
        assert result.error is None
    # The second one was in the log already.
    assert lines.only() == BY_ADMIN | {
        "event": "marker_from_outside",
        "level": "info",
        "topic": "t",
        "partition": 1,
        "producer_id": foreigner.producer_id,
        "producer_epoch": 0,
        "outcome": "commit",
        "csn": 1,
    }


def test_a_coordinator_that_was_fenced_says_what_to_do(world: Watched, lines: Lines) -> None:
    shard = world.inside.transactions.shard_key("billing")
    world.inside.sender.on_fenced(shard, 3)
    event = lines.only()
    assert (event["event"], event["level"]) == ("coordinator_fenced", "error")
    assert (event["shard"], event["coordinator_epoch"]) == (shard.number, 3)
    assert "end the other" in str(event["advice"])
