"""Background work for streams groups: large targets, and internal topics.

Each group has at most one computation under way. Its result counts only if the group epoch is still the same; otherwise
the next one begins at once. Internal topics are made with the rights of the member whose heartbeat found them missing.

Source: spec groups 3.5, 6.7; design 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_runtime.decision import Operation, ShardRouter
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.topic_making import TopicMaker, TopicToMake
from coordinator_runtime.worker import Worker
from group_coordinator.shard import GroupShard
from group_coordinator.streams.assigning import (
    ComputeTasks,
    assign,
    decide_result,
    decide_target_here,
    task_plan,
)
from group_coordinator.streams.computing import PlacedTasks, place
from group_coordinator.streams.group import find_group
from group_coordinator.streams.topology import InternalTopic


class TaskPlacer:
    """Handler of `ComputeTasks`."""

    def __init__(self, runtime: Runtime, router: ShardRouter, worker: Worker) -> None:
        self._runtime = runtime
        self._router = router
        self._worker = worker
        self._computing: set[str] = set()
        runtime.handle_effect(ComputeTasks, lambda wanted: self._compute(wanted.group_id))

    def _compute(self, group_id: str) -> None:
        shard: GroupShard | None = self._runtime.table.find(self._router.shard_key(group_id))
        group = None if shard is None else find_group(shard, group_id)
        if group_id in self._computing or shard is None or group is None or not group.is_target_due:
            return
        self._computing.add(group_id)
        began_us = self._runtime.clock.monotonic_us()
        placed = self._worker.run(place, task_plan(shard, group))
        placed.on_settled(partial(self._on_placed, shard, group_id, began_us))

    def _on_placed(self, shard: GroupShard, group_id: str, began_us: int, placed: Pending[PlacedTasks]) -> None:
        self._computing.discard(group_id)
        if placed.error is not None:
            # The members need a target, however the other process failed.
            self._runtime.write(Operation(shard.key, partial(decide_target_here, group_id=group_id)))
            return
        away_us = self._runtime.clock.monotonic_us() - began_us
        decide = partial(decide_result, placed=placed.result(), away_us=away_us)
        written = self._runtime.write(Operation(shard.key, decide))
        written.recover(lambda _refusal: True).on_settled(partial(self._on_written, shard, group_id))

    def _on_written(self, shard: GroupShard, group_id: str, written: Pending[bool]) -> None:
        if not written.result():
            self._runtime.write(assign(shard, group_id))


def make_topics(maker: TopicMaker, topics: Sequence[InternalTopic], context: CallContext) -> Pending[str]:
    """Make internal topics. The reply says what prevented it, for people; empty if all of them exist now."""
    wanted = [TopicToMake(each.name, each.partition_count, each.config) for each in topics]
    return maker.make(wanted, context).map(lambda errors: _why_not(topics, errors))


def _why_not(topics: Sequence[InternalTopic], errors: Sequence[CoordinatorError | None]) -> str:
    failed = [
        f"{topic.name}: {error.code.name}, {error.message}"
        for topic, error in zip(topics, errors, strict=True)
        if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS
    ]
    return "; ".join(failed)
