"""E. Timeouts and expiration."""

from __future__ import annotations

from dataclasses import replace

from tests.conformance.transactions.case_world import ABORT, COMMIT, EIGHT_DAYS_MS, TIMEOUT_MS, CaseWorld, Client
from tests.conformance.transactions.cases import both_versions, case, not_drivable
from tests.conformance.transactions.test_d_completion import away
from txn_coordinator.state import Identity

OVERDUE_MS = TIMEOUT_MS + 1
TWO_DAYS_MS = 2 * 24 * 3_600_000
"""More than partitions remember idle producers for, and less than ids are kept for."""


@case(
    175, differs="spec 3.12: an abort by the server has the server's level, so L is kept for TV1 too, which is fenced"
)
@both_versions
def test_an_overdue_transaction_is_aborted_at_the_next_epoch(version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version, epoch=5)
    world.tick(TIMEOUT_MS)
    world.flush()
    assert world.state() == "Ongoing", "the deadline itself belongs to the client"
    world.tick(1)
    world.flush()
    found = world.described()
    assert (found.state.api_name, found.producer_epoch, found.last_producer_epoch) == ("PrepareAbort", 6, 5)
    world.settle()
    assert client.add("t-0") == 90


@case(177)
@both_versions
def test_a_commit_on_its_way_to_the_disk_is_not_timed_out(version: int) -> None:
    world = CaseWorld(split=True)
    commit = world.ongoing(version=version).sends_end(COMMIT)
    world.tick(2 * OVERDUE_MS)
    world.settle()
    assert commit.is_settled
    assert (world.state(), world.visible()) == ("CompleteCommit", ["a"])


@case(178, differs="design 10: an append that fails ends the process; the timeout counts on from the stored start")
@both_versions
def test_a_timeout_that_was_lost_comes_again_and_bumps_once(version: int) -> None:
    world = CaseWorld()
    world.ongoing(version=version)
    for _ in range(2):
        world.tick(OVERDUE_MS)
        world.crash()
        assert world.state() == "Ongoing"
    world.tick(1)
    world.settle()
    assert (world.state(), world.described().producer_epoch) == ("CompleteAbort", 1)


@case(179)
@both_versions
def test_only_what_is_open_and_overdue_is_aborted(version: int) -> None:
    world = CaseWorld(split=True)
    world.answers_markers(away(), "t-1")
    world.ready("empty", version=version)
    for name, outcome in (("committed", COMMIT), ("aborted", ABORT)):
        world.ongoing(name, version=version).end(outcome)
        world.settle()
    for name, outcome in (("committing", COMMIT), ("aborting", ABORT)):
        client = world.ongoing(name, version=version)
        client.add("t-1")
        client.end(outcome)
    patient = world.client("patient", version=version)
    patient.init(timeout_ms=10 * TIMEOUT_MS)
    patient.add("t-2")
    world.ongoing("overdue", version=version)
    ids = ("empty", "committed", "aborted", "committing", "aborting", "patient", "overdue")
    before = [world.described(name) for name in ids]
    world.tick(OVERDUE_MS)
    world.settle()
    after = [world.described(name) for name in ids]
    assert after[:-1] == before[:-1]
    assert after[-1].cause == "timeout"


def idle(world: CaseWorld, name: str) -> Client:
    """A client whose id is in the state of that name, with nothing open."""
    client = world.ready("orders")
    if name != "Empty":
        client.write("t-0", "a")
        client.end(COMMIT if name == "CompleteCommit" else ABORT)
    assert world.state() == name
    return client


@case(181)
def test_an_idle_id_is_forgotten() -> None:
    for name in ("Empty", "CompleteCommit", "CompleteAbort"):
        world = CaseWorld(split=False)
        client = idle(world, name)
        world.tick(EIGHT_DAYS_MS)
        world.settle()
        assert world.state() == "105"
        assert client.add("t-0") == 49
        world.crash()
        assert world.state() == "105"


