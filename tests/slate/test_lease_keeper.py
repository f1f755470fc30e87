"""The keeper of the lease against a bucket that is real but for its network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from coordinator_runtime.clock import SystemClock
from coordinator_runtime.slate.lease import LEASE_NAME, Node, Standing
from coordinator_runtime.slate.lease_keeper import LeaseKeeper, keeper_of
from coordinator_runtime.slate.location import StoreLocation, parse_location
from coordinator_runtime.store import StoreRefused
from tests.harness.object_store import ObjectServer
from tests.harness.patience import DEADLINE_SECONDS, looks

TTL_MS = 3_000


class Keepers:
    """Keepers of one lease, and a way to wait for what they tell."""

    def __init__(self, location: StoreLocation) -> None:
        self._location = location
        self._changed = threading.Condition()
        self._ended: list[str] = []
        self.made: list[LeaseKeeper] = []

    def start(self, name: str, node_id: int = 1) -> LeaseKeeper:
        node = Node(node_id, name, f"{name}:1")
        made = keeper_of(
            self._location,
            node,
            TTL_MS,
            SystemClock(),
            on_change=self._tell,
            end_process=lambda: self._end(name),
        )
        self.made.append(made)
        made.start()
        return made

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_SECONDS)

    def wait_for_end(self, name: str) -> None:
        self.wait(lambda: name in self._ended)

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _end(self, name: str) -> None:
        self._ended.append(name)
        self._tell()


@pytest.fixture
def keepers(address: str) -> Iterator[Keepers]:
    made = Keepers(parse_location(address))
    yield made
    for each in made.made:
        each.hand_over(0)


def test_one_of_two_holds_the_lease_and_a_hand_over_gives_it_to_the_other(keepers: Keepers) -> None:
    first = keepers.start("a")
    keepers.wait(first.is_valid)
    second = keepers.start("b", 2)
    assert first.hand_over(5_000)
    assert not first.is_valid()
    keepers.wait(second.is_valid)
    assert second.state.seen is not None
    assert second.state.seen.lease.term == 2


def test_a_renewal_whose_answer_is_lost_keeps_the_lease(keepers: Keepers, server: ObjectServer) -> None:
    first = keepers.start("a")
    keepers.wait(first.is_valid)
    before = server.objects[f"some/prefix/{LEASE_NAME}"].e_tag
    server.lose_next_answer.add("PUT")
    valid_until_ms = first.state.valid_until_ms
    # A renewal is told to no caller, so look.
    for _ in looks("the end of the lease"):
        if first.state.valid_until_ms > valid_until_ms:
            break
    assert server.objects[f"some/prefix/{LEASE_NAME}"].e_tag != before
    assert first.state.standing is Standing.HOLDING


@pytest.mark.slow
def test_a_holder_that_cannot_renew_ends_and_its_process_is_ended_if_it_hangs(
    keepers: Keepers, server: ObjectServer
) -> None:
    first = keepers.start("a")
    keepers.wait(first.is_valid)
    server.refusal = 403
    keepers.wait(lambda: first.state.standing is Standing.ENDED)
    assert not first.is_valid()
    assert first.problem is not None
    keepers.wait_for_end("a")


def test_a_damaged_lease_is_told(keepers: Keepers, server: ObjectServer) -> None:
    first = keepers.start("a")
    keepers.wait(first.is_valid)
    assert first.hand_over(5_000)
    server.objects[f"some/prefix/{LEASE_NAME}"].content = b"{"
    second = keepers.start("b", 2)
    keepers.wait(lambda: second.refusal is not None)
    assert "cannot be read" in str(second.refusal)


def test_wrong_credentials_are_told_at_the_start(keepers: Keepers, server: ObjectServer) -> None:
    server.refusal = 403
    with pytest.raises(StoreRefused, match="check the bucket and the credentials"):
        keepers.start("a")


def test_an_owner_knows_the_server_that_waits(keepers: Keepers) -> None:
    first = keepers.start("a")
    keepers.wait(first.is_valid)
    second = keepers.start("b", 2)
    for _ in looks("the server that waits"):
        if (found := first.other_server()) is not None:
            break
    assert found == second.state.me
