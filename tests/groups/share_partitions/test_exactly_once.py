"""Workers that acknowledge in the transaction of their results process each record exactly once.

They abort, die, are fenced and time out, the server crashes between any two commit groups, and shards come and go.

Source: spec groups 6.5; 10.5, I9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from itertools import product
from random import Random
from typing import Any, Final

import pytest

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.marker import Outcome
from coordinator_runtime.pending import Pending
from group_coordinator.share_partitions.acquiring import Terms
from tests.harness.group_world import group_world
from tests.harness.share_groups import ShareMember
from tests.harness.share_partitions import Shares
from tests.harness.world import World
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity

GROUP: Final = "workers"
PARTITIONS: Final = ("t-0", "t-1")
RECORDS: Final = 12
STEPS: Final = 120
TERMS: Final = Terms(delivery_count_limit=31)
"""No record is given up in such a short run."""
Job = Generator[Pending[Any], Any, None]


class Worker:
    """One program: it takes records, writes a result of each, acknowledges, and ends the transaction."""

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self.name = name
        self._identity: Identity | None = None
        self._job: Job | None = None
        self._asked: Pending[Any] | None = None

    def forsaken(self) -> None:
        """The server died, or the worker did: its next life is a newer instance."""
        self._identity = self._job = self._asked = None

    def step(self) -> None:
        """Go on as soon as the last call is answered."""
        if self._asked is not None and not self._asked.is_settled:
            return
        try:
            if self._job is None:
                self._job = self._work()
                self._asked = next(self._job)
            elif self._asked is not None:
                self._asked = self._job.send(self._asked.result())
        except StopIteration:
            self._job = self._asked = None
        except CoordinatorError:
            self.forsaken()

    def _work(self) -> Job:
        world, rng, name = self._run.world, self._run.rng, self.name
        if self._identity is None:
            self._identity = yield world.init(name, timeout_ms=20_000)
        identity = self._identity
        member = ShareMember(world, name, group_id=GROUP)
        member.joins("t")
        shares = self._run.shares(rng.choice(PARTITIONS))
        taken = shares.acquire(name, rng.choice((1, 3)))
        if not taken:
            return
        results = [f"{shares.partition}:{offset}" for offset in taken]
        produced = yield world.produce(name, identity, "results-0", results, sequence=0)
        if produced.error is not None:
            raise produced.error
        batches = [(offset, offset, (rng.choice((1, 1, 1, 3)),)) for offset in taken]
        yield shares.acknowledging_in_transaction(name, identity, member, *batches)
        outcome = Outcome.COMMIT if rng.random() < self._run.commits else Outcome.ABORT
        ended = yield world.end(name, identity, outcome)
        self._identity = ended.next_identity


class Run:
    """A server with two workers."""

    def __init__(self, seed: int, two_phase: TwoPhase, *, lane: bool) -> None:
        self.rng = Random(seed)
        self.commits = 0.6
        self.world: World = group_world(topics={"t": 2, "results": 1}, two_phase=two_phase, lane=lane)
        self.workers = [Worker(self, name) for name in ("w1", "w2")]
        ShareMember(self.world, "w1", group_id=GROUP).joins("t")
        for partition in PARTITIONS:
            shares = self.shares(partition)
            shares.produce(*[1] * RECORDS)
            shares.resolve(0)
        self.world.settle()

    def shares(self, partition: str) -> Shares:
        return Shares(self.world, partition, GROUP, TERMS)

    def step(self) -> None:
        """Something happens, mostly to a worker."""
        world, rng = self.world, self.rng
        draw = rng.random()
        if draw < 0.55:
            rng.choice(self.workers).step()
        elif draw < 0.75:
            world.flush(rng.choice((1, None)))
        elif draw < 0.85:
            world.seal()
        elif draw < 0.9:
            world.tick(rng.choice((100, 5_000, 25_000)))
        elif draw < 0.93:
            rng.choice(self.workers).forsaken()
        elif draw < 0.96:
            self._reload(rng.choice(("share:t-0", "share:t-1", "t-0", "w1", "results-0")))
        else:
            world.crash(kept_groups=rng.choice((0, 0, 1, 2)))
            world.settle()
            for worker in self.workers:
                worker.forsaken()

    def _reload(self, name: str) -> None:
        """A shard goes, something happens meanwhile, and it comes back."""
        self.world.unload(name)
        self.world.flush()
        self.world.load(name)
        self.world.inside.driver.read_all()
        self.world.settle()

    def finish(self) -> None:
        """All goes well from now on."""
        self.commits = 1.0
        for worker in self.workers:
            worker.forsaken()
        self.world.pass_time(70_000)
        for _round in range(40 * RECORDS):
            self.workers[0].step()
            self.world.settle()
            if all(self.shares(each).state.start_offset == RECORDS for each in PARTITIONS):
                return
        raise AssertionError("the workers are never done")


@pytest.mark.parametrize(("two_phase", "lane"), [*product(TwoPhase, (True, False))])
@pytest.mark.parametrize("seed", range(6))
def test_each_record_is_processed_exactly_once(seed: int, two_phase: TwoPhase, *, lane: bool) -> None:
    run = Run(seed, two_phase, lane=lane)
    for _step in range(STEPS):
        run.step()
    run.finish()
    run.world.settle()
    found = Counter(entry.value for entry in run.world.read("results-0").entries)
    assert found == Counter(f"{partition}:{offset}" for partition in PARTITIONS for offset in range(RECORDS))
    assert run.world.inside.core.shares.all_pending() == []
    run.world.check_replay()
    run.world.check_stored()
