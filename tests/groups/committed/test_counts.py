"""What is counted of offsets and groups, step by step, is what a look at all of them finds."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tests.groups.committed.room import ABORT, COMMIT, OffsetRoom, Producer
from tests.groups.counting import check_counts

STEPS = 60
GROUPS = ("a", "b", "c")
PARTITIONS = ("foo-0", "foo-1", "bar-0", "zar-0")


class Storm:
    """One seeded run: offsets are committed, pended, settled, deleted, forgotten with their topic or because of their
    age, and groups with them; the process crashes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.room = OffsetRoom()
        self.producers = [self.room.producer(name) for name in ("first", "second")]
        self.actions: list[Callable[[], object]] = [
            lambda: self.room.commit(self.offsets(), group_id=self.group()),
            self.room.flush,
            lambda: self.producer().commits(self.offsets(), group_id=self.group()),
            lambda: self.producer().commits(self.offsets(), group_id=self.group()),
            self.end,
            lambda: self.room.deletes(*self.offsets(), group_id=self.group()),
            lambda: self.room.deletes_group(self.group()),
            lambda: self.room.member("m", group_id=self.group()).joins("foo"),
            self.replace_topic,
            lambda: self.room.tick(self.random.choice((1, 24 * 3_600_000))),
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
        self.room.delete_topic("zar")
        self.room.create_topic("zar", 1)

    def crash(self) -> None:
        self.room.crash(kept_groups=self.random.randrange(3))
        for producer in self.producers:
            producer.init()

    def step(self) -> None:
        self.random.choice(self.actions)()
        check_counts(self.room)


@pytest.mark.parametrize("seed", range(3))
def test_counts_hold_whatever_happens(seed: int) -> None:
    storm = Storm(seed)
    for _step in range(STEPS):
        storm.step()
