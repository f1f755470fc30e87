"""A real server that comes to a halt at one point of a commit: `python -m tests.harness.stopping_server serve ...`.

The commit thread writes group by group and recognises by their rows what they hold of the transaction of WATCHED_ID. At
the point that STOPPING_SERVER_AT names it says so on stdout and stops for ever. All that the process then knows
to be durable is what was before the point; the loop goes on and gives the answers that rest on that. So a test that
kills it now kills it exactly there.

A point is a moment and a thing: "before prepare", "written prepare" (not synced), "durable prepare" (synced, but
not answered). Things are prepare, marker-1, marker-2, group (the marker of a group) and complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from coordinator_protocol.batch import decode_header, split_row
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.engine import OpenStore
from coordinator_runtime.rows import steps_of
from coordinator_runtime.store import CommitGroup, Family, Store
from coordinator_server import engines
from coordinator_server.settings.config import Config
from tests.harness.special_server import StoreOver, serve
from txn_coordinator.state import DECIDED, TransactionState
from txn_coordinator.steps import decode_step

POINT_VARIABLE: Final = "STOPPING_SERVER_AT"
WATCHED_ID: Final = "watched"
STOPPED: Final = "stopped at "
"""Words that the server prints before the name of the point."""

_COMPLETE: Final = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}


class StoppingStore(StoreOver):
    """Stops for ever at one point."""

    def __init__(self, store: Store, point: str) -> None:
        super().__init__(store)
        self._point = point
        self._is_decided = False
        self._markers = 0
        self._unsynced: list[str] = []

    def write(self, groups: Sequence[CommitGroup]) -> None:
        for group in groups:
            things = list(self._things_in(group))
            if any(f"before {thing}" == self._point for thing in things):
                super().sync()
            self._pass("before", things)
            super().write([group])
            self._pass("written", things)
            self._unsynced += things

    def sync(self) -> None:
        super().sync()
        self._pass("durable", self._unsynced)
        self._unsynced = []

    def _things_in(self, group: CommitGroup) -> Iterator[str]:
        """Yield the group's steps of the watched transaction, in order. Nothing else happens while it is decided, so
        every marker from then on is one of its own."""
        states = set(_states_in(group))
        if states & DECIDED:
            self._is_decided = True
            yield "prepare"
        if not self._is_decided:
            return
        for _marker in _markers_in(group):
            self._markers += 1
            yield f"marker-{self._markers}"
        if _has_group_marker(group):
            yield "group"
        if states & _COMPLETE:
            yield "complete"

    def _pass(self, moment: str, things: Sequence[str]) -> None:
        for thing in things:
            if f"{moment} {thing}" == self._point:
                print(f"{STOPPED}{self._point}", flush=True)
                # No write ever goes there.
                os.read(os.pipe()[0], 1)


def _states_in(group: CommitGroup) -> Iterator[TransactionState]:
    """Return the steps of the watched id, from the history: of state, a commit group has only the newest."""
    for family, key, value in group.mutations:
        if family is Family.HISTORY and value is not None:
            for step in steps_of(key, value):
                after = decode_step(step.told) if step.key == WATCHED_ID.encode() else None
                if after is not None:
                    yield from (state for state in after.states if state is not None)


def _markers_in(group: CommitGroup) -> Iterator[bytes]:
    for family, key, value in group.mutations:
        if family is Family.LOG and value is not None:
            batch, tail = split_row(value)
            if tail is not None or decode_header(batch).is_control:
                yield key


def _has_group_marker(group: CommitGroup) -> bool:
    """Keys of state begin with the number of the coordinator."""
    return any(
        family is Family.COORDINATOR_STATE and key[0] == Coordinator.GROUPS for family, key, _value in group.mutations
    )


def open_stopping_store(config: Config) -> OpenStore:
    """RocksDB behind a StoppingStore."""
    opened = engines.open_rocks_store(config)
    return OpenStore(StoppingStore(opened.store, os.environ[POINT_VARIABLE]), opened.mark_durable)


if __name__ == "__main__":
    serve(open_stopping_store)
