"""A server that waits for the lease of its store, on a manual clock and without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coordinator_runtime.slate import lease as rules
from coordinator_runtime.slate.lease import LeaseState, Node, OwnerLease
from coordinator_server.addresses import NodeAddress
from coordinator_server.build import Outside
from coordinator_server.settings.config import Config
from coordinator_server.waiting import WaitingServer
from tests.harness.manual_clock import ManualClock

TTL_MS = 9_000
OWNER = NodeAddress(1, "owner.test", 9092)
WAITS = NodeAddress(2, "kafka.test", 9092)


class SeenLease:
    """Implements `KnownOwner` by a lease that was seen when this was made, or that nothing was seen of."""

    store_id = "id-of-the-store"

    def __init__(self, clock: ManualClock, *, is_held: bool = True) -> None:
        self._clock = clock
        holder = Node(OWNER.node_id, "run-of-the-owner", f"{OWNER.host}:{OWNER.port}")
        state = LeaseState(Node(WAITS.node_id, "run-of-this", ""), TTL_MS)
        lease = OwnerLease(holder, 1, TTL_MS, 1)
        self._state = rules.was_read(state, (lease, "tag") if is_held else None, clock.monotonic_ms())

    def owner(self) -> NodeAddress | None:
        return None if rules.owner_of(self._state, self._clock.monotonic_ms()) is None else OWNER

    def kafka_owner(self, _node: NodeAddress) -> NodeAddress | None:
        return self.owner()

    def other_kafka_nodes(self, _node: NodeAddress) -> Sequence[NodeAddress]:
        return [] if self._state.former is None else [OWNER]


def waiting_server(clock: ManualClock, *, is_held: bool = True) -> WaitingServer:
    """Call it in the loop of the server."""
    config = Config.model_validate({"data_dir": Path("in-memory"), "shard_count": 4, "node_id": WAITS.node_id})
    return WaitingServer(config, clock, Outside(), WAITS, SeenLease(clock, is_held=is_held))