@case(182)
def test_an_id_that_is_not_idle_is_kept() -> None:
    world = CaseWorld(split=True)
    world.answers_markers(away(), "t-1")
    promised = world.client("promised")
    promised.init(enable_2pc=True)
    promised.write("t-2", "b")
    for outcome in (COMMIT, ABORT):
        client = world.ongoing(outcome.name)
        client.add("t-1")
        client.end(outcome)
    world.crash(down_ms=EIGHT_DAYS_MS)
    world.tick(10)
    assert [world.state(name) for name in ("COMMIT", "ABORT", "promised")] == [
        "PrepareCommit",
        "PrepareAbort",
        "Ongoing",
    ]
    world.settle()
    assert isinstance(promised.commit(), Identity)
    assert [world.state(name) for name in ("COMMIT", "ABORT")] == ["CompleteCommit", "CompleteAbort"]


@case(
    183, differs="design 10: an append that fails ends the process; the id is there after the restart, until the next"
)
def test_an_expiration_that_was_lost_leaves_the_id_usable() -> None:
    world = CaseWorld()
    client = world.ready()
    world.tick(EIGHT_DAYS_MS)
    world.crash()
    assert world.state() == "Empty"
    assert client.add("t-0") is True


not_drivable(
    185, "tombstones are rows of one batch, at most 500 in one operation; no record has a size that they must fit"
)
not_drivable(186, "all shards are in one store, which works or fails as a whole")
not_drivable(187, "an id whose first initialisation was refused or lost does not exist: nothing is half made")


@case(189)
@both_versions
def test_an_id_whose_producer_a_partition_has_forgotten_goes_on(version: int) -> None:
    world = CaseWorld(split=False)
    old = world.ongoing(version=version)
    old.commit()
    world.tick(TWO_DAYS_MS)
    world.settle()
    assert world.remembered("t-0") == ()
    new = world.client(version=version)
    assert new.init() == Identity(old.identity.producer_id, old.identity.producer_epoch + 1)
    new.add("t-0")
    assert new.write("t-0", "b") == 0
    new.commit()
    world.settle()
    assert world.visible() == ["a", "b"]
    world.tick(TWO_DAYS_MS)
    world.settle()
    assert old.write("t-0", "c", sequence=0) in (47, 90), "the partition forgot the fence, the coordinator did not"


@case(190)
@both_versions
def test_an_expired_id_comes_back_with_a_new_producer_id(version: int) -> None:
    world = CaseWorld(split=False, producer_expiration_ms=2 * EIGHT_DAYS_MS)
    client = world.ongoing(version=version)
    client.commit()
    old = client.identity
    world.tick(EIGHT_DAYS_MS)
    world.settle()
    assert len(world.remembered("t-0")) == 1
    new = client.init(expected=old)
    assert new == Identity(old.producer_id + 1, 0)
    client.add("t-0")
    assert client.write("t-0", "b") == 0
    client.commit()
    assert world.visible() == ["a", "b"]


@case(191, differs="settings are read at the start: another expiration applies from the next start on, to all it finds")
def test_an_idle_producer_is_forgotten_and_comes_back() -> None:
    world = CaseWorld()
    producer = world.client()
    alone = Identity(77, 0)

    def remembered() -> list[int]:
        return [producer_id for producer_id, _entry in world.remembered("t-0")]

    assert producer.write("t-0", "a", shown=alone, plain=True) == 0
    world.tick(TWO_DAYS_MS)
    world.settle()
    assert remembered() == []
    assert producer.write("t-0", "b", shown=alone, plain=True) == 59
    assert producer.write("t-0", "b", shown=alone, sequence=0, plain=True) == 0
    assert remembered() == [77]
    world.options = replace(world.options, producer_expiration_ms=3 * TWO_DAYS_MS)
    world.crash(down_ms=TWO_DAYS_MS)
    world.tick(TWO_DAYS_MS)
    world.settle()
    assert remembered() == [77]
    world.options = replace(world.options, producer_expiration_ms=TWO_DAYS_MS)
    world.crash()
    world.tick(1_000)
    world.settle()
    assert remembered() == []
