"""The assignors of the server: what a consumer group may name as its assignor, and how its target is then computed.

They are the strategies that clients of classic groups have too, on topic ids, with each member's previous target as
what it owns. Names that do not exist are no ids, so they never come here. *Uniform* balances and moves as little as
possible, with equal and with different subscriptions, and prefers racks where that costs nothing. *Range* gives
neighbouring partitions and never looks at racks or at what was before: those who join topics rely on the numbers alone.

A strategy of somebody's own is a function of this signature under a name of its own. It must be pure, and every member
must be in its answer; if it raises, the group keeps its target.

Source: spec groups 3.5, 5.2, 5.5, 5.6; KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from coordinator_protocol.assignors.range import assign_range
from coordinator_protocol.assignors.sticky import assign_sticky
from coordinator_protocol.assignors.values import MemberSpec, Shares, TopicSpec

ServerAssignor: TypeAlias = Callable[[Mapping[str, MemberSpec[bytes]], Mapping[bytes, TopicSpec]], Shares[bytes]]
"""Members by id and topics by topic id in, the share of every member out. A share that stays may be the same object."""

UNIFORM: Final = "uniform"
RANGE: Final = "range"

SERVER_ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType({UNIFORM: assign_sticky, RANGE: assign_range})
"""The assignors of the server, by the names that members send."""
