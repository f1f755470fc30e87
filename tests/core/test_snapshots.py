"""Snapshots and cuts show each transaction in all partitions or in none, and what lies between two of them is exact."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.limits import LEASE_PARTS_MAX
from coordinator_protocol.marker import Outcome
from coordinator_protocol.snapshots import PartitionView, Scan, SnapshotFilter, scan_of, scans_between
from coordinator_runtime.ports import UnfinishedTransaction
from coordinator_runtime.store import Family
from partition_log.codec import log_key
from partition_log.leadership import Diverged
from partition_log.leases import LEASE_MS_MAX, LEASES_MAX
from partition_log.requests import Fetch, FetchItem
from partition_log.rules.excluding import exclusions
from partition_log.snapshots import ReleaseSnapshot, RenewSnapshot, TakeSnapshot
from partition_log.state import ForgottenProducers, Isolation, LastMarker, ProducerEntry
from tests.core.snapshot_history import STEPS, Shown, SnapshotHistory, Step, by_transaction, scan_in, torn
from tests.harness.calls import called, partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.memory_store import Damage, MemoryStore
from txn_coordinator.records import SinkChanged
from txn_coordinator.sink_state import Sink

NONE_FORGOTTEN = ForgottenProducers()
BOTH_WAYS = pytest.mark.parametrize("split", [False, True], ids=["fused", "split"])
_STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.integers(0, 2))


def _counted(shown: Shown) -> dict[str, Counter[str]]:
    return {partition: Counter(values) for partition, values in shown.items() if values}


def check_history(history: SnapshotHistory) -> None:
    """Nothing is torn, skipped or shown twice, and no snapshot changes."""
    last = history.calm()
    for taken in history.taken:
        assert not torn(taken.shown, last.shown)
        assert not torn(taken.up_to_cut, last.shown)
        assert history.read_all(taken.snapshot) == taken.shown, "it was read once more and showed something else"
    assert by_transaction(last.shown) == by_transaction(last.up_to_lso), "nothing is open, so all is shown"
    assert last.up_to_cut == last.up_to_lso
    have = history.taken[0].shown
    for before, after in zip(history.taken, history.taken[1:], strict=False):
        added = history.delta(before.snapshot, after.snapshot)
        assert not torn({p: have[p] + added.get(p, []) for p in have}, last.shown)
        have = {partition: have[partition] + added.get(partition, []) for partition in have}
        assert _counted(have) == _counted(after.shown)
        assert all(before.cut[partition] <= offset for partition, offset in after.cut.items())


@BOTH_WAYS
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(_STEP, max_size=60))
def test_no_history_tears_a_snapshot_or_a_delta(split: bool, steps: list[Step]) -> None:
    history = SnapshotHistory(split=split)
    history.play(steps)
    check_history(history)


def _history(seed: int, *, split: bool) -> SnapshotHistory:
    rng, history = Random(seed), SnapshotHistory(split=split)
    history.play([(rng.choice(STEPS), rng.randrange(3), rng.randrange(3)) for _ in range(250)])
    return history


@BOTH_WAYS
def test_vectors_of_last_stable_offsets_tear_where_snapshots_do_not(split: bool) -> None:
    torn_vectors = 0
    for seed in range(12):
        history = _history(seed, split=split)
        check_history(history)
        last = history.taken[-1]
        torn_vectors += sum(bool(torn(taken.up_to_lso, last.shown)) for taken in history.taken)
    assert torn_vectors > 20, "these histories would not show a difference"


def test_a_snapshot_shows_what_lies_beyond_an_open_transaction() -> None:
    history = SnapshotHistory(split=False)
    older, newer, _ = history.clients
    history.play(
        [("produce", 0, 0), ("flush", 0, 0), ("produce", 1, 0), ("flush", 0, 0), ("commit", 1, 0), ("flush", 0, 0)]
    )
    taken = history.take()
    assert taken is not None
    assert (taken.shown["t-0"], taken.up_to_lso["t-0"]) == (["b0.t-0.0"], [])
    history.end(older, Outcome.COMMIT)
    history.world.settle()
    later = history.take()
    assert later is not None
    assert history.delta(taken.snapshot, later.snapshot)["t-0"] == ["a0.t-0.0"]
    assert newer.identity.producer_id not in history.views(later)["t-0"].excluded


def test_transactions_that_one_decision_ends_are_shown_together() -> None:
    """Two members of one decision: the first has its marker and is forgotten, the second is still open."""
    history = SnapshotHistory(split=False)
    history.play([("produce", 0, 0), ("produce", 1, 1), ("flush", 0, 0)])
    first, second, _ = history.clients
    history.end(first, Outcome.COMMIT)
    history.world.settle()
    members = [
        UnfinishedTransaction(client.identity.producer_id, 0, 7, None, writes_once=True) for client in (first, second)
    ]
    forgotten, opened = (
        exclusions({}, members, {}.get, 0, NONE_FORGOTTEN),
        exclusions({5: 9}, members, {}.get, 0, NONE_FORGOTTEN),
    )
    assert forgotten == dict.fromkeys((first.identity.producer_id, second.identity.producer_id), 0)
    assert set(exclusions({}, members, {}.get, 3, NONE_FORGOTTEN).values()) == {3}, (
        "no member has anything before the log start"
    )
    assert opened == {9: 5, **forgotten}
    before = PartitionView(2, 10, 0, {1: 2, 2: 5})
    assert scans_between(before, PartitionView(2, 12, 0, {2: 2})) == (
        Scan(2, 10, 0, SnapshotFilter(only={1: 2})),
        Scan(10, 12, 0, SnapshotFilter({2: 2}), 0),
    )


def test_a_delta_begins_with_its_transactions_though_the_snapshot_before_begins_later() -> None:
    """A reader that follows a log by deltas has records from before the start of the last snapshot."""
    before = PartitionView(5, 6, 0, {1: 3, 2: 4})
    assert scans_between(before, PartitionView(5, 6, 0, {2: 4})) == (Scan(3, 6, 0, SnapshotFilter(only={1: 3})),)
    assert scans_between(before, PartitionView(5, 9, 0, {1: 7, 2: 4})) == (
        Scan(3, 6, 0, SnapshotFilter(only={1: 3})),
        Scan(6, 9, 0, SnapshotFilter({1: 7, 2: 4}), 0),
    ), "what is excluded from beyond the end on is another transaction"


def test_what_is_still_excluded_and_begins_later_has_lost_something() -> None:
    before, after = PartitionView(0, 6, 0, {1: 2}), PartitionView(4, 6, 0, {1: 4})
    assert scans_between(before, after) == (Scan(2, 2, 0, SnapshotFilter(only={1: 2}), 0),)


def test_no_member_of_a_decision_under_way_is_shown() -> None:
    history = SnapshotHistory(split=True)
    history.play([("produce", 0, 0), ("produce", 1, 1), ("flush", 0, 0)])
    world, (complete, opened, _) = history.world, history.clients
    history.end(complete, Outcome.COMMIT)
    world.settle()
    producer_ids = frozenset(client.identity.producer_id for client in (complete, opened))
    sink = Sink(
        name="s", run_id="r", batch_id=0, txn_timeout_ms=1, last_update_ms=0, last_csn=9, committing=producer_ids
    )
    shard = world.inside.runtime.shard(world.shard_of("s"))
    with world.inside.runtime.journal.loading():
        shard.replay(SinkChanged(sink))
    under_way = {each.producer_id for each in world.inside.core.log.snapshots.unfinished.unfinished()}
    assert under_way == producer_ids
    with world.inside.runtime.journal.loading():
        shard.replay(SinkChanged(replace(sink, committing=frozenset())))
    assert not world.inside.core.log.snapshots.unfinished.unfinished()


def test_an_id_without_records_in_a_partition_excludes_nothing_there() -> None:
    idle = UnfinishedTransaction(7, 0, 3, frozenset({1}))
    ended = ProducerEntry(0, last_marker=LastMarker(0, Outcome.COMMIT, csn=3), coordinator_shard=0)
    for entry in (None, ended, replace(ended, coordinator_shard=1), replace(ended, last_marker=None)):
        assert exclusions({}, [idle], {7: entry}.get, 0, NONE_FORGOTTEN) == {}
    with_records = replace(ended, last_marker=LastMarker(0, Outcome.COMMIT, csn=3, first_offset=4))
    assert exclusions({}, [idle], {7: with_records}.get, 0, NONE_FORGOTTEN) == {7: 4}
    assert exclusions({}, [replace(idle, csn=4)], {7: with_records}.get, 0, NONE_FORGOTTEN) == {}


def test_a_producer_forgotten_before_its_transaction_is_finished_is_not_taken_for_none() -> None:
    unfinished = UnfinishedTransaction(7, 0, 3, frozenset({1}))
    with pytest.raises(Refused, match="for longer than a partition remembers") as refusal:
        exclusions({}, [unfinished], {}.get, 0, ForgottenProducers(9, ((0, 3),)))
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for others in (((0, 2),), ((1, 3),)):
        assert exclusions({}, [unfinished], {}.get, 0, ForgottenProducers(9, others)) == {}


@given(
    opened=st.dictionaries(st.integers(0, 9), st.integers(0, 9)).filter(lambda each: len({*each.values()}) == len(each))
)
def test_exclusions_of_open_transactions_alone_are_those_of_any_other_mapping(opened: dict[int, int]) -> None:
    """Nothing is copied where nothing is marked: it reads the same, in the same order, as with something marked."""
    plain = {producer_id: first_offset for first_offset, producer_id in opened.items()}
    found = exclusions(opened, [], {}.get, 0, NONE_FORGOTTEN)
    assert (found, [*found], [*found.values()], len(found)) == (plain, [*plain], [*plain.values()], len(plain))
    assert [found.get(producer_id) for producer_id in range(10)] == [plain.get(each) for each in range(10)]
    assert repr(found) == repr(plain)
    elsewhere = UnfinishedTransaction(7, 0, 3, frozenset({1}))
    marked = ProducerEntry(0, last_marker=LastMarker(0, Outcome.COMMIT, csn=3, first_offset=4), coordinator_shard=0)
    assert exclusions(opened, [elsewhere], {7: marked}.get, 0, NONE_FORGOTTEN) == {7: 4} | plain


def test_a_lease_keeps_records_until_it_is_given_up_or_over() -> None:
    history = SnapshotHistory(split=False)
    history.play([("produce", 0, 0), ("flush", 0, 0), ("commit", 0, 0), ("flush", 0, 0)])
    snapshots = history.world.inside.core.log.snapshots
    for ends in ("released", "over"):
        taken = history.take(lease_ms=60_000)
        assert taken is not None
        snapshot_id = taken.snapshot.snapshot_id
        assert history.delete("t-0").held_back
        history.world.tick(50_000)
        snapshots.renew(RenewSnapshot(snapshot_id, 60_000), ANYBODY)
        history.world.tick(50_000)
        assert len(snapshots.leases) == 1
        if ends == "released":
            snapshots.release(ReleaseSnapshot(snapshot_id), ANYBODY)
        else:
            history.world.tick(10_000)
        for ask in (
            partial(snapshots.renew, RenewSnapshot(snapshot_id, 1), ANYBODY),
            partial(snapshots.release, ReleaseSnapshot(snapshot_id), ANYBODY),
        ):
            with pytest.raises(Refused, match="lease ran out") as refusal:
                ask()
            assert refusal.value.code is ErrorCode.SNAPSHOT_NOT_FOUND
    assert history.delete("t-0").low_watermark == 2
    with pytest.raises(Refused, match="is not in the log") as gone:
        history.read_all(taken.snapshot)
    assert gone.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_leases_that_overlap_do_not_hold_for_ever_what_shall_go() -> None:
    """A reader that comes while another holds records with a removal asked for begins behind them."""
    history = SnapshotHistory(split=False)
    history.play([("produce", 0, 0), ("flush", 0, 0), ("commit", 0, 0), ("flush", 0, 0)])
    leases = history.world.inside.core.log.snapshots.leases
    held = history.take(60_000)
    assert held is not None
    assert history.delete("t-0").held_back
    for _ in range(3):
        before, held = held, history.take(60_000)
        assert held is not None
        assert history.views(held)["t-0"].start_offset == history.views(held)["t-0"].end_offset
        assert history.read_all(before.snapshot) == before.shown, "who came first reads on"
        leases.release(before.snapshot.snapshot_id)
    deleted = history.delete("t-0")
    assert (deleted.low_watermark, deleted.held_back) == (2, "")


def test_what_takes_no_lease_begins_where_the_log_does() -> None:
    history = SnapshotHistory(split=False)
    history.play([("produce", 0, 0), ("flush", 0, 0), ("commit", 0, 0), ("flush", 0, 0)])
    held = history.take(60_000)
    assert held is not None
    history.delete("t-0")
    unheld = history.take()
    assert unheld is not None
    assert unheld.shown == held.shown
    history.world.inside.core.log.snapshots.leases.release(held.snapshot.snapshot_id)
    again = history.take(60_000)
    assert again is not None
    assert again.shown == held.shown, "it was not held, and not asked for since"


def test_a_lease_of_several_parts_ends_with_the_last_of_them() -> None:
    history = SnapshotHistory(split=False)
    history.play([("produce", 0, 0), ("flush", 0, 0), ("commit", 0, 0), ("flush", 0, 0)])
    held = history.take(60_000)
    assert held is not None
    snapshots = history.world.inside.core.log.snapshots
    snapshot_id = held.snapshot.snapshot_id

    def release(part: int, parts: int) -> None:
        snapshots.release(ReleaseSnapshot(snapshot_id, part, parts), ANYBODY)

    for part in (2, 0, 0, 2):
        release(part, 3)
    for part, parts in ((3, 3), (-1, 3), (1, 2), (0, LEASE_PARTS_MAX + 1), (0, -1), (1, 0)):
        with pytest.raises(Refused) as refusal:
            release(part, parts)
        assert refusal.value.code is ErrorCode.INVALID_REQUEST
    snapshots.renew(RenewSnapshot(snapshot_id, 60_000), ANYBODY)
    assert history.delete("t-0").held_back
    release(1, 3)
    assert not history.delete("t-0").held_back
    with pytest.raises(Refused) as refusal:
        release(1, 3)
    assert refusal.value.code is ErrorCode.SNAPSHOT_NOT_FOUND


def test_leases_are_few_and_bounded() -> None:
    history = SnapshotHistory(split=False)
    snapshots, name = history.world.inside.core.log.snapshots, partition_name("t-0")
    one = TakeSnapshot((name,), 1)
    assert len({snapshots.take(one, ANYBODY).result().snapshot_id for _ in range(LEASES_MAX)}) == LEASES_MAX
    refused = {
        one: "1000 snapshots are held",
        TakeSnapshot((name,), LEASE_MS_MAX + 1): "must be from 0",
        TakeSnapshot((name,), -1): "must be from 0",
        TakeSnapshot(()): "at least one partition",
        TakeSnapshot((name, name)): "twice",
        TakeSnapshot((partition_name("u-0"),)): "u",
    }
    for command, why in refused.items():
        reply = called(partial(snapshots.take, command, ANYBODY))
        history.world.settle()
        with pytest.raises(Refused, match=why):
            reply.result()
    history.world.tick(1)
    assert not len(snapshots.leases)
    assert snapshots.take(one, ANYBODY).result().snapshot_id


def test_no_snapshot_is_taken_while_a_coordinator_is_away() -> None:
    history = SnapshotHistory(split=True)
    history.world.unload("a")
    history.world.settle()
    snapshots = history.world.inside.core.log.snapshots
    with pytest.raises(Refused, match="load it") as refusal:
        snapshots.take(TakeSnapshot([partition_name("t-0")]), ANYBODY)
    assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_snapshot_outlives_the_server_and_knows_a_log_that_lost_something() -> None:
    history = SnapshotHistory(split=False)
    backup = history.world.back_up()
    history.play(
        [("produce", 0, 0), ("flush", 0, 0), ("commit", 0, 0), ("flush", 0, 0), ("produce", 1, 1), ("flush", 0, 0)]
    )
    taken = history.take(lease_ms=60_000)
    assert taken is not None
    history.world.crash()
    history.world.settle()
    assert history.read_all(taken.snapshot) == taken.shown
    history.world.restore(backup)
    history.world.settle()
    with pytest.raises(Diverged, match="planned in leader epoch"):
        history.read_all(taken.snapshot)
    history.world.delete_topic("t")
    history.world.settle()
    with pytest.raises(Refused) as refusal:
        history.read_all(taken.snapshot)
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_ID


def test_what_snapshots_show_is_measured_as_it_is_read() -> None:
    for seed in range(4):
        history = _history(seed, split=False)
        for taken in history.taken:
            for partition, view in history.views(taken).items():
                found = history.measure(partition, view)
                assert sum(step.records for step in found) == len(taken.shown[partition])


def test_a_range_of_a_snapshot_says_where_it_ends_and_is_committed() -> None:
    history = SnapshotHistory(split=False)
    name, shown = partition_name("t-0"), SnapshotFilter()
    for item, options in (
        (FetchItem(name, 0, shown=shown), {}),
        (FetchItem(name, 0, 1, shown=shown), {}),
        (FetchItem(name, 0, 1, end_epoch=0, shown=shown), {"is_raw": True}),
        (FetchItem(name, 0, 1, end_epoch=0, shown=shown), {"isolation": Isolation.READ_UNCOMMITTED}),
    ):
        with pytest.raises(Refused, match="a snapshot"):
            history.world.inside.log.fetch(Fetch((item,), **options), ANYBODY)  # type: ignore[arg-type]  # as named


@BOTH_WAYS
def test_damage_in_the_range_of_a_snapshot_is_told_with_where_it_goes_on(split: bool) -> None:
    """A delta below the earlier end tells it too, although it shows nothing of the damaged batch."""
    history = SnapshotHistory(split=split)
    opened, closed, _ = history.clients
    history.play([("produce", 0, 0), ("flush", 0, 0)])
    history.play([("produce", 1, 0), ("produce", 1, 1), ("flush", 0, 0)])
    history.play([("produce", 1, 1), ("flush", 0, 0)])
    history.end(closed, Outcome.COMMIT)
    history.world.settle()
    before = history.take()
    history.end(opened, Outcome.COMMIT)
    history.world.settle()
    after = history.take()
    assert before is not None
    assert after is not None
    store, ordinal = history.world.shelf.store, history.world.inside.catalog.resolve(*partition_name("t-0")).ordinal
    assert isinstance(store, MemoryStore)
    store.damage(Family.LOG, log_key(ordinal, 1), Damage.VALUE)
    for read in (partial(history.read_all, before.snapshot), partial(history.delta, before.snapshot, after.snapshot)):
        with pytest.raises(CoordinatorError) as told:
            read()
        assert told.value.code is ErrorCode.CORRUPT_MESSAGE
    views = history.views(before)
    assert scan_in(history.world, "t-1", scan_of(views["t-1"])) == before.shown["t-1"]
    assert scan_in(history.world, "t-0", replace(scan_of(views["t-0"]), start_offset=2)) == []
