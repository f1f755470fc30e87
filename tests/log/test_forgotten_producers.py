"""Partitions forget producers that have long been idle (spec log-and-runtime 1.7), and what comes late does no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import ArmTimer, Coordinator, Decision, ShardKey, Turn
from coordinator_runtime.expiration import EXPIRED_PER_TURN_MAX, LOOKED_AT_PER_TURN_MAX
from coordinator_runtime.store import Family
from coordinator_runtime.timeline import Journal
from partition_log.records import PartitionRestored, ProducerRestored, ProducersExpired, ProducersForgotten
from partition_log.shard import LogShard
from partition_log.state import (
    EMPTY_HEAD,
    OpenTransaction,
    PartitionConfig,
    PartitionHead,
    ProducerEntry,
)
from tests.conformance.transactions.room import Client, Room
from txn_coordinator.state import Identity
from txnctl.stopped import stored
from txnctl.stopped.store_verify import verify_store

EXPIRATION_MS = 10_000
NOW_MS = 1_000_000
DUE_MS = NOW_MS - EXPIRATION_MS
AWAY = Refused(ErrorCode.NETWORK_EXCEPTION, "not now")


# One look at one shard


def shard_with(*producers: tuple[int, int, ProducerEntry]) -> LogShard:
    """A shard with these (ordinal, producer id, entry)."""
    shard = LogShard(ShardKey(Coordinator.LOG, 0), Journal(), PartitionConfig(producer_id_expiration_ms=EXPIRATION_MS))
    for ordinal in sorted({ordinal for ordinal, _id, _entry in producers}):
        shard.replay(PartitionRestored(ordinal, EMPTY_HEAD))
    for ordinal, producer_id, entry in producers:
        shard.replay(ProducerRestored(ordinal, producer_id, entry))
    return shard


def looks(shard: LogShard) -> list[tuple[int, int]]:
    """Let it look at everything once: per operation, how many it forgot and how long after that it goes on."""
    steps: list[tuple[int, int]] = []
    decide: Callable[[LogShard, Turn], Decision] = LogShard.decide_expire
    while not steps or steps[-1][1] == 1:
        decision = decide(shard, Turn(now_ms=NOW_MS))
        forgotten = list(_forgotten(decision))
        for record in forgotten:
            shard.replay(record)
        counted = {(event.ordinal, event.count) for event in decision.events if isinstance(event, ProducersExpired)}
        assert counted == {(record.ordinal, len(record.producer_ids)) for record in forgotten}
        (armed,) = decision.effects
        assert isinstance(armed, ArmTimer)
        steps.append((sum(len(record.producer_ids) for record in forgotten), armed.delay_ms))
        decide = armed.operation.decide
    return steps


def _forgotten(decision: Decision) -> Iterable[ProducersForgotten]:
    for record in decision.records:
        assert isinstance(record.value, ProducersForgotten)
        yield record.value


@pytest.mark.parametrize(("last_append_ms", "count"), [(DUE_MS, 1), (DUE_MS + 1, 0), (NOW_MS + 9_999, 0)])
def test_a_producer_is_forgotten_once_it_was_idle_for_as_long_as_configured(last_append_ms: int, count: int) -> None:
    ((forgotten, _delay_ms),) = looks(shard_with((0, 7, ProducerEntry(0, last_append_ms=last_append_ms))))
    assert forgotten == count


@pytest.mark.parametrize("is_sealed", [False, True])
def test_one_with_an_open_transaction_never_is(is_sealed: bool) -> None:
    entry = ProducerEntry(0, last_append_ms=0, open_transaction=OpenTransaction(0, 0), is_sealed=is_sealed)
    assert looks(shard_with((0, 7, entry))) == [(0, EXPIRATION_MS)]


def test_the_next_look_is_when_the_next_producer_is_due() -> None:
    entries = [ProducerEntry(0, last_append_ms=DUE_MS + late_ms) for late_ms in (0, 700, 300)]
    assert looks(shard_with(*((0, number, entry) for number, entry in enumerate(entries)))) == [(1, 300)]


def test_many_go_in_several_steps_whatever_partition_they_are_in() -> None:
    idle = ProducerEntry(0, last_append_ms=DUE_MS)
    shard = shard_with(*((number % 3, number, idle) for number in range(2 * EXPIRED_PER_TURN_MAX + 100)))
    assert looks(shard) == [(EXPIRED_PER_TURN_MAX, 1)] * 2 + [(100, EXPIRATION_MS)]
    assert looks(shard) == [(0, EXPIRATION_MS)]


def test_many_are_looked_at_in_several_steps_and_none_is_left_out() -> None:
    used, idle = (ProducerEntry(0, last_append_ms=DUE_MS + since_ms) for since_ms in (400, 0))
    count = 2 * LOOKED_AT_PER_TURN_MAX
    shard = shard_with(*((number % 2, number, idle if number % 999 == 0 else used) for number in range(count)))
    assert looks(shard) == [(6, 1), (5, 1), (0, 400)]
    assert looks(shard) == [(0, 1), (0, 400)]


# In a whole server


def room_that_forgets(*, split: bool = False) -> Room:
    return Room(split=split, producer_expiration_ms=EXPIRATION_MS)


def idle(room: Room) -> None:
    """Let so much time pass that whoever may be forgotten is. In two steps: nobody flushes within one, and the next
    look waits until what the last one saw is durable."""
    for _ in range(2):
        room.tick(EXPIRATION_MS)
        room.settle()


def rows(room: Room) -> int:
    """Stored entries of producers."""
    store = room.shelf.store
    return sum(len(stored.producers(store, ordinal)) for ordinal in stored.heads(store))


def remembered(room: Room) -> list[int]:
    """Where the last transactions of forgotten producers begin, in t-0."""
    return [end.first_offset for end in stored.remembered_ends(room.shelf.store, 0)]


def head(room: Room, partition: str = "t-0") -> PartitionHead:
    return room.inside.state().heads[partition]


def promises_hold(room: Room) -> bool:
    return [check.violations for check in verify_store(room.shelf.store) if check.violation_count] == []


def test_they_leave_memory_and_store_once_that_is_durable() -> None:
    room = room_that_forgets()
    room.ongoing().commit()
    room.tick(2 * EXPIRATION_MS)
    assert not room.inside.runtime.groups.is_idle
    assert len(room.remembered("t-0")) == 1, "it is not durable yet"
    room.crash()
    assert (len(room.remembered("t-0")), rows(room)) == (1, 1)
    idle(room)
    assert (len(room.remembered("t-0")), rows(room), remembered(room)) == (0, 0, [0])
    room.check_replay()
    room.crash()
    assert room.visible() == ["a"]
    assert promises_hold(room)


def test_what_they_aborted_stays_hidden() -> None:
    room = room_that_forgets()
    client = room.ongoing()
    client.abort()
    idle(room)
    client.write("t-0", "b")
    client.commit()
    idle(room)
    for _start in range(2):
        assert room.visible() == ["b"]
        room.crash()
    assert promises_hold(room)


def test_a_deleted_topic_takes_its_producers_along() -> None:
    room = room_that_forgets()
    room.ongoing().commit()
    room.tick(2 * EXPIRATION_MS)
    assert not room.inside.runtime.groups.is_idle
    room.delete_topic("t")
    room.settle()
    idle(room)
    assert list(room.shelf.store.scan(Family.PRODUCERS, b"", b"\xff" * 24)) == []


def test_a_marker_that_is_sent_again_is_not_written_again() -> None:
    """A partition stands still for so long that another one of the transaction forgets the producer. Then all markers
    are sent anew."""
    room = room_that_forgets(split=True)
    client = room.ongoing()
    client.add("t-1")
    client.write("t-1", "b")
    room.answers_markers(AWAY, "t-1")
    client.commit()
    idle(room)
    assert room.remembered("t-0") == ()
    assert room.state() == "PrepareCommit"
    room.crash()
    room.tick(EXPIRATION_MS)
    room.settle()
    assert room.state() == "CompleteCommit"
    assert [len(room.markers(partition)) for partition in ("t-0", "t-1")] == [1, 1]
    assert promises_hold(room)


def marker_of(room: Room, client: Client, partition: str) -> Marker:
    """The only marker of the partition, as it was sent."""
    (entry,) = room.markers(partition)
    assert entry.marker is not None
    payload = entry.marker
    return Marker(
        producer_id=client.identity.producer_id,
        txn_epoch=payload.txn_epoch,
        next_epoch=payload.next_epoch,
        coordinator_shard=payload.coordinator_shard,
        coordinator_epoch=payload.coordinator_epoch,
        outcome=payload.outcome,
        csn=payload.csn,
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_marker_does_not_end_the_next_transaction(version: int) -> None:
    """It holds even where the epoch is the same: version 1 added the partition to one transaction and writes to it in
    the next."""
    room = room_that_forgets()
    client = room.ready(version=version)
    client.add("t-0")
    client.abort()
    late = marker_of(room, client, "t-0")
    idle(room)
    client.add("t-0")
    assert client.write("t-0", "a") == 0
    end = head(room).log_end_offset
    for _start in range(2):
        room.told(room.send_marker("t-0", late))
        assert (head(room).log_end_offset, head(room).open_transactions) == (end, 1)
        room.crash()
        room.settle()
    client.commit()
    room.told(room.send_marker("t-0", late))
    assert room.visible() == ["a"]
    assert promises_hold(room)


def test_a_batch_of_an_ended_transaction_comes_too_late_for_a_partition_that_forgot() -> None:
    room = room_that_forgets()
    client = room.ongoing()
    client.commit()
    idle(room)
    assert client.write("t-0", "a", shown=client.before(), sequence=0) == 47
    assert client.write("t-0", "z", shown=client.before(), sequence=1) == 47
    assert room.remembered("t-0") == ()
    assert room.visible() == ["a"]


def test_a_batch_of_an_open_transaction_is_recognised_however_late_it_comes() -> None:
    room = room_that_forgets()
    client = room.ongoing()
    idle(room)
    assert client.write("t-0", "a", sequence=0) == 0
    client.commit()
    assert room.visible() == ["a"]


def test_producers_that_start_anew_are_what_their_log_says() -> None:
    """Every way in which one can come back, for the checks of the store: they know only the log, which does not tell
    who was forgotten."""
    room = room_that_forgets()
    client, old = room.ready(), room.ready("old", version=1)
    for _round in range(3):
        client.write("t-0", "a")
        client.commit()
        old.add("t-0", "t-1")
        old.write("t-0", "b", sequence=0)
        old.commit()
        for identity in (Identity(77, 3), Identity(78, 3)):
            assert client.write("t-2", "c", shown=identity, sequence=0, plain=True) == 0
        assert promises_hold(room)
        idle(room)
        assert promises_hold(room)
        assert client.write("t-2", "d", shown=Identity(77, 1), sequence=0, plain=True) == 0, "an older epoch"
        idle(room)
    old.add("t-1")
    old.commit()
    room.settle()
    assert promises_hold(room)
