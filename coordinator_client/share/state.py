"""Legal steps of a member of a share group (KIP-932). It takes its assignment at once: no other member gives it up.

```
UNSUBSCRIBED --> JOINING --> STABLE
     ^             ^  ^        |
     |             |  +- FENCED (its records are lost, and it joins again) <- from JOINING, STABLE
     |             +---- STALE  (it left, and the next poll joins again)   <- from JOINING, STABLE
     +-- LEAVING <-- from any of them                          FATAL <-- from JOINING, STABLE
```
Source: spec groups 6.1, 7.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class ShareStatus(StrEnum):
    """Status of a member of a share group."""

    UNSUBSCRIBED = "UNSUBSCRIBED"
    """The consumer is not a member of a group."""
    JOINING = "JOINING"
    """The first heartbeat, with epoch 0, is in flight."""
    STABLE = "STABLE"
    """The member may fetch records of its assignment."""
    FENCED = "FENCED"
    """The group removed the member; it holds nothing, and joins again at once."""
    STALE = "STALE"
    """`poll` was not called in time: the member left, and joins again with the next `poll`."""
    LEAVING = "LEAVING"
    """The last heartbeat is in flight."""
    FATAL = "FATAL"
    """The group refuses the member for a reason that repeating cannot change."""


_S = ShareStatus

SHARE_STEPS: Final[Mapping[ShareStatus, frozenset[ShareStatus]]] = MappingProxyType(
    {
        _S.UNSUBSCRIBED: frozenset({_S.JOINING}),
        _S.JOINING: frozenset({_S.STABLE, _S.FENCED, _S.STALE, _S.LEAVING, _S.FATAL}),
        _S.STABLE: frozenset({_S.FENCED, _S.STALE, _S.LEAVING, _S.FATAL}),
        _S.FENCED: frozenset({_S.JOINING}),
        _S.STALE: frozenset({_S.JOINING, _S.LEAVING}),
        _S.LEAVING: frozenset({_S.UNSUBSCRIBED}),
        _S.FATAL: frozenset({_S.UNSUBSCRIBED}),
    }
)


def share_step(status: ShareStatus, to: ShareStatus) -> ShareStatus:
    """Return the new status; an illegal step is a bug of this package."""
    assert to in SHARE_STEPS[status], f"a member of a share group cannot go from {status} to {to}"
    return to
