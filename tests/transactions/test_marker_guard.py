"""A marker from outside must not leave numbers behind that lock this server's own coordinator out."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Record
from coordinator_runtime.incarnation import Incarnation, IncarnationCause
from coordinator_runtime.ports import ALLOW_ALL
from coordinator_runtime.timeline import Journal
from partition_log.foreign_markers import DecidedMarker, ForeignMarkers, WriteTxnMarkers
from tests.conformance.transactions.case_world import NOW, CaseWorld
from tests.harness.world import partition_name
from txn_coordinator.counters import CountersShard
from txn_coordinator.hanging import ProducerOwners
from txn_coordinator.rules import ending


def test_a_marker_for_a_producer_of_a_lost_line_is_refused() -> None:
    """Outcomes decided there do not count here: transactions open then were aborted, and the producer id has no owner
    now."""
    counters = CountersShard(Journal(), Incarnation(7, IncarnationCause.RESTORE))
    records: list[Record] = []
    ours = counters.next_producer_id(records)
    counters.check_incarnation(ours)
    with pytest.raises(Refused, match="is of a line of the store that ended") as refused:
        counters.check_incarnation(ours - 1)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("ahead", "code"), [(-1, 0), (0, 0), (1, 48), (1_000_000, 48)])
def test_the_coordinator_epoch_of_the_owner_is_the_highest_that_is_taken(ahead: int, code: int) -> None:
    world = CaseWorld(split=True)
    world.answers_markers(Refused(ErrorCode.NETWORK_EXCEPTION, "away"), "t-0")
    client = world.ongoing()
    client.commit()
    inside = world.inside
    shard = inside.runtime.shard(inside.transactions.shard_key("orders"))
    marker = ending.marker_of(world.described(), shard.key.number, shard.coordinator_epoch + ahead)
    foreign = ForeignMarkers(inside.runtime, inside.catalog, guard=ProducerOwners(inside.runtime), authorizer=ALLOW_ALL)
    command = WriteTxnMarkers([DecidedMarker(marker, (partition_name("t-0"),))])
    ((_producer_id, (result,)),) = world.told(foreign.write(command, NOW))
    assert (0 if result.error is None else result.error.code) == code
    world.answers_markers(None)
    world.tick(1_000)
    world.settle()
    assert client.write("t-0", "b") == 0
    client.commit()
    world.tick(1_000)
    world.settle()
    assert (world.state(), world.visible()) == ("CompleteCommit", ["a", "b"]), "its own markers are still taken"
