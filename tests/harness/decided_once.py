"""A witness that no operation is decided again while a decision on it stands."""

from __future__ import annotations

from typing import Any

from coordinator_runtime.decision import Operation, ShardKey
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import Runtime


class DecidedOnce:
    """Watches every attempt of a runtime's operations, of parked calls and of timers too.

    A decision stands from when an operation got through until its reply, which waits for the disk, is settled. An
    attempt that met a transaction in its way was rolled back, and is none."""

    def __init__(self, runtime: Runtime) -> None:
        self._decided: dict[int, tuple[Operation, Pending[Any]]] = {}
        """By the identity of the operation, which it keeps alive, so that no other one gets the same."""
        self.repeated = 0
        """Attempts of operations that had been attempted before."""
        self._seen: set[int] = set()
        self._attempt = runtime._attempt
        runtime._attempt = self._watch  # type: ignore[method-assign]  # the one place where every operation passes

    def _watch(
        self, operation: Operation, context: CallContext, reply: Pending[Any], *, can_park: bool
    ) -> ShardKey | None:
        before = self._decided.get(id(operation))
        assert before is None or before[1].is_settled, f"decided again while a decision stands: {operation}"
        self.repeated += id(operation) in self._seen
        self._seen.add(id(operation))
        held_up_by = self._attempt(operation, context, reply, can_park=can_park)
        # One that met something in its way is kept as well, for its identity.
        self._decided[id(operation)] = (operation, reply if held_up_by is None else _settled())
        return held_up_by


def _settled() -> Pending[Any]:
    reply: Pending[Any] = Pending()
    reply.succeed(None)
    return reply
