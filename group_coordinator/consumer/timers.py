"""Names of the timers of a member, and how they go with it. `removal` says what they are for."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_runtime.decision import CancelTimer
from group_coordinator.classic.state import session_key

TimerKey = tuple[str, str, str]


def rebalance_key(group_id: str, member_id: str) -> TimerKey:
    return "rebalance", group_id, member_id


def join_key(group_id: str, member_id: str) -> TimerKey:
    return "join", group_id, member_id


def sync_key(group_id: str, member_id: str) -> TimerKey:
    return "sync", group_id, member_id


def cancelled_timers(group_id: str, member_ids: Iterable[str]) -> tuple[CancelTimer, ...]:
    """All of those of members that are gone."""
    keys = (session_key, rebalance_key, join_key, sync_key)
    return tuple(CancelTimer(key(group_id, member_id)) for member_id in member_ids for key in keys)
