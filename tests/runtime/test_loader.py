"""Shards are read back step by step, each by itself, and leave without a lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_runtime.decision import ArmTimer, Coordinator, Decision, ShardKey, Turn, Unpark
from coordinator_runtime.loader import (
    RECORDS_PER_STEP,
    ShardChange,
    ShardKind,
    ShardLoaded,
    ShardLoadFailed,
    ShardStopped,
    ShardUnloaded,
)
from coordinator_runtime.pending import Pending
from coordinator_runtime.rows import LoadValues
from coordinator_runtime.shard_table import ShardState, ShardTable
from coordinator_runtime.store import CommitGroup, Family, StoreFailed
from tests.runtime.ledger import FIRST, SECOND, Ledger, LedgerShard, ledger_kind, look, put, put_unless

MANY = 2 * RECORDS_PER_STEP + 1


@dataclass(frozen=True, slots=True)
class Said:
    """An effect that only wants to be heard."""

    word: str


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(has_epoch=True)


@pytest.fixture
def told(ledger: Ledger) -> list[ShardChange]:
    changes: list[ShardChange] = []
    ledger.driver.loader.listen(changes.append)
    return changes


def error_of(reply: Pending[Any]) -> ErrorCode | None:
    """None when it is not there yet, or no error."""
    if not reply.is_settled:
        return None
    try:
        reply.result()
    except CoordinatorError as error:
        return error.code
    return None


def state(ledger: Ledger, key: ShardKey = FIRST) -> ShardState | None:
    return ledger.runtime.table.state(key)


def first(ledger: Ledger) -> LedgerShard:
    shard: LedgerShard = ledger.runtime.shard(FIRST)
    return shard


def fill(ledger: Ledger, count: int = MANY) -> None:
    for number in range(count):
        ledger.runtime.write(put(f"n{number}", number))
    ledger.driver.flush()


def write_row(ledger: Ledger, value: bytes | None, *, record_type: int = 1) -> None:
    """Put a row among those of the first shard, or take it away."""
    row = (Family.COORDINATOR_STATE, bytes([Coordinator.CATALOG, 0, 0, record_type]) + b"damaged", value)
    ledger.store.write([CommitGroup(ledger.store.version() + 1, [row])])
    ledger.store.sync()


class TestLoading:
    def test_others_serve_between_the_steps(self, ledger: Ledger) -> None:
        fill(ledger)
        loaded = ledger.driver.loader.load(FIRST)
        for number in range(3):
            assert error_of(ledger.runtime.write(look("n0"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            served = ledger.runtime.write(put("other", number, shard=SECOND))
            ledger.driver.flush()
            assert served.result() == number
            ledger.runtime.run_due_timers()
        assert not loaded.is_settled, "its coordinator epoch is not durable"
        ledger.driver.flush()
        loaded.result()
        assert first(ledger).durable() == {f"n{number}": number for number in range(MANY)}

    def test_every_load_has_a_coordinator_epoch_of_its_own_before_it_serves(self, ledger: Ledger) -> None:
        assert first(ledger).coordinator_epoch == 1
        for epoch in (2, 3):
            ledger.driver.loader.load(FIRST)
            ledger.driver.read_all()
            assert state(ledger) is ShardState.LOADING
            ledger.driver.flush()
            assert first(ledger).coordinator_epoch == epoch
        assert Ledger(ledger.store.crash(), has_epoch=True).first.coordinator_epoch == 4

    def test_an_epoch_that_a_crash_took_back_was_never_served(self, ledger: Ledger) -> None:
        ledger.driver.loader.load(FIRST)
        ledger.driver.read_all()
        ledger.driver.write_unsynced(0)
        assert Ledger(ledger.store.crash(), has_epoch=True).first.coordinator_epoch == 2

    def test_what_was_staged_before_is_read_back(self, ledger: Ledger) -> None:
        staged = ledger.runtime.write(put("a", 1))
        loaded = ledger.driver.loader.load(FIRST)
        ledger.driver.read_all()
        assert state(ledger) is ShardState.LOADING
        ledger.driver.settle()
        assert (staged.result(), loaded.result(), first(ledger).durable()) == (1, None, {"a": 1})

    def test_who_asks_twice_gets_one_load(self, ledger: Ledger) -> None:
        loads = [ledger.driver.loader.load(FIRST) for _ in range(2)]
        ledger.driver.settle()
        assert [load.result() for load in loads] == [None, None]
        assert first(ledger).coordinator_epoch == 2

    def test_an_empty_shard_loads_as_empty(self, ledger: Ledger) -> None:
        ledger.driver.loader.load(SECOND)
        ledger.driver.settle()
        assert ledger.runtime.shard(SECOND).durable() == {}

    @pytest.mark.parametrize("record_type", [2, 0x7F])
    def test_a_row_that_only_a_newer_program_knows_is_not_passed_over(self, ledger: Ledger, record_type: int) -> None:
        """It may say who is fenced. The other shards serve, and the program that knows the row finds it."""
        write_row(ledger, b"newer", record_type=record_type)
        loaded = ledger.driver.loader.load(FIRST)
        ledger.driver.read_all()
        with pytest.raises(CoordinatorError, match=rf"shard 0 is of type {record_type}.*start the version that"):
            loaded.result()
        assert (state(ledger), state(ledger, SECOND)) == (ShardState.FAILED, ShardState.ACTIVE)

    @pytest.mark.parametrize("record_type", [0x80, 0xFF])
    def test_a_row_of_a_newer_program_that_can_be_done_without_stays_where_it_is(
        self, ledger: Ledger, record_type: int
    ) -> None:
        fill(ledger, 1)
        write_row(ledger, b"newer", record_type=record_type)
        again = Ledger(ledger.store.crash())
        assert again.first.durable() == {"n0": 0}
        key = bytes([Coordinator.CATALOG, 0, 0, record_type]) + b"damaged"
        assert again.store.get(Family.COORDINATOR_STATE, key) == b"newer"

    def test_what_is_owed_starts_once_the_shard_serves(self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        """A quick completion must not be refused by a shard that still loads."""
        heard: list[ShardState | None] = []
        ledger.runtime.handle_effect(Said, lambda _said: heard.append(state(ledger)))
        monkeypatch.setattr(LedgerShard, "on_loaded", lambda _shard, _turn: Decision(effects=(Said("owed"),)))
        ledger.driver.loader.load(FIRST)
        ledger.driver.settle()
        assert heard == [ShardState.ACTIVE]


class TestFailing:
    def test_a_damaged_row_costs_one_shard_until_it_is_repaired(self, ledger: Ledger, told: list[ShardChange]) -> None:
        fill(ledger)
        write_row(ledger, b"no number")
        failed = ledger.driver.loader.load(FIRST)
        ledger.driver.read_all()
        assert error_of(failed) is ErrorCode.CORRUPT_MESSAGE
        assert state(ledger) is ShardState.FAILED
        assert isinstance(told[-1], ShardLoadFailed)
        assert isinstance(told[-1].error, ValueError)
        assert error_of(ledger.runtime.write(look("a"))) is ErrorCode.KAFKA_STORAGE_ERROR
        standing = ledger.driver.loader.standing(FIRST)
        assert standing.reason == told[-1].reason == f"ValueError: {told[-1].error}"
        assert ledger.runtime.write(look("a", shard=SECOND)).result() is None
        write_row(ledger, None)
        again = ledger.driver.loader.load(FIRST)
        ledger.driver.read_all()
        assert len(first_when_served(ledger, again).durable()) == MANY

    def test_a_bug_in_what_is_owed_fails_the_shard(
        self, ledger: Ledger, told: list[ShardChange], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its timers would be missing for ever."""

        def break_down(_shard: LedgerShard, _turn: Turn) -> Decision:
            raise LookupError("a bug")

        monkeypatch.setattr(LedgerShard, "on_loaded", break_down)
        failed = ledger.driver.loader.load(FIRST)
        ledger.driver.read_all()
        with pytest.raises(LookupError):
            ledger.driver.flush()
        assert error_of(failed) is ErrorCode.CORRUPT_MESSAGE
        assert state(ledger) is ShardState.FAILED
        assert [type(event) for event in told][-4:] == [ShardLoaded, ShardStopped, ShardUnloaded, ShardLoadFailed]

    def test_a_store_that_fails_is_no_failed_shard(self, ledger: Ledger) -> None:
        """It ends the process: nothing is guessed in place."""

        class Broken:
            def stage(self, *_args: object) -> None:
                return None

            def load(self, *_args: object) -> LoadValues:
                return self._values

            def _values(self, _store: object) -> Iterator[Any]:
                raise StoreFailed("a damaged block")
                yield

        ledger.driver.loader.add(replace(ledger_kind(ledger.runtime), coordinator=Coordinator.LOG, rows=Broken()))
        ledger.driver.loader.load(ShardKey(Coordinator.LOG, 0))
        with pytest.raises(StoreFailed):
            ledger.runtime.run_due_timers()


