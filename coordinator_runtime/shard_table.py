"""Which shards are served here, and what callers are told that ask for another one.

    unloaded ----> loading ----> active ----> unloading ----> unloaded
                   |     ^          |
                   v     |          +-- load again --> loading
                   failed+

What each state answers (spec log-and-runtime 4.1, spec transactions 2 and 7):
- active: serves.
- loading: COORDINATOR_LOAD_IN_PROGRESS: ask here again.
- unloaded, unloading: NOT_COORDINATOR: find out who serves it.
- failed: KAFKA_STORAGE_ERROR, with the reason: nobody serves it until somebody repairs it, so that to ask again is in
  vain.
A partition is not asked for by its coordinator but by its leader, and that answers NOT_LEADER_OR_FOLLOWER in the first
three cases, as Kafka does. Inside the operation of somebody else, whose caller asked for a coordinator, it is a
coordinator like the others (spec transactions 2.10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, Shard, ShardKey


class ShardState(StrEnum):
    """Where a shard stands."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    """Being read back, or waiting for that, or for its coordinator epoch to be durable."""
    ACTIVE = "active"
    UNLOADING = "unloading"
    """Takes no more operations; what it has staged is on its way to the disk."""
    FAILED = "failed"
    """Could not be read back: somebody must look, and load it again."""


class ShardTable:
    """The shards of this process: every one that there should be, and those that serve."""

    def __init__(self) -> None:
        self.served: dict[ShardKey, Shard] = {}
        """Looked up by every operation. Changed by `serve` and `mark` alone."""
        self._states: dict[ShardKey, ShardState] = {}
        self._failures: dict[ShardKey, str] = {}
        """Why shards failed, of those that are failed now."""

    def declare(self, keys: Iterable[ShardKey]) -> None:
        """These shards exist, and are not loaded."""
        self._states.update(dict.fromkeys(keys, ShardState.UNLOADED))

    def serve(self, key: ShardKey, shard: Shard) -> None:
        self.served[key] = shard
        self._states[key] = ShardState.ACTIVE
        self._failures.pop(key, None)

    def mark(self, key: ShardKey, state: ShardState) -> None:
        """The shard is in this state, which is neither active nor failed."""
        assert state is not ShardState.ACTIVE, "a shard that serves is there"
        assert state is not ShardState.FAILED, "a shard fails for a reason"
        self.served.pop(key, None)
        self._states[key] = state
        self._failures.pop(key, None)

    def fail(self, key: ShardKey, reason: str) -> None:
        """The shard could not be read back."""
        self.served.pop(key, None)
        self._states[key] = ShardState.FAILED
        self._failures[key] = reason

    @property
    def failures(self) -> Mapping[ShardKey, str]:
        """Why each failed shard failed."""
        return self._failures

    def state(self, key: ShardKey) -> ShardState | None:
        """None for a shard that does not exist."""
        return self._states.get(key)

    def states(self) -> Mapping[ShardKey, ShardState]:
        return self._states

    def find(self, key: ShardKey) -> Any:  # noqa: ANN401  the caller knows the class by the coordinator
        """The shard, None if it does not serve."""
        return self.served.get(key)

    def refusal(self, key: ShardKey, *, is_joined: bool = False) -> Refused:
        """Why a shard that does not serve cannot be asked. `is_joined`: within an operation on another shard."""
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
        """The shards of a coordinator that serve, in order of their number."""
        return [shard for key, shard in sorted(self.served.items()) if key.coordinator is coordinator]

    def all_serving(self, coordinator: Coordinator) -> list[Any]:
        """Every shard of a coordinator, for a question that none of them may miss. Raises Refused unless all serve."""
        for key in self._states:
            if key.coordinator is coordinator and key not in self.served:
                raise self.refusal(key)
        return self.serving(coordinator)

    def listable(self, coordinator: Coordinator) -> list[Any]:
        """The shards that serve, for a listing. Raises Refused COORDINATOR_LOAD_IN_PROGRESS while another one loads,
        because what it holds is about to appear; one that is not here is somebody else's to list."""
        for key, state in self._states.items():
            if key.coordinator is coordinator and state is ShardState.LOADING:
                raise self.refusal(key, is_joined=True)
        return self.serving(coordinator)
