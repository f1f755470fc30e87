"""A small correct history, and each anomaly of spec log-and-runtime 6.2 planted into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from tests.histories.checker import RULES, check
from tests.histories.form import (
    AnyOperation,
    Committed,
    Delta,
    End,
    Fault,
    FinalRead,
    Init,
    Isolation,
    Marks,
    Outcome,
    Poll,
    Producer,
    Reading,
    Record,
    Send,
    SendOffsets,
    Snapshot,
    Verdict,
    history,
)

Story: TypeAlias = list[AnyOperation]
A, B = "orders/0", "orders/1"
FIRST = Producer("till", 7, 0)
SECOND = Producer("till", 7, 5)
COPIER = Producer("copier", 8, 0)


def a_correct_history() -> Story:
    """Transactions that commit, abort, are copied and stay unknown, two snapshots, a kill, and all that is there."""
    return [
        Init(process="till", invoked=1, completed=2, producer=FIRST, decided_within=100),
        sends("till", 3, A, 0, "a1", "buy"),
        sends("till", 5, B, 0, "b1", "buy"),
        sends("till", 7, A, 1, "a2", "buy"),
        ends("till", 9, "buy"),
        polls("reader", 11, {A: ((0, "a1"), (1, "a2"))}, marks={A: Marks(lso=3, hw=3, log_start=0)}),
        sends("till", 13, A, 3, "x1", "mistake"),
        sends("till", 15, B, 2, "x2", "mistake"),
        ends("till", 17, "mistake", Verdict.ABORT),
        Snapshot(
            process="job", invoked=19, completed=20, snapshot="s1", csn=2, spans={A: (0, 5), B: (0, 4)},
            records={A: ((0, "a1"), (1, "a2")), B: ((0, "b1"),)},
        ),
        Init(process="copier", invoked=21, completed=22, producer=COPIER, decided_within=100),
        polls("copier", 23, {A: ((0, "a1"), (1, "a2"))}, txn="copy"),
        sends("copier", 25, B, 4, "c1", "copy", COPIER),
        SendOffsets(
            process="copier", invoked=27, completed=28, txn="copy", group="g", positions={A: 2}, producer=COPIER
        ),
        ends("copier", 29, "copy", producer=COPIER),
        Committed(process="admin", invoked=31, completed=32, group="g", positions={A: 2}),
        sends("till", 33, A, 5, "u1", "unsure"),
        sends("till", 35, B, 6, "u2", "unsure"),
        End(process="till", invoked=37, type=Outcome.INFO, txn="unsure", verdict=Verdict.COMMIT, producer=FIRST),
        Fault(process="storm", invoked=38, completed=39, kind="kill"),
        Init(process="till", invoked=40, completed=41, producer=SECOND, decided_within=100),
        Send(process="counter", invoked=42, completed=43, k=B, values=("n1",), offsets=(8,)),
        Send(process="counter", invoked=44, type=Outcome.INFO, k=B, values=("n2",)),
        Snapshot(
            process="job", invoked=45, completed=46, snapshot="s2", csn=4, spans={A: (0, 7), B: (0, 9)},
            records={A: ((0, "a1"), (1, "a2"), (5, "u1")), B: ((0, "b1"), (4, "c1"), (6, "u2"), (8, "n1"))},
        ),
        Delta(
            process="job", invoked=47, completed=48, since="s1", until="s2",
            records={A: ((5, "u1"),), B: ((4, "c1"), (6, "u2"), (8, "n1"))},
        ),
        polls("reader", 49, {A: ((5, "u1"),)}, marks={A: Marks(lso=7, hw=7, log_start=0)}),
        Poll(
            process="auditor", invoked=51, completed=52, isolation=Isolation.UNCOMMITTED,
            records={A: ((0, "a1"), (1, "a2"), (3, "x1"), (5, "u1"))},
        ),
        FinalRead(
            process="end", invoked=53, completed=54, marks={A: Marks(lso=7, hw=7), B: Marks(lso=9, hw=9)},
            records={A: ((0, "a1"), (1, "a2"), (5, "u1")), B: ((0, "b1"), (4, "c1"), (6, "u2"), (8, "n1"))},
        ),
    ]  # fmt: skip


def sends(process: str, invoked: float, k: str, offset: int, value: str, txn: str, producer: Producer = FIRST) -> Send:
    return Send(
        process=process, invoked=invoked, completed=invoked + 1, k=k, values=(value,), offsets=(offset,), txn=txn,
        producer=producer,
    )  # fmt: skip


def ends(process: str, invoked: float, txn: str, verdict: Verdict = Verdict.COMMIT, producer: Producer = FIRST) -> End:
    return End(process=process, invoked=invoked, completed=invoked + 1, txn=txn, verdict=verdict, producer=producer)


def polls(process: str, invoked: float, records: dict[str, tuple[Record, ...]], **others: Any) -> Poll:
    return Poll(process=process, invoked=invoked, completed=invoked + 1, records=records, **others)


def place(story: Story, invoked: float) -> int:
    return next(index for index, each in enumerate(story) if each.invoked == invoked)


def change(story: Story, at: float, **fields: Any) -> None:
    """Change fields of the operation that began then."""
    index = place(story, at)
    story[index] = replace(story[index], **fields)


def records_at(story: Story, at: float) -> dict[str, tuple[Record, ...]]:
    reading = story[place(story, at)]
    assert isinstance(reading, Reading)
    return reading.records


def hide(story: Story, at: float, *values: str) -> None:
    """Take values from what was read then."""
    kept = {k: tuple(each for each in rows if each[1] not in values) for k, rows in records_at(story, at).items()}
    change(story, at, records=kept)


def show(story: Story, at: float, k: str, *records: Record) -> None:
    """Add records to what was read then."""
    before = records_at(story, at)
    change(story, at, records={**before, k: tuple(sorted((*before.get(k, ()), *records)))})


SNAPSHOT, LATER_SNAPSHOT, DELTA, LAST_POLL, FINAL = 19, 45, 47, 49, 53


def an_aborted_value_is_read(story: Story) -> None:
    show(story, LAST_POLL, A, (3, "x1"))


def a_value_is_read_that_nobody_sent(story: Story) -> None:
    show(story, FINAL, A, (6, "z9"))


def a_value_is_read_whose_send_failed(story: Story) -> None:
    change(story, 44, type=Outcome.FAIL, completed=45)
    show(story, FINAL, B, (9, "n2"))


def a_value_is_read_before_its_commit(story: Story) -> None:
    change(story, 11, invoked=8.1, completed=8.5)


def a_transaction_reads_its_own_value(story: Story) -> None:
    story.insert(place(story, 27), polls("copier", 26.5, {B: ((4, "c1"),)}, txn="copy"))


def an_earlier_value_is_seen_without_the_last(story: Story) -> None:
    hide(story, SNAPSHOT, "a2")


def transactions_read_from_each_other(story: Story) -> None:
    story.insert(place(story, 9), polls("till", 8.5, {B: ((4, "c1"),)}, txn="buy"))


def a_value_is_passed_and_never_read(story: Story) -> None:
    for invoked in (11, 23, 51):
        hide(story, invoked, "a1")
    for invoked in (SNAPSHOT, LATER_SNAPSHOT, FINAL):
        hide(story, invoked, "a1")


def a_committed_value_is_not_there_at_the_end(story: Story) -> None:
    hide(story, FINAL, "c1")


def a_value_is_stored_twice(story: Story) -> None:
    show(story, FINAL, B, (9, "n1"))


def a_record_is_delivered_twice(story: Story) -> None:
    show(story, LAST_POLL, A, (1, "a2"))


def a_snapshot_tears_a_transaction(story: Story) -> None:
    hide(story, SNAPSHOT, "b1")


def an_offset_has_two_values(story: Story) -> None:
    show(story, LAST_POLL, A, (1, "b1"))


def a_consumer_skips_a_record(story: Story) -> None:
    hide(story, 11, "a2")


def a_consumer_goes_back(story: Story) -> None:
    change(story, LAST_POLL, records={A: ((5, "u1"), (1, "a2"))})


def a_consumer_passes_a_record_at_the_end_of_its_poll(story: Story) -> None:
    hide(story, LAST_POLL, "u1")
    change(story, LAST_POLL, spans={A: (2, 7)})


def a_producer_gets_descending_offsets(story: Story) -> None:
    change(story, 33, offsets=(2,))


def a_transaction_of_two_processes_gets_descending_offsets(story: Story) -> None:
    change(story, 7, offsets=(0,), process="other till")
    change(story, 3, offsets=(1,))


def the_watermark_falls(story: Story) -> None:
    change(story, 11, marks={A: Marks(lso=8, hw=9, log_start=0)})


def the_last_stable_offset_is_above_the_end(story: Story) -> None:
    change(story, LAST_POLL, marks={A: Marks(lso=8, hw=7)})


def an_offset_is_zero_after_others(story: Story) -> None:
    change(story, 33, offsets=(0,))


def an_offset_is_a_sentinel(story: Story) -> None:
    change(story, 42, offsets=(-1,))


def an_unknown_commit_is_seen_in_part(story: Story) -> None:
    hide(story, LATER_SNAPSHOT, "u1")


def an_unknown_commit_is_taken_back(story: Story) -> None:
    hide(story, FINAL, "u1", "u2")


def a_transaction_is_committed_and_aborted(story: Story) -> None:
    story.insert(place(story, 11), ends("till", 10.5, "buy", Verdict.ABORT))


def another_transaction_is_committed_than_was_asked(story: Story) -> None:
    for invoked in (11, 23, 51, SNAPSHOT, LATER_SNAPSHOT, FINAL):
        hide(story, invoked, "a1", "a2", "b1")
    for invoked in (SNAPSHOT, LATER_SNAPSHOT, FINAL):
        show(story, invoked, A, (3, "x1"))
        show(story, invoked, B, (2, "x2"))


def a_fenced_producer_sends(story: Story) -> None:
    story.append(sends("till", 60, A, 7, "z1", "late"))


def a_producer_with_an_older_id_commits(story: Story) -> None:
    change(story, 40, producer=Producer("till", 70, 0))
    story.append(sends("till", 60, A, 7, "z1", "late"))


def committed_positions_are_lost(story: Story) -> None:
    change(story, 31, positions={A: 1})


def a_position_is_of_no_transaction(story: Story) -> None:
    change(story, 31, positions={A: 4})


def an_input_is_processed_twice(story: Story) -> None:
    again = Producer("copier", 8, 1)
    story[place(story, 33) : place(story, 33)] = [
        polls("another copier", 32.1, {A: ((1, "a2"),)}, txn="again"),
        SendOffsets(process="copier", invoked=32.2, completed=32.3, txn="again", group="g", positions={A: 2}),
        End(process="copier", invoked=32.4, completed=32.5, txn="again", verdict=Verdict.COMMIT, producer=again),
    ]


def a_transaction_hangs_at_the_end(story: Story) -> None:
    change(story, FINAL, marks={A: Marks(lso=5, hw=7)})


def a_transaction_is_open_after_its_time(story: Story) -> None:
    story.append(sends("till", 60, A, 7, "z1", "late", SECOND))
    story.append(polls("reader", 170, {}, marks={A: Marks(lso=7, hw=8)}))


def a_snapshot_changes(story: Story) -> None:
    again = replace(story[place(story, SNAPSHOT)], invoked=55, completed=56)
    assert isinstance(again, Snapshot)
    story.append(replace(again, records={**again.records, B: ()}))


def a_later_snapshot_ends_earlier(story: Story) -> None:
    change(story, SNAPSHOT, spans={A: (0, 8), B: (0, 4)})


def a_delta_leaves_a_record_out(story: Story) -> None:
    hide(story, DELTA, "c1")


def a_kill_loses_a_transaction(story: Story) -> None:
    for invoked in (LATER_SNAPSHOT, FINAL):
        hide(story, invoked, "c1")


def a_kill_loses_what_was_read(story: Story) -> None:
    story.insert(place(story, 38), polls("reader", 37.1, {A: ((5, "u1"),)}))
    change(story, 37.1, completed=37.2)
    for invoked in (LATER_SNAPSHOT, FINAL):
        hide(story, invoked, "u1", "u2")


PLANTED: dict[Callable[[Story], None], int] = {
    an_aborted_value_is_read: 1,
    a_value_is_read_that_nobody_sent: 1,
    a_value_is_read_whose_send_failed: 1,
    a_value_is_read_before_its_commit: 2,
    a_transaction_reads_its_own_value: 2,
    an_earlier_value_is_seen_without_the_last: 3,
    transactions_read_from_each_other: 4,
    a_value_is_passed_and_never_read: 5,
    a_committed_value_is_not_there_at_the_end: 6,
    a_value_is_stored_twice: 7,
    a_record_is_delivered_twice: 7,
    a_snapshot_tears_a_transaction: 8,
    an_offset_has_two_values: 9,
    a_consumer_skips_a_record: 10,
    a_consumer_goes_back: 10,
    a_consumer_passes_a_record_at_the_end_of_its_poll: 10,
    a_producer_gets_descending_offsets: 11,
    a_transaction_of_two_processes_gets_descending_offsets: 11,
    the_watermark_falls: 12,
    the_last_stable_offset_is_above_the_end: 12,
    an_offset_is_zero_after_others: 13,
    an_offset_is_a_sentinel: 13,
    an_unknown_commit_is_seen_in_part: 14,
    an_unknown_commit_is_taken_back: 14,
    a_transaction_is_committed_and_aborted: 14,
    another_transaction_is_committed_than_was_asked: 15,
    a_fenced_producer_sends: 16,
    a_producer_with_an_older_id_commits: 16,
    committed_positions_are_lost: 17,
    a_position_is_of_no_transaction: 17,
    an_input_is_processed_twice: 17,
    a_transaction_hangs_at_the_end: 18,
    a_transaction_is_open_after_its_time: 18,
    a_snapshot_changes: 19,
    a_later_snapshot_ends_earlier: 19,
    a_delta_leaves_a_record_out: 19,
    a_kill_loses_a_transaction: 20,
    a_kill_loses_what_was_read: 20,
}


def test_a_correct_history_breaks_nothing_and_has_material_for_everything() -> None:
    report = check(history(a_correct_history()))
    assert report.violations == ()
    assert report.without_material == frozenset()


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_an_anomaly_is_found_under_its_name(plant: Callable[[Story], None]) -> None:
    story = a_correct_history()
    plant(story)
    found = check(history(story)).counts
    assert PLANTED[plant] in found, found


def test_each_invariant_has_an_anomaly() -> None:
    assert set(PLANTED.values()) == set(RULES)


def test_what_is_below_the_log_start_may_be_missing() -> None:
    story = a_correct_history()
    hide(story, FINAL, "a1")
    change(story, FINAL, spans={A: (1, 7)})
    assert check(history(story)).violations == ()


def test_an_unknown_commit_may_have_happened_or_not() -> None:
    story = a_correct_history()
    for invoked in (LATER_SNAPSHOT, DELTA, LAST_POLL, FINAL):
        hide(story, invoked, "u1", "u2")
    assert check(history(story)).violations == ()


def test_a_consumer_may_begin_again_in_another_session() -> None:
    story = a_correct_history()
    show(story, LAST_POLL, A, (0, "a1"), (1, "a2"))
    change(story, LAST_POLL, session=1)
    assert check(history(story)).violations == ()


def test_a_history_without_reads_says_what_it_has_no_material_for() -> None:
    story = [each for each in a_correct_history() if isinstance(each, Init | Send | End)]
    report = check(history(story))
    assert report.violations == ()
    assert report.without_material == {1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 15, 17, 18, 19, 20}
