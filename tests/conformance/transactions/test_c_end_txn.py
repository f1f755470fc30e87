"""C. EndTxn."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import PartitionName
from partition_log.requests import LATEST_TIMESTAMP, ListOffsets, OffsetQuery
from partition_log.state import Isolation
from tests.conformance.transactions.case_world import (
    ABORT,
    COMMIT,
    EPOCH_MAX,
    EXHAUSTED,
    NOW,
    SERVED_ELSEWHERE,
    TIMEOUT_MS,
    CaseWorld,
    Client,
)
from tests.conformance.transactions.cases import both_versions, case, not_drivable
from txn_coordinator.rules import ending
from txn_coordinator.state import Identity, Transaction, TransactionState

outcomes = pytest.mark.parametrize("outcome", [COMMIT, ABORT], ids=["commit", "abort"])

FIRST = Identity(0, 0)


def offset_at(world: CaseWorld, timestamp_ms: int, isolation: Isolation = Isolation.READ_COMMITTED) -> int:
    """Return the offset at which a reader that asks for this time begins in t-0."""
    query = OffsetQuery(PartitionName("t", b"", 0), timestamp_ms)
    (found,) = world.inside.positions.list_offsets(ListOffsets([query], isolation), NOW).result()
    assert found.error is None
    return int(found.offset)


def timed_out(*, version: int = 2, epoch: int = 0, near_the_end: bool = False) -> Client:
    """A client whose transaction the server has aborted, and that has not heard of it."""
    world = CaseWorld(near_the_end=near_the_end)
    client = world.ongoing(version=version, epoch=epoch)
    world.tick(TIMEOUT_MS + 1)
    world.settle()
    assert world.described().cause == "timeout"
    return client


@case(86)
@both_versions
@outcomes
def test_an_unknown_id_has_no_producer(version: int, outcome: Outcome) -> None:
    assert CaseWorld().client(version=version).end(outcome, FIRST) == 49


@case(87)
@both_versions
def test_another_producer_id_is_not_the_one(version: int) -> None:
    world = CaseWorld()
    world.ready("other")
    assert world.ongoing(version=version).commit(FIRST) == 49


@case(89)
@both_versions
def test_a_commit_repeated_is_the_same_commit(version: int) -> None:
    world = CaseWorld(split=False)
    client = world.ongoing(version=version)
    shown = client.identity
    told, before = client.commit(), world.version
    assert client.commit(shown) == told
    assert world.version == before


@case(90)
@both_versions
def test_an_abort_repeated_is_the_same_abort(version: int) -> None:
    world = CaseWorld(split=False)
    client = world.ongoing(version=version)
    shown = client.identity
    told, before = client.abort(), world.version
    assert client.abort(shown) == told
    assert world.version == before


@case(91)
@both_versions
def test_what_was_aborted_cannot_be_committed(version: int) -> None:
    client = CaseWorld(split=False).ongoing(version=version)
    shown = client.identity
    client.abort()
    assert client.commit(shown) == {1: 48, 2: 90}[version]


@case(93)
@both_versions
def test_a_commit_that_is_decided_is_waited_for(version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version)
    shown = client.identity
    client.commit()
    assert (world.state(), client.commit(shown)) == ("PrepareCommit", 51)


@case(94, differs="spec 2.6 [D]: whatever finds a decided transaction is told to wait, and only then what it did wrong")
@both_versions
def test_an_abort_that_is_decided_is_waited_for(version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version)
    shown = client.identity
    client.abort()
    assert (world.state(), client.commit(shown)) == ("PrepareAbort", 51)
    world.settle()
    assert client.commit(shown) == {1: 48, 2: 90}[version]


@case(95)
def test_the_version_of_the_request_decides_not_that_of_the_transaction() -> None:
    """The case allows two answers; this is the later one: strict equality."""
    world = CaseWorld(split=True)
    client = world.ongoing(version=2)
    shown = client.identity
    client.commit()
    downgraded = world.client(version=1)
    assert downgraded.commit(shown) == 90
    world.settle()
    assert downgraded.commit(shown) == 90


@case(97)
def test_the_new_epoch_has_nothing_to_commit() -> None:
    world = CaseWorld(split=True)
    client = world.ongoing()
    client.commit()
    assert (world.state(), client.commit()) == ("PrepareCommit", 51)
    world.settle()
    assert (world.state(), client.commit()) == ("CompleteCommit", 48)


@case(98)
def test_a_commit_repeated_across_a_rotation() -> None:
    world = CaseWorld(split=True, near_the_end=True)
    client = world.ongoing(epoch=EXHAUSTED)
    old = client.identity
    new = client.commit()
    prepared = world.described()
    assert (prepared.identity, prepared.next_producer_id) == (Identity(old.producer_id, EPOCH_MAX), new.producer_id)
    assert client.commit(old) == 51
    world.settle()
    assert world.described().prev_producer_id == old.producer_id
    assert client.commit(old) == new == Identity(old.producer_id + 1, 0)


@case(99)
def test_no_answer_has_the_reserved_epoch() -> None:
    client = CaseWorld(near_the_end=True).ongoing(epoch=EXHAUSTED)
    assert client.commit() == Identity(1, 0)


@case(101)
@both_versions
def test_an_abort_is_decided_in_prepare(version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version)
    client.abort()
    assert world.state() == "PrepareAbort"
    assert world.names(world.described()) == ["t-0"]


@case(102)
def test_an_empty_id_is_refused_before_any_shard_is_looked_at() -> None:
    world = CaseWorld()
    world.owns_few_shards()
    assert world.client("").commit(FIRST) == 42


@case(103)
def test_not_ours_or_not_loaded_yet() -> None:
    world = CaseWorld()
    world.owns_few_shards()
    assert world.client(SERVED_ELSEWHERE).commit(FIRST) == 16
    assert world.while_loading(transaction_pb2.EndTxnRequest(transactional_id="orders")) == 14


@case(105)
@both_versions
def test_an_old_epoch_is_fenced(version: int) -> None:
    client = CaseWorld(split=False).ongoing(version=version, epoch=2)
    shown = client.before()
    client.commit()
    assert client.commit(shown) == 90


@case(106)
def test_ending_what_was_never_begun() -> None:
    client = CaseWorld().ready(epoch=3)
    retry = client.before()
    assert [client.commit(), client.commit(retry), client.abort(retry)] == [48, 90, 90]
    assert client.abort() == Identity(0, 4)


@case(107)
def test_an_abort_of_nothing_bumps_and_sends_no_markers() -> None:
    world = CaseWorld(split=True)
    client = world.ongoing()
    client.commit()
    world.settle()
    high_watermark = world.read("t-0").high_watermark
    told = client.abort()
    world.settle()
    assert (world.state(), told.producer_epoch) == ("CompleteAbort", 2)
    assert world.read("t-0").high_watermark == high_watermark


@case(109)
def test_a_commit_after_a_timeout_that_rotated_is_fenced() -> None:
    client = timed_out(epoch=EXHAUSTED, near_the_end=True)
    assert client.world.described().identity == Identity(1, 0)
    assert client.commit() == 90


@case(110)
def test_an_abort_after_a_timeout_that_rotated_goes_on() -> None:
    client = timed_out(epoch=EXHAUSTED, near_the_end=True)
    assert client.abort() == Identity(1, 0)
    assert client.write("t-0", "b") == 0
    assert client.commit() == Identity(1, 1)
    client.world.settle()
    assert client.world.visible() == ["b"]


@case(111)
def test_the_epoch_grows_once_per_transaction() -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(epoch=10)
    client.commit()
    assert (world.state(), world.described().producer_epoch) == ("PrepareCommit", 11)
    world.settle()
    assert (world.state(), world.described().producer_epoch) == ("CompleteCommit", 11)


@case(113)
@both_versions
@outcomes
def test_a_clock_that_goes_back_stops_nothing(version: int, outcome: Outcome) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version)
    start_ms = world.described().start_ms
    for number, state in enumerate(("Prepare", "Complete"), 1):
        world.clock.step_wall(-1_000)
        if state == "Prepare":
            client.end(outcome)
        else:
            world.settle()
        found = world.described()
        assert found.state.api_name == state + outcome.name.title()
        assert (found.start_ms, found.last_update_ms) == (start_ms, start_ms - 1_000 * number)


@case(114, differs="spec 3.12: an abort by the server has the server's level: the epoch before is kept for the owner")
def test_a_fence_at_the_last_epoch_uses_the_reserved_one() -> None:
    world = CaseWorld(split=True, near_the_end=True)
    owner = world.ongoing(version=1, epoch=EXHAUSTED)
    world.client(version=1).init()
    found = world.described()
    assert (found.state.api_name, found.producer_epoch) == ("PrepareAbort", EPOCH_MAX)
    assert found.last_producer_epoch == owner.identity.producer_epoch


@case(115)
def test_a_fence_at_the_reserved_epoch_stays_there() -> None:
    ongoing = Transaction(
        transactional_id="orders",
        producer_id=1,
        producer_epoch=EPOCH_MAX,
        txn_timeout_ms=1,
        last_update_ms=0,
        state=TransactionState.ONGOING,
    )
    how = ending.Ending(ABORT, bumps_epoch=True, cause="fence")
    limits = Limits(producer_epoch_max=EPOCH_MAX)
    decided = ending.decide(ongoing, how, csn=1, now_ms=0, limits=limits, allocate=lambda: 2)
    assert decided.producer_epoch == EPOCH_MAX
    assert ending.complete(decided, now_ms=0).identity == Identity(2, 0)


@case(117)
@both_versions
def test_a_committed_reader_stops_at_what_is_undecided(version: int) -> None:
    world = CaseWorld(split=False)
    undecided, decided = world.ready("one", version=version), world.ready("two", version=version)
    for client, value in ((decided, "a"), (undecided, "b"), (decided, "c")):
        client.add("t-0")
        world.tick(100)
        client.write("t-0", value)
    decided.commit()
    reading = world.read("t-0")
    assert (reading.values, reading.last_stable_offset) == (["a"], 1)
    now_ms = world.clock.wall_ms()
    assert offset_at(world, LATEST_TIMESTAMP) == 1
    assert offset_at(world, now_ms - 200) == 0
    assert offset_at(world, now_ms) == -1
    assert offset_at(world, now_ms, Isolation.READ_UNCOMMITTED) == 2


@case(118)
@both_versions
def test_one_read_over_aborted_and_committed_records(version: int) -> None:
    world = CaseWorld(split=False)
    kept, dropped = world.ready("one", version=version), world.ready("two", version=version)
    for client, value in ((kept, "a"), (dropped, "b"), (dropped, "c"), (kept, "d")):
        client.add("t-0")
        client.write("t-0", value)
    dropped.abort()
    kept.commit()
    records = [(entry.offset, entry.value) for entry in world.read("t-0").entries if entry.marker is None]
    assert records == [(0, "a"), (3, "d")]


@case(119)
@both_versions
def test_a_fenced_instance_cannot_commit(version: int) -> None:
    world = CaseWorld(split=False)
    old = world.ongoing(version=version)
    new = world.client(version=version)
    assert new.init() == 51
    new.init()
    new.add("t-0")
    assert new.write("t-0", "b") == 0
    assert old.commit() == 90
    assert isinstance(new.commit(), Identity)
    assert world.visible() == ["b"]


@case(121)
@both_versions
def test_a_fenced_instance_cannot_write(version: int) -> None:
    world = CaseWorld(split=False)
    old = world.ongoing(version=version)
    new = world.client(version=version)
    new.init()
    new.init()
    new.add("t-0")
    new.write("t-0", "b")
    assert old.write("t-0", "zombie") == 47
    new.commit()
    assert world.visible() == ["b"]


@case(122)
@both_versions
def test_a_fenced_instance_cannot_begin(version: int) -> None:
    world = CaseWorld()
    old = world.ready(version=version)
    world.client(version=version).init()
    assert old.add("t-0") == 90


@case(123)
def test_many_partitions_get_their_markers() -> None:
    world = CaseWorld(split=False)
    world.create_topic("wide", 20)
    client = world.ready()
    for values, outcome in ((500, ABORT), (50, COMMIT)):
        for partition in range(20):
            assert client.write(f"wide-{partition}", *("r" * values)) == 0
        client.end(outcome)
    committed = [len(world.read(f"wide-{partition}").values) for partition in range(20)]
    raw = [world.read(f"wide-{partition}", is_raw=True).values for partition in range(20)]
    assert sum(committed) == 1_000
    assert sum(map(len, raw)) == 11_000


@case(125)
@both_versions
@outcomes
def test_a_lost_reply_is_asked_for_again(version: int, outcome: Outcome) -> None:
    world = CaseWorld()
    client = world.ongoing(version=version)
    client.sends_end(outcome)
    world.crash(kept_groups=1)
    world.settle()
    assert isinstance(client.end(outcome), Identity)
    markers = [entry for entry in world.read("t-0", is_raw=True).entries if entry.marker is not None]
    assert len(markers) == 1


not_drivable(
    126, "a rule inside Kafka's client; ours has no abort after a commit, it asks for the outcome (resolve_outcome)"
)


@case(127)
@both_versions
def test_after_a_lost_write_the_next_transaction_goes_on(version: int) -> None:
    world = CaseWorld(split=False)
    client = world.ongoing(version=version)
    world.produce("orders", client.identity, "t-0", ["lost"], sequence=1, context=client.context)
    world.crash()
    before = client.identity
    next_identity = client.abort()
    if version == 1:
        next_identity = client.init(expected=before)
    assert next_identity.producer_epoch > before.producer_epoch
    client.add("t-0")
    for value in "bcdef":
        assert client.write("t-0", value) == 0
    client.commit()
    assert world.visible() == list("bcdef")
