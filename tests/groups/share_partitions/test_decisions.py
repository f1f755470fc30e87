"""Share partitions in a server: what is durable when, timers, wake-ups, members and topics that end."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, Turn
from group_coordinator.share_partitions import decisions
from group_coordinator.share_partitions.acquiring import LogPosition, Terms
from group_coordinator.share_partitions.draft import ArchiveReason, LetterEnd
from group_coordinator.share_partitions.events import LockExpired, RecordsAcknowledged, RecordsAcquired, RecordsArchived
from group_coordinator.share_partitions.requests import Acknowledge, Acquire, DescribedShare
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.state import UNRESOLVED
from tests.groups.share_partitions.pictures import picture
from tests.harness.share_partitions import GROUP, Shares, share_world

OK, NOT_HELD = ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE
LOCK_MS = Terms().lock_duration_ms


def shares(**terms: int) -> Shares:
    """A group that reads a partition of ten records, in batches of five, from its beginning."""
    found = Shares(share_world(), terms=Terms(**terms))
    found.produce(5, 5)
    found.begin()
    return found


def events_of(found: Shares) -> list[Any]:
    """Every event from now on."""
    heard: list[Any] = []
    found.world.inside.runtime.on_event = lambda event, _turn: heard.append(event)
    return heard


def test_an_acquisition_writes_no_row_and_an_acknowledgement_one() -> None:
    found = shares()
    stored = dict(found.shard.durable_state())
    assert found.acquire("a") == [*range(10)]
    assert found.shard.durable_state() == stored
    assert found.acknowledge("a", (0, 4, [1])) is OK
    assert found.shard.durable_state()[found.key].start_offset == 5
    found.world.check_replay()
    found.world.check_stored()


def test_the_answer_to_an_acknowledgement_waits_for_the_disk() -> None:
    found = shares()
    found.acquire("a")
    reply = found.acknowledging("a", (0, 4, [1]))
    assert not reply.is_settled
    found.world.crash()
    assert picture(found.state) == "0:"


def test_a_lock_that_expires_releases_its_records_and_wakes_fetches() -> None:
    found = shares(delivery_count_limit=2)
    heard = events_of(found)
    found.acquire("a", 5)
    found.world.pass_time(LOCK_MS - 1)
    found.acquire("a", 5)
    found.acknowledge("a", (0, 0, [1]))
    found.woken = 0
    found.world.pass_time(1)
    assert picture(found.state) == "1: .1 .1 .1 .1 a1 a1 a1 a1 a1"
    assert found.woken == 1
    found.world.pass_time(LOCK_MS)
    assert found.acquire("b", 4) == [1, 2, 3, 4]
    found.world.pass_time(LOCK_MS)
    assert picture(found.state) == "5: .1 .1 .1 .1 .1"
    assert [each for each in heard if isinstance(each, LockExpired)] == [
        LockExpired(GROUP, found.key.ordinal, "a", 4),
        LockExpired(GROUP, found.key.ordinal, "a", 5),
        LockExpired(GROUP, found.key.ordinal, "b", 4),
    ]
    assert [each for each in heard if isinstance(each, RecordsArchived)] == [
        RecordsArchived(GROUP, found.key.ordinal, 1, 5, ArchiveReason.DELIVERY_LIMIT, 2, LetterEnd.NO_TOPIC)
    ]
    assert [each for each in heard if isinstance(each, RecordsAcquired)] == [
        RecordsAcquired(GROUP, "a", 5, 0),
        RecordsAcquired(GROUP, "a", 5, 0),
        RecordsAcquired(GROUP, "b", 4, 4),
    ]
    assert [each for each in heard if isinstance(each, RecordsAcknowledged)] == [RecordsAcknowledged(GROUP, "a", 1)]


def test_a_settled_acquisition_leaves_no_timer() -> None:
    found = shares()
    found.acquire("a")
    assert found.world.inside.runtime.timers.by_kind()["share_lock"] == 1
    found.acknowledge("a", (0, 9, [1]))
    assert found.world.inside.runtime.timers.by_kind()["share_lock"] == 0


def test_a_renewed_lock_has_its_own_time() -> None:
    found = shares()
    found.allows_renewal = True
    found.acquire("a")
    found.world.pass_time(LOCK_MS - 1)
    assert found.acknowledge("a", (0, 1, [4])) is OK
    found.world.pass_time(1)
    assert picture(found.state) == "0: a1 a1 .1 .1 .1 .1 .1 .1 .1 .1"
    found.world.pass_time(LOCK_MS)
    assert picture(found.state) == "0: .1 .1 .1 .1 .1 .1 .1 .1 .1 .1"


def test_a_member_that_ends_releases_its_records_at_once() -> None:
    found = shares()
    found.acquire("a", 5)
    found.acquire("b", 5)
    found.woken = 0
    found.end_member("a")
    assert picture(found.state) == "0: .1 .1 .1 .1 .1 b1 b1 b1 b1 b1"
    assert found.woken == 1
    assert found.acknowledge("a", (0, 0, [1])) is NOT_HELD
    found.end_member("a")
    assert found.woken == 1


def test_what_was_held_is_available_after_a_load_of_the_shard() -> None:
    found = shares()
    found.acquire("a")
    found.acknowledge("a", (2, 3, [1, 2]))
    loader = found.world.inside.driver.loader
    loader.unload(found.shard_key)
    found.world.settle()
    assert found.world.inside.runtime.timers.by_kind()["share_lock"] == 0
    loader.load(found.shard_key)
    found.world.settle()
    assert picture(found.state) == "0: .0 .0 +1 .1"
    assert found.acknowledge("a", (0, 0, [1])) is NOT_HELD
    assert found.acquire("b") == [0, 1, *range(3, 10)]


def test_a_share_partition_is_made_once_for_each_state_epoch() -> None:
    found = shares()
    found.acquire("a")
    found.begin(7)
    assert picture(found.state).startswith("0: a1")
    with pytest.raises(Refused) as refused:
        found.begin(7, state_epoch=0)
    assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH
    found.begin(7, state_epoch=2)
    assert picture(found.state) == "7:"
    assert found.world.inside.runtime.timers.by_kind()["share_lock"] == 0


def test_what_was_read_for_an_older_state_epoch_is_not_acquired() -> None:
    found = shares()
    read, log = found.read(), LogPosition(0)
    assert read is not None
    for state_epoch, code in [(2, ErrorCode.FENCED_STATE_EPOCH), (1, OK)]:
        command = Acquire("a", state_epoch, read, log, found.terms, 500)
        assert code_of(found, command) is code
    found.ask(decisions.decide_initialize, key=found.key, state_epoch=3)
    unresolved = Acquire("a", 3, read, log, found.terms, 500)
    assert code_of(found, unresolved) is ErrorCode.FENCED_STATE_EPOCH


def code_of(found: Shares, command: Acquire) -> ErrorCode:
    try:
        found.ask(decisions.decide_acquire, key=found.key, command=command)
    except Refused as refused:
        return refused.code
    return OK


def test_an_administrator_moves_the_start_offset_or_makes_a_share_partition() -> None:
    found = shares()
    found.acquire("a")
    assert found.ask(decisions.decide_alter_start, key=found.key, state_epoch=1, offset=3) == 2
    assert picture(found.state) == "3:"
    assert found.ask(decisions.decide_alter_start, key=found.key, state_epoch=9, offset=4) == 9
    other = Shares(found.world, group_id="others")
    assert other.ask(decisions.decide_alter_start, key=other.key, state_epoch=5, offset=6) == 5
    assert (picture(other.state), other.state.state_epoch) == ("6:", 5)
    found.world.check_replay()
    found.world.check_stored()


def test_what_is_described_is_on_disk() -> None:
    found = Shares(share_world())
    found.produce(10)
    assert decisions.described(found.shard, found.key) is None
    found.ask(decisions.decide_initialize, key=found.key, state_epoch=4)
    assert decisions.described(found.shard, found.key) == DescribedShare(UNRESOLVED, 4, 0, 0, 0, 0, 0)
    found.ask(decisions.decide_resolve_start, key=found.key, state_epoch=4, offset=0)
    found.acquire("a")
    found.acknowledge("a", (0, 1, [1]), (4, 5, [1]))
    assert decisions.described(found.shard, found.key) == DescribedShare(2, 4, 0, 2, 6, 0, 0)


def test_groups_do_not_know_of_each_other() -> None:
    found = shares()
    other = Shares(found.world, group_id="others")
    other.begin(5)
    assert found.acquire("a") == [*range(10)]
    assert other.acquire("a") == [*range(5, 10)]
    found.end_member("a")
    assert picture(other.state) == "5: a1 a1 a1 a1 a1"
    assert found.shard.counts() == (2, 5, 0, 0)


def test_a_deleted_topic_takes_its_share_partitions_with_it() -> None:
    found = shares()
    other = Shares(found.world, group_id="others")
    other.begin(5)
    found.acquire("a")
    shard, key = found.shard, found.key
    other.woken = 0
    found.woken = 0
    found.world.delete_topic("t")
    found.world.settle()
    assert shard.durable_state() == {}
    assert shard.counts() == (0, 0, 0, 0)
    assert found.world.inside.runtime.timers.by_kind()["share_lock"] == 0
    assert (found.woken, other.woken) == (1, 1)
    command = Acknowledge("a", (AckBatch(0, 0, (1,)),), found.terms)
    with pytest.raises(Refused) as refused:
        decisions.decide_acknowledge(shard, Turn(now_ms=0), key=key, command=command)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found.world.check_replay()
    found.world.check_stored()


def test_a_topic_is_not_deleted_while_its_share_partitions_are_not_served() -> None:
    found = shares()
    shard_key = found.shard_key
    found.world.inside.driver.loader.unload(shard_key)
    found.world.settle()
    deleted = found.world.delete_topic("t")
    found.world.settle()
    error = deleted.result().error
    assert error is not None
    assert error.code is ErrorCode.NOT_COORDINATOR


def test_removed_records_are_not_handed_out() -> None:
    found = shares()
    found.acquire("a", 5)
    found.trim(5)
    found.move_log_start()
    assert picture(found.state) == "0a1 1a1 2a1 3a1 4a1 5:"
    found.end_member("a")
    assert picture(found.state) == "5:"
    assert found.acquire("b") == [*range(5, 10)]


def test_a_restored_store_goes_on_where_log_and_state_were_together() -> None:
    """State and log are in one store, so a restore takes both back to one moment; and no member holds anything."""
    found = shares()
    found.acquire("a")
    found.acknowledge("a", (0, 1, [1]))
    backup = found.world.back_up()
    found.acknowledge("a", (2, 9, [1]))
    found.produce(5)
    found.world.restore(backup)
    assert picture(found.state) == "2:"
    assert found.acknowledge("a", (2, 9, [1])) is ErrorCode.INVALID_REQUEST
    assert found.acquire("b") == [*range(2, 10)]
    assert found.state.leader_epoch == found.head.leadership.epoch > 0
    found.world.check_replay()
    found.world.check_stored()


def test_the_ports_find_the_shard_beside_the_log_shard() -> None:
    world = share_world(shard_count=4)
    world.create_topic("u", 8)
    places = world.inside.core.shares
    topic_id = world.inside.catalog.topic("u", b"").topic_id
    for partition in range(8):
        log_shard = world.shard_of(f"u-{partition}")
        found = places.initialize(GROUP, topic_id, partition, 1)
        assert found.shard == (Coordinator.SHARE_PARTITIONS, log_shard.number)
        assert places.is_served(topic_id, partition)
        world.inside.runtime.write(found)
    world.settle()
    shards = world.inside.runtime.shards(Coordinator.SHARE_PARTITIONS)
    assert sum(shard.counts().partitions for shard in shards) == 8
    world.inside.runtime.write(places.delete(GROUP, topic_id, 3))
    world.inside.runtime.write(places.delete(GROUP, topic_id, 3))
    world.settle()
    assert sum(shard.counts().partitions for shard in shards) == 7
    assert not places.is_served(topic_id, 8)
    world.delete_topic("u")
    world.settle()
    assert not places.is_served(topic_id, 0)
    gone = world.inside.runtime.write(places.delete(GROUP, topic_id, 0))
    world.settle()
    assert gone.result() is None


def test_who_stops_listening_is_not_called() -> None:
    found = shares()
    heard: list[str] = []
    news = found.world.inside.core.share_news

    def once() -> None:
        heard.append("once")
        news.stop_listening(found.key, once)

    news.listen(found.key, once)
    news.listen(found.key, lambda: heard.append("always"))
    for _ in range(2):
        found.acquire("a")
        found.end_member("a")
    assert heard == ["once", "always", "always"]
