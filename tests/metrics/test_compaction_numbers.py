"""Counts of passes of compaction."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_api.v1 import log_pb2
from coordinator_runtime.store_readers import ReadsAtOnce
from coordinator_server.metrics.readings import compaction_readings
from coordinator_server.metrics.topic_sizes import TopicSizes
from tests.harness.inside import WorldOptions
from tests.metrics.observed import ObservedWorld
from txn_coordinator.state import Identity

NO_PRODUCER = Identity(-1, -1)


class OneKey(ObservedWorld):
    """All records have one key."""

    def _payload(self, _topic: str, values: Sequence[str]) -> bytes:
        records = [log_pb2.Record(key=b"k", value=value.encode(), timestamp_ms=1) for value in values]
        return log_pb2.Records(records=records).SerializeToString()


def test_passes_are_counted_and_sizes_shrink() -> None:
    world = OneKey(WorldOptions(compaction_interval_ms=1_000, index_interval_batches=4))
    world.create_topic("t", 1, config={"cleanup_policy": "compact"})
    compaction = world.inside.core.log.compaction
    assert compaction is not None
    for number in range(9):
        world.produce(None, NO_PRODUCER, "t-0", [f"value {number}"], sequence=-1)
    world.settle()
    sizes = TopicSizes(ReadsAtOnce(world.shelf.store))  # type: ignore[attr-defined]

    def size(name: str) -> object:
        return sizes.readings(world.survey().standings, is_last_cut=False)[name]["t",]

    whole_bytes, runtime = size("txn_topic_bytes"), world.inside.runtime
    assert compaction_readings(compaction, runtime.clock)["txn_compaction_last_pass_seconds"] == {(): 0}
    world.pass_time(1_500)
    readings = compaction_readings(compaction, runtime.clock)
    assert readings["txn_compaction_passes_total"] == {("ended",): 1, ("stopped",): 0}
    assert readings["txn_compaction_dirty_ratio"] == {(): 1.0}
    assert readings["txn_compaction_waiting_seconds"] == {(): 0}
    assert world.value("txn_compaction_removed_records_total", "t") == 7
    removed_bytes = world.value("txn_compaction_removed_bytes_total", "t")
    assert (size("txn_topic_records"), size("txn_topic_bytes")) == (2, whole_bytes - removed_bytes)  # type: ignore[operator]
    world.pass_time(2_000)
    assert compaction_readings(compaction, runtime.clock)["txn_compaction_dirty_ratio"] == {(): 0}
    assert compaction_readings(None, runtime.clock) == {}
