"""Targets that are computed away from the loop, for each kind of group with epochs.

A group has at most one computation under way. Its result counts only if the group epoch is still the same. Otherwise
the next one begins at once, with the group as it is then (decision 9).

Source: spec groups 3.4 (step 5 and decision); design 8.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError
from coordinator_runtime.decision import Decision, Operation, ShardRouter, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.worker import Worker
from group_coordinator.computing import TargetResult
from group_coordinator.events import TargetFailed
from group_coordinator.shard import GroupShard


class AskedTarget(NamedTuple):
    """A computation that a group needs now."""

    group_epoch: int
    assignor_name: str
    argument: Any
    """Argument of `TargetRules.compute`."""


class TargetRules(Struct, frozen=True, kw_only=True):
    """Rules of one kind of group for targets that are computed elsewhere."""

    effect: type
    """Effect of a decision that asks for a target. It has the `group_id`."""
    asked: Callable[[GroupShard, str], AskedTarget | None]
    """Returns the computation that a group needs; None if the group is gone, or has its target."""
    compute: Callable[[Any], TargetResult]
    """Computes the target, in a process that can import it by its name."""
    decide_result: Callable[..., Decision]
    """Uses a result: `decide_result(shard, turn, result=result, away_us=away_us)`. The reply is False if it came too
    late."""
    decide_here: Callable[..., Decision]
    """Computes the target on the loop: `decide_here(shard, turn, group_id=group_id)`."""
    assign: Callable[[GroupShard, str], Operation]
    """Returns the operation that gives a group the target of its epoch, or asks for it."""


class TargetComputer:
    """Handles the effect of one kind of group."""

    def __init__(self, runtime: Runtime, router: ShardRouter, worker: Worker, rules: TargetRules) -> None:
        self._runtime = runtime
        self._router = router
        self._worker = worker
        self._rules = rules
        self._computing: set[str] = set()
        runtime.handle_effect(rules.effect, lambda wanted: self._compute(wanted.group_id))

    def _compute(self, group_id: str) -> None:
        shard: GroupShard | None = self._runtime.table.find(self._router.shard_key(group_id))
        if group_id in self._computing or shard is None:
            return
        asked = self._rules.asked(shard, group_id)
        if asked is None:
            return
        self._computing.add(group_id)
        began_us = self._runtime.clock.monotonic_us()
        computed = self._worker.run(self._rules.compute, asked.argument)
        computed.on_settled(partial(self._on_computed, shard, group_id, asked, began_us))

    def _on_computed(
        self, shard: GroupShard, group_id: str, asked: AskedTarget, began_us: int, computed: Pending[TargetResult]
    ) -> None:
        self._computing.discard(group_id)
        rules = self._rules
        try:
            result = computed.result()
        except CoordinatorError as error:
            # The assignor failed, and would fail here too. The next heartbeat tries again, with a group that may have
            # changed.
            failed = TargetFailed(group_id, asked.group_epoch, asked.assignor_name, error.message)
            self._runtime.on_event(failed, Turn(now_ms=self._runtime.clock.wall_ms()))
            return
        except Exception:  # noqa: BLE001  the members need a target, however the other process failed
            self._runtime.write(Operation(shard.key, partial(rules.decide_here, group_id=group_id)))
            return
        away_us = self._runtime.clock.monotonic_us() - began_us
        decide = partial(rules.decide_result, result=result, away_us=away_us)
        written = self._runtime.write(Operation(shard.key, decide))
        written.recover(lambda _refusal: True).on_settled(partial(self._on_written, shard, group_id))

    def _on_written(self, shard: GroupShard, group_id: str, written: Pending[bool]) -> None:
        if not written.result():
            self._runtime.write(self._rules.assign(shard, group_id))
