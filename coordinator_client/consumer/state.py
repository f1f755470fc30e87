"""The statuses of a member, and the two tables of a member's legal steps: one per group protocol.

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
    """The status of a member in the consumer protocol."""

    UNSUBSCRIBED = "UNSUBSCRIBED"
    """It is in no group."""
    JOINING = "JOINING"
    """The first heartbeat, with epoch 0, is in flight."""
    RECONCILING = "RECONCILING"
    """It was told what it may own, and gives up the rest."""
    ACKNOWLEDGING = "ACKNOWLEDGING"
    """It owns what it was told, and tells the group so."""
    STABLE = "STABLE"
    """There is nothing to do but to send heartbeats."""
    FENCED = "FENCED"
    """The group removed it; it owns nothing, and joins again once the application was told."""
    STALE = "STALE"
    """`poll` was not called in time; it left, and joins again with the next `poll`."""
    PREPARE_LEAVING = "PREPARE_LEAVING"
    """It commits and tells the application what is revoked, before it leaves."""
    LEAVING = "LEAVING"
    """The last heartbeat is in flight."""
    FATAL = "FATAL"
    """The group refuses it for a reason that repeating cannot change."""


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
    """The status of a member of a classic group."""

    UNJOINED = "UNJOINED"
    """Not a member, or not any more; it joins when it is polled."""
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    """JoinGroup is on its way; what had to be given up was."""
    COMPLETING_REBALANCE = "COMPLETING_REBALANCE"
    """JoinGroup was answered, SyncGroup is on its way; heartbeats run."""
    STABLE = "STABLE"
    """It knows what it owns."""


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
