"""Share partitions in a server that crashes, unloads them and loses the beginning of their log: the store rebuilds them
at every moment, nothing that was acknowledged comes again, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from coordinator_protocol.errors import ErrorCode
from group_coordinator.share_partitions.acquiring import Terms
from tests.harness.share_partitions import Shares, share_world

STEPS = 60
MEMBERS = ("a", "b", "c")


class Storm:
    """One seeded run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        terms = Terms(delivery_count_limit=10, in_flight_max=self.random.choice((5, 20, 2_000)))
        self.shares = Shares(share_world(), terms=terms, allows_renewal=True)
        self.shares.produce(3, 1, 4)
        self.shares.begin()
        self.done: set[int] = set()
        """Offsets that a member has heard are acknowledged."""
        self.held: dict[int, str] = {}
        """Who got each offset last; others may have got it since, because a lock expired."""
        self.actions: list[Callable[[], object]] = [
            lambda: self.shares.produce(self.random.randint(1, 5)),
            self.acquire,
            self.acquire,
            self.acquire,
            self.acknowledge,
            self.acknowledge,
            self.acknowledge,
            lambda: self.shares.end_member(self.random.choice(MEMBERS)),
            lambda: self.shares.world.pass_time(self.random.choice((1, 20_000))),
            self.crash,
            self.unload,
            self.trim,
        ]

    def acquire(self) -> None:
        member = self.random.choice(MEMBERS)
        found = self.shares.acquire(member, self.random.randint(1, 6))
        assert not self.done & {*found}, "what was acknowledged comes again"
        self.held |= dict.fromkeys(found, member)

    def acknowledge(self) -> None:
        if not self.held:
            return
        offset, member = self.random.choice(sorted(self.held.items()))
        kind = self.random.choice((1, 1, 2, 4))
        if self.shares.acknowledge(member, (offset, offset, [kind])) is ErrorCode.NONE and kind == 1:
            self.done.add(offset)

    def crash(self) -> None:
        self.shares.world.check_replay()
        self.shares.world.crash()
        self.shares.world.check_replay()

    def unload(self) -> None:
        loader = self.shares.world.inside.driver.loader
        loader.unload(self.shares.shard_key)
        self.shares.world.settle()
        loader.load(self.shares.shard_key)
        self.shares.world.settle()

    def trim(self) -> None:
        first, end = self.shares.head.log_start_offset, self.shares.head.log_end_offset
        self.shares.trim(self.random.randint(first, min(first + 2, end)))

    def drain(self) -> None:
        """One member acknowledges what is left."""
        for member in MEMBERS:
            self.shares.end_member(member)
        while found := self.shares.acquire("z"):
            assert not self.done & {*found}
            assert self.shares.acknowledge("z", *((at, at, [1]) for at in found)) is ErrorCode.NONE
            self.done |= {*found}


@pytest.mark.parametrize("seed", range(12))
def test_what_is_stored_rebuilds_what_is_known(seed: int) -> None:
    storm = Storm(seed)
    for _step in range(STEPS):
        storm.random.choice(storm.actions)()
    storm.drain()
    head = storm.shares.head
    assert {*range(head.log_start_offset, head.log_end_offset)} <= storm.done
    assert storm.shares.state.start_offset == head.log_end_offset
    storm.shares.world.check_replay()
    storm.shares.world.check_stored()
