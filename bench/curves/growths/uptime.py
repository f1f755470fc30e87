"""Time since the start of a server that is under load all the while."""

from __future__ import annotations

import time

from bench.curves.beside import loaded
from bench.curves.growths.growth import Growth, Place


class Uptime(Growth):
    """Seconds with the same load as beside the other growths."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    async def grow(self, place: Place, have: int, to: int) -> None:
        left_s = self._began_s + to - time.monotonic()
        if left_s > 0:
            loaded(place, left_s)
