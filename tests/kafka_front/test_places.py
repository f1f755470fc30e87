"""Places of connections: the most there may be, and room for those that authenticate."""

from __future__ import annotations

import pytest

from coordinator_server.kafka_front.places import LEFT_ALONE_MS, UNKNOWN_LEAST, NoPlace, Places
from tests.harness.manual_clock import ManualClock


class Newcomer:
    """A connection that notes its end."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.has_made_room = False

    def make_room(self) -> None:
        self.has_made_room = True


def enter(places: Places, host: str, number: int = 1) -> list[Newcomer]:
    newcomers = [Newcomer(host) for _ in range(number)]
    for each in newcomers:
        places.enter(each)
    return newcomers


def test_connections_are_as_many_as_may_be() -> None:
    places = Places(ManualClock(), 3, knows_all=True)
    first, *_ = enter(places, "a", 3)
    with pytest.raises(NoPlace, match="3 are open") as refused:
        enter(places, "b")
    assert refused.value.kind == "connections"
    places.leave(first)
    places.leave(first)
    enter(places, "b")
    assert len(places) == 3
    assert places.unknown_number == 0


def test_a_host_with_many_unknown_connections_crowds_out_itself() -> None:
    clock = ManualClock()
    places = Places(clock, 100, knows_all=False)
    honest = enter(places, "honest")[0]
    flood = enter(places, "flood", 11)
    assert places.unknown_number == 12
    (newcomer,) = enter(places, "third")
    assert [each.has_made_room for each in (honest, newcomer, *flood)] == [False, False, True, *[False] * 10]
    with pytest.raises(NoPlace, match="12 are not authenticated, 10 of them of this host") as refused:
        enter(places, "flood")
    assert refused.value.kind == "unauthenticated"
    clock.advance(LEFT_ALONE_MS)
    enter(places, "flood")
    assert flood[1].has_made_room
    assert not honest.has_made_room
    assert len(places) == places.unknown_number == 12


def test_connections_that_are_known_leave_room_for_those_that_are_not() -> None:
    places = Places(ManualClock(), 20, knows_all=False)
    for each in enter(places, "a", UNKNOWN_LEAST):
        places.becomes_known(each)
        places.becomes_known(each)
    enter(places, "a", UNKNOWN_LEAST)
    assert len(places) == 2 * UNKNOWN_LEAST
