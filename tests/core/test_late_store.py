"""A store whose reads answer late: each kind of read waits by itself, and commits go on meanwhile.

`UnreadableStore` fails the test if the loop reads anything by itself. What each kind answers is compared with a world
whose reads answer at once. DeleteRecords and TakeSnapshot read nothing: they decide on state in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from coordinator_api.v1 import log_pb2
from coordinator_core.partition_list import ListPartitions
from coordinator_protocol.batch import Encoding
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome
from coordinator_protocol.snapshots import scan_of
from coordinator_runtime.history_trim import HISTORY_INTERVAL_MS
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, PartitionName
from coordinator_runtime.record_log import LogReadLimits, LogSpan
from coordinator_server.metrics.lag import GroupLags, LagConfig
from coordinator_server.metrics.topic_sizes import TopicSizes
from partition_log.catalog.settings import FOR_EVER, Retention
from partition_log.record_log import RecordReads
from partition_log.records import RowsRemoved
from partition_log.requests import (
    NEWEST_TIMESTAMP,
    AskedRange,
    CountQuery,
    CountRecords,
    DeleteRecords,
    DeleteTopics,
    Fetch,
    FetchItem,
    ListCommitted,
    ListOffsets,
    MeasureQuery,
    MeasureRecords,
    OffsetQuery,
    RecordsToDelete,
    TopicName,
)
from partition_log.snapshots import TakeSnapshot
from tests.harness.group_calls import ANYBODY
from tests.harness.inside import WorldOptions
from tests.harness.world import TransactContents
from tests.metrics.observed import ObservedWorld
from txn_coordinator.state import Identity

LATE_MS: Final = 300
PATIENCE_MS: Final = 60_000
COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT
NO_PRODUCER = Identity(-1, -1)
CALLER = CallContext(client_id="test", request_id=b"r" * 16)
T0 = PartitionName("t", b"", 0)


class Filled(ObservedWorld):
    """A log of several stretches with committed, aborted and plain records; all of them have the key `k`."""

    def __init__(self, options: WorldOptions) -> None:
        super().__init__(options)
        self.create_topic("t", 1)
        self.numbers: dict[str, tuple[Identity, int]] = {}
        for number in range(12):
            self.tick(1)
            self.transaction("old", f"value {number}", ABORT if number % 4 == 1 else COMMIT)
            self.produce(None, NO_PRODUCER, "t-0", [f"plain {number}"], sequence=-1)
        self.commit_all()

    def _payload(self, _topic: str, values: Sequence[str]) -> bytes:
        now_ms = self.clock.wall_ms()
        records = [log_pb2.Record(key=b"k", value=value.encode(), timestamp_ms=now_ms) for value in values]
        return log_pb2.Records(records=records).SerializeToString()

    def commit_all(self) -> None:
        """Make all durable that is staged, whatever still reads."""
        while self.flush():
            pass

    def transaction(self, transactional_id: str, value: str, outcome: Outcome = COMMIT) -> None:
        """One transaction, from its beginning to the answer of its end. No time passes."""
        if transactional_id not in self.numbers:
            identity = self.init(transactional_id)
            self.commit_all()
            self.numbers[transactional_id] = identity.result(), 0
        identity, sequence = self.numbers[transactional_id]
        produced = self.produce(transactional_id, identity, "t-0", [value], sequence=sequence)
        self.commit_all()
        assert produced.result().error is None, produced.result().error
        ended = self.end(transactional_id, identity, outcome)
        self.commit_all()
        following = ended.result().next_identity
        is_same = following == identity
        self.numbers[transactional_id] = following, sequence + 1 if is_same else 0

    def answer(self, reply: Pending[Any]) -> Any:
        """The answer, which takes as long as it takes."""
        for _ in range(PATIENCE_MS):
            self.commit_all()
            if reply.is_settled:
                return reply.result()
            self.tick(1)
        raise AssertionError("it was never answered")

    def ref(self) -> Any:
        return self.inside.catalog.resolve("t", b"", 0)


def world(late_ms: int | None, **options: Any) -> Filled:
    return Filled(WorldOptions(late_reads_ms=late_ms, index_interval_batches=4, **options))


def records_of(world: Filled) -> RecordReads:
    inside = world.inside
    return RecordReads(inside.runtime, inside.catalog, inside.log, inside.positions)


def fetched(world: Filled, **fields: Any) -> Pending[Any]:
    found = world.inside.log.fetch(Fetch((FetchItem(T0, 0),), **fields), ANYBODY)
    return found.map(lambda results: [(each.error, each.next_offset, len(each.batches)) for each in results])


def since(world: Filled, timestamp_ms: int) -> Pending[Any]:
    return world.inside.positions.list_offsets(ListOffsets([OffsetQuery(T0, timestamp_ms)]), ANYBODY)


def read_for_share_groups(world: Filled) -> Pending[Any]:
    limits = LogReadLimits(is_committed=True, bytes_max=1 << 20, accepted_encodings=frozenset(Encoding))
    return (
        records_of(world)
        .read([LogSpan(world.ref(), 0, 20)], limits)
        .map(lambda found: [(each.next_offset, len(each.batches), each.aborted) for each in found])
    )


READS: dict[str, Callable[[Filled], Pending[Any]]] = {
    "fetch": fetched,
    "raw fetch": lambda world: fetched(world, is_raw=True),
    "share fetch": read_for_share_groups,
    "start of a share group by time": lambda world: records_of(world).offset_since(
        world.ref(), world.clock.wall_ms() - 5, ANYBODY, is_committed=True
    ),
    "search by time": lambda world: since(world, world.clock.wall_ms() - 5),
    "search of the newest record": lambda world: since(world, NEWEST_TIMESTAMP),
    "search behind all records": lambda world: since(world, world.clock.wall_ms() + 5),
    "count": lambda world: world.inside.core.log.ranges.count_records(CountRecords([CountQuery(T0, 3)]), ANYBODY).map(
        lambda results: [(each.error, each.counted) for each in results]
    ),
    "measurement": lambda world: world.inside.core.log.ranges.measure_records(
        MeasureRecords([MeasureQuery(T0, 2, 30)], 200), ANYBODY
    ),
    "commits of a range": lambda world: world.inside.core.log.ranges.list_committed(
        ListCommitted([AskedRange(T0, 0, 30)]), ANYBODY
    ),
    "history": lambda world: world.inside.reader.describe(["old"], ANYBODY, history_limit=5).map(
        lambda found: [each.history for each in found]
    ),
}


@pytest.mark.parametrize("kind", READS)
def test_a_read_that_is_late_holds_up_no_commit(kind: str) -> None:
    at_once, late = world(None), world(LATE_MS)
    expected = at_once.answer(READS[kind](at_once))
    began_ms = late.clock.monotonic_ms()
    reply = READS[kind](late)
    late.transaction("other", "meanwhile")
    assert late.clock.monotonic_ms() == began_ms
    assert not reply.is_settled, "a read of old data waits for the store"
    assert late.answer(reply) == expected
    assert late.clock.monotonic_ms() - began_ms >= LATE_MS


def test_several_searches_read_side_by_side_and_open_one_batch_after_the_other() -> None:
    at_once, late = world(None), world(LATE_MS)
    times = [late.clock.wall_ms() - before for before in range(12)]
    queries = ListOffsets([OffsetQuery(T0, time) for time in times])
    expected = at_once.answer(at_once.inside.positions.list_offsets(queries, ANYBODY))
    began_ms = late.clock.monotonic_ms()
    assert late.answer(late.inside.positions.list_offsets(queries, ANYBODY)) == expected
    assert late.clock.monotonic_ms() - began_ms < 3 * LATE_MS


def delete_before(world: Filled, offset: int) -> Pending[Any]:
    return world.inside.log.delete_records(DeleteRecords([RecordsToDelete(T0, offset)]), ANYBODY)


def test_records_are_deleted_without_a_read() -> None:
    late = world(LATE_MS)
    deleted = delete_before(late, 9)
    late.commit_all()
    assert deleted.result()[0].error is None
    assert late.inside.log.standing(T0, ANYBODY).head.log_start_offset == 9  # type: ignore[union-attr]


def test_a_snapshot_is_taken_without_a_read() -> None:
    late = world(LATE_MS)
    assert late.inside.core.log.snapshots.take(TakeSnapshot([T0], 60_000), ANYBODY).is_settled


@pytest.mark.parametrize("kind", ["count", "search by time", "measurement"])
def test_what_is_deleted_while_a_thread_reads_is_not_told(kind: str) -> None:
    at_once, late = world(None), world(LATE_MS, removal_interval_ms=LATE_MS // 3)
    at_once.answer(delete_before(at_once, 30))
    expected = at_once.answer(READS[kind](at_once))
    reply = READS[kind](late)
    late.answer(delete_before(late, 30))
    assert late.answer(reply) == expected


def test_a_topic_that_is_deleted_while_a_thread_reads_is_unknown() -> None:
    late = world(LATE_MS)
    counting, searching = READS["count"](late), READS["search by time"](late)
    late.inside.topics.delete_topics(DeleteTopics([TopicName("t")]), ANYBODY)
    ((error, _),) = late.answer(counting)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert late.answer(searching)[0].error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_retention_and_removal_wait_for_the_store_and_nothing_else_does() -> None:
    late = world(LATE_MS, retention=Retention(FOR_EVER, 500), removal_interval_ms=1_000)
    removed: list[RowsRemoved] = []
    late.inside.removal.on_removed = removed.append
    late.tick(1_000)
    late.transaction("other", "meanwhile")
    for _ in range(40):
        late.tick(100)
        late.commit_all()
    head = late.inside.log.standing(T0, ANYBODY).head  # type: ignore[union-attr]
    assert head.log_start_offset > 0
    assert sum(each.size_bytes for each in removed) > 0
    late.check_stored()


def test_a_pass_of_compaction_waits_for_the_store_and_nothing_else_does() -> None:
    late = world(LATE_MS, compaction_interval_ms=1_000)
    late.create_topic("c", 1, config={"cleanup_policy": "compact"})
    for number in range(9):
        late.produce(None, NO_PRODUCER, "c-0", [f"value {number}"], sequence=-1)
        late.commit_all()
    compaction = late.inside.core.log.compaction
    assert compaction is not None
    for number in range(100):
        late.tick(100)
        if number % 10 == 0:
            late.transaction("other", "meanwhile")
        late.commit_all()
    assert (compaction.ended_passes > 0, compaction.stopped_passes) == (True, 0)
    assert late.value("txn_compaction_removed_records_total", "c") == 7
    late.check_stored()


def test_a_snapshot_that_is_compacted_while_a_thread_reads_it_is_refused() -> None:
    """A pass goes on while reads wait. None of them answers with fewer records."""
    late = world(LATE_MS, compaction_interval_ms=1_000)
    late.create_topic("c", 1, config={"cleanup_policy": "compact"})
    name = PartitionName("c", b"", 0)
    for number in range(9):
        late.produce(None, NO_PRODUCER, "c-0", [f"value {number}"], sequence=-1)
        late.commit_all()
    taken = late.inside.core.log.snapshots.take(TakeSnapshot([name]), ANYBODY).result()
    scan = scan_of(taken.views[0][1])
    item = FetchItem(name, 0, scan.end_offset, end_epoch=scan.end_epoch, shown=scan.shown)
    reads: list[Pending[Any]] = []
    for _ in range(100):
        reads.append(late.inside.log.fetch(Fetch((item,)), ANYBODY))
        late.tick(50)
        late.commit_all()
    late.tick(10 * LATE_MS)
    late.commit_all()
    results = [read.result()[0] for read in reads]
    compacted = [result for result in results if result.error is not None]
    assert {result.error.code for result in compacted} == {ErrorCode.OFFSET_OUT_OF_RANGE}
    whole = {len(result.batches) for result in results if result.error is None and result.next_offset > 0}
    assert whole == {9}


def test_a_shard_is_loaded_while_the_others_commit() -> None:
    late = world(LATE_MS)
    loading = late.load("t-0")
    initialised = late.init("somebody")
    late.commit_all()
    assert initialised.is_settled
    assert not loading.is_settled
    late.answer(loading)
    late.transaction("old", "after the load")


def test_history_is_trimmed_beside_the_loop() -> None:
    late = world(LATE_MS)
    assert late.inside.late is not None
    jobs = late.inside.late.jobs
    late.tick(HISTORY_INTERVAL_MS)
    late.transaction("other", "meanwhile")
    late.tick(20 * LATE_MS)
    late.commit_all()
    assert late.inside.late.jobs > jobs


def test_partitions_are_listed_with_what_they_hold_although_the_store_is_late() -> None:
    late = world(LATE_MS)
    late.answer(delete_before(late, 7))
    listing = late.inside.core.admin.partitions.list_partitions(ListPartitions(), ANYBODY)
    late.transaction("other", "meanwhile")
    assert not listing.is_settled
    (listed,) = late.answer(listing).partitions
    at_once = world(None)
    at_once.answer(delete_before(at_once, 7))
    (expected,) = at_once.answer(
        at_once.inside.core.admin.partitions.list_partitions(ListPartitions(), ANYBODY)
    ).partitions
    assert listed.held.record_count == expected.held.record_count


def test_a_repeated_transact_waits_for_the_offset_that_its_partition_has_forgotten() -> None:
    late = world(LATE_MS, producer_expiration_ms=1_000)
    identity = late.init("whole")
    late.commit_all()
    contents = TransactContents([("t-0", ["a"], 0)])
    first = late.transact("whole", identity.result(), contents, COMMIT, CALLER)
    late.commit_all()
    late.tick(3_000)
    late.commit_all()
    assert late.remembered("t-0") == ()
    again = late.transact("whole", identity.result(), contents, COMMIT, CALLER)
    late.commit_all()
    assert not again.is_settled
    assert late.answer(again).first_offsets == first.result().first_offsets


def test_metrics_of_lag_and_sizes_come_later_and_hold_up_nothing() -> None:
    late = world(LATE_MS)
    assert late.inside.late is not None
    sizes = TopicSizes(late.inside.late)
    late.answer(delete_before(late, 7))
    whole = sizes.readings(late.survey().standings, is_last_cut=False)["txn_topic_records"]["t",]
    late.tick(LATE_MS)
    assert sizes.readings(late.survey().standings, is_last_cut=False)["txn_topic_records"]["t",] < whole
    lags = GroupLags(late.inside.runtime, late.inside.late, late.inside.catalog, LagConfig(("g",), 9))
    lags.start()
    late.transaction("other", "meanwhile")
    late.tick(10 * LATE_MS)
    assert "txn_group_lag_records" in lags.readings(late.clock.wall_ms())
