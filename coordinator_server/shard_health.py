"""Shards in gRPC's health service, so that a monitor that only uses this service learns of a failed one.

`shards` is NOT_SERVING while any shard has failed. A failed shard has a name of its own, such as `shards/groups/17`.
The services themselves stay SERVING: all other shards are served, and a server that is taken out of rotation serves
none.
"""

from __future__ import annotations

import asyncio
from typing import Final

from coordinator_runtime.decision import ShardKey
from coordinator_runtime.loader import ShardChange, ShardLoader
from coordinator_runtime.shard_table import ShardState
from coordinator_server.listeners import Listeners

SHARDS: Final = "shards"
"""The health service's name for all shards together."""


class ShardHealth:
    """Listens to the loader. Made on the running loop, after the first load."""

    def __init__(self, loader: ShardLoader, listeners: Listeners) -> None:
        self._loader = loader
        self._listeners = listeners
        self._told: set[ShardKey] = set()
        """Shards with a name of their own because they failed once."""
        self._telling: set[asyncio.Task[None]] = set()
        loader.listen(self._on_change)

    async def tell(self) -> None:
        """Report the current state of the shards to the health service."""
        failed = {standing.key for standing in self._loader.standings() if standing.state is ShardState.FAILED}
        self._told |= failed
        for key in sorted(self._told):
            await self._listeners.set_health(health_name(key), is_serving=key not in failed)
        await self._listeners.set_health(SHARDS, is_serving=not failed)

    def _on_change(self, _change: ShardChange) -> None:
        task = asyncio.get_running_loop().create_task(self.tell())
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)


def health_name(key: ShardKey) -> str:
    """Return the health service's name for one shard."""
    return f"{SHARDS}/{key.coordinator.name.lower()}/{key.number}"
