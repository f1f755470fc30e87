"""K. Leader epochs: a reader that names the epoch of its last record is never shown others at the same offsets
(KIP-320)."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1 import group_pb2
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.ports import CallContext
from partition_log.leadership import Diverged
from partition_log.requests import (
    EpochEndResult,
    EpochQuery,
    Fetch,
    FetchItem,
    FetchResult,
    ListOffsets,
    OffsetForLeaderEpoch,
    OffsetQuery,
    OffsetResult,
)
from partition_log.state import Isolation
from tests.conformance.transactions.case_world import CaseWorld
from tests.conformance.transactions.cases import case
from tests.harness.committed_offsets import topic_offsets, topic_partitions
from tests.harness.shelf import CrashingStore, crashing
from tests.harness.world import partition_name
from txn_coordinator.state import Identity

pytestmark = pytest.mark.copies_store

NO_PRODUCER = Identity(-1, -1)
_BEGAN_2025_MS = 1_735_689_600_000

both_modes = pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])


def backup(world: CaseWorld) -> CrashingStore:
    """All that is there, and nothing under way."""
    world.settle()
    return crashing(world.shelf.store).copy()


def begin_epoch(
    world: CaseWorld,
    epoch: int,
    left: CrashingStore | None = None,
    cause: IncarnationCause = IncarnationCause.DATA_LOSS,
) -> None:
    """The server goes on with what is left, or with all there is, in this leader epoch: its number is a wall time."""
    left = backup(world) if left is None else left
    world.clock.step_wall(_BEGAN_2025_MS + epoch * 1_000 - world.clock.wall_ms())
    world.restore(left, cause)
    world.settle()


def append(world: CaseWorld, count: int) -> None:
    """One batch of plain records in t-0."""
    values = [str(number) for number in range(count)]
    assert world.client().write("t-0", *values, shown=NO_PRODUCER, sequence=-1, plain=True) == 0


def transact(world: CaseWorld, transactional_id: str, *values: str, commits: bool = True) -> None:
    """A transaction in t-0, and its marker."""
    client = world.client(transactional_id)
    assert isinstance(client.init(), Identity)
    assert client.add("t-0") is True
    assert client.write("t-0", *values) == 0
    assert isinstance(client.commit() if commits else client.abort(), Identity)
    world.settle()


def fetch(world: CaseWorld, offset: int = 0, **fields: Any) -> FetchResult:
    """A Fetch of t-0 that does not wait."""
    is_raw = fields.pop("is_raw", False)
    request = Fetch((FetchItem(partition_name("t-0"), offset, **fields),), Isolation.READ_COMMITTED, is_raw=is_raw)
    (result,) = world.inside.log.fetch(request, CallContext()).result()
    return result


def code(result: FetchResult | OffsetResult | EpochEndResult) -> int:
    return 0 if result.error is None else int(result.error.code)


def diverging(result: FetchResult) -> tuple[int, int] | None:
    """Return epoch and end if the reader is refused as diverged, in which case it is served nothing."""
    if not isinstance(result.error, Diverged):
        return None
    assert (code(result), result.batches) == (1, ())
    return result.error.divergence.epoch, result.error.divergence.end_offset


def epochs(world: CaseWorld) -> list[tuple[int, int]]:
    """First offset and epoch of each batch."""
    return [(header.base_offset, header.leader_epoch) for header, _stored in fetch(world, is_raw=True).batches]


@pytest.fixture
def kafkas_log() -> CaseWorld:
    """The log of PartitionTest.testLastFetchedOffsetValidation."""
    world = CaseWorld()
    append(world, 2)
    for epoch, batches in ((3, (3, 3)), (4, (5,)), (7, (1,)), (9, (3,))):
        begin_epoch(world, epoch)
        for count in batches:
            append(world, count)
    begin_epoch(world, 10)
    assert epochs(world) == [(0, 0), (2, 3), (5, 3), (8, 4), (13, 7), (14, 9)]
    return world


@case(295)
@both_modes
def test_a_fetch_that_takes_another_epoch_for_the_present_one(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a")
    begin_epoch(world, 5)
    results = [fetch(world, current_leader_epoch=epoch) for epoch in (5, 4, 6, None)]
    assert [code(result) for result in results] == [0, 74, 75, 0]
    assert [len(result.batches) for result in results] == [1, 0, 0, 1]


@case(296)
@both_modes
def test_a_search_that_takes_another_epoch_for_the_present_one(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a")
    begin_epoch(world, 5)
    queries = [OffsetQuery(partition_name("t-0"), -1, epoch) for epoch in (5, 4, 6, None)]
    found = world.told(world.inside.positions.list_offsets(ListOffsets(queries), CallContext()))
    assert [code(result) for result in found] == [0, 74, 75, 0]


@case(297)
@pytest.mark.parametrize(("last_read_epoch", "offset"), [(0, 2), (7, 14), (9, 17), (10, 17)])
def test_who_read_what_is_here_goes_on(kafkas_log: CaseWorld, last_read_epoch: int, offset: int) -> None:
    assert code(fetch(kafkas_log, offset, last_read_epoch=last_read_epoch)) == 0


@case(
    298,
    differs="no end behind the reader's own position is named: (4, 6) in place of (4, 13) for one that stands at 6. "
    "Kafka's clients take the smaller one of the two themselves",
)
@pytest.mark.parametrize(
    ("last_read_epoch", "offset", "parted"),
    [(0, 4, (0, 2)), (2, 5, (0, 2)), (6, 6, (4, 6)), (5, 9, (4, 9)), (10, 18, (10, 17))],
)
def test_who_read_what_is_not_here_is_told_where_it_parted(
    kafkas_log: CaseWorld, last_read_epoch: int, offset: int, parted: tuple[int, int]
) -> None:
    assert diverging(fetch(kafkas_log, offset, last_read_epoch=last_read_epoch)) == parted


@case(299)
def test_an_unknown_epoch_is_out_of_range(kafkas_log: CaseWorld) -> None:
    result = fetch(kafkas_log, 5, last_read_epoch=11)
    assert (code(result), result.batches) == (1, ())
    assert diverging(result) == (10, 5), "and the newest that is known here is named"


@case(300)
@both_modes
def test_a_reader_of_a_longer_log_is_told_where_its_epoch_ended(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a", "b")
    kept = backup(world)
    transact(world, "others", "lost")
    read = fetch(world)
    assert (read.next_offset, read.last_read_epoch) == (5, 0)
    begin_epoch(world, 8, kept, IncarnationCause.RESTORE)
    transact(world, "orders", "c", "d", "e", "f")
    assert diverging(fetch(world, 5, last_read_epoch=0)) == (0, 3)
    assert world.visible() == ["a", "b", "c", "d", "e", "f"]


@case(301)
@both_modes
def test_offsets_are_found_with_their_epochs(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a")
    begin_epoch(world, 20)
    transact(world, "orders", "b")
    queries = [OffsetQuery(partition_name("t-0"), time_ms) for time_ms in (-2, -1, _BEGAN_2025_MS + 20_000)]
    found = world.told(world.inside.positions.list_offsets(ListOffsets(queries), CallContext()))
    assert [(result.offset, result.leader_epoch) for result in found] == [(0, 0), (4, 20), (2, 20)]


@case(
    302,
    differs="decision 28: a plain restart does not raise it, because no answer left before it was durable; a loss that "
    "is accepted, and a restored backup do",
)
@both_modes
def test_the_epoch_rises_where_records_can_have_been_lost(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a")
    world.crash()
    world.settle()
    transact(world, "orders", "b")
    for cause, epoch in ((IncarnationCause.DATA_LOSS, 4), (IncarnationCause.RESTORE, 6)):
        begin_epoch(world, epoch, cause=cause)
        transact(world, "orders", "c")
    assert epochs(world) == [*((offset, 0) for offset in range(4)), (4, 4), (5, 4), (6, 6), (7, 6)]


@case(303)
@both_modes
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_every_batch_has_the_epoch_of_its_append(split: bool, commits: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a", commits=commits)
    begin_epoch(world, 3)
    transact(world, "orders", "b", commits=commits)
    assert epochs(world) == [(0, 0), (1, 0), (2, 3), (3, 3)]


def committed_epoch(world: CaseWorld) -> int | None:
    """The leader epoch of the offset of t-0 that a group has."""
    group = group_pb2.OffsetFetchGroup(group_id="g", topics=group_pb2.PartitionSet(topics=topic_partitions("t-0")))
    reply = world.inside.group_wire.call(group_pb2.OffsetFetchRequest(groups=[group], require_stable=True))
    world.settle()
    (offset,) = reply.result().groups[0].offsets
    assert offset.error_code == 0
    return offset.committed_leader_epoch if offset.HasField("committed_leader_epoch") else None


def offset_with_epoch(offset: int, epoch: int | None) -> list[group_pb2.TopicOffsets]:
    topics = topic_offsets({"t-0": offset})
    if epoch is not None:
        topics[0].partitions[0].committed_leader_epoch = epoch
    return topics


@case(304)
@both_modes
def test_a_committed_offset_keeps_its_epoch(split: bool) -> None:
    world = CaseWorld(split=split)
    for epoch, kept in ((7, 7), (None, None), (0, 0), (-1, None)):
        request = group_pb2.OffsetCommitRequest(group_id="g", topics=offset_with_epoch(1, epoch))
        reply = world.inside.group_wire.call(request)
        world.settle()
        assert [result.error_code for result in reply.result().results] == [0]
        assert committed_epoch(world) == kept


@case(305)
@both_modes
def test_an_offset_committed_in_a_transaction_keeps_its_epoch(split: bool) -> None:
    world = CaseWorld(split=split)
    client = world.ready()
    request = group_pb2.TxnOffsetCommitRequest(
        group_id="g",
        transactional_id=client.transactional_id,
        producer_id=client.identity.producer_id,
        producer_epoch=client.identity.producer_epoch,
        topics=offset_with_epoch(1, 7),
    )
    reply = world.inside.group_wire.call(request, client.context)
    world.settle()
    assert [result.error_code for result in reply.result().results] == [0]
    assert isinstance(client.commit(), Identity)
    world.settle()
    assert committed_epoch(world) == 7
    world.crash()
    world.settle()
    assert committed_epoch(world) == 7


@case(306)
@both_modes
def test_a_reader_passes_a_transaction_that_two_lines_have_part_in(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "before", "a")
    world.ongoing("orders")
    kept = backup(world)
    append(world, 1)
    read = fetch(world)
    assert (read.next_offset, read.last_read_epoch) == (2, 0), "up to what is open"
    begin_epoch(world, 9, kept)
    world.tick(10)
    world.settle()
    assert epochs(world) == [(0, 0), (1, 0), (2, 0), (3, 9)], "the marker is of this line"
    result = fetch(world, 2, last_read_epoch=0)
    assert (code(result), result.batches, result.next_offset, result.last_read_epoch) == (0, (), 4, 9)
    assert code(fetch(world, 4, last_read_epoch=9)) == 0


@case(307)
@both_modes
def test_a_committed_offset_that_is_ahead_of_what_is_left(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a")
    kept = backup(world)
    transact(world, "orders", "lost")
    begin_epoch(world, 9, kept)
    transact(world, "others", "b")
    assert diverging(fetch(world, 4, last_read_epoch=0)) == (0, 2)
    transact(world, "others", "c")
    unchecked = fetch(world, 4)
    assert (code(unchecked), unchecked.batches[0][0].base_offset) == (0, 4), "the epoch is unknown"


@case(308)
@both_modes
def test_a_range_is_served_as_it_was_planned_or_not_at_all(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a")
    kept = backup(world)
    transact(world, "orders", "lost")
    planned = world.told(
        world.inside.positions.list_offsets(ListOffsets([OffsetQuery(partition_name("t-0"), -1)]), CallContext())
    )
    assert [(found.offset, found.leader_epoch) for found in planned] == [(4, 0)]
    begin_epoch(world, 9, kept)
    transact(world, "others", "b")
    assert diverging(fetch(world, 0, end_offset=4, end_epoch=0)) == (0, 2)
    piece = fetch(world, 0, end_offset=2, end_epoch=0)
    assert (code(piece), len(piece.batches), piece.next_offset) == (0, 1, 2)


@case(309)
@both_modes
def test_a_reader_of_the_line_between_two_restores(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a")
    kept = backup(world)
    begin_epoch(world, 5, kept, IncarnationCause.RESTORE)
    transact(world, "others", "between")
    read = fetch(world)
    assert (read.next_offset, read.last_read_epoch) == (4, 5)
    begin_epoch(world, 8, kept, IncarnationCause.RESTORE)
    transact(world, "others", "after", "that")
    assert diverging(fetch(world, 4, last_read_epoch=5)) == (0, 2)
    assert world.visible() == ["a", "after", "that"]


def epoch_ends(world: CaseWorld, *queries: tuple[int, int | None]) -> list[EpochEndResult]:
    """Ends of epochs in t-0: each epoch asked for, and the one taken for the current one."""
    asked = OffsetForLeaderEpoch([EpochQuery(partition_name("t-0"), *query) for query in queries])
    return world.told(world.inside.positions.offset_for_leader_epoch(asked, CallContext()))


@case(354)
@both_modes
def test_an_end_for_whom_takes_another_epoch_for_the_present_one(split: bool) -> None:
    world = CaseWorld(split=split)
    transact(world, "orders", "a")
    begin_epoch(world, 5)
    found = epoch_ends(world, *((5, current) for current in (5, 4, 6, None)))
    assert [code(result) for result in found] == [0, 74, 75, 0]
    assert [result.end_offset for result in found] == [2, -1, -1, 2]


@case(355)
def test_ends_of_epochs(kafkas_log: CaseWorld) -> None:
    found = epoch_ends(kafkas_log, *((epoch, None) for epoch in (0, 2, 3, 5, 9, 10, 11, -1)))
    assert [(result.epoch, result.end_offset) for result in found] == [
        (0, 2),
        (0, 2),
        (3, 8),
        (4, 13),
        (9, 17),
        (10, 17),
        (-1, -1),
        (-1, -1),
    ]
