"""The lease of the store as the process sees it: wait for it, notice its end, hand it over. On the loop only.

The keeper renews it on a thread of its own. Here a timer on the loop checks its end. A loop that did not run for a
while notices it before it answers anything else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from coordinator_runtime.clock import Clock
from coordinator_runtime.identity import new_uuid, uuid_text
from coordinator_runtime.slate.lease import LeaseEnded, Node, Standing
from coordinator_runtime.store import StoreRefused
from coordinator_server.addresses import Address, NodeAddress, parse_listen
from coordinator_server.engines import lease_keeper
from coordinator_server.exits import CommandFailed, ExitStatus
from coordinator_server.settings.config import Config

if TYPE_CHECKING:
    from coordinator_runtime.slate.lease_keeper import LeaseKeeper

HAND_OVER_MS_MAX: Final = 5_000
"""Longest wait of an ending server for its hand-over. After that the others wait for the end of the lease."""

_log = structlog.get_logger("server")


class StoreLease:
    """The lease of this server."""

    def __init__(
        self,
        config: Config,
        address: str,
        kafka_addresses: tuple[str, ...],
        clock: Clock,
        fail: Callable[[Exception], None],
    ) -> None:
        """Begin to wait for it. `fail` is called once with the end of a lease that was held. Raises CommandFailed."""
        self._clock = clock
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._held: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._me = Node(config.node_id, uuid_text(new_uuid()), address, kafka_addresses)
        try:
            self._keeper: LeaseKeeper = lease_keeper(config, self._me, clock, self._changed, _end_process)
        except StoreRefused as refusal:
            raise CommandFailed(ExitStatus.STORE_REFUSED, str(refusal)) from refusal
        self.store_id = self._keeper.store_id
        """Identity of the store; None for one that was not made yet."""
        self._keeper.start()

    async def held(self) -> None:
        """Return once this server holds the lease. Raises CommandFailed."""
        _log.info("lease_awaited", node_id=self._me.node_id, ttl_ms=self._keeper.state.ttl_ms)
        await asyncio.shield(self._held)
        seen = self._keeper.state.seen
        _log.info("lease_held", node_id=self._me.node_id, term=0 if seen is None else seen.lease.term)

    def is_valid(self) -> bool:
        """Return True if this server may answer as the owner of its store, at this moment."""
        return self._keeper.is_valid()

    def owner(self) -> NodeAddress | None:
        """Return the server that holds the lease, unless it is this one; None if no lease is known to be valid."""
        owner = self._keeper.owner()
        return None if owner is None else _node_at(owner, owner.address)

    def kafka_owner(self, node: NodeAddress) -> NodeAddress | None:
        """Return `owner` by its address for the callers of one listener of this server. `node`: as below."""
        return self._at_listener_of(node, self._keeper.owner())

    def other_kafka_nodes(self, node: NodeAddress) -> Sequence[NodeAddress]:
        """Return the other server, if one is known, by its address for the callers of one listener of this server. To a
        server that waits, the other one is the last known owner.

        `node`: this server, by its address there. Listeners correspond by their order."""
        other = self._at_listener_of(node, self._keeper.other_server())
        return () if other is None else (other,)

    def other_nodes(self) -> Sequence[NodeAddress]:
        """Return the other server, if one is known, by its address for callers of gRPC."""
        other = self._keeper.other_server()
        return () if other is None else (_node_at(other, other.address),)

    def _at_listener_of(self, node: NodeAddress, other: Node | None) -> NodeAddress | None:
        own = str(Address(node.host, node.port))
        address = None if other is None else address_at_listener(self._me, own, other)
        return None if other is None or address is None else _node_at(other, address)

    async def hand_over(self) -> None:
        """Give the lease up, so that another server need not wait for its end. Call it once the store is closed, or was
        never opened. Waits for a few seconds at most."""
        if self._timer is not None:
            self._timer.cancel()
        # In a thread, because the keeper may wait for the bucket.
        handed_over = asyncio.to_thread(self._keeper.hand_over, HAND_OVER_MS_MAX)  # noqa: TID251
        if not await handed_over:
            advice = "another server takes it when its time is over"
            _log.warning("lease_kept", problem=self._keeper.problem, advice=advice)

    def _changed(self) -> None:
        """Look on the loop. On the thread of the keeper."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        state, problem = self._keeper.state, self._keeper.problem
        if problem is not None:
            _log.warning("lease_trouble", problem=problem, standing=state.standing.value)
        if self._keeper.refusal is not None:
            self._refuse(str(self._keeper.refusal))
        elif state.rival is not None:
            self._refuse(
                f"the server at {state.rival.address} has the same node_id = {state.me.node_id}: give each server of"
                " the store a node_id of its own"
            )
        elif state.standing is Standing.ENDED or (state.standing is Standing.HOLDING and not self.is_valid()):
            self._end()
        elif state.standing is Standing.HOLDING:
            if not self._held.done():
                self._held.set_result(None)
            self._look_again()

    def _look_again(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left_ms = self._keeper.state.valid_until_ms - self._clock.monotonic_ms()
        self._timer = self._loop.call_later(max(1, left_ms) / 1_000, self._look)

    def _refuse(self, text: str) -> None:
        if not self._held.done():
            self._held.set_exception(CommandFailed(ExitStatus.STORE_REFUSED, text))
        else:
            self._end()

    def _end(self) -> None:
        seen, problem = self._keeper.state.seen, self._keeper.problem
        reason = "the process stood still, or the object store was slow"
        if seen is not None and seen.lease.holder.run != self._me.run:
            reason = f"the server at {seen.lease.holder.address} has it"
        elif problem is not None:
            reason = f"it could not be renewed: {problem}"
        self._fail(LeaseEnded(f"the lease of the store is over ({reason})"))


def address_at_listener(me: Node, own: str, other: Node) -> str | None:
    """Return the address of another server at the listener of this one with the address `own`. Listeners correspond by
    their order. None if the other server has none there."""
    if own not in me.kafka_addresses:
        return None
    place = me.kafka_addresses.index(own)
    return other.kafka_addresses[place] if place < len(other.kafka_addresses) else None


def _node_at(node: Node, address: str) -> NodeAddress:
    host, port = parse_listen(address)
    return NodeAddress(node.node_id, host, port)


def _end_process() -> None:
    # The loop hangs, in a read of a bucket that does not answer, say. It gives no more answers.
    os._exit(ExitStatus.LEASE_ENDED)
