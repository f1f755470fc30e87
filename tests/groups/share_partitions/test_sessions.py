"""Sessions, and the cases of share partitions (docs/reference/conformance.md) by ShareFetch and ShareAcknowledge."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from tests.groups.share_partitions.pictures import picture
from tests.harness.group_world import group_world
from tests.harness.groups import GROUP, OK, code
from tests.harness.share_consumers import ACCEPT, GAP, RELEASE, ShareConsumer, alter_shares, share_consumer
from tests.harness.share_partitions import Shares
from tests.harness.world import World


def fetching(*names: str, batches: tuple[int, ...] = (), **settings: int | str) -> tuple[World, list[ShareConsumer]]:
    """A world with a log of such batches, whose group reads it from the beginning, and its members."""
    world = group_world(topics={"t": 1})
    alter_shares(world, **{"auto_offset_reset": "earliest", **settings})
    consumers = [share_consumer(world, name, "t") for name in names]
    Shares(world, "t-0", GROUP).produce(*batches)
    return world, consumers


def state(world: World) -> str:
    return picture(Shares(world, "t-0", GROUP).state)


def test_a_session_has_one_next_epoch() -> None:
    _world, (a,) = fetching("a")
    a.fetch()
    assert a.epoch == 1
    assert code(a.asks(epoch=3)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code(a.acknowledges({}, epoch=3)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code(a.acknowledges({"t-0": [(0, 0, ACCEPT)]}, epoch=0)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code(a.asks(epoch=-2)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code(a.asks(epoch=1)) is OK
    assert code(a.acknowledges({}, epoch=2)) is OK
    assert code(a.asks(epoch=2)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_only_a_member_begins_a_session_and_only_it_goes_on() -> None:
    world, (a,) = fetching("a")
    a.fetch()
    a.member.member_id = "stranger"
    assert code(a.asks(epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(a.acknowledges({}, epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(a.asks(epoch=-1)) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(a.asks(epoch=0)) is ErrorCode.UNKNOWN_MEMBER_ID
    a.member.group_id = "nobody"
    assert code(a.asks(epoch=0)) is ErrorCode.GROUP_ID_NOT_FOUND
    world.consumers.member(group_id="consumers").joins("t")
    a.member.group_id = "consumers"
    assert code(a.asks(epoch=0)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_session_begins_without_acknowledgements_and_ends_without_fetching() -> None:
    _world, (a,) = fetching("a", batches=(2,))
    assert code(a.asks({"t-0": [(0, 0, ACCEPT)]}, epoch=0)) is ErrorCode.INVALID_REQUEST
    assert a.fetch() == {"t-0": [0, 1]}
    assert code(a.asks(epoch=-1, partitions=["t-0"])) is ErrorCode.INVALID_REQUEST
    assert code(a.asks({"t-0": [(0, 0, ACCEPT)]}, epoch=-1)) is OK
    assert code(a.asks(epoch=1)) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_new_session_replaces_the_old_one_and_the_member_keeps_its_records() -> None:
    world, (a,) = fetching("a", batches=(2,))
    assert a.fetch() == {"t-0": [0, 1]}
    assert a.fetch(epoch=0) == {}
    assert code(a.asks(epoch=5)) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert a.acknowledge("t-0", (0, 1, ACCEPT)) is OK
    assert state(world) == "2:"


@pytest.mark.parametrize("by_fetch", [True, False])
def test_the_last_epoch_releases_all_that_the_member_holds(by_fetch: bool) -> None:
    _world, (a, b) = fetching("a", "b", batches=(3,))
    a.fetch()
    acks = {"t-0": [(0, 0, ACCEPT)]}
    response = a.asks(acks, epoch=-1) if by_fetch else a.closes(acks)
    assert [code(each) for each in response.results] == [OK]
    assert b.fetch() == {"t-0": [1, 2]}
    assert b.counts() == {1: 2, 2: 2}


def test_a_session_ends_with_the_membership() -> None:
    world, (a,) = fetching("a", batches=(1,))
    a.fetch()
    a.member.leaves()
    world.settle()
    assert code(a.asks()) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(a.asks(epoch=0)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert state(world) == "0: .1"


def test_settings_hold_from_the_next_acquisition_on() -> None:
    world, (a, b) = fetching("a", "b", batches=(1, 1))
    assert a.fetch(max_records=1) == {"t-0": [0]}
    assert a.last.lock_duration_ms == 30_000
    alter_shares(world, record_lock_duration_ms=15_000)
    assert b.fetch(max_records=1) == {"t-0": [1]}
    assert b.last.lock_duration_ms == 15_000
    world.pass_time(15_000)
    assert a.fetch() == {"t-0": [1]}
    world.pass_time(15_000)
    assert b.fetch() == {"t-0": [0, 1]}
    assert b.counts() == {0: 2, 1: 3}


def test_a_fetch_takes_the_whole_batch() -> None:
    _world, (a,) = fetching("a", batches=(5, 5))
    assert a.fetch(max_records=2) == {"t-0": [*range(5)]}


def test_a_repeated_acknowledgement_is_refused_in_its_partition() -> None:
    world, (a,) = fetching("a", batches=(5, 10))
    a.fetch()
    assert a.acknowledge("t-0", (5, 14, ACCEPT)) is OK
    assert a.acknowledge("t-0", (5, 14, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert a.acknowledge("t-0", (0, 4, ACCEPT)) is OK
    assert state(world) == "15:"


def test_the_next_fetch_begins_at_the_first_available_record() -> None:
    _world, (a,) = fetching("a", batches=(5, 5, 9))
    a.fetch()
    assert a.acknowledge("t-0", (0, 4, ACCEPT)) is OK
    types = [RELEASE] * 5 + [GAP] * 3 + [ACCEPT]
    assert a.fetch({"t-0": [(5, 9, RELEASE), (10, 18, types)]}) == {"t-0": [*range(5, 15)]}


def test_another_members_records_are_not_acknowledged() -> None:
    _world, (a, b) = fetching("a", "b", batches=(5,))
    a.fetch()
    assert b.fetch() == {}
    assert b.acknowledge("t-0", (0, 4, ACCEPT)) is ErrorCode.INVALID_RECORD_STATE
    assert b.fetch({"t-0": [(0, 4, ACCEPT)]}) == {}
    assert [code(each) for each in b.last.results] == [OK]
    assert [each.acknowledge_error_code for each in b.last.results] == [ErrorCode.INVALID_RECORD_STATE]
    assert a.acknowledge("t-0", (0, 4, ACCEPT)) is OK


def test_a_request_is_all_or_nothing_in_a_partition() -> None:
    world, (a, b) = fetching("a", "b", batches=(5, 5, 5))
    assert a.fetch(max_records=10) == {"t-0": [*range(10)]}
    b.fetch()
    wanted = ((0, 4, ACCEPT), (5, 9, ACCEPT), (10, 14, ACCEPT))
    assert a.acknowledge("t-0", *wanted) is ErrorCode.INVALID_RECORD_STATE
    assert (a.acknowledge("t-0", *wanted[:2]), b.acknowledge("t-0", wanted[2])) == (OK, OK)
    assert state(world) == "15:"


def test_released_records_come_again_with_the_next_count() -> None:
    _world, (a,) = fetching("a", batches=(15,))
    a.fetch()
    assert a.acknowledge("t-0", (12, 13, RELEASE)) is OK
    assert a.fetch() == {"t-0": [12, 13]}
    assert a.counts() == {12: 2, 13: 2}


def test_a_record_that_is_delivered_too_often_is_not_fetched_again() -> None:
    world, (a,) = fetching("a", batches=(5,), delivery_count_limit=2)
    for count in (1, 2):
        assert a.fetch() == {"t-0": [*range(5)]}
        assert a.counts() == dict.fromkeys(range(5), count)
        assert a.acknowledge("t-0", (0, 4, RELEASE)) is OK
    assert a.fetch() == {}
    assert state(world) == "5:"


def test_a_later_acknowledgement_moves_no_start() -> None:
    world, (a,) = fetching("a", batches=(21,))
    a.fetch()
    assert a.acknowledge("t-0", (10, 14, ACCEPT)) is OK
    assert Shares(world, "t-0", GROUP).state.start_offset == 0


def test_records_below_the_log_start_are_gone_once_released() -> None:
    world, (a, b) = fetching("a", "b", batches=(2, 5, 5, 5, 5))
    assert a.fetch(max_records=7) == {"t-0": [*range(7)]}
    assert a.acknowledge("t-0", (0, 1, ACCEPT), (5, 6, RELEASE)) is OK
    shares = Shares(world, "t-0", GROUP)
    shares.trim(20)
    assert b.fetch() == {"t-0": [20, 21]}
    assert shares.state.start_offset == 20
    assert [window.first_offset for window in shares.state.behind] == [2]
    a.closes()
    assert not shares.state.behind
    assert b.fetch() == {}
