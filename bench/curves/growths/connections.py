"""Connections of Kafka's protocol that stay open after their first request."""

from __future__ import annotations

import resource
from typing import Final

from bench.curves.growths.growth import Growth, NoRoom, Place
from bench.load.kafka_frames import KafkaLine, api_versions_request
from bench.results import LoadFailed

_OTHER_HANDLES: Final = 500


class Connections(Growth):
    """Idle connections. They are held in this process."""

    settings = ("kafka_listen=127.0.0.1:0", "kafka_connections_max=20000")

    def __init__(self) -> None:
        self._lines: list[KafkaLine] = []

    async def grow(self, place: Place, have: int, to: int) -> None:
        check_handles(resource.getrlimit(resource.RLIMIT_NOFILE)[0], to)
        request = api_versions_request()
        try:
            for _number in range(have, to):
                line = await KafkaLine.open(place.kafka)
                await line.ask(request)
                self._lines.append(line)
        except (OSError, EOFError) as error:
            raise LoadFailed(f"connection {len(self._lines) + 1} was refused: {error!r}") from error

    async def close(self) -> None:
        for line in self._lines:
            line.close()


def check_handles(handles: int, connections: int) -> None:
    """Raise NoRoom if a process may not have so many open."""
    if handles < connections + _OTHER_HANDLES:
        raise NoRoom(f"a process may open {handles:,} files here (ulimit -n)")
