"""The history of an id: who did what to it, from where, when and why."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from coordinator_api.storage.v1 import transaction_pb2 as storage
from coordinator_protocol.errors import Refused
from coordinator_runtime.decision import ShardKey
from coordinator_runtime.rows import state_row
from coordinator_runtime.store import CommitGroup, Family, KeyRange, Mutation
from tests.conformance.transactions.case_world import EIGHT_DAYS_MS
from tests.core.test_explanation import explained
from tests.transactions.administered import ABORT, ADMIN, CLIENT, COMMIT, RIVAL, Administered
from txn_coordinator import history
from txn_coordinator.codec import TRANSACTION_TYPE
from txn_coordinator.config import TwoPhase
from txn_coordinator.counters import COUNTERS
from txn_coordinator.history import StepDescription


def told(step: StepDescription) -> tuple[str, str, str]:
    state = "forgotten" if step.after is None else step.after.state.api_name
    return state, step.cause, step.client_id


def test_a_history_tells_who_fenced_whom_from_where() -> None:
    world = Administered()
    first = world.opened("a")
    world.tick(5_000)
    world.ready("a", RIVAL)
    found = world.history("a")
    assert found.is_complete
    assert [told(step) for step in found.steps] == [
        ("Empty", "init", "billing-2"),
        ("CompleteAbort", "fence", "billing-2"),
        ("PrepareAbort", "fence", "billing-2"),
        ("Ongoing", "add", "billing"),
        ("Empty", "init", "billing"),
    ]
    fence = found.steps[2]
    assert (fence.fenced, fence.host, fence.at_ms) == (first, "10.0.0.2", world.clock.wall_ms())
    assert fence.at_ms - found.steps[3].at_ms == 5_000
    assert [step.fenced for step in found.steps[3:]] == [None, None]


def test_the_server_names_no_client_and_an_end_by_the_client_fences_none() -> None:
    world = Administered()
    identity = world.opened("a")
    ended = world.end("a", identity, COMMIT, CLIENT)
    world.settle()
    following = ended.result().next_identity
    world.produce("a", following, "t-0", ["y"], sequence=0, context=CLIENT)
    world.settle()
    world.tick(60_001)
    world.settle()
    steps = world.history("a", limit=4).steps
    assert [told(step) for step in steps] == [
        ("CompleteAbort", "timeout", ""),
        ("PrepareAbort", "timeout", ""),
        ("Ongoing", "add", "billing"),
        ("CompleteCommit", "client", "billing"),
    ]
    assert [step.fenced for step in steps] == [None, following, None, None]


def test_an_act_of_an_administrator_is_told_with_his_address() -> None:
    world = Administered()
    identity = world.opened("a")
    world.fence("a")
    steps = world.history("a", limit=3).steps
    assert [told(step) for step in steps] == [
        ("Empty", "admin", "txnctl"),
        ("CompleteAbort", "admin", "txnctl"),
        ("PrepareAbort", "admin", "txnctl"),
    ]
    assert steps[2].fenced == identity
    assert {step.host for step in steps} == {"10.0.0.9"}


def test_the_newest_steps_are_told_and_whether_there_are_more() -> None:
    world = Administered()
    world.ready("a")
    for _ in range(4):
        world.ready("a")
    for limit, is_complete in ((2, False), (4, False), (5, True), (6, True)):
        found = world.history("a", limit=limit)
        assert (len(found.steps), found.is_complete) == (min(limit, 5), is_complete)
    assert world.history("a").steps[-1].fenced is None
    assert world.history("a", limit=4).steps[-1].fenced is not None, "the row before the last one says it"


def test_nothing_is_told_that_a_crash_could_take_back() -> None:
    world = Administered(TwoPhase.SPLIT)
    identity = world.opened("a")
    asked = world.asks_history("a", 10)
    assert [told(step)[0] for step in asked.result().steps] == ["Ongoing", "Empty"]
    world.end("a", identity, ABORT, CLIENT)
    asked = world.asks_history("a", 10)
    assert not asked.is_settled
    world.flush()
    assert [told(step)[0] for step in asked.result().steps] == ["PrepareAbort", "Ongoing", "Empty"]


def test_a_search_is_done_in_parts_and_ends_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STEPS_PER_PART", 3)
    world = Administered()
    world.ready("a")
    for _ in range(10):
        for other in ("b", "aa", "c"):
            world.ready(other)
    assert [told(step) for step in world.history("a").steps] == [("Empty", "init", "billing")]
    monkeypatch.setattr(history, "STEPS_SEARCHED_MAX", 6)
    found = world.history("a")
    assert (found.steps, found.is_complete) == ([], False)


def test_who_was_fenced_by_the_oldest_step_is_looked_for_in_the_next_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "STEPS_PER_PART", 1)
    world = Administered()
    first = world.ready("a")
    world.ready("a", RIVAL)
    (step,) = world.history("a", limit=1).steps
    assert step.fenced == first


def test_a_history_up_to_a_state_that_no_step_led_to_is_not_complete() -> None:
    world = Administered()
    world.ready("a")
    described = world.inside.reader.describe(["a"], ADMIN, history_limit=0)
    world.settle()
    seen = described.result()[0].transaction
    assert seen is not None
    never = replace(seen, last_update_ms=seen.last_update_ms + 1)
    described_as = world.inside.reader.describe_as_seen(never, ADMIN, history_limit=20)
    world.settle()
    found = described_as.result().history
    assert found is not None
    assert (list(found.steps), found.is_complete) == ([], False)


def test_the_history_survives_a_crash_and_goes_on() -> None:
    world = Administered()
    world.ready("a")
    world.crash()
    world.settle()
    world.ready("a", RIVAL)
    assert [told(step)[2] for step in world.history("a").steps] == ["billing-2", "billing"]


@pytest.mark.parametrize("two_phase", list(TwoPhase))
def test_a_client_that_aborts_its_own_transaction_by_initialising_fences_none(two_phase: TwoPhase) -> None:
    """KIP-360: it shows the identity it has."""
    world = Administered(two_phase)
    shown = world.opened("a")
    again = world.init("a", CLIENT, expected=shown)
    world.settle()
    assert again.result() == (shown.producer_id, shown.producer_epoch + 1)
    found = world.history("a", limit=4)
    assert [told(step) for step in found.steps] == [
        ("Empty", "init", "billing"),
        ("CompleteAbort", "client", "billing" if two_phase is TwoPhase.FUSED else ""),
        ("PrepareAbort", "client", "billing"),
        ("Ongoing", "add", "billing"),
    ]
    assert {step.fenced for step in found.steps} == {None}
    world.init("a", CLIENT, expected=again.result())
    world.settle()
    (bumped,) = world.history("a", limit=1).steps
    assert (told(bumped), bumped.fenced) == (("Empty", "init", "billing"), None)


def test_who_shows_no_identity_fences_even_if_it_has_the_same_name() -> None:
    world = Administered()
    first = world.opened("a")
    world.ready("a", CLIENT)
    fence = world.history("a").steps[2]
    assert (told(fence), fence.fenced) == (("PrepareAbort", "fence", "billing"), first)


def test_a_forgotten_id_has_a_history_that_ends_with_that() -> None:
    world = Administered()
    before = world.ready("a")
    world.tick(EIGHT_DAYS_MS)
    world.settle()
    assert [told(step) for step in world.history("a").steps] == [
        ("forgotten", "expire", ""),
        ("Empty", "init", "billing"),
    ]
    after = world.ready("a")
    assert after.producer_id != before.producer_id
    steps = world.history("a").steps
    assert [told(step)[0] for step in steps] == ["Empty", "forgotten", "Empty"]
    assert {step.fenced for step in steps} == {None}, "no producer took the id from another"


def rows_of(world: Administered, shard: ShardKey) -> list[bytes]:
    """Keys of the rows of history of a shard, the oldest first."""
    prefix = bytes([shard.coordinator]) + shard.number.to_bytes(2)
    return [key for key, _ in world.shelf.store.scan(Family.HISTORY, prefix, prefix + b"\xff" * 8)]


def history_rows(world: Administered, transactional_id: str) -> list[bytes]:
    return rows_of(world, world.inside.transactions.shard_key(transactional_id))


def written(world: Administered, *mutations: Mutation, deleted: Sequence[KeyRange] = ()) -> None:
    store = world.shelf.store
    store.write([CommitGroup(store.version() + 1, list(mutations), list(deleted))])
    store.sync()
    world.crash()
    world.settle()


def test_what_was_trimmed_is_missing_and_the_rest_is_told_and_goes_on() -> None:
    world = Administered()
    world.ready("a")
    for context in (RIVAL, CLIENT, RIVAL):
        world.ready("a", context)
    oldest, *_, newest = history_rows(world, "a")
    written(world, deleted=[(Family.HISTORY, oldest, newest)])
    found = world.history("a")
    assert ([told(step) for step in found.steps], found.is_complete) == ([("Empty", "init", "billing-2")], False)
    assert found.steps[0].fenced is None, "the step that would say it is gone"
    world.ready("a")
    assert [told(step)[2] for step in world.history("a").steps] == ["billing", "billing-2"]
    world.check_stored()


def test_a_marker_without_a_decision_is_not_suspected_where_its_history_was_trimmed() -> None:
    world = Administered()
    orphan = world.init_plain(CLIENT)
    world.settle()
    for partition in ("t-0", "t-1"):
        world.leave_hanging(partition, orphan.result())
        world.hanging.abort(world.ordinal(partition), None, ADMIN, dry_run=False)
        world.settle()
    world.check_stored()
    oldest, newest = rows_of(world, COUNTERS)
    written(world, deleted=[(Family.HISTORY, oldest, newest)])
    world.check_stored()


@pytest.mark.parametrize("spoiled", [b"\xc1a", b"a, and no row at all"])
def test_a_row_that_cannot_be_read_ends_the_history_there(spoiled: bytes) -> None:
    world = Administered()
    world.ready("a")
    world.ready("a", RIVAL)
    world.ready("a")
    _oldest, middle, _newest = history_rows(world, "a")
    written(world, (Family.HISTORY, middle, spoiled))
    found = world.history("a")
    assert ([told(step)[2] for step in found.steps], found.is_complete) == (["billing"], False)


def test_a_shard_whose_newest_row_cannot_be_read_gives_no_numbers_again_and_is_not_served() -> None:
    world = Administered()
    world.ready("a")
    *_, newest = history_rows(world, "a")
    written(world, (Family.HISTORY, newest, b"\xc1a"))
    with pytest.raises(Refused) as refused:
        world.ready("a")
    assert "a row of history cannot be read, from step" in str(refused.value)


def test_what_only_a_newer_program_tells_is_told_as_far_as_it_is_known() -> None:
    """A record of another type under the same key, a cause without a number here, and fields at the end of arrays."""
    world = Administered()
    world.opened("a")
    store = world.shelf.store
    *_, newest = history_rows(world, "a")
    wall_ms, ((client_id, host, _cause),), (step,) = msgspec.msgpack.decode(store.get(Family.HISTORY, newest) or b"")
    _type, key_of_id, after_ms, whom, after = step
    step = [TRANSACTION_TYPE, key_of_id, after_ms, whom, [*after, "more"], "more"]
    foreign = [0x80, key_of_id, after_ms, whom, {"unlike": "ours"}]
    table = [[client_id, host, "restored", "more"]]
    row, key = state_row(world.inside.transactions.shard_key("a"), TRANSACTION_TYPE, b"a")
    value = storage.TransactionValue.FromString(store.get(row, key) or b"")
    value.cause = 77
    written(
        world,
        (Family.HISTORY, newest, msgspec.msgpack.encode([wall_ms, table, [step, foreign], "more"])),
        (row, key, value.SerializeToString()),
    )
    assert [told(step)[:2] for step in world.history("a").steps] == [("Ongoing", "restored"), ("Empty", "init")]
    description = explained(world, history_limit=5).description
    assert description is not None
    assert description.history is not None
    assert [told(step)[:2] for step in description.history.steps] == [("Ongoing", "restored"), ("Empty", "init")]
    assert description.transaction.cause == "unknown cause 77"
