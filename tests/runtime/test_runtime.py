"""Promises of the runtime about one operation: it happens whole or not at all, and is answered when it is durable."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from coordinator_protocol.errors import ErrorCode, Refused, UnknownOutcome
from coordinator_runtime.decision import Coordinator, Decision, Operation, Record, ShardKey, once_durable
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.rows import StateRows, steps_of
from coordinator_runtime.runtime import RuntimeLimits
from coordinator_runtime.store import Family, StoreFailed
from tests.runtime.ledger import (
    FIRST,
    SECOND,
    Ledger,
    LedgerShard,
    Put,
    Unencodable,
    fail_with,
    look,
    put,
    refuse,
)

CLIENT = CallContext(principal="alice", client_id="c", host="h")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def _note(order: list[str], name: str, _reply: object) -> None:
    order.append(name)


def refusal_of(reply: Pending[object]) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        reply.result()
    return refused.value.code


class TestAnswersWaitForTheDisk:
    def test_a_reply_comes_when_its_record_is_durable_and_not_before(self, ledger: Ledger) -> None:
        reply = ledger.runtime.write(put("a", 1))
        assert ledger.first.live() == {"a": 1}
        assert ledger.first.durable() == {}
        ledger.runtime.groups.seal()
        assert not reply.is_settled
        ledger.driver.flush()
        assert reply.result() == 1
        assert ledger.first.durable() == {"a": 1}

    def test_a_read_waits_for_what_it_has_seen(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1))
        seen = ledger.runtime.write(look("a"))
        assert not seen.is_settled
        ledger.driver.flush()
        assert seen.result() == 1

    def test_a_refusal_waits_for_what_it_rests_on(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("fence", 1))
        refused = ledger.runtime.write(refuse())
        assert not refused.is_settled
        ledger.driver.flush()
        assert refusal_of(refused) is ErrorCode.INVALID_REQUEST

    def test_a_refusal_waits_for_a_sealed_group_of_several(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1, shard=SECOND))
        ledger.runtime.groups.seal()
        ledger.runtime.write(put("fence", 1))
        ledger.runtime.groups.seal()
        refused = ledger.runtime.write(refuse())
        ledger.runtime.write(put("b", 1, shard=SECOND))
        ledger.runtime.groups.seal()
        ledger.runtime.on_durable(1)
        assert not refused.is_settled
        ledger.runtime.on_durable(2)
        assert refused.is_settled

    def test_a_refusal_waits_for_the_newest_group_that_changes_its_shard(self, ledger: Ledger) -> None:
        for number in (1, 2):
            ledger.runtime.write(put("a", number))
            ledger.runtime.groups.seal()
        ledger.runtime.write(put("b", 1, shard=SECOND))
        refused = ledger.runtime.write(refuse())
        ledger.driver.flush(1)
        assert not refused.is_settled
        ledger.driver.flush(1)
        assert refused.is_settled

    def test_a_refusal_that_rests_on_durable_state_comes_at_once(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("elsewhere", 1, shard=SECOND))
        assert refusal_of(ledger.runtime.write(refuse())) is ErrorCode.INVALID_REQUEST

    def test_a_refusal_by_a_join_waits_for_the_shard_of_the_join_too(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("fence", 1, shard=SECOND))
        refused = ledger.runtime.write(put("a", 1, joins=(refuse(shard=SECOND),)))
        assert not refused.is_settled
        ledger.driver.flush()
        assert refusal_of(refused) is ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize("joined", [False, True], ids=["alone", "joined"])
    def test_what_is_said_once_durable_waits_for_the_state_of_that_shard(self, ledger: Ledger, joined: bool) -> None:
        def said(answer: object) -> Pending[object]:
            operation = once_durable(SECOND, answer)
            elsewhere = Operation(FIRST, lambda _shard, _turn: Decision(joins=(operation,)))
            return ledger.runtime.write(elsewhere if joined else operation)

        ledger.runtime.write(put("a", 1, shard=SECOND))
        refusal = Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it is gone")
        answered, refused = said(["answer"]), said(refusal)
        assert not answered.is_settled
        assert not refused.is_settled
        ledger.driver.flush()
        assert answered.result() == ["answer"]
        assert refusal_of(refused) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert said(["at once"]).result() == ["at once"]

    def test_answers_come_in_the_order_of_the_operations(self, ledger: Ledger) -> None:
        order: list[str] = []
        for name in "abc":
            ledger.runtime.write(put(name, 1)).on_settled(partial(_note, order, name))
            ledger.runtime.write(refuse()).on_settled(partial(_note, order, f"refused after {name}"))
        ledger.driver.flush()
        assert order == ["a", "refused after a", "b", "refused after b", "c", "refused after c"]

    def test_a_callback_may_write_again(self, ledger: Ledger) -> None:
        following = ledger.runtime.write(put("a", 1)).then(lambda _one: ledger.runtime.write(put("b", 2)))
        ledger.driver.flush()
        assert not following.is_settled
        ledger.driver.flush()
        assert following.result() == 2

    def test_one_report_makes_several_groups_durable(self, ledger: Ledger) -> None:
        replies = []
        for number in range(3):
            replies.append(ledger.runtime.write(put("a", number)))
            ledger.runtime.groups.seal()
        ledger.runtime.on_durable(3)
        assert [reply.result() for reply in replies] == [0, 1, 2]
        assert ledger.runtime.groups.is_idle

    def test_durable_reads_show_the_group_that_is_durable_and_not_a_later_one(self, ledger: Ledger) -> None:
        for number in range(3):
            ledger.runtime.write(put("a", number))
            ledger.runtime.groups.seal()
        ledger.runtime.on_durable(2)
        assert ledger.first.durable() == {"a": 1}
        assert ledger.first.live() == {"a": 2}

    def test_listeners_hear_which_shards_have_new_durable_state(self, ledger: Ledger) -> None:
        heard: list[set[ShardKey]] = []
        ledger.runtime.on_durable_change(lambda shards: heard.append(set(shards)))
        ledger.runtime.write(put("a", 1))
        ledger.runtime.write(put("b", 1))
        ledger.driver.flush()
        ledger.runtime.write(put("b", 1, shard=SECOND))
        ledger.driver.flush()
        assert heard == [{FIRST}, {SECOND}]


class TestOneOperationFailsAlone:
    def test_a_refused_join_takes_everything_back(self, ledger: Ledger) -> None:
        kept = ledger.runtime.write(put("kept", 1))
        refused = ledger.runtime.write(
            put("a", 1, joins=(put("b", 2, shard=SECOND), put("kept", 7), refuse(shard=SECOND)))
        )
        also_kept = ledger.runtime.write(put("also_kept", 3, shard=SECOND))
        assert ledger.first.live() == {"kept": 1}
        assert ledger.second.live() == {"also_kept": 3}
        ledger.driver.flush()
        assert kept.result() == 1
        assert also_kept.result() == 3
        assert refusal_of(refused) is ErrorCode.INVALID_REQUEST
        after = Ledger(ledger.store.crash())
        assert after.first.live() == {"kept": 1}
        assert after.second.live() == {"also_kept": 3}

    def test_joins_are_durable_together_with_the_operation(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1, joins=(put("b", 2, shard=SECOND),)))
        ledger.runtime.groups.seal()
        assert len(ledger.driver.handed_over) == 1

    def test_the_last_reply_that_says_something_counts(self, ledger: Ledger) -> None:
        silent = Operation(SECOND, lambda _shard, _turn: Decision())
        reply = ledger.runtime.write(put("a", 1, joins=(put("b", 2), silent)))
        ledger.driver.flush()
        assert reply.result() == 2

    def test_a_reply_can_be_made_of_those_of_the_joins(self, ledger: Ledger) -> None:
        joins = (put("a", 1), put("b", 2, joins=(put("c", 3),)), put("d", 4, shard=SECOND))
        together = Operation(FIRST, lambda _shard, _turn: Decision(reply="not this", joins=joins, combine=list))
        reply = ledger.runtime.write(together)
        ledger.driver.flush()
        assert reply.result() == [1, 3, 4]

    def test_a_join_sees_the_records_of_its_operation(self, ledger: Ledger) -> None:
        reply = ledger.runtime.write(put("a", 5, joins=(look("a"),), reply="none"))
        ledger.driver.flush()
        assert reply.result() == 5

    def test_a_defect_is_that_callers_alone(self, ledger: Ledger) -> None:
        neighbour = ledger.runtime.write(put("a", 1))
        broken = ledger.runtime.write(put("b", 1, joins=(fail_with(lambda: ZeroDivisionError("our bug")),)), CLIENT)
        with pytest.raises(ZeroDivisionError):
            broken.result()
        assert ledger.first.live() == {"a": 1}
        ledger.driver.flush()
        assert neighbour.result() == 1

    def test_a_record_that_cannot_be_encoded_leaves_neither_rows_nor_state(self, ledger: Ledger) -> None:
        broken = ledger.runtime.write(
            Operation(
                FIRST,
                lambda _shard, _turn: Decision(records=(Record(FIRST, Put("a", 1)), Record(FIRST, Unencodable()))),
            ),
            CLIENT,
        )
        with pytest.raises(ValueError, match="no bytes"):
            broken.result()
        assert ledger.first.live() == {}
        ledger.runtime.write(put("b", 1))
        ledger.driver.flush()
        assert Ledger(ledger.store.crash()).first.live() == {"b": 1}

    def test_a_defect_of_the_servers_own_operation_is_reported(self, ledger: Ledger) -> None:
        ledger.runtime.write(fail_with(lambda: ZeroDivisionError("our bug")))
        with pytest.raises(ZeroDivisionError):
            ledger.driver.flush()

    def test_a_caller_that_gave_up_does_not_poison_the_batch(self, ledger: Ledger) -> None:
        before = ledger.runtime.write(put("a", 1))
        gone = ledger.runtime.write(put("b", 2))
        after = ledger.runtime.write(put("c", 3))
        gone.cancel()
        ledger.driver.flush()
        assert (before.result(), after.result()) == (1, 3)
        # Staged records go on: a client's impatience must not undo what others may already have seen.
        assert ledger.first.durable() == {"a": 1, "b": 2, "c": 3}

    def test_an_unknown_shard_is_refused(self, ledger: Ledger) -> None:
        elsewhere = ShardKey(Coordinator.CATALOG, 9)
        assert refusal_of(ledger.runtime.write(look("a", shard=elsewhere))) is ErrorCode.NOT_COORDINATOR


class TestGroups:
    def test_a_key_is_stored_once_per_group(self, ledger: Ledger) -> None:
        for number in range(5):
            ledger.runtime.write(put("a", number))
        ledger.runtime.groups.seal()
        (group,) = ledger.driver.handed_over
        states = [value for family, _key, value in group.mutations if family is Family.COORDINATOR_STATE]
        (history,) = ((key, value) for family, key, value in group.mutations if family is Family.HISTORY)
        assert states == [b"4"]
        assert [step.number for step in steps_of(history[0], history[1] or b"")] == [0, 1, 2, 3, 4]

    def test_a_large_group_is_sealed_early(self) -> None:
        ledger = Ledger(limits=RuntimeLimits(group_bytes_max=100))
        for number in range(10):
            ledger.runtime.write(put(f"name{number}", number))
        assert len(ledger.driver.handed_over) > 1
        ledger.driver.settle()
        assert len(ledger.first.durable()) == 10

    def test_nothing_is_handed_over_when_nothing_was_staged(self, ledger: Ledger) -> None:
        ledger.runtime.write(look("a"))
        ledger.runtime.groups.seal()
        assert ledger.driver.handed_over == []
        assert ledger.runtime.groups.is_idle

    def test_beyond_the_undurable_bytes_new_work_is_refused_and_urgent_work_is_not(self) -> None:
        ledger = Ledger(limits=RuntimeLimits(undurable_bytes_max=200))
        while ledger.runtime.write(put("a", 1)).is_settled is False:
            pass
        assert refusal_of(ledger.runtime.write(put("b", 1))) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        urgent = ledger.runtime.write(put("c", 1), is_urgent=True)
        ledger.driver.flush()
        assert urgent.result() == 1
        again = ledger.runtime.write(put("b", 1))
        ledger.driver.flush()
        assert again.result() == 1

    def test_steps_of_history_are_numbered_on_after_a_restart(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1))
        ledger.driver.flush()
        after = Ledger(ledger.store.crash())
        after.runtime.write(put("a", 2))
        after.driver.flush()
        history = [step for row in after.store.scan(Family.HISTORY, b"", b"\xff") for step in steps_of(*row)]
        assert [step.number for step in history] == [0, 1]

    def test_an_operation_that_failed_takes_no_number_of_history(self, ledger: Ledger) -> None:
        rows = ledger.runtime.rows(Coordinator.CATALOG)
        assert isinstance(rows, StateRows)
        spoiled = Operation(SECOND, lambda _shard, _turn: Decision(records=(Record(SECOND, Unencodable("b")),)))
        ledger.runtime.write(put("a", 1, joins=(spoiled,)))
        ledger.runtime.write(put("a", 2))
        assert rows.history_end(FIRST, ledger.runtime.groups.open.rows) == 1
        ledger.runtime.groups.seal()
        assert rows.history_end(FIRST, ledger.runtime.groups.open.rows) == 1


class TestFailStop:
    def fail(self, ledger: Ledger) -> None:
        ledger.store.fail_next_sync(OSError(errno.EIO, "the disk"))
        with pytest.raises(StoreFailed) as failure:
            ledger.driver.flush()
        ledger.runtime.fail(failure.value)

    def test_who_waits_is_told_that_the_outcome_is_unknown(self, ledger: Ledger) -> None:
        sealed = ledger.runtime.write(put("a", 1))
        refused = ledger.runtime.write(refuse())
        self.fail(ledger)
        for reply in (sealed, refused):
            with pytest.raises(UnknownOutcome) as unknown:
                reply.result()
            assert unknown.value.code is ErrorCode.REQUEST_TIMED_OUT

    def test_the_open_group_is_answered_too(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1))
        ledger.runtime.groups.seal()
        still_open = ledger.runtime.write(put("b", 1))
        self.fail(ledger)
        with pytest.raises(UnknownOutcome):
            still_open.result()

    def test_new_work_is_refused(self, ledger: Ledger) -> None:
        self.fail_with_something_staged(ledger)
        assert refusal_of(ledger.runtime.write(put("b", 1))) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    def fail_with_something_staged(self, ledger: Ledger) -> None:
        ledger.runtime.write(put("a", 1))
        self.fail(ledger)

    def test_the_first_failure_counts(self, ledger: Ledger) -> None:
        self.fail_with_something_staged(ledger)
        ledger.runtime.fail(RuntimeError("a later one"))
        assert ledger.first.durable() == {}


class TestLoading:
    def test_a_shard_is_rebuilt_from_the_newest_rows(self, ledger: Ledger) -> None:
        for number in range(3):
            ledger.runtime.write(put("a", number))
            ledger.runtime.write(put(f"b{number}", number, shard=SECOND))
            ledger.driver.flush()
        after = Ledger(ledger.store.crash())
        assert after.first.durable() == {"a": 2}
        assert after.second.durable() == {"b0": 0, "b1": 1, "b2": 2}

    def test_what_was_loaded_is_durable_and_what_others_staged_is_not(self, ledger: Ledger) -> None:
        """A shard that is loaded while others serve must not make their undurable state readable."""
        ledger.runtime.write(put("a", 1, shard=SECOND))
        ledger.driver.flush()
        ledger.runtime.write(put("b", 1))
        ledger.driver.loader.load(SECOND)
        ledger.driver.read_all()
        reloaded: LedgerShard = ledger.runtime.shard(SECOND)
        assert reloaded is not ledger.second
        assert reloaded.durable() == {"a": 1}
        assert ledger.first.durable() == {}
        ledger.driver.flush()
        assert ledger.first.durable() == {"b": 1}


def test_a_defect_in_what_follows_an_answer_is_told_and_keeps_no_other_answer_back(ledger: Ledger) -> None:
    defects: list[Exception] = []
    ledger.runtime.on_defect = defects.append

    def fail(_reply: Pending[int]) -> None:
        raise ZeroDivisionError("our bug")

    ledger.runtime.write(put("a", 1)).map(lambda number: number).on_settled(fail)
    neighbour = ledger.runtime.write(put("b", 2))
    ledger.driver.flush()
    assert neighbour.result() == 2
    assert [str(defect) for defect in defects] == ["our bug"]


def test_each_group_is_reported_with_how_long_it_took(ledger: Ledger) -> None:
    told: list[tuple[int, int, int]] = []
    ledger.runtime.on_group = lambda group: told.append((group.row_count, group.size_bytes, group.elapsed_us))
    ledger.runtime.write(put("a", 1))
    ledger.runtime.groups.seal()
    (handed_over,) = ledger.driver.handed_over
    ledger.clock.advance(5)
    ledger.driver.flush()
    assert told == [(2, handed_over.size_bytes, 5_000)]


def test_what_happened_is_told_also_where_nothing_was_written(ledger: Ledger) -> None:
    told: list[object] = []
    ledger.runtime.on_event = lambda event, turn: told.append((event, turn.client_id))
    noticed = Operation(FIRST, lambda _shard, _turn: Decision(events=("noticed",)))
    ledger.runtime.write(noticed, CLIENT)
    assert told == [("noticed", "c")]
    ledger.runtime.write(put("a", 1))
    ledger.runtime.write(noticed, CLIENT)
    assert len(told) == 1
    ledger.driver.flush()
    assert len(told) == 2
