"""ShareFetch and ShareAcknowledge: what a member gets, and when."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_api.v1.common_pb2 import TopicPartitions
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Outcome
from group_coordinator.share_partitions.fetching import ShareFetches
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.share_consumers import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareConsumer,
    alter_shares,
    response_of,
    share_consumer,
)
from tests.harness.share_partitions import Shares
from tests.harness.world import World


def reading(
    *names: str, topics: dict[str, int] | None = None, **settings: int | str
) -> tuple[World, list[ShareConsumer]]:
    """A world whose group reads `t` from the beginning, and its members."""
    world = group_world(topics=topics or {"t": 1})
    alter_shares(world, **{"auto_offset_reset": "earliest", **settings})
    return world, [share_consumer(world, name, *(topics or {"t": 1})) for name in names]


def produce(world: World, *lengths: int, partition: str = "t-0") -> None:
    Shares(world, partition, GROUP).produce(*lengths)


def waiting(world: World) -> int:
    fetches: ShareFetches = world.inside.core.groups.share_records.fetches
    return fetches.waiting_fetches


def state(world: World, partition: str = "t-0") -> str:
    return picture(Shares(world, partition, GROUP).state)


# What is acquired


def test_a_fetch_acquires_whole_batches_and_an_acknowledgement_ends_them() -> None:
    world, (a,) = reading("a")
    produce(world, 3, 2)
    assert a.fetch(max_records=1) == {"t-0": [0, 1, 2]}
    assert a.last.lock_duration_ms == 30_000
    assert a.fetch() == {"t-0": [3, 4]}
    assert a.acknowledge("t-0", (0, 4, ACCEPT)) is OK
    assert a.fetch() == {}
    assert state(world) == "5:"
    world.check_replay()
    world.check_stored()


def test_a_strict_fetch_takes_a_batch_apart() -> None:
    world, (a, b) = reading("a", "b")
    produce(world, 5)
    assert a.fetch(max_records=2, strict_max_records=True) == {"t-0": [0, 1]}
    assert b.fetch() == {"t-0": [2, 3, 4]}


def test_acknowledgements_in_a_fetch_come_before_what_it_acquires() -> None:
    world, (a,) = reading("a")
    produce(world, 3)
    a.fetch()
    assert a.fetch({"t-0": [(0, 0, ACCEPT), (1, 1, REJECT), (2, 2, RELEASE)]}) == {"t-0": [2]}
    assert a.counts() == {2: 2}
    (result,) = a.last.results
    assert not result.acknowledge_error_code


def test_a_fetch_with_acknowledgements_does_not_wait() -> None:
    world, (a,) = reading("a")
    produce(world, 1)
    a.fetch()
    assert a.fetch({"t-0": [(0, 0, ACCEPT)]}, max_wait_ms=5_000) == {}
    assert [code(each) for each in a.last.results] == [OK]


def test_records_are_handed_out_while_the_disk_is_busy() -> None:
    world, (a, b) = reading("a", "b")
    b.fetch()
    produce(world, 2)
    a.fetch(max_records=1, strict_max_records=True)
    acknowledged = a.acknowledging({"t-0": [(0, 0, ACCEPT)]})
    asked = b.fetching()
    assert not acknowledged.is_settled
    assert b.acquired(response_of(asked)) == {"t-0": [1]}
    world.crash()
    assert share_consumer(world, "c", "t").fetch() == {"t-0": [0, 1]}


def test_records_from_a_start_offset_that_is_not_on_disk_are_handed_out_later() -> None:
    world, (a,) = reading("a")
    produce(world, 2)
    asked = a.fetching()
    assert state(world) == "0: a1 a1"
    assert not asked.is_settled
    world.settle()
    assert a.acquired(response_of(asked)) == {"t-0": [0, 1]}


def test_acknowledgements_are_durable_before_the_answer() -> None:
    world, (a,) = reading("a")
    produce(world, 2)
    a.fetch()
    asked = a.fetching({"t-0": [(0, 1, ACCEPT)]})
    assert not asked.is_settled
    world.crash()
    b = share_consumer(world, "b", "t")
    assert b.fetch() == {"t-0": [0, 1]}
    b.acknowledge("t-0", (0, 1, ACCEPT))
    world.crash()
    assert share_consumer(world, "c", "t").fetch() == {}


def test_records_are_shared_out_and_partitions_take_turns() -> None:
    world, (a,) = reading("a", topics={"t": 3})
    for number in range(3):
        produce(world, 1, 1, partition=f"t-{number}")
    assert [a.fetch(max_records=1) for _ in range(6)] == [
        {f"t-{number}": [offset]} for offset in range(2) for number in range(3)
    ]


def test_an_answer_is_not_larger_than_asked_for_after_its_first_batch() -> None:
    world, (a,) = reading("a", topics={"t": 2})
    produce(world, 50, 50)
    produce(world, 50, partition="t-1")
    assert a.fetch(max_bytes=1) == {"t-0": [*range(50)]}
    assert a.fetch(max_bytes=1) == {"t-1": [*range(50)]}


def test_records_between_those_of_others_come_with_one_fetch() -> None:
    world, (a, b) = reading("a", "b")
    produce(world, 6, 2)
    a.fetch(max_records=1)
    assert a.acknowledge("t-0", (1, 1, RELEASE), (3, 4, RELEASE)) is OK
    assert b.fetch() == {"t-0": [1, 3, 4, 6, 7]}
    assert b.counts() == {1: 2, 3: 2, 4: 2, 6: 1, 7: 1}


def test_a_strict_fetch_counts_what_is_available_alone() -> None:
    world, (a, b) = reading("a", "b")
    produce(world, 8, 2)
    a.fetch(max_records=1)
    assert a.acknowledge("t-0", (0, 0, RELEASE), (3, 3, RELEASE), (6, 7, RELEASE)) is OK
    assert b.fetch(max_records=2, strict_max_records=True) == {"t-0": [0, 3]}
    assert b.fetch(max_records=3, strict_max_records=True) == {"t-0": [6, 7, 8]}


# Where a group begins


def test_a_group_begins_at_the_end_unless_told_otherwise() -> None:
    world = group_world(topics={"t": 1})
    a = share_consumer(world, "a", "t")
    produce(world, 2)
    assert a.fetch() == {}
    produce(world, 2)
    assert a.fetch() == {"t-0": [2, 3]}


def test_a_group_may_begin_with_the_records_of_some_time() -> None:
    world, (a,) = reading("a", auto_offset_reset="by_duration:PT30S")
    produce(world, 2)
    world.pass_time(20_000)
    produce(world, 2)
    world.pass_time(20_000)
    asked = a.fetching(max_wait_ms=1_000)
    world.settle()
    assert a.acquired(response_of(asked)) == {"t-0": [2, 3]}


# Waiting


def test_a_fetch_waits_for_records_to_be_written() -> None:
    world, (a,) = reading("a")
    asked = a.fetching(max_wait_ms=10_000)
    world.settle()
    assert not asked.is_settled
    assert waiting(world) == 1
    produce(world, 2)
    assert a.acquired(response_of(asked)) == {"t-0": [0, 1]}
    assert waiting(world) == 0


def test_a_fetch_waits_for_records_to_be_released() -> None:
    world, (a, b) = reading("a", "b")
    produce(world, 2)
    a.fetch()
    asked = b.fetching(max_wait_ms=10_000)
    world.settle()
    a.acknowledge("t-0", (1, 1, RELEASE))
    world.settle()
    assert b.acquired(response_of(asked)) == {"t-0": [1]}


def test_a_fetch_waits_for_room_in_flight() -> None:
    world, (a, b) = reading("a", "b", partition_max_record_locks=100)
    produce(world, 100, 1)
    assert a.fetch(max_records=100) == {"t-0": [*range(100)]}
    asked = b.fetching(max_wait_ms=10_000)
    world.settle()
    assert not asked.is_settled
    a.acknowledge("t-0", (0, 0, ACCEPT))
    world.settle()
    assert b.acquired(response_of(asked)) == {"t-0": [100]}


def test_a_fetch_gets_the_records_of_a_lock_that_expires() -> None:
    world, (a, b) = reading("a", "b")
    produce(world, 2)
    a.fetch()
    asked = b.fetching(max_wait_ms=40_000)
    world.pass_time(30_000)
    assert b.acquired(response_of(asked)) == {"t-0": [0, 1]}
    assert b.counts() == {0: 2, 1: 2}


def test_a_fetch_that_waited_for_nothing_is_answered_in_time() -> None:
    world, (a,) = reading("a")
    asked = a.fetching(max_wait_ms=500)
    world.pass_time(499)
    assert not asked.is_settled
    world.pass_time(1)
    assert a.acquired(response_of(asked)) == {}
    assert waiting(world) == 0


def test_a_fetch_waits_for_as_many_bytes_as_it_wants_and_then_takes_what_there_is() -> None:
    world, (a,) = reading("a")
    asked = a.fetching(max_wait_ms=500, min_bytes=1_000)
    produce(world, 1)
    assert not asked.is_settled
    assert state(world) == "0:"
    world.pass_time(500)
    assert a.acquired(response_of(asked)) == {"t-0": [0]}
    second = a.fetching(max_wait_ms=500, min_bytes=1_000)
    produce(world, 1)
    produce(world, 1_000)
    assert a.acquired(response_of(second)) == {"t-0": [*range(1, 1_002)]}


def test_a_caller_that_leaves_ends_its_wait_and_acquires_nothing() -> None:
    world, (a, b) = reading("a", "b")
    asked = a.fetching(max_wait_ms=10_000)
    world.settle()
    asked.cancel()
    assert waiting(world) == 0
    produce(world, 1)
    assert b.fetch() == {"t-0": [0]}


def test_of_two_that_wait_one_gets_a_record() -> None:
    world, (a, b) = reading("a", "b")
    first, second = a.fetching(max_wait_ms=10_000), b.fetching(max_wait_ms=10_000)
    world.settle()
    produce(world, 1)
    assert a.acquired(response_of(first)) == {"t-0": [0]}
    assert not second.is_settled
    produce(world, 1)
    assert b.acquired(response_of(second)) == {"t-0": [1]}


def test_a_fetch_that_waits_ends_with_its_session() -> None:
    world, (a,) = reading("a")
    asked = a.fetching(max_wait_ms=10_000)
    world.settle()
    a.closes()
    assert a.acquired(response_of(asked)) == {}
    again = a.fetching(epoch=0, max_wait_ms=10_000)
    world.settle()
    a.member.leaves()
    world.settle()
    assert a.acquired(response_of(again)) == {}
    assert waiting(world) == 0


# Transactions


def commit(world: World, outcome: Outcome, *values: str) -> None:
    identity = _identity(world)
    world.produce("x", identity, "t-0", values, sequence=0)
    world.settle()
    world.end("x", identity, outcome)
    world.settle()


def _identity(world: World) -> Any:
    drawn = world.init("x")
    world.settle()
    return drawn.result()


def test_committed_records_alone_are_handed_out_if_the_group_wants_that() -> None:
    world, (a,) = reading("a", isolation_level="read_committed")
    identity = _identity(world)
    world.produce("x", identity, "t-0", ["v", "v"], sequence=0)
    world.settle()
    produce(world, 1)
    asked = a.fetching(max_wait_ms=10_000)
    world.settle()
    assert not asked.is_settled, "the transaction is open, and later records wait with it"
    world.end("x", identity, Outcome.COMMIT)
    world.settle()
    assert a.acquired(response_of(asked)) == {"t-0": [0, 1, 2]}
    assert a.acknowledge("t-0", (0, 2, ACCEPT)) is OK
    assert a.fetch() == {}
    assert state(world) == "4:", "the marker is done, too"


def test_aborted_records_are_never_handed_out_to_such_a_group() -> None:
    world, (a,) = reading("a", isolation_level="read_committed")
    commit(world, Outcome.ABORT, "v", "v")
    produce(world, 1)
    assert a.fetch() == {"t-0": [3]}
    commit(world, Outcome.ABORT, "v", "v")
    assert a.fetch() == {}
    assert a.acknowledge("t-0", (3, 3, ACCEPT)) is OK
    assert state(world) == "7:"


def test_other_groups_get_aborted_records_and_no_markers() -> None:
    world, (a,) = reading("a")
    commit(world, Outcome.ABORT, "v", "v")
    produce(world, 1)
    assert a.fetch() == {"t-0": [0, 1, 3]}


def test_many_aborted_transactions_are_passed_in_several_looks() -> None:
    world, (a,) = reading("a", isolation_level="read_committed")
    for _ in range(4):
        commit(world, Outcome.ABORT, "v", "v", "v")
    produce(world, 1)
    asked = a.fetching(max_wait_ms=1_000, max_records=2)
    for _ in range(20):
        world.pass_time(1)
    assert a.acquired(response_of(asked)) == {"t-0": [16]}


# The log start, deleted topics, shards


def test_deleted_records_are_not_handed_out_and_the_start_follows() -> None:
    world, (a, b) = reading("a", "b")
    produce(world, 4, 4)
    shares = Shares(world, "t-0", GROUP)
    assert a.fetch(max_records=1) == {"t-0": [0, 1, 2, 3]}
    shares.trim(6)
    assert b.fetch() == {"t-0": [6, 7]}
    assert shares.state.start_offset == 6
    assert a.acknowledge("t-0", (0, 3, ACCEPT)) is OK
    a.closes()
    assert b.fetch() == {}


def test_the_start_follows_the_log_though_nothing_is_handed_out() -> None:
    world, (a,) = reading("a")
    a.fetch()
    produce(world, 4)
    shares = Shares(world, "t-0", GROUP)
    shares.trim(4)
    assert a.fetch() == {}
    assert shares.state.start_offset == 4


def test_a_deleted_topic_is_told_once() -> None:
    world, (a,) = reading("a", topics={"t": 1, "u": 1})
    produce(world, 2, partition="u-0")
    a.fetch()
    asked = a.fetching(max_wait_ms=10_000)
    world.delete_topic("t")
    world.settle()
    assert [code(each) for each in response_of(asked).results] == [ErrorCode.UNKNOWN_TOPIC_ID]
    assert a.acknowledge("u-0", (0, 1, ACCEPT)) is OK
    assert a.fetch() == {}
    assert not a.last.results


def test_acknowledgements_for_a_deleted_topic_are_refused_in_its_one_result() -> None:
    world, (a,) = reading("a", topics={"t": 1, "u": 1})
    produce(world, 2)
    assert a.fetch() == {"t-0": [0, 1]}
    world.delete_topic("t")
    world.settle()
    (result,) = a.asks({"t-0": [(0, 1, ACCEPT)]}).results
    assert (result.topic, code(result)) == ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert result.acknowledge_error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert a.fetch() == {}
    assert not a.last.results


def test_a_refusal_because_of_a_deleted_topic_waits_until_the_deletion_is_durable() -> None:
    world, (a,) = reading("a", topics={"t": 1, "u": 1})
    produce(world, 2)
    assert a.fetch() == {"t-0": [0, 1]}
    world.delete_topic("t")
    asked = a.acknowledging({"t-0": [(0, 1, ACCEPT)]})
    assert not asked.is_settled
    world.settle()
    assert [code(each) for each in asked.result().results] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_partition_of_a_deleted_topic_can_be_forgotten() -> None:
    world, (a,) = reading("a", topics={"t": 1, "u": 1})
    a.fetch()
    world.delete_topic("t")
    world.settle()
    assert a.fetch(forgotten=[TopicPartitions(topic="t", partitions=[0])]) == {}
    assert not a.last.results


def test_a_partition_that_is_not_served_has_an_error_of_its_own() -> None:
    world, (a,) = reading("a", topics={"t": 2})
    produce(world, 1)
    produce(world, 1, partition="t-1")
    world.inside.driver.loader.unload(world.shard_of("t-1"))
    world.settle()
    assert a.fetch() == {"t-0": [0]}
    assert {f"{each.topic}-{each.partition}": code(each) for each in a.last.results} == {
        "t-0": OK,
        "t-1": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }


# Renewal and settings


def test_a_lock_is_renewed_unless_the_group_forbids_it() -> None:
    world, (a, b) = reading("a", "b", renew_acknowledge_enable="false")
    produce(world, 1)
    a.fetch()
    assert a.acknowledge("t-0", (0, 0, RENEW)) is ErrorCode.INVALID_REQUEST
    alter_shares(world, renew_acknowledge_enable="true")
    world.pass_time(20_000)
    assert a.acknowledge("t-0", (0, 0, RENEW)) is OK
    world.pass_time(20_000)
    assert b.fetch() == {}
    assert a.acknowledge("t-0", (0, 0, ACCEPT)) is OK


@pytest.mark.parametrize("name", ["max_wait_ms", "min_bytes", "max_bytes", "max_records"])
def test_a_negative_number_is_refused_and_uses_up_no_epoch(name: str) -> None:
    world, (a,) = reading("a")
    a.fetch()
    assert code(a.asks(**{name: -1})) is ErrorCode.INVALID_REQUEST
    assert a.fetch() == {}
    assert waiting(world) == 0
