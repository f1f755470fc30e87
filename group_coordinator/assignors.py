"""Assignors of the server: the strategies that a consumer group may name, each a function that computes a target.

They are the strategies that clients of classic groups have too. They work on topic ids, and each member's previous
target counts as its owned partitions. Topic names that do not exist have no id, so they never get here.

*Uniform* balances and moves as little as possible, with equal and with different subscriptions. It prefers racks if
that costs nothing. *Range* gives neighbouring partitions. It ignores racks and the previous target, because
applications that join topics rely on the partition numbers alone.

A custom strategy is a function of this signature under a name of its own. It must be pure, and every member must be in
its result. If it raises, the group keeps its target.

Share groups have one of their own, *simple* (`coordinator_protocol.assignors.simple`).

Source: spec groups 3.5, 5.2, 5.5, 5.6, 5.9; KIP-848, KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from coordinator_protocol.assignors.range import assign_range
from coordinator_protocol.assignors.simple import assign_simple as assign_simple
from coordinator_protocol.assignors.sticky import assign_sticky
from coordinator_protocol.assignors.values import MemberSpec, Shares, TopicSpec

ServerAssignor: TypeAlias = Callable[[Mapping[str, MemberSpec[bytes]], Mapping[bytes, TopicSpec]], Shares[bytes]]
"""Function from members by id and topics by topic id to the share of every member. An unchanged share may be the same
object."""

UNIFORM: Final = "uniform"
RANGE: Final = "range"
SIMPLE: Final = "simple"
"""Assignor of share groups, which have no other one."""

SERVER_ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType({UNIFORM: assign_sticky, RANGE: assign_range})
"""Assignors of the server, by the names that members send."""
