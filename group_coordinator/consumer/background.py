"""Background work for consumer groups: large targets (`group_coordinator.target_computer`), and patterns.

Each group has at most one resolution under way. A resolution covers all patterns of a group, a bounded number of topics
at a time, and is not repeated within a short pause. Patterns never match internal topics, or topics that the caller may
not see.

Source: spec groups 3.4 (step 5 and decision), 3.11; design 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import Final

from coordinator_protocol.names import RESERVED_PREFIX
from coordinator_runtime.decision import Operation, ShardRouter
from coordinator_runtime.patterns import Pattern
from coordinator_runtime.ports import Authorizer, CallContext, Permission, ResourceType, TopicMetadata
from coordinator_runtime.runtime import Runtime
from group_coordinator.assignors import ServerAssignor
from group_coordinator.consumer.assigning import (
    ComputeTarget,
    assign,
    decide_result,
    decide_target_here,
    find_group,
)
from group_coordinator.consumer.computing import compute_away
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.consumer.regexes import ResolveRegexes, decide_resolved, is_resolution_due
from group_coordinator.consumer.state import ResolvedRegex
from group_coordinator.consumer.targets import target_task
from group_coordinator.shard import GroupShard
from group_coordinator.target_computer import AskedTarget, TargetRules


def target_rules(assignors: Mapping[str, ServerAssignor]) -> TargetRules:
    """Return the rules of `TargetComputer` for consumer groups. `assignors` are functions that the worker process can
    call, by the names of the assignors."""

    def asked(shard: GroupShard, group_id: str) -> AskedTarget | None:
        group = find_group(shard, group_id)
        if group is None or not group.is_target_due:
            return None
        task = target_task(group, shard.topics, shard.config.consumer_assignors)
        return AskedTarget(task.group_epoch, task.assignor_name, (task, assignors[task.assignor_name]))

    return TargetRules(
        effect=ComputeTarget,
        asked=asked,
        compute=compute_away,
        decide_result=decide_result,
        decide_here=decide_target_here,
        assign=assign,
    )


NAMES_PER_STEP: Final = 1_000
"""Number of topic names per step: about a millisecond of the loop."""

PAUSE_MS: Final = 100
"""Pause between two resolutions of a group (ms). Kafka waits 10,000, to spare its thread, and since its members do not
learn of a change at once."""


class RegexResolver:
    """Resolver of the patterns of all groups here."""

    def __init__(self, runtime: Runtime, *, router: ShardRouter, topics: TopicMetadata, authorizer: Authorizer) -> None:
        self._runtime = runtime
        self._router = router
        self._topics = topics
        self._authorizer = authorizer
        self._readers: dict[str, CallContext] = {}
        """Caller of the last heartbeat that found a resolution due, by group. There is none after a start; the first
        heartbeat then resolves."""
        self._under_way: dict[str, bool] = {}
        """Groups in resolution or in the pause after it. True = it must be repeated."""
        runtime.handle_effect(ResolveRegexes, lambda wanted: self._begin(wanted.group_id))

    def look(self, group_id: str, context: CallContext) -> None:
        """Resolve the group's patterns if necessary, after a heartbeat. Only topics that this caller may see count."""
        shard, group = self._find(group_id)
        if shard is None or group is None or not group.uses_regexes:
            return
        if is_resolution_due(shard, group, self._runtime.clock.wall_ms()):
            self._readers[group_id] = context
            self._begin(group_id)

    def _find(self, group_id: str) -> tuple[GroupShard | None, ConsumerGroup | None]:
        shard: GroupShard | None = self._runtime.table.find(self._router.shard_key(group_id))
        return shard, None if shard is None else find_group(shard, group_id)

    def _begin(self, group_id: str) -> None:
        if group_id not in self._readers:
            return
        if group_id in self._under_way:
            self._under_way[group_id] = True
            return
        self._under_way[group_id] = False
        self._go_on(group_id, self._resolve(group_id), 0)

    def _go_on(self, group_id: str, resolution: Iterator[int], pause_ms: int) -> None:
        self._runtime.arm(("regex", group_id), pause_ms, partial(self._step, group_id, resolution))

    def _step(self, group_id: str, resolution: Iterator[int]) -> None:
        pause_ms = next(resolution, None)
        if pause_ms is not None:
            self._go_on(group_id, resolution, pause_ms)
        elif self._under_way.pop(group_id):
            self._begin(group_id)

    def _resolve(self, group_id: str) -> Iterator[int]:
        """Resolve the patterns of a group. Yields the pause before its next step (ms)."""
        shard, group = self._find(group_id)
        if shard is None or group is None or not group.uses_regexes:
            del self._readers[group_id]
            return
        context = self._readers[group_id]
        names = sorted(name for name in self._topics.topic_names() if self._may_know(name, context))
        catalog_hash = _hash(names)
        now_ms = self._runtime.clock.wall_ms()
        resolved = {}
        for regex in group.regexes_in_use():
            known = group.regexes.get(regex)
            if known is not None and known.catalog_hash == catalog_hash:
                resolved[regex] = known
                continue
            pattern, found = Pattern(regex), list[str]()
            for start in range(0, len(names), NAMES_PER_STEP):
                found += filter(pattern.matches, names[start : start + NAMES_PER_STEP])
                yield 0
            resolved[regex] = ResolvedRegex(frozenset(found), catalog_hash, now_ms)
        decide = partial(decide_resolved, group_id=group_id, resolved=resolved)
        self._runtime.write(Operation(shard.key, decide))
        # Patterns and topics that were added meanwhile are handled after a pause.
        yield PAUSE_MS

    def _may_know(self, topic: str, context: CallContext) -> bool:
        return not topic.startswith(RESERVED_PREFIX) and self._authorizer.is_allowed(
            context, Permission.DESCRIBE, ResourceType.TOPIC, topic
        )


def _hash(names: list[str]) -> int:
    """Return a 64-bit hash that changes when a name is added or removed. The same in every process."""
    return int.from_bytes(blake2b("\n".join(names).encode(), digest_size=8).digest(), "big")
