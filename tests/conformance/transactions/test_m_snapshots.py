"""M. Snapshots and cuts have each transaction in all partitions or in none, and deltas each record once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from partition_log.leadership import Diverged
from partition_log.leases import LEASE_MS_MAX, LEASES_MAX
from partition_log.requests import DeleteRecords, DeleteRecordsResult, RecordsToDelete
from partition_log.snapshots import LeasedSnapshot, ReleaseSnapshot, RenewSnapshot
from tests.conformance.transactions.cases import case
from tests.core.snapshot_history import ask_to_take, cut_of, delta_of, read_of
from tests.harness.calls import partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.inside import WorldOptions
from tests.harness.world import World
from tests.sinks.world import sink_world
from txn_coordinator.config import TwoPhase

PARTITIONS = ("t-0", "t-1")
EVERYWHERE = {"t-0": ["a"], "t-1": ["a"]}
NOWHERE: dict[str, list[str]] = {"t-0": [], "t-1": []}
BOTH = pytest.mark.parametrize("two_phase", list(TwoPhase))


def world_with(two_phase: TwoPhase = TwoPhase.FUSED) -> World:
    world = World(WorldOptions(two_phase=two_phase))
    world.create_topic("t", len(PARTITIONS))
    return world


def write(world: World, transactional_id: str, partitions: Sequence[str] = PARTITIONS) -> None:
    """Open a transaction, and append its id to each partition."""
    begun = world.init(transactional_id)
    world.settle()
    for partition in partitions:
        world.produce(transactional_id, begun.result(), partition, [transactional_id], sequence=0)
    world.settle()


def commit(world: World, transactional_id: str) -> None:
    world.end(transactional_id, world.describe(transactional_id).identity, Outcome.COMMIT)


def take(world: World, lease_ms: int = 0, partitions: Sequence[str] = PARTITIONS) -> LeasedSnapshot:
    pending = ask_to_take(world, partitions, lease_ms)
    assert pending.is_settled
    return pending.result()


def delete_all(world: World) -> DeleteRecordsResult:
    command = DeleteRecords([RecordsToDelete(partition_name("t-0"), -1)])
    deleted = world.inside.log.delete_records(command, ANYBODY)
    world.settle()
    return deleted.result()[0]


def refused(world: World, ask: Callable[[], object]) -> ErrorCode:
    """Return the code of the refusal, at once or later."""
    try:
        asked = ask()
        world.settle()
        if isinstance(asked, Pending):
            asked.result()
    except Refused as refusal:
        return refusal.code
    raise AssertionError(f"not refused: {asked}")


@case(340)
@BOTH
def test_an_open_transaction_hides_nothing_else(two_phase: TwoPhase) -> None:
    world = world_with(two_phase)
    write(world, "older", ("t-0",))
    write(world, "a")
    commit(world, "a")
    world.settle()
    taken = take(world)
    assert read_of(world, taken) == EVERYWHERE
    assert world.read("t-0").values == [], "the last stable offset lies before it"
    commit(world, "older")
    world.settle()
    assert read_of(world, taken) == EVERYWHERE
    assert delta_of(world, taken, take(world))["t-0"] == ["older"]


@case(341)
def test_what_is_marked_in_one_partition_only_is_shown_in_none() -> None:
    world = world_with(TwoPhase.SPLIT)
    write(world, "a")
    world.unload("t-1")
    world.settle()
    commit(world, "a")
    world.settle()
    assert [entry.marker is None for entry in world.read("t-0", is_raw=True).entries] == [True, False]
    world.load("t-1")
    world.settle()
    taken = take(world)
    assert read_of(world, taken) == NOWHERE
    world.settle()
    world.tick(1_500)
    world.settle()
    assert delta_of(world, taken, take(world)) == EVERYWHERE


@pytest.mark.long
@case(342)
@pytest.mark.parametrize(
    ("two_phase", "partition_count"),
    [
        pytest.param(TwoPhase.SPLIT, 2, id="split"),
        pytest.param(TwoPhase.FUSED, 270, id="beyond-the-limit-of-fused-ones", marks=pytest.mark.slow),
    ],
)
def test_members_of_one_decision_are_shown_together(two_phase: TwoPhase, partition_count: int) -> None:
    """More markers than one step has: the decision is durable first, and then carried out member by member."""
    world = sink_world(two_phase=two_phase, partition_count=partition_count)
    partitions = [f"t-{number}" for number in range(partition_count)]
    members = [world.sinks.written(0, value, partitions=partitions) for value in ("a", "b")]
    before = take(world, partitions=partitions)
    world.sinks.answer(world.sinks.ask_commit(0, members))
    seen = []
    for _ in range(40):
        now = take(world, partitions=partitions)
        seen.append(read_of(world, now))
        added = delta_of(world, before, now)
        assert {partition: sorted(added[partition]) for partition in partitions} == seen[-1]
        world.tick(1)
        world.flush(1)
    world.sinks.settle()
    nothing, everything = ({partition: list(values) for partition in partitions} for values in ((), ("a", "b")))
    assert seen[0] == nothing
    assert seen[-1] == everything
    assert all(shown in (nothing, everything) for shown in seen)


@case(343)
def test_a_lease_holds_records_while_it_is_renewed() -> None:
    world = world_with()
    snapshots = world.inside.core.log.snapshots
    write(world, "a")
    commit(world, "a")
    world.settle()
    snapshot_id = take(world, 1_000).snapshot_id
    assert delete_all(world).held_back
    snapshots.renew(RenewSnapshot(snapshot_id, 5_000), ANYBODY)
    world.tick(4_000)
    assert delete_all(world).held_back
    snapshots.release(ReleaseSnapshot(snapshot_id), ANYBODY)
    assert not delete_all(world).held_back


@case(344)
def test_a_lease_that_is_not_there_is_neither_renewed_nor_released() -> None:
    world = world_with()
    over, released, lost = (take(world, lease_ms).snapshot_id for lease_ms in (1, 9_000, 9_000))
    world.inside.core.log.snapshots.release(ReleaseSnapshot(released), ANYBODY)
    world.tick(1)
    world.crash()
    world.settle()
    snapshots = world.inside.core.log.snapshots
    for snapshot_id in (over, released, lost, b"", b"nobody has this"):
        for ask in (
            partial(snapshots.renew, RenewSnapshot(snapshot_id, 1), ANYBODY),
            partial(snapshots.release, ReleaseSnapshot(snapshot_id), ANYBODY),
        ):
            assert refused(world, ask) is ErrorCode.SNAPSHOT_NOT_FOUND


@case(345)
def test_there_are_only_so_many_leases() -> None:
    world = world_with()
    taken = [take(world, 9_000) for _ in range(LEASES_MAX)]
    assert refused(world, lambda: ask_to_take(world, PARTITIONS, 1)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert not take(world).snapshot_id
    world.inside.core.log.snapshots.release(ReleaseSnapshot(taken[0].snapshot_id), ANYBODY)
    assert take(world, 1).snapshot_id


@case(346)
@pytest.mark.parametrize(
    ("partitions", "lease_ms", "code"),
    [
        ((), 0, ErrorCode.INVALID_REQUEST),
        (("t-0", "t-0"), 0, ErrorCode.INVALID_REQUEST),
        (("t-0", "u-0"), 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("t-0",), -1, ErrorCode.INVALID_REQUEST),
        (("t-0",), LEASE_MS_MAX + 1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_snapshot_is_refused(partitions: Sequence[str], lease_ms: int, code: ErrorCode) -> None:
    world = world_with()
    assert refused(world, lambda: ask_to_take(world, partitions, lease_ms)) is code
    snapshots = world.inside.core.log.snapshots
    assert not len(snapshots.leases)
    held = take(world, 1).snapshot_id
    assert refused(world, partial(snapshots.renew, RenewSnapshot(held, 0), ANYBODY)) is ErrorCode.INVALID_REQUEST


@case(347)
def test_no_snapshot_is_taken_while_it_is_unknown_what_is_finished() -> None:
    world = world_with()
    world.unload("a")
    world.settle()
    assert refused(world, lambda: ask_to_take(world, PARTITIONS)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@case(348)
def test_a_snapshot_whose_records_went_is_refused() -> None:
    world = world_with()
    write(world, "a")
    commit(world, "a")
    world.settle()
    taken = take(world)
    assert not delete_all(world).held_back
    assert refused(world, lambda: read_of(world, taken)) is ErrorCode.OFFSET_OUT_OF_RANGE


@case(349)
@pytest.mark.parametrize("again", [1, 2], ids=["as far as before", "further"])
def test_a_delta_does_not_cross_a_lost_line(again: int) -> None:
    world = world_with()
    backup = world.back_up()
    write(world, "a")
    commit(world, "a")
    world.settle()
    taken = take(world)
    world.restore(backup)
    world.settle()
    for number in range(again):
        write(world, f"b{number}")
        commit(world, f"b{number}")
        world.settle()
    later = take(world)
    with pytest.raises(Diverged) as told:
        delta_of(world, taken, later)
    assert told.value.divergence.end_offset == 0


@case(350)
@BOTH
def test_a_cut_has_a_transaction_everywhere_or_nowhere(two_phase: TwoPhase) -> None:
    world = world_with(two_phase)
    write(world, "early")
    commit(world, "early")
    world.settle()
    write(world, "older", ("t-0",))
    write(world, "a")
    commit(world, "a")
    world.settle()
    beginning = dict.fromkeys(PARTITIONS, 0)
    cut = cut_of(world, take(world), beginning)
    assert [world.read(each).values for each in PARTITIONS] == [["early"], ["early", "a"]], "a vector of them tears it"
    assert cut == {"t-0": 2, "t-1": 2}
    assert cut_of(world, take(world), cut) == cut, "it waits, and never goes back"
    commit(world, "older")
    world.settle()
    taken = take(world)
    assert cut_of(world, taken, cut) == {"t-0": 6, "t-1": 4}
    assert cut_of(world, taken, beginning) == {"t-0": 6, "t-1": 4}


@case(351)
@pytest.mark.parametrize(
    ("two_phase", "partition_count"), [(TwoPhase.SPLIT, 2), (TwoPhase.FUSED, 600)], ids=["split", "fused"]
)
def test_members_of_one_decision_are_on_one_side_of_a_cut(two_phase: TwoPhase, partition_count: int) -> None:
    world = sink_world(two_phase=two_phase, partition_count=partition_count)
    partitions = [f"t-{number}" for number in range(partition_count)]
    members = [world.sinks.written(0, value, partitions=partitions) for value in ("a", "b")]
    beginning = dict.fromkeys(partitions, 0)
    world.sinks.answer(world.sinks.ask_commit(0, members))
    cuts = []
    for _ in range(40):
        cuts.append(cut_of(world, take(world, partitions=partitions), beginning))
        world.tick(1)
        world.flush(1)
    world.sinks.settle()
    assert cuts[0] == beginning
    assert cuts[-1] == dict.fromkeys(partitions, 4)
    assert all(cut in (cuts[0], cuts[-1]) for cut in cuts)


@case(352)
@pytest.mark.parametrize("is_made_again", [False, True], ids=["deleted", "made again"])
@BOTH
def test_a_deleted_topic_is_told_and_the_rest_of_a_snapshot_stays(two_phase: TwoPhase, is_made_again: bool) -> None:
    world = world_with(two_phase)
    world.create_topic("d", 1)
    everything = (*PARTITIONS, "d-0")
    write(world, "a", everything)
    commit(world, "a")
    write(world, "open", everything)
    taken = take(world, 60_000, everything)
    world.delete_topic("d")
    world.settle()
    code = ErrorCode.UNKNOWN_TOPIC_ID
    if is_made_again:
        code = ErrorCode.INCONSISTENT_TOPIC_ID
        world.create_topic("d", 1)
        write(world, "b", everything)
        commit(world, "b")
        world.settle()
    assert refused(world, lambda: read_of(world, taken)) is code, "the records of the other are not shown for it"
    rest = LeasedSnapshot(taken.snapshot_id, taken.views[:2])
    assert read_of(world, rest) == EVERYWHERE
    assert delete_all(world).held_back, "the lease holds what is left"
    snapshots = world.inside.core.log.snapshots
    snapshots.renew(RenewSnapshot(taken.snapshot_id, 60_000), ANYBODY)
    later = take(world, partitions=everything if is_made_again else PARTITIONS)
    assert delta_of(world, rest, LeasedSnapshot(b"", later.views[:2])) == (
        {"t-0": ["b"], "t-1": ["b"]} if is_made_again else NOWHERE
    ), "what was open in the topic is aborted everywhere"
    if is_made_again:
        assert read_of(world, later)["d-0"] == ["b"]
    snapshots.release(ReleaseSnapshot(taken.snapshot_id), ANYBODY)
    assert not delete_all(world).held_back


@case(353)
@pytest.mark.parametrize("is_gone", [False, True], ids=["still there", "gone"])
def test_a_delta_has_what_was_marked_before_the_snapshot_began(is_gone: bool) -> None:
    world = world_with(TwoPhase.SPLIT)
    first, held = take(world), take(world, 60_000).snapshot_id
    write(world, "a")
    world.unload("t-1")
    world.settle()
    commit(world, "a")
    world.flush()
    assert world.describe("a").state.api_name == "PrepareCommit"
    while world.read("t-0", is_raw=True).high_watermark < 2:
        world.tick(10)
        world.flush()
    assert delete_all(world).held_back
    between = take(world, 60_000, PARTITIONS[:1])
    assert between.views[0][1].start_offset == 2, "the marker came, and a request to delete all of it"
    snapshots = world.inside.core.log.snapshots
    assert delta_of(world, LeasedSnapshot(b"", first.views[:1]), between) == {"t-0": []}
    world.load("t-1")
    for _ in range(5):
        world.tick(2_000)
        world.settle()
    if is_gone:
        snapshots.release(ReleaseSnapshot(held), ANYBODY)
        assert not delete_all(world).held_back
        assert refused(world, lambda: delta_of(world, between, take(world, partitions=PARTITIONS[:1]))) is (
            ErrorCode.OFFSET_OUT_OF_RANGE
        )
        return
    assert delta_of(world, between, take(world, partitions=PARTITIONS[:1])) == {"t-0": ["a"]}
