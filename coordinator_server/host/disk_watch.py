"""Measures the free space of the store's disk, for the disk guard and for the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from coordinator_runtime.disk_guard import DiskGuard
from coordinator_server.regular_looks import RegularLooks

LOOK_SECONDS: Final = 0.5
"""Interval of the measurements. The guard's reserve must hold the writes of one interval."""

_log = structlog.get_logger("server")


class DiskWatch:
    """Measures at regular intervals."""

    def __init__(self, guard: DiskGuard, free_bytes: Callable[[], int]) -> None:
        self._guard = guard
        self._free_bytes = free_bytes
        self._is_blind = False
        """True if the last measurement failed."""
        self._looks = RegularLooks(self._look, LOOK_SECONDS, self._note)

    def start(self) -> None:
        """Measure once at once, before any caller is served, and then until `stop`."""
        if self._guard.free_bytes_min:
            self._guard.on_change = log_change
            self._note(self._look())
            self._looks.start()

    def stop(self) -> None:
        """Measure no more."""
        self._looks.stop()

    def _look(self) -> int | OSError:
        try:
            return self._free_bytes()
        except OSError as error:
            return error

    def _note(self, found: int | OSError) -> None:
        """Pass a measurement to the guard. A failed one changes nothing: the next write shows if there is space."""
        was_blind, self._is_blind = self._is_blind, isinstance(found, OSError)
        if not isinstance(found, OSError):
            self._guard.looked(found)
        elif not was_blind:
            _log.error("disk_unseen", reason=str(found), advice="the guard knows only the last look: check the disk")


def log_change(guard: DiskGuard) -> None:
    """Log that no records are taken any more, or that they are taken again."""
    fields = {"free_bytes": guard.free_bytes, "free_bytes_min": guard.free_bytes_min}
    if guard.refusal is None:
        _log.info("disk_has_room", **fields)
        return
    advice = "no records are taken: delete topics, or make the disk larger; producers go on by themselves"
    _log.error("disk_low", **fields, advice=advice)
