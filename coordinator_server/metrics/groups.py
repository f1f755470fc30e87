"""Metrics of groups and their offsets: events, counted as they become durable, and gauges from the totals that shards
keep. On the loop thread only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Final

from coordinator_protocol.assignors.values import MemberSpec, Shares, TopicSpec
from coordinator_protocol.marker import Outcome
from coordinator_runtime.clock import Clock
from coordinator_runtime.decision import Coordinator, Turn
from coordinator_runtime.runtime import Runtime
from coordinator_server.metrics.instruments import (
    AGES_SECONDS,
    MS,
    SECONDS,
    US,
    Distribution,
    Labels,
    Readings,
    Values,
    by_label,
    copies,
    counts,
    single,
)
from coordinator_server.metrics.shares import ShareNumbers
from group_coordinator.assignors import SERVER_ASSIGNORS, SIMPLE, ServerAssignor
from group_coordinator.committed.offsets import Offsets
from group_coordinator.events import (
    GroupConverted,
    GroupCreated,
    GroupRemoved,
    LeaveReason,
    MemberJoined,
    MemberLeft,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsExpired,
    OffsetsSettled,
    RebalanceCompleted,
    RebalanceFailed,
    RebalanceStarted,
    TargetComputed,
)
from group_coordinator.registry import PARTS
from group_coordinator.shard import GroupShard
from group_coordinator.state import GroupKind
from group_coordinator.streams.assignor import STICKY

KINDS: Final = tuple(kind.value for kind in GroupKind)

STATES: Final[Mapping[GroupKind, tuple[str, ...]]] = MappingProxyType(
    {part.in_shard.kind: part.state_names for part in PARTS if part.in_shard.kind is not None}
)
"""States of each kind of group."""

OnComputed = Callable[[str, int], None]
"""Callback with the name of an assignor, and its duration (us)."""


class GroupNumbers:
    """Counts of events of groups since the process started."""

    def __init__(self) -> None:
        self._created = counts(*KINDS)
        self._deleted: defaultdict[Labels, int] = counts(*product(KINDS, ("deleted", "expired")))
        self._converted = counts(*KINDS)
        self._joins = counts(*KINDS)
        self._leaves: defaultdict[Labels, int] = counts(*product(KINDS, LeaveReason))
        self._started = counts(*KINDS)
        self._failed = counts(*KINDS)
        self._rebalances = {kind: Distribution(AGES_SECONDS, MS) for kind in KINDS}
        self._assignments: dict[Labels, Distribution] = {}
        self._assignment_changes = counts(*SERVER_ASSIGNORS, SIMPLE, STICKY)
        self._commits = counts("plain", "transactional")
        self._settled = dict.fromkeys(Outcome, 0)
        self._markers = dict.fromkeys(Outcome, 0)
        self._offsets_expired = 0
        self._offsets_deleted = 0
        self.shares = ShareNumbers()
        for assignor, place in product(SERVER_ASSIGNORS, ("loop", "worker")):
            self._assignments[assignor, place] = Distribution(SECONDS, US)

    def committed(self, event: OffsetsCommitted, _turn: Turn) -> None:
        """Count committed offsets, which are durable. Those of a transaction are pending until it ends."""
        self._commits["transactional" if event.is_transactional else "plain"] += event.offset_count

    def settled(self, event: OffsetsSettled, _turn: Turn) -> None:
        """Count offsets of an ended transaction that were committed or dropped."""
        self._settled[event.outcome] += event.offset_count
        self._markers[event.outcome] += 1

    def count(self, event: object) -> None:
        """Count any other event, which is durable."""
        match event:
            case OffsetsExpired(_, offset_count):
                self._offsets_expired += offset_count
            case OffsetsDeleted(_, offset_count):
                self._offsets_deleted += offset_count
            case TargetComputed():
                self._target_computed(event)
            case _:
                self._count_life(event)

    def _count_life(self, event: object) -> None:
        match event:
            case MemberJoined(_, kind):
                self._joins[kind] += 1
            case MemberLeft(_, kind, _, reason):
                self._leaves[kind, reason] += 1
            case RebalanceStarted(_, kind):
                self._started[kind] += 1
            case RebalanceCompleted(_, kind, elapsed_ms=elapsed_ms):
                self._rebalances[kind].observe(elapsed_ms)
            case RebalanceFailed(_, kind):
                self._failed[kind] += 1
            case GroupCreated(_, kind):
                self._created[kind] += 1
            case GroupRemoved(_, kind, is_deleted):
                self._deleted[kind, "deleted" if is_deleted else "expired"] += 1
            case GroupConverted(_, is_upgrade):
                self._converted[GroupKind.CONSUMER if is_upgrade else GroupKind.CLASSIC] += 1

    def computed(self, assignor: str, elapsed_us: int) -> None:
        """Record the duration of an assignor on the loop."""
        self._assignment(assignor, "loop").observe(elapsed_us)

    def _target_computed(self, event: TargetComputed) -> None:
        self._assignment_changes[event.assignor_name] += event.changed_members
        if event.away_us is not None:
            self._assignment(event.assignor_name, "worker").observe(event.away_us)

    def _assignment(self, assignor: str, place: str) -> Distribution:
        found = self._assignments.get((assignor, place))
        if found is None:
            found = self._assignments[assignor, place] = Distribution(SECONDS, US)
        return found

    def readings(self) -> Readings:
        """Return all counts."""
        return {
            "txn_group_creations_total": by_label(self._created),
            "txn_group_deletions_total": dict(self._deleted),
            "txn_group_converted_total": by_label(self._converted),
            "txn_group_member_joins_total": by_label(self._joins),
            "txn_group_member_leaves_total": dict(self._leaves),
            "txn_group_rebalances_total": by_label(self._started),
            "txn_group_rebalances_completed_total": {
                (kind,): rebalances.copy().count for kind, rebalances in self._rebalances.items()
            },
            "txn_group_rebalances_failed_total": by_label(self._failed),
            "txn_group_rebalance_seconds": {
                (kind,): rebalances.copy() for kind, rebalances in self._rebalances.items()
            },
            "txn_group_assignment_seconds": copies(self._assignments),
            "txn_group_assignment_changes_total": by_label(self._assignment_changes),
            "txn_group_offset_commits_total": by_label(self._commits),
            "txn_group_offsets_settled_total": {
                (outcome.name.lower(),): number for outcome, number in self._settled.items()
            },
            "txn_group_offset_expirations_total": single(self._offsets_expired),
            "txn_group_offset_deletions_total": single(self._offsets_deleted),
            **self.shares.readings(),
        }

    def markers(self) -> Values:
        """Return the markers that settled offsets, for `txn_coordinator_markers_total`."""
        return {(outcome.name.lower(), "group"): number for outcome, number in self._markers.items()}


def group_gauges(runtime: Runtime, now_ms: int) -> Readings:
    """Return the numbers of groups and offsets in the shards that serve. Looks at no group, only at transactions that
    hold pending offsets."""
    shards: list[GroupShard] = runtime.shards(Coordinator.GROUPS)
    groups: dict[Labels, int] = {(kind.value, state): 0 for kind, states in STATES.items() for state in states}
    offsets = pending = 0
    open_since_ms: list[int] = []
    for shard in shards:
        for standing, number in shard.standings.durable().items():
            groups[standing.kind.value, standing.state_name] += number
        held = shard.part(Offsets).counts()
        offsets += held.offsets
        pending += held.pending_offsets
        open_since_ms += shard.part(Offsets).durable_open_since_ms()
    return {
        "txn_group_groups": groups,
        "txn_group_offsets": single(offsets),
        "txn_group_pending_offsets": single(pending),
        "txn_group_open_transactions": single(len(open_since_ms)),
        "txn_group_oldest_pending_offset_age_seconds": single(max(0, now_ms - min(open_since_ms, default=now_ms)) / MS),
    }


def measured(
    assignors: Mapping[str, ServerAssignor], clock: Clock, on_computed: OnComputed
) -> Mapping[str, ServerAssignor]:
    """Return the assignors, wrapped so that each reports its duration. Not for another process, where the report would
    be lost."""

    def of(name: str, assignor: ServerAssignor) -> ServerAssignor:
        def assign(members: Mapping[str, MemberSpec[bytes]], topics: Mapping[bytes, TopicSpec]) -> Shares[bytes]:
            began_us = clock.monotonic_us()
            shares = assignor(members, topics)
            on_computed(name, clock.monotonic_us() - began_us)
            return shares

        return assign

    return {name: of(name, assignor) for name, assignor in assignors.items()}
