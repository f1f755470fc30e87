"""The list of partitions: positions, sizes and blockers, in portions, as far as the caller may see them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from coordinator_core.partition_list import (
    ANSWERED_MAX,
    PARTITIONS_PER_STEP,
    ListPartitions,
    ListPlace,
    PartitionList,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import AllowAll, CallContext, PartitionName, Permission, ResourceType
from partition_log.requests import DeleteRecords, RecordsToDelete
from tests.harness.group_calls import ANYBODY
from tests.harness.inside import WorldOptions
from tests.harness.world import TransactContents, World
from tests.transactions.administered import CLIENT, COMMIT, Administered
from txn_coordinator.state import Identity


def listed(world: World, **wanted: object) -> PartitionList:
    reply = world.inside.core.admin.partitions.list_partitions(ListPartitions(**wanted), ANYBODY)  # type: ignore[arg-type]
    for _step in range(1_000):
        if reply.is_settled:
            break
        world.tick(1)
    return reply.result()


def names(found: PartitionList) -> list[tuple[str, int]]:
    return [(each.topic.name, each.partition) for each in found.partitions]


def delete_before(world: World, topic: str, partition: int, offset: int) -> None:
    wanted = RecordsToDelete(PartitionName(topic, b"", partition), offset)
    deleted = world.inside.log.delete_records(DeleteRecords([wanted]), ANYBODY)
    world.settle()
    assert deleted.result()[0].error is None


def test_a_partition_is_listed_with_what_it_holds_and_who_blocks_its_readers() -> None:
    world = Administered()
    identity = world.opened("till", "t-1")
    world.tick(300)
    (free, blocked) = listed(world).partitions
    assert (free.head is not None, free.held.record_count, free.blocker) == (True, 0, None)
    assert blocked.held.record_count == 1
    assert blocked.held.size_bytes > 0
    assert blocked.blocker is not None
    assert blocked.blocker.owner is not None
    assert (blocked.blocker.owner.transactional_id, blocked.blocker.opened.first_offset) == ("till", 0)
    assert blocked.blocker.age_ms == 300
    assert names(listed(world, only_open=True)) == [("t", 1)]
    world.end("till", identity, COMMIT)
    world.settle()
    assert listed(world, only_open=True).partitions == []


def test_deleted_records_are_not_held() -> None:
    world = Administered()
    whole = 0
    for number in range(4):
        world.end(f"till-{number}", world.opened(f"till-{number}", "t-0"), COMMIT)
        world.settle()
        whole = listed(world).partitions[0].held.size_bytes
    delete_before(world, "t", 0, 4)
    (left, _other) = listed(world).partitions
    assert left.held.record_count == 2
    assert left.held.size_bytes * 2 == whole, "every transaction has the same size"
    assert listed(world).partitions[0].held == left.held, "remembered"
    delete_before(world, "t", 0, -1)
    assert listed(world).partitions[0].held.record_count == 0
    assert listed(world).partitions[0].held.size_bytes == 0


def test_records_that_compaction_took_are_not_held() -> None:
    options = WorldOptions(
        compaction_interval_ms=100, index_interval_batches=1, writes_records=True, key_counts={"t": 1}
    )
    world = World(options)
    world.create_topic("t", 1, config={"cleanup_policy": "compact", "min_dirty_ratio": "0"})
    for number in range(4):
        world.produce(None, Identity(-1, -1), "t-0", [f"v{number}"], sequence=-1)
        world.settle()
    held = listed(world).partitions[0].held
    assert held.record_count == 4
    for _ in range(20):
        world.tick(100)
        world.settle()
    (left,) = listed(world).partitions
    assert left.held.record_count == 1, "all records have one key"
    assert 0 < left.held.size_bytes * 4 <= held.size_bytes


def test_a_marker_behind_the_last_batch_of_a_transaction_has_its_own_size() -> None:
    world = Administered()
    whole = 0
    for number in range(4):
        identity = world.ready(f"till-{number}")
        context = replace(CLIENT, request_id=b"%016d" % number)
        world.transact(f"till-{number}", identity, TransactContents([("t-0", ["x"], 0)]), COMMIT, context)
        world.settle()
        whole = listed(world).partitions[0].held.size_bytes
    delete_before(world, "t", 0, 4)
    assert listed(world).partitions[0].held.size_bytes * 2 == whole


def test_the_list_comes_in_portions_and_steps() -> None:
    world = World()
    for topic in ("a", "b", "c"):
        world.create_topic(topic, PARTITIONS_PER_STEP)
    every = [(topic, number) for topic in ("a", "b", "c") for number in range(PARTITIONS_PER_STEP)]
    assert names(listed(world)) == every
    found: list[tuple[str, int]] = []
    after: ListPlace | None = None
    while portion := listed(world, after=after, limit=7):
        found += names(portion)
        after = portion.next_after
        if after is None:
            break
    assert found == every
    assert (
        names(listed(world, topics=frozenset({"b", "nothing"}))) == every[PARTITIONS_PER_STEP : 2 * PARTITIONS_PER_STEP]
    )
    assert names(listed(world, after=ListPlace("bb", 3), limit=1)) == [("c", 0)], "a topic that is gone"


def test_one_turn_reads_a_few_partitions_only() -> None:
    world = World()
    world.create_topic("t", PARTITIONS_PER_STEP + 1)
    reply = world.inside.core.admin.partitions.list_partitions(ListPartitions(), ANYBODY)
    assert not reply.is_settled
    world.tick(1)
    assert reply.is_settled


def test_one_answer_has_a_few_partitions_only_and_the_place_of_the_next() -> None:
    world = World()
    world.create_topic("t", ANSWERED_MAX + 1)
    for limit in (0, 1_000):
        first = listed(world, limit=limit)
        assert names(first) == [("t", partition) for partition in range(ANSWERED_MAX)]
        last = listed(world, limit=limit, after=first.next_after)
        assert (names(last), last.next_after) == ([("t", ANSWERED_MAX)], None)


def test_a_caller_that_gave_up_costs_no_further_step() -> None:
    world = World()
    world.create_topic("t", 10 * PARTITIONS_PER_STEP)
    reply = world.inside.core.admin.partitions.list_partitions(ListPartitions(), ANYBODY)
    reply.cancel()
    assert reply.is_settled
    assert not world.inside.runtime.timers.by_kind().get("answer_step")


class Half(AllowAll):
    """May describe the topic `t`, and no transactional id."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return resource is ResourceType.TOPIC and name == "t" if context is ANYBODY else True


def test_what_a_caller_may_not_describe_is_left_out() -> None:
    world = Administered(authorizer=Half())
    world.create_topic("secret", 1)
    world.opened("till", "t-0")
    (first, second) = listed(world).partitions
    assert {first.topic.name, second.topic.name} == {"t"}
    assert first.blocker is not None
    assert (first.blocker.owner, first.blocker.is_owner_hidden) == (None, True)


def test_a_limit_out_of_its_range_is_refused() -> None:
    with pytest.raises(Refused) as refusal:
        listed(World(), limit=1_001)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


def test_log_starts_that_are_looked_up_have_turns_of_their_own() -> None:
    world = Administered()
    for partition in ("t-0", "t-1"):
        world.end(partition, world.opened(partition, partition), COMMIT)
        world.settle()
        delete_before(world, "t", int(partition[-1]), 1)
    reply = world.inside.core.admin.partitions.list_partitions(ListPartitions(), ANYBODY)
    assert not reply.is_settled
    assert [each.held.record_count for each in listed(world).partitions] == [0, 0]
