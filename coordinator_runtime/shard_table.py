"""The shards of this server with their states, and the refusals of those that do not serve.

    unloaded ----> loading ----> active ----> unloading ----> unloaded
                   |     ^          |
                   v     |          +-- load again --> loading
                   failed+

Answers by state (spec log-and-runtime 4.1, spec transactions 2 and 7):
- active: serves.
- loading: COORDINATOR_LOAD_IN_PROGRESS, so the client asks here again.
- unloaded, unloading: NOT_COORDINATOR, so the client finds the new coordinator.
- failed: KAFKA_STORAGE_ERROR, with the reason. No server serves it until it is repaired, so a retry is useless.

Clients ask for a partition by its leader and not by its coordinator. Unless the shard failed, such a call is refused
with NOT_LEADER_OR_FOLLOWER, as in Kafka. Within an operation on another shard, whose caller asked for a coordinator, it
gets the answers above (spec transactions 2.10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, Shard, ShardKey


class ShardState(StrEnum):
    """State of a shard."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    """Being read back, or waiting for that, or for its coordinator epoch to be durable."""
    ACTIVE = "active"
    UNLOADING = "unloading"
    """Takes no more operations; what it has staged is on its way to the disk."""
    FAILED = "failed"
    """Could not be read back: an operator must repair it and load it again."""


class ShardTable:
    """All shards that exist in this process, and those that serve."""

    def __init__(self) -> None:
        self.served: dict[ShardKey, Shard] = {}
        """Shards that serve. Read by every operation, changed only by `serve`, `mark` and `fail`."""
        self._states: dict[ShardKey, ShardState] = {}
        self._failures: dict[ShardKey, str] = {}
        """Reasons of the shards that are failed now."""

    def declare(self, keys: Iterable[ShardKey]) -> None:
        """Declare that these shards exist and are not loaded."""
        self._states.update(dict.fromkeys(keys, ShardState.UNLOADED))

    def serve(self, key: ShardKey, shard: Shard) -> None:
        self.served[key] = shard
        self._states[key] = ShardState.ACTIVE
        self._failures.pop(key, None)

    def mark(self, key: ShardKey, state: ShardState) -> None:
        """Set a state that is neither active nor failed."""
        assert state is not ShardState.ACTIVE, "a shard that serves is there"
        assert state is not ShardState.FAILED, "a shard fails for a reason"
        self.served.pop(key, None)
        self._states[key] = state
        self._failures.pop(key, None)

    def fail(self, key: ShardKey, reason: str) -> None:
        """Mark a shard as failed: it could not be read back."""
        self.served.pop(key, None)
        self._states[key] = ShardState.FAILED
        self._failures[key] = reason

    @property
    def failures(self) -> Mapping[ShardKey, str]:
        """Reason of each failed shard."""
        return self._failures

    def state(self, key: ShardKey) -> ShardState | None:
        """Return the state of a shard; None if it does not exist."""
        return self._states.get(key)

    def states(self) -> Mapping[ShardKey, ShardState]:
        return self._states

    def find(self, key: ShardKey) -> Any:  # noqa: ANN401  the caller knows the class by the coordinator
        """Return the shard; None if it does not serve."""
        return self.served.get(key)

    def refusal(self, key: ShardKey, *, is_joined: bool = False) -> Refused:
        """Return the refusal for a shard that does not serve. `is_joined`: within an operation on another shard."""
        name = f"{key.coordinator.name.lower()} shard {key.number}"
        if key in self._failures:
            return Refused(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{name} cannot be read from the store, and does not serve until it is repaired: {self._failures[key]}",
            )
        is_loading = self._states.get(key) is ShardState.LOADING
        if key.coordinator is Coordinator.LOG and not is_joined:
            return Refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{name} is being loaded; try again shortly"
                if is_loading
                else f"{name}, which holds this partition, is not served here; try again",
            )
        if is_loading:
            return Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{name} is being loaded; try again shortly")
        return Refused(ErrorCode.NOT_COORDINATOR, f"{name} is not served here; find the coordinator again")

    def serving(self, coordinator: Coordinator) -> list[Any]:
        """Return the shards of a coordinator that serve, in order of their number."""
        return [shard for key, shard in sorted(self.served.items()) if key.coordinator is coordinator]

    def all_serving(self, coordinator: Coordinator) -> list[Any]:
        """Return every shard of a coordinator, for a question that needs all of them. Raises Refused unless all
        serve."""
        for key in self._states:
            if key.coordinator is coordinator and key not in self.served:
                raise self.refusal(key)
        return self.serving(coordinator)

    def listable(self, coordinator: Coordinator) -> list[Any]:
        """Return the shards that serve, for a listing. An unloaded shard is for another server to list.

        Raises Refused COORDINATOR_LOAD_IN_PROGRESS while another shard loads, because its entries are about to
        appear."""
        for key, state in self._states.items():
            if key.coordinator is coordinator and state is ShardState.LOADING:
                raise self.refusal(key, is_joined=True)
        return self.serving(coordinator)
