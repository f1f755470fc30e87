"""Settings of the server that only this front reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordinator_server.addresses import NodeAddress


def alone(_node: NodeAddress) -> Sequence[NodeAddress]:
    """Return the other servers of a store that has one."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSettings:
    """Values that handlers need besides the core."""

    cluster_id: str
    """Identity of the store, which clients take for that of a cluster."""
    auto_create_topics: bool = False
    """True if Metadata creates topics that are missing, for clients that allow it."""
    auto_create_partitions: int = 1
    """Number of partitions of a topic whose creator names none."""
    others: Callable[[NodeAddress], Sequence[NodeAddress]] = alone
    """Returns the servers that wait for the store of this one, as clients of a listener of this server know them."""
