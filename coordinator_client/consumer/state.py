"""Statuses of a member, and two tables of its legal steps: one per group protocol.

A member of a group of the consumer protocol (KIP-848):
```
UNSUBSCRIBED --> JOINING --> RECONCILING <--> ACKNOWLEDGING --> STABLE --> RECONCILING
     ^              ^            |                                |
     |              +-- FENCED <-+-- (from any of the four) ------+    (lost callback, then it joins again)
     |              +-- STALE  <-+-- poll was not called in time  +    (it left; the next poll joins again)
     +-- LEAVING <-- PREPARE_LEAVING <-- unsubscribe or close          FATAL <-- from any of them
```
A member of a classic group:
```
UNJOINED --> PREPARING_REBALANCE --> COMPLETING_REBALANCE --> STABLE --> PREPARING_REBALANCE
    ^            | (join sent)           | (sync sent)           |
    +------------+-----------------------+-----------------------+
```
Source: spec groups 7.2 and 7.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class MemberStatus(StrEnum):
    """Status of a member in the consumer protocol."""

    UNSUBSCRIBED = "UNSUBSCRIBED"
    """The consumer is not a member of a group."""
    JOINING = "JOINING"
    """The first heartbeat, with epoch 0, is in flight."""
    RECONCILING = "RECONCILING"
    """The member knows its new assignment, and gives up all other partitions."""
    ACKNOWLEDGING = "ACKNOWLEDGING"
    """The member owns its assignment, and reports that to the group."""
    STABLE = "STABLE"
    """Only heartbeats are due."""
    FENCED = "FENCED"
    """The group removed the member; it owns nothing, and joins again after the listener was called."""
    STALE = "STALE"
    """`poll` was not called in time: the member left, and joins again with the next `poll`."""
    PREPARE_LEAVING = "PREPARE_LEAVING"
    """Before leaving, the member commits and calls the listener for the revoked partitions."""
    LEAVING = "LEAVING"
    """The last heartbeat is in flight."""
    FATAL = "FATAL"
    """The group refuses the member for a reason that repeating cannot change."""


_M = MemberStatus
_ACTIVE: Final = frozenset({_M.FENCED, _M.STALE, _M.PREPARE_LEAVING, _M.FATAL})

MEMBER_STEPS: Final[Mapping[MemberStatus, frozenset[MemberStatus]]] = MappingProxyType(
    {
        _M.UNSUBSCRIBED: frozenset({_M.JOINING}),
        _M.JOINING: _ACTIVE | {_M.RECONCILING, _M.STABLE},
        _M.RECONCILING: _ACTIVE | {_M.ACKNOWLEDGING},
        _M.ACKNOWLEDGING: _ACTIVE | {_M.RECONCILING, _M.STABLE},
        _M.STABLE: _ACTIVE | {_M.RECONCILING},
        _M.FENCED: frozenset({_M.JOINING, _M.PREPARE_LEAVING}),
        _M.STALE: frozenset({_M.JOINING, _M.PREPARE_LEAVING}),
        _M.PREPARE_LEAVING: frozenset({_M.LEAVING, _M.FATAL}),
        _M.LEAVING: frozenset({_M.UNSUBSCRIBED}),
        _M.FATAL: frozenset({_M.UNSUBSCRIBED}),
    }
)


class ClassicStatus(StrEnum):
    """Status of a member of a classic group."""

    UNJOINED = "UNJOINED"
    """Not a member, or no longer; joins with the next poll."""
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    """JoinGroup is under way, after the member gave up the partitions that it had to."""
    COMPLETING_REBALANCE = "COMPLETING_REBALANCE"
    """JoinGroup was answered and SyncGroup is under way; heartbeats run."""
    STABLE = "STABLE"
    """The member knows its assignment."""


_C = ClassicStatus

CLASSIC_STEPS: Final[Mapping[ClassicStatus, frozenset[ClassicStatus]]] = MappingProxyType(
    {
        _C.UNJOINED: frozenset({_C.PREPARING_REBALANCE}),
        _C.PREPARING_REBALANCE: frozenset({_C.COMPLETING_REBALANCE, _C.UNJOINED}),
        _C.COMPLETING_REBALANCE: frozenset({_C.STABLE, _C.UNJOINED, _C.PREPARING_REBALANCE}),
        _C.STABLE: frozenset({_C.PREPARING_REBALANCE, _C.UNJOINED}),
    }
)


def member_step(status: MemberStatus, to: MemberStatus) -> MemberStatus:
    """Return the new status; an illegal step is a bug of this package."""
    assert to in MEMBER_STEPS[status], f"a member cannot go from {status} to {to}"
    return to


def classic_step(status: ClassicStatus, to: ClassicStatus) -> ClassicStatus:
    """Return the new status; an illegal step is a bug of this package."""
    assert to in CLASSIC_STEPS[status], f"a classic member cannot go from {status} to {to}"
    return to
