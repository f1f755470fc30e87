"""Producer ids are never given twice, whatever a crash loses; csn counts decided outcomes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_core.shards import counters_kind
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM, PRODUCER_ID_MAX
from coordinator_runtime.decision import Decision, Operation, Record
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.timeline import Journal
from tests.harness.hand_driver import HandDriver
from tests.harness.manual_clock import ManualClock
from tests.harness.memory_store import MemoryStore
from txn_coordinator.counters import BLOCK_SIZE, COUNTERS, CountersShard
from txn_coordinator.records import ProducerIdBlockTaken, ProducerIdGiven


class Counters:
    """The counters over a store that can crash."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.driver = HandDriver(store, ManualClock())
        self.shard = CountersShard(self.driver.runtime.journal, store.incarnation)
        self.driver.load(counters_kind(self.shard))

    def take(self, *, is_for_plain: bool = False) -> list[int]:
        """Take an id; it is in the list once it may be answered."""
        told: list[int] = []
        self.driver.runtime.write(Operation(COUNTERS, _take_plain if is_for_plain else _take)).map(told.append)
        return told


def _take(shard: CountersShard, _turn: object) -> Decision:
    records: list[Record] = []
    producer_id = shard.next_producer_id(records)
    return Decision(reply=producer_id, records=tuple(records))


def _take_plain(shard: CountersShard, _turn: object) -> Decision:
    records: list[Record] = []
    producer_id = shard.next_plain_producer_id(records)
    return Decision(reply=producer_id, records=tuple(records))


