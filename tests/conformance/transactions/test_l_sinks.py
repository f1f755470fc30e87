"""L. Sinks: a batch is committed once, whole or not at all, whatever crashes in between."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.conformance.transactions.cases import case
from tests.sinks.room import RUN, TIMEOUT_MS, SinkRoom, Task
from txn_coordinator.config import TwoPhase

BOTH = pytest.mark.parametrize("two_phase", list(TwoPhase))


def checked(room: SinkRoom) -> None:
    room.world.check_replay()
    room.world.check_stored()


@case(310)
@BOTH
def test_the_chosen_members_of_a_batch_commit_and_all_others_are_given_up(two_phase: TwoPhase) -> None:
    room = SinkRoom(two_phase=two_phase)
    first, loser, second = (room.written(0, value) for value in ("a", "lost", "b"))
    still_writing = room.member(0)
    assert room.write(still_writing, "t-0", "late") is None
    assert room.seen() == []
    decided = room.commit(0, first, second)
    assert not decided.was_committed
    assert room.seen("t-0") == ["a", "b"]
    assert room.seen("t-1") == ["a", "b"]
    assert not room.describe().members
    assert room.refusal(room.ask_seal(loser)) is ErrorCode.PRODUCER_FENCED
    assert room.write(still_writing, "t-0", "later") is ErrorCode.INVALID_PRODUCER_EPOCH
    checked(room)


@case(311)
@BOTH
def test_all_members_of_a_decision_have_one_csn(two_phase: TwoPhase) -> None:
    room = SinkRoom(two_phase=two_phase)
    csn = room.commit(0, room.written(0, "a"), room.written(0, "b")).csn
    markers = [
        entry.marker.csn
        for partition in ("t-0", "t-1")
        for entry in room.world.read(partition, is_raw=True).entries
        if entry.marker is not None
    ]
    assert markers == [csn] * 4


@case(312)
@BOTH
def test_a_batch_is_committed_once(two_phase: TwoPhase) -> None:
    room = SinkRoom(two_phase=two_phase)
    member = room.written(0, "a")
    csn = room.commit(0, member).csn
    again = room.commit(0, member)
    assert again.was_committed
    assert again.csn == csn
    for run_id, is_own in (("run 1", True), ("run 2", False), ("run 1", True)):
        joined = room.answer(room.ask_join(0, run_id=run_id))
        assert (joined.identity, joined.is_own) == (None, is_own), (
            "who finds it done learns whose it is, and changes nothing"
        )
    room.commit(1, room.written(1, "b", run_id="run 2"), run_id="run 2")
    assert room.refusal(room.ask_join(1)) is ErrorCode.PRODUCER_FENCED
    assert room.seen("t-0") == ["a", "b"]
    checked(room)


@case(313)
@BOTH
def test_a_repeated_join_gets_the_same_member(two_phase: TwoPhase) -> None:
    room = SinkRoom(two_phase=two_phase)
    first = room.answer(room.ask_join(0, request_id=b"r" * 16))
    assert room.answer(room.ask_join(0, request_id=b"r" * 16)) == first
    assert len(room.describe().members) == 1


@case(314)
@BOTH
def test_a_new_run_fences_the_one_before(two_phase: TwoPhase) -> None:
    room = SinkRoom(two_phase=two_phase)
    zombie = room.written(0, "old")
    fresh = room.written(0, "new", run_id="run 2")
    room.settle()
    assert [member.identity for member in room.describe().members] == [fresh.identity]
    assert room.refusal(room.ask_join(0)) is ErrorCode.PRODUCER_FENCED
    assert room.refusal(room.ask_commit(0, [zombie])) is ErrorCode.PRODUCER_FENCED
    assert room.abort(0, run_id="run 1") == 0, "what comes late from it changes nothing"
    room.commit(0, fresh, run_id="run 2")
    assert room.seen() == ["new", "new"]
    checked(room)


@case(315)
@BOTH
def test_who_waits_for_nobody_is_given_up_sealed_or_not(two_phase: TwoPhase) -> None:
    room = SinkRoom(two_phase=two_phase)
    sealed, open_ = room.written(0, "sealed"), room.member(0)
    room.write(open_, "t-0", "open")
    room.world.tick(TIMEOUT_MS - 10)
    room.world.settle()
    assert len(room.describe().members) == 2
    room.world.tick(20)
    room.settle()
    assert not room.describe().members
    assert room.world.read("t-0").last_stable_offset == room.world.read("t-0").high_watermark
    assert room.refusal(room.ask_commit(0, [sealed])) is ErrorCode.TRANSACTION_ABORTABLE
    room.commit(0, room.written(0, "again"))
    assert room.seen("t-0") == ["again"]
    checked(room)


@case(316)
def test_activity_of_one_member_keeps_all_of_them() -> None:
    room = SinkRoom()
    sealed = room.written(0, "a")
    for _ in range(3):
        room.world.tick(TIMEOUT_MS - 100)
        room.member(0)
    room.commit(0, sealed)
    assert room.seen("t-0") == ["a"]


@case(317)
@BOTH
def test_an_aborted_batch_can_be_written_again(two_phase: TwoPhase) -> None:
    room = SinkRoom(two_phase=two_phase)
    room.written(0, "a")
    assert room.abort(0, run_id="run 1") == 1
    room.commit(0, room.written(0, "b"))
    assert room.abort(0, run_id="run 1") == 0, "no-op after the commit"
    assert room.seen("t-0") == ["b"]
    checked(room)


@case(318)
@pytest.mark.parametrize("kind", ["unsealed", "other batch", "other sink", "twice", "unknown", "other epoch"])
def test_a_decision_on_impossible_members_commits_nothing(kind: str) -> None:
    room = SinkRoom()
    good = room.written(0, "a")
    named = [good]
    expected = ErrorCode.INVALID_TXN_STATE
    match kind:
        case "unsealed":
            named.append(room.member(0))
        case "other batch":
            assert room.refusal(room.ask_commit(1, named)) is expected
            late, good = good, room.written(1, "a")
            assert room.refusal(room.ask_commit(1, [late, good])) is ErrorCode.TRANSACTION_ABORTABLE, "it was given up"
            assert room.seen() == []
            room.commit(1, good)
            assert room.seen("t-0") == ["a"]
            return
        case "other sink":
            named.append(room.member(0, sink="another"))
            expected = ErrorCode.TRANSACTION_ABORTABLE
        case "twice":
            named, expected = [good, good], ErrorCode.INVALID_REQUEST
        case "unknown":
            named.append(Task("", good.identity._replace(producer_id=7_777)))
            expected = ErrorCode.TRANSACTION_ABORTABLE
        case "other epoch":
            named, expected = [Task("", good.identity._replace(producer_epoch=1))], ErrorCode.TRANSACTION_ABORTABLE
    assert room.refusal(room.ask_commit(0, named)) is expected
    assert room.seen() == []
    room.commit(0, good)
    assert room.seen("t-0") == ["a"]


@case(319)
def test_a_run_does_not_go_back_to_an_earlier_batch() -> None:
    room = SinkRoom()
    room.member(5)
    assert room.refusal(room.ask_join(4)) is ErrorCode.INVALID_TXN_STATE
    assert room.answer(room.ask_join(4, run_id="run 2")).identity is not None


@case(320)
def test_nobody_decides_on_a_sink_that_nobody_joined() -> None:
    assert SinkRoom().refusal(SinkRoom().ask_commit(0, [])) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@case(321)
def test_an_empty_batch_is_committed() -> None:
    room = SinkRoom()
    member = room.member(0)
    room.seal(member)
    room.commit(0, member)
    assert room.answer(room.ask_join(0)).identity is None


@case(322)
@BOTH
@pytest.mark.parametrize("crash_after", range(16))
def test_a_crash_at_any_step_leaves_a_batch_whole(two_phase: TwoPhase, crash_after: int) -> None:
    """Steps are durable one by one, and after each the process is lost; the engine begins a new run and replays the
    batch, unless it is committed."""
    room = SinkRoom(two_phase=two_phase)
    members = [room.written(0, value) for value in ("a", "b", "c")]
    loser = room.member(0)
    room.write(loser, "t-0", "lost")
    pending = room.ask_commit(0, members)
    for _ in range(crash_after):
        room.world.flush(1)
        room.world.tick(1)
    was_answered = pending.is_settled
    room.world.crash(down_ms=5)
    room.world.check_replay()
    room.settle()
    joined = room.answer(room.ask_join(0, run_id="run 2"))
    assert (joined.identity is None) or not was_answered
    if joined.identity is not None:
        room.commit(0, *(room.written(0, value, run_id="run 2") for value in ("a", "b", "c")), run_id="run 2")
    assert sorted(room.seen("t-0")) == ["a", "b", "c"]
    assert sorted(room.seen("t-1")) == ["a", "b", "c"]
    assert not room.describe().members
    checked(room)


@case(323)
def test_micro_batches_leave_only_what_they_wrote() -> None:
    room = SinkRoom()
    counts = []
    for batch_id in range(40):
        room.commit(batch_id, room.written(batch_id, "a"), room.written(batch_id, "b"))
        counts.append((room.row_counts(), room.members_in_memory()))
    assert counts[-1] == counts[1], "entries, rows and memory"
    assert len(room.seen("t-0")) == 80
    checked(room)


@case(324)
@pytest.mark.parametrize("is_made_again", [False, True], ids=["deleted", "made again"])
@BOTH
def test_a_batch_of_which_a_topic_was_deleted_is_not_committed(two_phase: TwoPhase, is_made_again: bool) -> None:
    room = SinkRoom(two_phase=two_phase)
    room.world.create_topic("d", 1)
    members = room.written(0, "a"), room.written(0, "b", partitions=("t-0", "d-0"))
    room.world.delete_topic("d")
    room.world.settle()
    if is_made_again:
        room.world.create_topic("d", 1)
    assert room.refusal(room.ask_commit(0, members)) is ErrorCode.TRANSACTION_ABORTABLE
    told = ErrorCode.PRODUCER_FENCED if is_made_again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert room.refusal(room.ask_seal(members[1])) is told
    assert room.seen() == [], "nothing of it"
    room.abort(0, run_id=RUN)
    again = room.written(0, "a"), room.member(0)
    assert (room.write(again[1], "d-0", "b") is None) is is_made_again
    assert room.write(again[1], "t-0", "b") is None
    room.seal(again[1])
    room.commit(0, *again)
    assert sorted(room.seen("t-0")) == ["a", "b"]
    checked(room)


@case(325)
@pytest.mark.parametrize("crash", [False, True], ids=["", "crash"])
def test_a_decision_stands_though_a_topic_of_its_members_is_deleted(crash: bool) -> None:
    room = SinkRoom(two_phase=TwoPhase.SPLIT)
    room.world.create_topic("d", 1)
    partitions = ("t-0", "t-1", "d-0")
    members = [room.written(0, value, partitions=partitions) for value in ("a", "b", "c")]
    decided = room.ask_commit(0, members)
    room.world.flush()
    assert decided.is_settled
    deleted = room.world.delete_topic("d")
    room.answer(deleted)
    assert deleted.result().error is None
    if crash:
        room.world.crash()
        room.world.check_replay()
    room.settle()
    assert sorted(room.seen("t-0")) == sorted(room.seen("t-1")) == ["a", "b", "c"]
    assert not room.describe().members
    checked(room)
