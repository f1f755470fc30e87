"""L. Sinks: a batch is committed once, whole or not at all, whatever crashes in between."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.conformance.transactions.cases import case
from tests.harness.sinks import RUN, TIMEOUT_MS, Task
from tests.harness.world import World
from tests.sinks.world import sink_world
from txn_coordinator.config import TwoPhase

BOTH = pytest.mark.parametrize("two_phase", list(TwoPhase))


def checked(world: World) -> None:
    world.check_replay()
    world.check_stored()


@case(310)
@BOTH
def test_the_chosen_members_of_a_batch_commit_and_all_others_are_given_up(two_phase: TwoPhase) -> None:
    world = sink_world(two_phase=two_phase)
    first, loser, second = (world.sinks.written(0, value) for value in ("a", "lost", "b"))
    still_writing = world.sinks.member(0)
    assert world.sinks.write(still_writing, "t-0", "late") is None
    assert world.sinks.seen() == []
    decided = world.sinks.commit(0, first, second)
    assert not decided.was_committed
    assert world.sinks.seen("t-0") == ["a", "b"]
    assert world.sinks.seen("t-1") == ["a", "b"]
    assert not world.sinks.describe().members
    assert world.sinks.refusal(world.sinks.ask_seal(loser)) is ErrorCode.PRODUCER_FENCED
    assert world.sinks.write(still_writing, "t-0", "later") is ErrorCode.INVALID_PRODUCER_EPOCH
    checked(world)


@case(311)
@BOTH
def test_all_members_of_a_decision_have_one_csn(two_phase: TwoPhase) -> None:
    world = sink_world(two_phase=two_phase)
    csn = world.sinks.commit(0, world.sinks.written(0, "a"), world.sinks.written(0, "b")).csn
    markers = [
        entry.marker.csn
        for partition in ("t-0", "t-1")
        for entry in world.read(partition, is_raw=True).entries
        if entry.marker is not None
    ]
    assert markers == [csn] * 4


@case(312)
@BOTH
def test_a_batch_is_committed_once(two_phase: TwoPhase) -> None:
    world = sink_world(two_phase=two_phase)
    member = world.sinks.written(0, "a")
    csn = world.sinks.commit(0, member).csn
    again = world.sinks.commit(0, member)
    assert again.was_committed
    assert again.csn == csn
    for run_id, is_own in (("run 1", True), ("run 2", False), ("run 1", True)):
        joined = world.sinks.answer(world.sinks.ask_join(0, run_id=run_id))
        assert (joined.identity, joined.is_own) == (None, is_own), (
            "who finds it done learns whose it is, and changes nothing"
        )
    world.sinks.commit(1, world.sinks.written(1, "b", run_id="run 2"), run_id="run 2")
    assert world.sinks.refusal(world.sinks.ask_join(1)) is ErrorCode.PRODUCER_FENCED
    assert world.sinks.seen("t-0") == ["a", "b"]
    checked(world)


@case(313)
@BOTH
def test_a_repeated_join_gets_the_same_member(two_phase: TwoPhase) -> None:
    world = sink_world(two_phase=two_phase)
    first = world.sinks.answer(world.sinks.ask_join(0, request_id=b"r" * 16))
    assert world.sinks.answer(world.sinks.ask_join(0, request_id=b"r" * 16)) == first
    assert len(world.sinks.describe().members) == 1


@case(314)
@BOTH
def test_a_new_run_fences_the_one_before(two_phase: TwoPhase) -> None:
    world = sink_world(two_phase=two_phase)
    zombie = world.sinks.written(0, "old")
    fresh = world.sinks.written(0, "new", run_id="run 2")
    world.sinks.settle()
    assert [member.identity for member in world.sinks.describe().members] == [fresh.identity]
    assert world.sinks.refusal(world.sinks.ask_join(0)) is ErrorCode.PRODUCER_FENCED
    assert world.sinks.refusal(world.sinks.ask_commit(0, [zombie])) is ErrorCode.PRODUCER_FENCED
    assert world.sinks.abort(0, run_id="run 1") == 0, "what comes late from it changes nothing"
    world.sinks.commit(0, fresh, run_id="run 2")
    assert world.sinks.seen() == ["new", "new"]
    checked(world)


@case(315)
@BOTH
def test_an_abandoned_member_is_given_up_sealed_or_not(two_phase: TwoPhase) -> None:
    world = sink_world(two_phase=two_phase)
    sealed, open_ = world.sinks.written(0, "sealed"), world.sinks.member(0)
    world.sinks.write(open_, "t-0", "open")
    world.tick(TIMEOUT_MS - 10)
    world.settle()
    assert len(world.sinks.describe().members) == 2
    world.tick(20)
    world.sinks.settle()
    assert not world.sinks.describe().members
    assert world.read("t-0").last_stable_offset == world.read("t-0").high_watermark
    assert world.sinks.refusal(world.sinks.ask_commit(0, [sealed])) is ErrorCode.TRANSACTION_ABORTABLE
    world.sinks.commit(0, world.sinks.written(0, "again"))
    assert world.sinks.seen("t-0") == ["again"]
    checked(world)


@case(316)
def test_activity_of_one_member_keeps_all_of_them() -> None:
    world = sink_world()
    sealed = world.sinks.written(0, "a")
    for _ in range(3):
        world.tick(TIMEOUT_MS - 100)
        world.sinks.member(0)
    world.sinks.commit(0, sealed)
    assert world.sinks.seen("t-0") == ["a"]


@case(317)
@BOTH
def test_an_aborted_batch_can_be_written_again(two_phase: TwoPhase) -> None:
    world = sink_world(two_phase=two_phase)
    world.sinks.written(0, "a")
    assert world.sinks.abort(0, run_id="run 1") == 1
    world.sinks.commit(0, world.sinks.written(0, "b"))
    assert world.sinks.abort(0, run_id="run 1") == 0, "no-op after the commit"
    assert world.sinks.seen("t-0") == ["b"]
    checked(world)


@case(318)
@pytest.mark.parametrize("kind", ["unsealed", "other batch", "other sink", "twice", "unknown", "other epoch"])
def test_a_decision_on_impossible_members_commits_nothing(kind: str) -> None:
    world = sink_world()
    good = world.sinks.written(0, "a")
    named = [good]
    expected = ErrorCode.INVALID_TXN_STATE
    match kind:
        case "unsealed":
            named.append(world.sinks.member(0))
        case "other batch":
            assert world.sinks.refusal(world.sinks.ask_commit(1, named)) is expected
            late, good = good, world.sinks.written(1, "a")
            assert world.sinks.refusal(world.sinks.ask_commit(1, [late, good])) is ErrorCode.TRANSACTION_ABORTABLE, (
                "it was given up"
            )
            assert world.sinks.seen() == []
            world.sinks.commit(1, good)
            assert world.sinks.seen("t-0") == ["a"]
            return
        case "other sink":
            named.append(world.sinks.member(0, sink="another"))
            expected = ErrorCode.TRANSACTION_ABORTABLE
        case "twice":
            named, expected = [good, good], ErrorCode.INVALID_REQUEST
        case "unknown":
            named.append(Task("", good.identity._replace(producer_id=7_777)))
            expected = ErrorCode.TRANSACTION_ABORTABLE
        case "other epoch":
            named, expected = [Task("", good.identity._replace(producer_epoch=1))], ErrorCode.TRANSACTION_ABORTABLE
    assert world.sinks.refusal(world.sinks.ask_commit(0, named)) is expected
    assert world.sinks.seen() == []
    world.sinks.commit(0, good)
    assert world.sinks.seen("t-0") == ["a"]


@case(319)
def test_a_run_does_not_go_back_to_an_earlier_batch() -> None:
    world = sink_world()
    world.sinks.member(5)
    assert world.sinks.refusal(world.sinks.ask_join(4)) is ErrorCode.INVALID_TXN_STATE
    assert world.sinks.answer(world.sinks.ask_join(4, run_id="run 2")).identity is not None


@case(320)
def test_no_caller_decides_on_a_sink_without_members() -> None:
    assert sink_world().sinks.refusal(sink_world().sinks.ask_commit(0, [])) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@case(321)
def test_an_empty_batch_is_committed() -> None:
    world = sink_world()
    member = world.sinks.member(0)
    world.sinks.seal(member)
    world.sinks.commit(0, member)
    assert world.sinks.answer(world.sinks.ask_join(0)).identity is None


@case(322)
@BOTH
@pytest.mark.parametrize("crash_after", range(16))
def test_a_crash_at_any_step_leaves_a_batch_whole(two_phase: TwoPhase, crash_after: int) -> None:
    """Steps are durable one by one, and after each the process is lost; the engine begins a new run and replays the
    batch, unless it is committed."""
    world = sink_world(two_phase=two_phase)
    members = [world.sinks.written(0, value) for value in ("a", "b", "c")]
    loser = world.sinks.member(0)
    world.sinks.write(loser, "t-0", "lost")
    pending = world.sinks.ask_commit(0, members)
    for _ in range(crash_after):
        world.flush(1)
        world.tick(1)
    was_answered = pending.is_settled
    world.crash(down_ms=5)
    world.check_replay()
    world.sinks.settle()
    joined = world.sinks.answer(world.sinks.ask_join(0, run_id="run 2"))
    assert (joined.identity is None) or not was_answered
    if joined.identity is not None:
        world.sinks.commit(
            0, *(world.sinks.written(0, value, run_id="run 2") for value in ("a", "b", "c")), run_id="run 2"
        )
    assert sorted(world.sinks.seen("t-0")) == ["a", "b", "c"]
    assert sorted(world.sinks.seen("t-1")) == ["a", "b", "c"]
    assert not world.sinks.describe().members
    checked(world)


@case(323)
def test_micro_batches_leave_only_what_they_wrote() -> None:
    world = sink_world()
    counts = []
    for batch_id in range(40):
        world.sinks.commit(batch_id, world.sinks.written(batch_id, "a"), world.sinks.written(batch_id, "b"))
        counts.append((world.sinks.row_counts(), world.sinks.members_in_memory()))
    assert counts[-1] == counts[1], "entries, rows and memory"
    assert len(world.sinks.seen("t-0")) == 80
    checked(world)


@case(324)
@pytest.mark.parametrize("is_made_again", [False, True], ids=["deleted", "made again"])
@BOTH
def test_a_batch_of_which_a_topic_was_deleted_is_not_committed(two_phase: TwoPhase, is_made_again: bool) -> None:
    world = sink_world(two_phase=two_phase)
    world.create_topic("d", 1)
    members = world.sinks.written(0, "a"), world.sinks.written(0, "b", partitions=("t-0", "d-0"))
    world.delete_topic("d")
    world.settle()
    if is_made_again:
        world.create_topic("d", 1)
    assert world.sinks.refusal(world.sinks.ask_commit(0, members)) is ErrorCode.TRANSACTION_ABORTABLE
    told = ErrorCode.PRODUCER_FENCED if is_made_again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.sinks.refusal(world.sinks.ask_seal(members[1])) is told
    assert world.sinks.seen() == [], "nothing of it"
    world.sinks.abort(0, run_id=RUN)
    again = world.sinks.written(0, "a"), world.sinks.member(0)
    assert (world.sinks.write(again[1], "d-0", "b") is None) is is_made_again
    assert world.sinks.write(again[1], "t-0", "b") is None
    world.sinks.seal(again[1])
    world.sinks.commit(0, *again)
    assert sorted(world.sinks.seen("t-0")) == ["a", "b"]
    checked(world)


@case(325)
@pytest.mark.parametrize("crash", [False, True], ids=["", "crash"])
def test_a_decision_stands_though_a_topic_of_its_members_is_deleted(crash: bool) -> None:
    world = sink_world(two_phase=TwoPhase.SPLIT)
    world.create_topic("d", 1)
    partitions = ("t-0", "t-1", "d-0")
    members = [world.sinks.written(0, value, partitions=partitions) for value in ("a", "b", "c")]
    decided = world.sinks.ask_commit(0, members)
    world.flush()
    assert decided.is_settled
    deleted = world.delete_topic("d")
    world.sinks.answer(deleted)
    assert deleted.result().error is None
    if crash:
        world.crash()
        world.check_replay()
    world.sinks.settle()
    assert sorted(world.sinks.seen("t-0")) == sorted(world.sinks.seen("t-1")) == ["a", "b", "c"]
    assert not world.sinks.describe().members
    checked(world)