@given(st.lists(st.sampled_from(("take", "flush", "crash", "crash keeping", "many")), max_size=20))
@settings(max_examples=40, deadline=None)
def test_no_id_is_told_twice(steps: list[str]) -> None:
    counters = Counters(MemoryStore())
    told: list[list[int]] = []
    for step in steps:
        match step:
            case "take":
                told.append(counters.take())
            case "many":
                told.extend(counters.take() for _ in range(BLOCK_SIZE // 2))
            case "flush":
                counters.driver.flush()
            case _:
                keep = counters.driver.undurable_groups if step == "crash keeping" else 0
                counters.driver.write_unsynced(keep)
                counters = Counters(counters.store.crash(kept_groups=keep))
    ids = [producer_id for each in told for producer_id in each]
    assert len(ids) == len(set(ids))
    assert all(producer_id >= 0 for producer_id in ids)


@given(st.lists(st.sampled_from(("take", "take plain", "crash", "back up", "restore")), max_size=20))
@settings(max_examples=40, deadline=None)
def test_no_id_of_a_lost_line_is_told_again(steps: list[str]) -> None:
    """One backup may be restored several times, and each line goes on for some seconds."""
    counters, wall_ms = Counters(MemoryStore()), 1_800_000_000_000
    backup = counters.store.copy()
    told: list[list[int]] = []
    for step in steps:
        match step:
            case "take" | "take plain":
                told += (counters.take(is_for_plain=step == "take plain") for _ in range(BLOCK_SIZE // 2))
                counters.driver.settle()
            case "back up":
                backup = counters.store.copy()
            case "restore":
                wall_ms += 1_000
                store = backup.copy()
                store.begin_incarnation(IncarnationCause.RESTORE, wall_ms)
                counters = Counters(store)
            case _:
                counters = Counters(counters.store.crash())
    ids = [producer_id for each in told for producer_id in each]
    assert len(ids) == len(set(ids))


def test_csns_of_a_lost_line_are_all_smaller_than_those_that_follow() -> None:
    store = MemoryStore()
    store.begin_incarnation(IncarnationCause.DATA_LOSS, 1_800_000_000_000)
    csn, _record = Counters(store).shard.next_csn()
    assert csn == store.incarnation.least_csn + 1 == (64_310_400 << 20) + 1


def test_a_producer_id_of_a_lost_line_has_no_owner_unless_it_is_that_of_a_transactional_id() -> None:
    """Otherwise a producer that was fenced in the lost incarnation could append outside transactions in this one."""
    store = MemoryStore()
    store.begin_incarnation(IncarnationCause.DATA_LOSS, 1_800_000_000_000)
    shard = Counters(store).shard
    for producer_id in (0, 5_000, store.incarnation.least_producer_id - 1):
        with pytest.raises(Refused, match="was given to a transactional id"):
            shard.check_plain(producer_id)
        with pytest.raises(Refused, match="was never given to a producer"):
            shard.check_given(producer_id, 0)


def test_ids_of_a_block_are_given_without_gaps() -> None:
    counters = Counters(MemoryStore())
    told = [counters.take() for _ in range(2 * BLOCK_SIZE + 1)]
    counters.driver.settle()
    assert [producer_id for each in told for producer_id in each] == list(range(2 * BLOCK_SIZE + 1))


def test_a_refused_operation_gives_its_id_back() -> None:
    counters = Counters(MemoryStore())

    def take_and_refuse(shard: CountersShard, turn: object) -> Decision:
        decision = _take(shard, turn)
        return Decision(records=decision.records, joins=(Operation(COUNTERS, refuse),))

    def refuse(_shard: CountersShard, _turn: object) -> Decision:
        raise Refused(ErrorCode.INVALID_REQUEST, "refused by the test")

    counters.driver.runtime.write(Operation(COUNTERS, take_and_refuse))
    told = counters.take()
    counters.driver.settle()
    assert told == [0]


@pytest.mark.parametrize(("end", "is_for_plain"), [(PLAIN_PRODUCER_IDS_FROM, False), (PRODUCER_ID_MAX + 1, True)])
def test_the_last_block_ends_before_ids_overflow(end: int, is_for_plain: bool) -> None:
    shard = CountersShard(Journal())
    shard.replay(ProducerIdBlockTaken(end - BLOCK_SIZE))
    assert take(shard, is_for_plain)[0] == end - BLOCK_SIZE
    shard.replay(ProducerIdBlockTaken(end))
    shard.replay(ProducerIdGiven(end - 1))
    with pytest.raises(Refused) as refused:
        take(shard, is_for_plain)
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert take(shard, not is_for_plain), "the others are counted on their own"


def take(shard: CountersShard, is_for_plain: bool) -> tuple[int, list[Record]]:
    records: list[Record] = []
    next_of_kind = shard.next_plain_producer_id if is_for_plain else shard.next_producer_id
    return next_of_kind(records), records


@given(st.lists(st.sampled_from(("id", "plain", "flush", "crash")), max_size=20))
@settings(max_examples=40, deadline=None)
def test_a_producer_id_never_changes_sides(steps: list[str]) -> None:
    """For every id given, and every loss by a crash: those of transactional ids append nothing plainly, and those
    of plain producers do."""
    counters = Counters(MemoryStore())
    told: dict[bool, list[list[int]]] = {True: [], False: []}
    for step in steps:
        match step:
            case "flush":
                counters.driver.flush()
            case "crash":
                counters = Counters(counters.store.crash())
            case _:
                told[step == "plain"].append(counters.take(is_for_plain=step == "plain"))
        for is_for_plain, ids in told.items():
            for producer_id in (each for taken in ids for each in taken):
                assert _may_append_plainly(counters.shard, producer_id) is is_for_plain
    ids = [producer_id for each in (*told[True], *told[False]) for producer_id in each]
    assert len(ids) == len(set(ids))


def _may_append_plainly(shard: CountersShard, producer_id: int) -> bool:
    try:
        shard.check_plain(producer_id)
    except Refused:
        return False
    return True


def test_an_id_that_was_never_given_has_no_owner() -> None:
    shard = CountersShard(Journal())
    shard.check_plain(0)
    (block, given) = take(shard, False)[1]
    for record in (block, given):
        shard.replay(record.value)
    shard.check_plain(1)
    with pytest.raises(Refused, match="was given to a transactional id"):
        shard.check_plain(0)
