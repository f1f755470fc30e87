"""Changes of a group's topics: patterns match other topics, or topics are created, deleted or extended.

Source: spec groups 3.4 (step 5), 3.11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator_runtime.decision import Decision, Effect, Operation, Record, Turn
from group_coordinator.consumer import records
from group_coordinator.consumer.assigning import assign_soon, bump, find_group, refresh
from group_coordinator.consumer.group import ConsumerGroup
from group_coordinator.consumer.state import ResolvedRegex
from group_coordinator.shard import GroupShard


@dataclass(frozen=True, slots=True)
class ResolveRegexes:
    """Effect: match the patterns of a group against the existing topics, then `decide_resolved`."""

    group_id: str


def is_resolution_due(shard: GroupShard, group: ConsumerGroup, now_ms: int) -> bool:
    """Return True if a pattern of the group is unresolved, the topics changed since the last check, or that check is
    too old."""
    checked_ms = group.regexes_checked_ms
    if group.has_unresolved_regex or checked_ms is None:
        return True
    return not 0 <= now_ms - checked_ms < shard.config.consumer_regex_refresh_interval_ms


def decide_resolved(shard: GroupShard, turn: Turn, *, group_id: str, resolved: Mapping[str, ResolvedRegex]) -> Decision:
    """Store the topics that the patterns match; patterns no longer in use are ignored. The group gets a new epoch only
    if the topics of a pattern changed."""
    group = find_group(shard, group_id)
    if group is None:
        return Decision()
    in_use = group.regexes_in_use()
    values: list[object] = []
    is_changed = False
    for regex, result in resolved.items():
        if regex not in in_use:
            continue
        before = group.regexes.get(regex)
        if before is None or before.catalog_hash != result.catalog_hash:
            values.append(records.RegexResolved(group_id, regex, result))
        is_changed |= result.topics != (frozenset() if before is None else before.topics)
    if in_use <= resolved.keys():
        values.append(records.RegexesChecked(group_id, turn.now_ms))
    return Decision(
        records=tuple(Record(shard.key, value, "resolve patterns") for value in values),
        joins=(bump(shard, group_id, cause="patterns match other topics"),) if is_changed else (),
        effects=(assign_soon(shard, group_id),) if is_changed else (),
    )


def decide_topics_changed(shard: GroupShard, turn: Turn, *, names: frozenset[str]) -> Decision:
    """Give the subscribers of these topics, which were created, deleted or extended, a new target. Groups with patterns
    resolve them again."""
    stale: list[Record] = []
    joins: list[Operation] = []
    effects: list[Effect] = []
    for group_id, group in shard.groups.items():
        if not isinstance(group, ConsumerGroup) or group.is_empty:
            continue
        if group.uses_regexes:
            stale.append(Record(shard.key, records.RegexesChecked(group_id, None), "topics changed"))
            effects.append(ResolveRegexes(group_id))
        if any(group.is_subscribed_to(name) for name in names):
            joins.append(refresh(shard, group_id))
            effects.append(assign_soon(shard, group_id))
    return Decision(records=tuple(stale), joins=tuple(joins), effects=tuple(effects))