def first_when_served(ledger: Ledger, loading: Pending[None]) -> LedgerShard:
    # Rows that a test wrote by hand took the version that the runtime would hand over next.
    ledger.runtime.groups.seal()
    group = ledger.driver.handed_over.pop()
    ledger.store.write([replace(group, version=ledger.store.version() + 1)])
    ledger.store.sync()
    ledger.runtime.on_durable(group.version)
    loading.result()
    return first(ledger)


class TestUnloading:
    def test_it_serves_nothing_from_that_moment_on(self, ledger: Ledger, told: list[ShardChange]) -> None:
        staged = ledger.runtime.write(put("a", 1))
        shard = first(ledger)
        unloaded = ledger.driver.loader.unload(FIRST)
        assert error_of(ledger.runtime.write(look("a"))) is ErrorCode.NOT_COORDINATOR
        assert [state(ledger), told] == [ShardState.UNLOADING, [ShardStopped(FIRST, shard)]]
        ledger.driver.flush()
        assert (staged.result(), unloaded.result(), state(ledger)) == (1, None, ShardState.UNLOADED)
        assert told[1:] == [ShardUnloaded(FIRST, shard)]
        assert shard.durable() == {"a": 1}

    def test_effects_of_what_it_had_staged_are_not_started(self, ledger: Ledger) -> None:
        heard: list[Said] = []
        ledger.runtime.handle_effect(Said, heard.append)
        ledger.runtime.write(put("a", 1, effects=(Said("mine"),)))
        ledger.runtime.write(put("a", 1, shard=SECOND, effects=(Said("yours"),)))
        ledger.driver.loader.unload(FIRST)
        ledger.driver.flush()
        assert [said.word for said in heard] == ["yours"]

    def test_its_timers_are_cancelled(self, ledger: Ledger) -> None:
        for key, shard in (("mine", FIRST), ("yours", SECOND)):
            ledger.runtime.write(put("a", 1, shard=shard, effects=(ArmTimer(key, 50, put(key, 1, shard=shard)),)))
        ledger.driver.flush()
        ledger.driver.loader.unload(FIRST)
        assert ledger.runtime.timers.by_kind() == {"yours": 1}

    def test_calls_that_wait_for_it_are_answered_in_order(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("busy", 1))
        ledger.driver.flush()
        waiting = [
            ledger.runtime.write(put_unless(name, 1, busy="busy"), park_key="id") for name in ("one", "two", "three")
        ]
        elsewhere = ledger.runtime.write(put_unless("other", 1, busy="busy"), park_key="also waits")
        ledger.driver.loader.unload(FIRST)
        assert [error_of(each) for each in (*waiting, elsewhere)] == [ErrorCode.NOT_COORDINATOR] * 4
        assert len(ledger.runtime.parking) == 0

    def test_calls_that_wait_for_another_shard_go_on_waiting(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("busy", 1))
        ledger.driver.flush()
        waiting = ledger.runtime.write(put_unless("a", 1, busy="busy"), park_key="id")
        ledger.driver.loader.unload(SECOND)
        assert not waiting.is_settled

    def test_readers_are_told(self, ledger: Ledger) -> None:
        changed: list[ShardKey] = []
        ledger.runtime.on_durable_change(changed.extend)
        ledger.driver.loader.unload(FIRST)
        assert changed == [FIRST]

    def test_a_load_under_way_is_given_up(self, ledger: Ledger) -> None:
        fill(ledger)
        loading = ledger.driver.loader.load(FIRST)
        ledger.runtime.run_due_timers()
        ledger.driver.loader.unload(FIRST)
        ledger.driver.settle()
        assert error_of(loading) is ErrorCode.NOT_COORDINATOR
        assert (state(ledger), ledger.runtime.timers.by_kind()) == (ShardState.UNLOADED, {})

    def test_a_load_that_waits_for_its_epoch_is_given_up(self, ledger: Ledger) -> None:
        loading = ledger.driver.loader.load(FIRST)
        ledger.driver.read_all()
        ledger.driver.loader.unload(FIRST)
        ledger.driver.settle()
        assert (error_of(loading), state(ledger)) == (ErrorCode.NOT_COORDINATOR, ShardState.UNLOADED)
        ledger.driver.loader.load(FIRST)
        ledger.driver.settle()
        assert first(ledger).coordinator_epoch == 3, "the one before is used up, though it never served"

    def test_a_load_during_an_unload_follows_it(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1))
        unloaded, loaded = ledger.driver.loader.unload(FIRST), ledger.driver.loader.load(FIRST)
        assert error_of(ledger.runtime.write(look("a"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ledger.driver.settle()
        assert (unloaded.result(), loaded.result(), first(ledger).durable()) == (None, None, {"a": 1})

    def test_to_unload_what_is_not_loaded_succeeds(self, ledger: Ledger) -> None:
        for _ in range(2):
            unloaded = ledger.driver.loader.unload(FIRST)
            ledger.driver.settle()
            assert unloaded.result() is None

    def test_a_freed_key_after_a_reload_frees_no_call_twice(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("busy", 1))
        ledger.driver.loader.load(FIRST)
        ledger.driver.settle()
        waiting = ledger.runtime.write(put_unless("a", 1, busy="busy"), park_key="id")
        ledger.runtime.write(look("busy", effects=(Unpark("id"),)))
        assert not waiting.is_settled


class TestLimits:
    @pytest.mark.parametrize("number", [-1, 2])
    def test_shards_that_do_not_exist_are_refused(self, ledger: Ledger, number: int) -> None:
        key = ShardKey(Coordinator.CATALOG, number)
        replies = [ledger.driver.loader.load(key), ledger.driver.loader.unload(key)]
        assert [error_of(reply) for reply in replies] == [ErrorCode.INVALID_REQUEST] * 2

    def test_what_others_hold_on_to_stays(self) -> None:
        ledger = Ledger()
        kind: ShardKind = replace(ledger_kind(ledger.runtime), coordinator=Coordinator.COUNTERS, is_essential=True)
        ledger.driver.load(kind)
        key = ShardKey(Coordinator.COUNTERS, 0)
        replies = [ledger.driver.loader.load(key), ledger.driver.loader.unload(key)]
        assert [error_of(reply) for reply in replies] == [ErrorCode.INVALID_REQUEST] * 2
        assert state(ledger, key) is ShardState.ACTIVE

    def test_a_server_that_stops_reads_no_further(self, ledger: Ledger) -> None:
        fill(ledger)
        loading = ledger.driver.loader.load(FIRST)
        ledger.runtime.run_due_timers()
        ledger.driver.loader.stop()
        ledger.driver.settle()
        assert not loading.is_settled
        assert error_of(ledger.driver.loader.load(SECOND)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


LOADING, GONE = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
NO_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("coordinator", "is_joined", "while_loading", "otherwise"),
    [
        (Coordinator.TRANSACTIONS, False, LOADING, GONE),
        (Coordinator.TRANSACTIONS, True, LOADING, GONE),
        (Coordinator.GROUPS, False, LOADING, GONE),
        (Coordinator.LOG, False, NO_LEADER, NO_LEADER),
        (Coordinator.LOG, True, LOADING, GONE),
    ],
)
def test_what_a_shard_that_does_not_serve_answers(
    coordinator: Coordinator, is_joined: bool, while_loading: ErrorCode, otherwise: ErrorCode
) -> None:
    """Spec log-and-runtime 4.1, spec transactions 2.10."""
    table, key = ShardTable(), ShardKey(coordinator, 0)
    table.declare([key])
    for each in (ShardState.UNLOADED, ShardState.UNLOADING):
        table.mark(key, each)
        assert table.refusal(key, is_joined=is_joined).code is otherwise
    table.mark(key, ShardState.LOADING)
    assert table.refusal(key, is_joined=is_joined).code is while_loading
    table.fail(key, "StoreDamaged: a damaged block")
    refusal = table.refusal(key, is_joined=is_joined)
    assert (refusal.code, "a damaged block" in refusal.message) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    table.mark(key, ShardState.LOADING)
    assert table.refusal(key, is_joined=is_joined).code is while_loading
