"""Counts of offsets and groups, kept step by step, agree with a look at all of them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.groups.counting import check_counts
from tests.harness.committed_offsets import ABORT, COMMIT, Producer
from tests.harness.group_world import group_world

STEPS = 60
GROUPS = ("a", "b", "c")
PARTITIONS = ("foo-0", "foo-1", "bar-0", "zar-0")


class Storm:
    """One seeded run: offsets are committed, pended, settled, deleted, forgotten with their topic or because of their
    age, and groups with them; the process crashes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = group_world()
        self.producers = [self.world.offsets.producer(name) for name in ("first", "second")]
        self.actions: list[Callable[[], object]] = [
            lambda: self.world.offsets.commit(self.offsets(), group_id=self.group()),
            self.world.flush,
            lambda: self.producer().commits(self.offsets(), group_id=self.group()),
            lambda: self.producer().commits(self.offsets(), group_id=self.group()),
            self.end,
            lambda: self.world.offsets.deletes(*self.offsets(), group_id=self.group()),
            lambda: self.world.groups.delete(self.group()),
            lambda: self.world.consumers.member("m", group_id=self.group()).joins("foo"),
            self.replace_topic,
            lambda: self.world.pass_time(self.random.choice((1, 24 * 3_600_000))),
            self.crash,
        ]

    def group(self) -> str:
        return self.random.choice(GROUPS)

    def offsets(self) -> dict[str, int]:
        names = self.random.sample(PARTITIONS, self.random.randint(1, 3))
        return {name: self.random.randrange(1_000) for name in names}

    def producer(self) -> Producer:
        return self.random.choice(self.producers)

    def end(self) -> None:
        """A producer commits or aborts; a new instance of it goes on."""
        producer = self.producer()
        producer.end(self.random.choice((COMMIT, ABORT)))
        producer.init()

    def replace_topic(self) -> None:
        self.world.delete_topic("zar")
        self.world.settle()
        self.world.create_topic("zar", 1)

    def crash(self) -> None:
        self.world.crash(kept_groups=self.random.randrange(3))
        self.world.settle()
        for producer in self.producers:
            producer.init()

    def step(self) -> None:
        self.random.choice(self.actions)()
        check_counts(self.world)


@pytest.mark.parametrize("seed", range(3))
def test_counts_hold_whatever_happens(seed: int) -> None:
    storm = Storm(seed)
    for _step in range(STEPS):
        storm.step()
