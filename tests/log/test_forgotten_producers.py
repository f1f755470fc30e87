"""Partitions forget producers that have long been idle (spec log-and-runtime 1.7), and what comes late does no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

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
from tests.conformance.transactions.case_world import CaseWorld, Client
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


def world_that_forgets(*, split: bool = False) -> CaseWorld:
    return CaseWorld(split=split, producer_expiration_ms=EXPIRATION_MS)


def idle(world: CaseWorld) -> None:
    """Let enough time pass that all idle producers are forgotten. In two steps: no flush falls within one, and the next
    look waits until what the last one saw is durable."""
    for _ in range(2):
        world.tick(EXPIRATION_MS)
        world.settle()


def rows(world: CaseWorld) -> int:
    """Stored entries of producers."""
    store = world.shelf.store
    return sum(len(stored.producers(store, ordinal)) for ordinal in stored.heads(store))


def remembered(world: CaseWorld) -> list[int]:
    """Return the first offsets of the last transactions of forgotten producers, in t-0."""
    return [end.first_offset for end in stored.remembered_ends(world.shelf.store, 0)]


def head(world: CaseWorld, partition: str = "t-0") -> PartitionHead:
    return world.inside.state().heads[partition]


def same_shard_as(world: CaseWorld, transactional_id: str) -> str:
    """Another id of the same coordinator shard."""
    names = (f"{transactional_id}{number}" for number in count(1))
    return next(name for name in names if world.shard_of(name) == world.shard_of(transactional_id))


def promises_hold(world: CaseWorld) -> bool:
    return [check.violations for check in verify_store(world.shelf.store) if check.violation_count] == []


def test_they_leave_memory_and_store_once_that_is_durable() -> None:
    world = world_that_forgets()
    world.ongoing().commit()
    world.tick(2 * EXPIRATION_MS)
    assert not world.inside.runtime.groups.is_idle
    assert len(world.remembered("t-0")) == 1, "it is not durable yet"
    world.crash()
    assert (len(world.remembered("t-0")), rows(world)) == (1, 1)
    idle(world)
    assert (len(world.remembered("t-0")), rows(world), remembered(world)) == (0, 0, [0])
    world.check_replay()
    world.crash()
    assert world.visible() == ["a"]
    assert promises_hold(world)


def test_what_they_aborted_stays_hidden() -> None:
    world = world_that_forgets()
    client = world.ongoing()
    client.abort()
    idle(world)
    client.write("t-0", "b")
    client.commit()
    idle(world)
    for _start in range(2):
        assert world.visible() == ["b"]
        world.crash()
    assert promises_hold(world)


def test_a_deleted_topic_takes_its_producers_along() -> None:
    world = world_that_forgets()
    world.ongoing().commit()
    world.tick(2 * EXPIRATION_MS)
    assert not world.inside.runtime.groups.is_idle
    world.delete_topic("t")
    world.settle()
    idle(world)
    assert list(world.shelf.store.scan(Family.PRODUCERS, b"", b"\xff" * 24)) == []


def test_a_marker_that_is_sent_again_is_not_written_again() -> None:
    """A partition makes no progress for so long that another one of the transaction forgets the producer. Then all
    markers are sent anew."""
    world = world_that_forgets(split=True)
    client = world.ongoing()
    client.add("t-1")
    client.write("t-1", "b")
    world.answers_markers(AWAY, "t-1")
    client.commit()
    idle(world)
    assert world.remembered("t-0") == ()
    assert world.state() == "PrepareCommit"
    world.crash()
    world.tick(EXPIRATION_MS)
    world.settle()
    assert world.state() == "CompleteCommit"
    assert [len(world.markers(partition)) for partition in ("t-0", "t-1")] == [1, 1]
    assert promises_hold(world)


def marker_of(world: CaseWorld, client: Client, partition: str) -> Marker:
    """The only marker of the partition, as it was sent."""
    (entry,) = world.markers(partition)
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
    world = world_that_forgets()
    client = world.ready(version=version)
    client.add("t-0")
    client.abort()
    late = marker_of(world, client, "t-0")
    idle(world)
    client.add("t-0")
    assert client.write("t-0", "a") == 0
    end = head(world).log_end_offset
    for _start in range(2):
        world.told(world.send_marker("t-0", late))
        assert (head(world).log_end_offset, head(world).open_transactions) == (end, 1)
        world.crash()
        world.settle()
    client.commit()
    world.told(world.send_marker("t-0", late))
    assert world.visible() == ["a"]
    assert promises_hold(world)


def test_a_late_marker_has_nothing_to_end_where_newer_ones_were_forgotten() -> None:
    """The partition was added without a record, and makes no progress until it has forgotten a producer with a newer
    csn."""
    world = world_that_forgets(split=True)
    late = world.ongoing()
    late.add("t-1")
    world.answers_markers(AWAY, "t-1")
    late.abort()
    world.answers_markers(None)
    other = world.ready(same_shard_as(world, "orders"))
    other.add("t-1")
    other.write("t-1", "a")
    other.commit()
    world.answers_markers(AWAY, "t-1")
    idle(world)
    assert world.state() == "PrepareAbort"
    world.answers_markers(None)
    world.tick(EXPIRATION_MS)
    world.settle()
    assert world.state() == "CompleteAbort"
    assert len(world.markers("t-1")) == 1, "only that of the newer transaction"
    assert late.write("t-1", "b", shown=late.before(), sequence=0) == 47
    assert world.visible("t-1") == ["a"]
    assert promises_hold(world)


def test_a_batch_of_an_ended_transaction_comes_too_late_for_a_partition_that_forgot() -> None:
    world = world_that_forgets()
    client = world.ongoing()
    client.commit()
    idle(world)
    assert client.write("t-0", "a", shown=client.before(), sequence=0) == 47
    assert client.write("t-0", "z", shown=client.before(), sequence=1) == 47
    assert world.remembered("t-0") == ()
    assert world.visible() == ["a"]


def test_a_batch_of_an_open_transaction_is_recognised_however_late_it_comes() -> None:
    world = world_that_forgets()
    client = world.ongoing()
    idle(world)
    assert client.write("t-0", "a", sequence=0) == 0
    client.commit()
    assert world.visible() == ["a"]


def test_producers_that_start_anew_are_what_their_log_says() -> None:
    """Every way in which one can come back, for the checks of the store: they know only the log, which does not tell
    who was forgotten."""
    world = world_that_forgets()
    client, old = world.ready(), world.ready("old", version=1)
    for _round in range(3):
        client.write("t-0", "a")
        client.commit()
        old.add("t-0", "t-1")
        old.write("t-0", "b", sequence=0)
        old.commit()
        for identity in (Identity(77, 3), Identity(78, 3)):
            assert client.write("t-2", "c", shown=identity, sequence=0, plain=True) == 0
        assert promises_hold(world)
        idle(world)
        assert promises_hold(world)
        assert client.write("t-2", "d", shown=Identity(77, 1), sequence=0, plain=True) == 0, "an older epoch"
        idle(world)
    old.add("t-1")
    old.commit()
    world.settle()
    assert promises_hold(world)
