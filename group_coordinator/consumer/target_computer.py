"""Large targets, computed away from the loop.

One computation per group at a time. Its result counts only if the epoch it was computed for still stands; if it does
not, the next one begins at once, with the group as it is then.

Source: spec groups 3.4 (decision), design 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from coordinator_protocol.errors import CoordinatorError
from coordinator_runtime.decision import Operation, ShardRouter, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.worker import Worker
from group_coordinator.assignors import ServerAssignor
from group_coordinator.consumer.assigning import (
    ComputeTarget,
    assign,
    decide_result,
    decide_target_here,
    find_group,
    is_target_due,
)
from group_coordinator.consumer.computing import TargetResult, TargetTask, compute_away
from group_coordinator.consumer.events import TargetFailed
from group_coordinator.consumer.targets import target_task
from group_coordinator.shard import GroupShard


class TargetComputer:
    """Does what `ComputeTarget` asks for."""

    def __init__(
        self, runtime: Runtime, router: ShardRouter, worker: Worker, assignors: Mapping[str, ServerAssignor]
    ) -> None:
        self._runtime = runtime
        self._router = router
        self._worker = worker
        self._assignors = assignors
        """Functions that another process can be asked to call, by the names of the assignors."""
        self._computing: set[str] = set()
        runtime.handle_effect(ComputeTarget, lambda wanted: self._compute(wanted.group_id))

    def _compute(self, group_id: str) -> None:
        shard: GroupShard | None = self._runtime.table.find(self._router.shard_key(group_id))
        group = None if shard is None else find_group(shard, group_id)
        if group_id in self._computing or shard is None or group is None or not is_target_due(group):
            return
        self._computing.add(group_id)
        task = target_task(group, shard.topics, shard.config.consumer_assignors)
        began_us = self._runtime.clock.monotonic_us()
        computed = self._worker.run(compute_away, (task, self._assignors[task.assignor_name]))
        computed.on_settled(partial(self._on_computed, shard, task, began_us))

    def _on_computed(self, shard: GroupShard, task: TargetTask, began_us: int, computed: Pending[TargetResult]) -> None:
        group_id = task.group_id
        self._computing.discard(group_id)
        try:
            result = computed.result()
        except CoordinatorError as error:
            # The assignor failed, and would fail here, too. The next heartbeat asks again, of a group that may have
            # changed.
            failed = TargetFailed(group_id, task.group_epoch, task.assignor_name, error.message)
            self._runtime.on_event(failed, Turn(now_ms=self._runtime.clock.wall_ms()))
            return
        except Exception:  # noqa: BLE001  whatever became of the other process, the members need a target
            self._runtime.write(Operation(shard.key, partial(decide_target_here, group_id=group_id)))
            return
        away_us = self._runtime.clock.monotonic_us() - began_us
        written = self._runtime.write(Operation(shard.key, partial(decide_result, result=result, away_us=away_us)))
        written.recover(lambda _refusal: True).on_settled(partial(self._on_written, shard, group_id))

    def _on_written(self, shard: GroupShard, group_id: str, written: Pending[bool]) -> None:
        if not written.result():
            self._runtime.write(assign(shard, group_id))
