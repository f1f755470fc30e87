"""A. InitProducerId."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.limits import Limits
from coordinator_runtime.ports import CallContext
from tests.conformance.transactions.case_world import (
    COMMIT,
    EPOCH_MAX,
    EXHAUSTED,
    NOW,
    SERVED_ELSEWHERE,
    CaseWorld,
    Denies,
)
from tests.conformance.transactions.cases import both_versions, case, not_drivable
from tests.harness.kafka_producer import KafkaProducer
from txn_coordinator.rules import initialising
from txn_coordinator.state import Identity, Transaction, TransactionState

_Init = transaction_pb2.InitProducerIdRequest


@case(1)
def test_an_empty_id_is_refused_every_time() -> None:
    world = CaseWorld()
    assert [world.client("").init() for _ in range(2)] == [42, 42]


@case(2)
def test_without_an_id_every_call_gets_the_next_producer_id() -> None:
    world = CaseWorld()
    first, second = (world.told(world.init_plain(NOW)) for _ in range(2))
    assert second == Identity(first.producer_id + 1, 0)
    assert first.producer_epoch == 0


@case(3)
@both_versions
def test_a_new_id_starts_at_epoch_zero(version: int) -> None:
    assert CaseWorld().client(version=version).init().producer_epoch == 0


@case(5)
@both_versions
def test_at_the_last_epoch_a_new_instance_gets_a_new_producer_id(version: int) -> None:
    world = CaseWorld(near_the_end=True)
    old = world.ready(version=version, epoch=EXHAUSTED).identity
    new = world.client(version=version).init()
    assert new.producer_id != old.producer_id
    assert new.producer_epoch == 0


@case(6)
def test_a_shard_that_is_not_ours_is_refused() -> None:
    world = CaseWorld()
    world.owns_few_shards()
    assert world.client(SERVED_ELSEWHERE).init() == 16


@case(7)
def test_while_loading_everybody_is_told_to_try_again() -> None:
    assert CaseWorld().while_loading(_Init(transactional_id="orders")) == 14


@case(9)
@both_versions
def test_after_an_abort_the_epoch_grows_by_one(version: int) -> None:
    world = CaseWorld(split=False)
    client = world.ongoing(version=version)
    aborted = client.abort()
    assert world.state() == "CompleteAbort"
    assert world.client(version=version).init() == Identity(aborted.producer_id, aborted.producer_epoch + 1)
    assert world.state() == "Empty"


@case(10)
@both_versions
def test_after_a_commit_the_epoch_grows_by_one(version: int) -> None:
    world = CaseWorld(split=False)
    client = world.ongoing(version=version)
    committed = client.commit()
    assert world.state() == "CompleteCommit"
    assert world.client(version=version).init() == Identity(committed.producer_id, committed.producer_epoch + 1)
    assert world.state() == "Empty"


@case(11)
@both_versions
def test_a_decided_commit_is_waited_for(version: int) -> None:
    world = CaseWorld(split=True)
    world.ongoing(version=version).commit()
    assert world.state() == "PrepareCommit"
    assert world.client().init() == 51


@case(13)
@both_versions
def test_an_open_transaction_is_aborted_first(version: int) -> None:
    world = CaseWorld(split=True)
    owner = world.ongoing(version=version)
    owner.add("t-1")
    successor = world.client(version=version)
    assert successor.init() == 51
    prepared = world.described()
    assert prepared.state.api_name == "PrepareAbort"
    assert prepared.producer_epoch == owner.identity.producer_epoch + 1
    assert world.names(prepared) == ["t-0", "t-1"]
    world.settle()
    assert successor.init() == Identity(owner.identity.producer_id, owner.identity.producer_epoch + 2)


not_drivable(14, "the check and the abort are one operation: the epoch cannot rise in between (spec 3.3 [D])")


@case(15, differs="design 10: an append that fails ends the process, the stored state decides after the restart")
def test_attempts_that_were_lost_bump_nothing() -> None:
    world = CaseWorld(split=True)
    owner = world.ongoing(version=1)
    successor = world.client(version=1)
    for _ in range(2):
        successor.sends_init()
        world.crash()
        world.settle()
        assert world.described().identity == owner.identity
    assert successor.init() == 51
    assert world.described().producer_epoch == owner.identity.producer_epoch + 1


@case(17, differs="spec 3.12: an abort by the server has the server's level, so it rotates at once (as 3.5), not later")
def test_fencing_at_the_last_epoch_uses_the_reserved_one() -> None:
    world = CaseWorld(split=True, near_the_end=True)
    owner = world.ongoing(version=1, epoch=EXHAUSTED)
    successor = world.client(version=1)
    assert successor.init() == 51
    assert world.described().identity == Identity(owner.identity.producer_id, EPOCH_MAX)
    world.settle()
    assert world.described().producer_epoch == 0
    rotated = successor.init()
    assert rotated.producer_id != owner.identity.producer_id
    assert rotated.producer_epoch == 1


@case(18)
@both_versions
def test_an_epoch_that_a_new_instance_took_over_is_fenced(version: int) -> None:
    world = CaseWorld()
    old = world.ready(version=version)
    world.client(version=version).init()
    assert world.described().last_producer_epoch == -1
    assert old.init(expected=old.identity) == 90


@case(19)
@both_versions
def test_an_expected_producer_id_that_is_another_is_fenced(version: int) -> None:
    world = CaseWorld()
    world.ready("other")
    client = world.ready(version=version)
    assert client.init(expected=Identity(client.identity.producer_id - 1, 0)) == 90


@case(21)
@both_versions
def test_the_old_instance_is_fenced_by_the_new_one(version: int) -> None:
    world = CaseWorld()
    old = world.ready(version=version, epoch=10)
    assert world.client(version=version).init().producer_epoch == 11
    assert old.init(expected=old.identity) == 90


@case(22)
@both_versions
def test_a_rotation_asked_for_twice_happens_once(version: int) -> None:
    world = CaseWorld(near_the_end=True)
    client = world.ready(version=version, epoch=EXHAUSTED)
    old = client.identity
    new = client.init(expected=old)
    assert new == Identity(old.producer_id + 1, 0)
    assert client.init(expected=old) == new


@case(23)
@both_versions
def test_a_rotation_is_remembered_over_a_restart(version: int) -> None:
    world = CaseWorld(near_the_end=True)
    client = world.ready(version=version, epoch=EXHAUSTED)
    old = client.identity
    new = client.init(expected=old)
    world.crash()
    assert client.init(expected=old) == new


@case(25)
@both_versions
def test_a_commit_on_its_way_to_the_disk_is_waited_for(version: int) -> None:
    world = CaseWorld(split=True)
    client = world.ongoing(version=version, epoch=10)
    commit = client.sends_end(COMMIT)
    attempt = client.sends_init(expected=client.identity)
    assert world.told(attempt) == 51
    assert commit.is_settled
    assert world.described().cause == "client", "nothing but the commit was written"


@case(26)
def test_the_first_bump_gives_epoch_zero_and_no_last_epoch() -> None:
    world = CaseWorld()
    world.ready()
    assert (world.described().producer_epoch, world.described().last_producer_epoch) == (0, -1)


@case(27)
@both_versions
def test_a_bump_without_expectation_forgets_the_last_epoch(version: int) -> None:
    world = CaseWorld()
    world.ready(version=version, epoch=7)
    world.client(version=version).init()
    assert (world.described().producer_epoch, world.described().last_producer_epoch) == (8, -1)


@case(29)
@both_versions
def test_an_unknown_id_accepts_any_expectation(version: int) -> None:
    world = CaseWorld()
    assert world.client(version=version).init(expected=Identity(5, 735)).producer_epoch == 0
    assert world.described().last_producer_epoch == -1


@case(30)
@both_versions
def test_a_bump_with_the_current_epoch_remembers_it(version: int) -> None:
    world = CaseWorld()
    client = world.ready(version=version, epoch=7)
    assert client.init(expected=client.identity).producer_epoch == 8
    assert world.described().last_producer_epoch == 7


@case(31)
@both_versions
def test_a_bump_repeated_with_the_last_epoch_changes_nothing(version: int) -> None:
    world = CaseWorld()
    client = world.ready(version=version, epoch=7)
    client.init(expected=client.identity)
    assert client.init(expected=client.before()).producer_epoch == 8
    assert world.described().last_producer_epoch == 7


@case(33)
@both_versions
def test_a_rotation_remembers_the_old_producer_id_and_its_last_epoch(version: int) -> None:
    world = CaseWorld(near_the_end=True)
    client = world.ready(version=version, epoch=EXHAUSTED)
    old = client.identity
    client.init(expected=old)
    rotated = world.described()
    assert (rotated.producer_epoch, rotated.last_producer_epoch) == (0, EXHAUSTED)
    assert rotated.prev_producer_id == old.producer_id != rotated.producer_id


@case(34)
@pytest.mark.parametrize("state", ["ONGOING", "PREPARE_ABORT", "PREPARE_COMMIT"])
def test_a_busy_id_is_never_rotated(state: str) -> None:
    busy = Transaction(
        transactional_id="orders",
        producer_id=1,
        producer_epoch=EXHAUSTED,
        txn_timeout_ms=1,
        last_update_ms=0,
        state=TransactionState[state],
    )
    request = initialising.InitRequest(transactional_id="orders", txn_timeout_ms=1)
    with pytest.raises(AssertionError, match="is ended before"):
        initialising.initialise(
            busy, request, now_ms=0, limits=Limits(producer_epoch_max=EPOCH_MAX), allocate=lambda: 2
        )


@case(35)
def test_timeouts_have_bounds() -> None:
    client = CaseWorld().client()
    told = [client.init(timeout_ms=timeout_ms) for timeout_ms in (1, -1, 0, 900_000, 900_001)]
    assert told == [Identity(0, 0), 50, 50, Identity(0, 1), 50]


@case(37)
def test_half_an_expectation_is_refused() -> None:
    world = CaseWorld()
    request = _Init(
        transactional_id="orders", transaction_timeout_ms=1, expected_producer_id=-1, expected_producer_epoch=2
    )
    assert world.asked(lambda: world.servicer().InitProducerId(request, NOW)) == 42


@case(38)
def test_a_kafka_client_that_does_not_know_the_code_for_fenced_gets_an_older_one() -> None:
    world = CaseWorld()
    old, new = KafkaProducer(world), KafkaProducer(world)
    assert old.initialises() == new.initialises() == 0
    assert old.initialises(3, shows=old.identity) == 47
    assert old.initialises(4, shows=old.identity) == 90


@case(39)
def test_two_new_instances_at_once_never_share_an_epoch() -> None:
    world = CaseWorld(near_the_end=True)
    for number in range(100):
        old = world.ready(f"id-{number}", epoch=EXHAUSTED).identity
        attempts = [world.client(f"id-{number}").sends_init() for _ in range(2)]
        first, second = (world.told(attempt) for attempt in attempts)
        assert first.producer_id != old.producer_id
        assert (first.producer_epoch, second) == (0, Identity(first.producer_id, 1))


@case(41)
@both_versions
def test_of_two_with_the_same_expectation_one_creates_the_id(version: int) -> None:
    world = CaseWorld()
    attempts = [world.client(version=version).sends_init(expected=Identity(9, 5)) for _ in range(2)]
    assert [world.told(attempt) for attempt in attempts] == [Identity(0, 0), 90]


@case(42)
@both_versions
def test_a_retry_and_a_new_instance_at_once(version: int) -> None:
    world = CaseWorld()
    client = world.ready(version=version, epoch=5)
    client.init(expected=client.identity)
    retry = client.sends_init(expected=client.before())
    new = world.client(version=version).sends_init()
    assert world.told(retry) == client.identity
    assert world.told(new).producer_epoch == client.identity.producer_epoch + 1


@case(43)
@both_versions
def test_two_at_once_at_the_last_epoch_rotate_once(version: int) -> None:
    world = CaseWorld(near_the_end=True)
    client = world.ready(version=version, epoch=EXHAUSTED)
    old = client.identity
    attempts = [client.sends_init(expected=old), world.client(version=version).sends_init()]
    new = old.producer_id + 1
    assert [world.told(attempt) for attempt in attempts] == [Identity(new, 0), Identity(new, 1)]


not_drivable(45, "a rule inside Kafka's client, no request is sent; our SDK initialises by itself")


@case(46)
def test_an_initialisation_that_was_lost_counts_once() -> None:
    world = CaseWorld(split=False)
    first = world.ongoing(version=1)
    first.commit()
    world.client(version=1).sends_init()
    world.crash()
    third = world.client(version=1)
    assert third.init() == Identity(first.identity.producer_id, first.identity.producer_epoch + 1)
    assert first.add("t-0") == 90


@case(47)
def test_without_permission_nothing_happens_until_it_is_given() -> None:
    world = CaseWorld()
    denies = Denies({"orders"})
    servicer = world.servicer(denies)
    request = _Init(transactional_id="orders", transaction_timeout_ms=1)
    assert world.asked(lambda: servicer.InitProducerId(request, CallContext())) == 53
    assert world.state() == "105"
    denies.names.clear()
    assert world.asked(lambda: servicer.InitProducerId(request, CallContext())).producer_epoch == 0
