"""A server may lose power behind any commit group of the story that has rows of every kind: it starts, finishes what
was decided, and every promise that its rows make to each other holds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coordinator_runtime.incarnation import Incarnation
from coordinator_runtime.store import CommitGroup, Family
from tests.formats import making
from tests.harness.inside import WorldOptions
from tests.harness.memory_store import MemoryStore
from tests.harness.shelf import MemoryShelf
from tests.harness.world import World
from txn_coordinator.config import TwoPhase
from txnctl.stopped import known_rows

BY_THE_STORE = Family.META
"""Its rows are written beside groups: tests/store/test_crash_at_every_step.py."""

Written = list[tuple[CommitGroup, Incarnation]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """All groups of the story, each with the line of the store that it is of."""
    written: Written = []
    genuine = making.RocksStore.write

    def noting(store: making.RocksStore, groups: Sequence[CommitGroup]) -> None:
        written.extend((group, store.incarnation) for group in groups)
        genuine(store, groups)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making.RocksStore, "write", noting)
        making.make(tmp_path_factory.mktemp("story") / "made")
    return written


CRASHED_ELSEWHERE = {known_rows.RowKind(Family.PARTITIONS, "compaction")}
"""Rows of passes of compaction, whose workers the story does not have. `tests/log/test_compaction.py` crashes them at
every step."""


def test_the_story_has_rows_of_every_kind(written: Written) -> None:
    """A new kind of row belongs into tests/formats/story.txt: then it is crashed at."""
    found = {known_rows.kind_of(family, key) for group, _ in written for family, key, _value in group.mutations}
    wanted = {kind for kind in known_rows.KINDS if kind.family is not BY_THE_STORE}
    assert wanted - found == CRASHED_ELSEWHERE


@pytest.mark.slow
@pytest.mark.long
def test_what_a_power_cut_leaves_is_gone_on_with(written: Written) -> None:
    for count, (_group, incarnation) in enumerate(written, start=1):
        shelf = MemoryShelf()
        shelf.store = MemoryStore(incarnation)
        shelf.store.write([group for group, _ in written[:count]])
        shelf.store.sync()
        world = World(WorldOptions(two_phase=TwoPhase.SPLIT), shelf)
        for _ in range(2):
            world.check_stored()
            world.check_replay()
            world.settle()
            world.tick(100)
            world.settle()
