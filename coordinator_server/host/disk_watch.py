"""Looks at how much of the store's disk is free, for the disk guard and for the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from coordinator_runtime.disk_guard import DiskGuard

LOOK_SECONDS: Final = 0.5
"""What producers write between two looks must fit into what the guard keeps free."""

_log = structlog.get_logger("server")


class DiskWatch:
    """Looks again and again, on a thread of the loop's pool: a disk may be slow."""

    def __init__(self, guard: DiskGuard, free_bytes: Callable[[], int]) -> None:
        self._guard = guard
        self._free_bytes = free_bytes
        self._is_blind = False
        """The last look failed."""

    def start(self) -> None:
        """Look once at once, so that nobody is served before, and then for as long as the running loop runs."""
        if self._guard.free_bytes_min:
            self._guard.on_change = log_change
            self._note(self._look())
            self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look_aside)

    def _look_aside(self) -> None:
        looking = asyncio.get_running_loop().run_in_executor(None, self._look)
        looking.add_done_callback(self._on_looked)

    def _look(self) -> int | OSError:
        try:
            return self._free_bytes()
        except OSError as error:
            return error

    def _on_looked(self, looking: asyncio.Future[int | OSError]) -> None:
        if not looking.cancelled():
            self._note(looking.result())
            self._look_later()

    def _note(self, found: int | OSError) -> None:
        """What could not be seen changes nothing: whether there is room, the next write will tell."""
        was_blind, self._is_blind = self._is_blind, isinstance(found, OSError)
        if not isinstance(found, OSError):
            self._guard.looked(found)
        elif not was_blind:
            _log.error("disk_unseen", reason=str(found), advice="the guard knows only the last look: check the disk")


def log_change(guard: DiskGuard) -> None:
    """Write the line that says that no records are taken any more, or again."""
    fields = {"free_bytes": guard.free_bytes, "free_bytes_min": guard.free_bytes_min}
    if guard.refusal is None:
        _log.info("disk_has_room", **fields)
        return
    advice = "no records are taken: delete topics, or make the disk larger; producers go on by themselves"
    _log.error("disk_low", **fields, advice=advice)
