"""Passes of compaction over the main topic of a run.

What a pass goes over is copied before anything of it goes, so that the auditor knows the whole log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from coordinator_runtime.decision import Decision
from partition_log.compaction_steps import CompactionStep
from partition_log.shard import LogShard
from tests.harness.entries import stored_entries
from tests.harness.world import World
from tests.simulation.history import CompactedPart, History
from tests.simulation.translation import plain_entry

_STEP_MS: Final = 1
"""Pause between two steps of a round."""


class Compactions:
    """Adds the parts of logs that passes go over to the history."""

    def __init__(self, world: World, history: History, now: Callable[[], int]) -> None:
        self._world = world
        self._history = history
        self._now = now

    def hearing_of(self, decide: Callable[..., Decision]) -> Callable[..., Decision]:
        """Return a function that also copies the rows of a step. They are in the store until the step is durable."""

        def heard(shard: LogShard, ordinal: int, step: CompactionStep, *args: Any) -> Decision:
            head = shard.durable_head(ordinal)
            decision = decide(shard, ordinal, step, *args)
            if decision.reply and step.end_offset and head is not None:
                self._copy(ordinal, head.compaction.position, step)
            return decision

        return heard

    def work(self, steps: int) -> None:
        """Let time pass for some steps of a round."""
        for _ in range(steps):
            self._world.tick(_STEP_MS)
            self._world.flush()

    def _copy(self, ordinal: int, begin_offset: int, step: CompactionStep) -> None:
        partition = self._world.partition_of(ordinal)
        if not partition.startswith("t-"):
            return
        # The first batch may begin before the log start.
        entries = stored_entries(self._world.shelf.store, ordinal, 0, step.end_offset)
        self._history.compacted.append(
            CompactedPart(
                self._now(),
                partition,
                begin_offset,
                step.end_offset,
                step.compaction.end_offset,
                tuple(map(plain_entry, entries)),
            )
        )
