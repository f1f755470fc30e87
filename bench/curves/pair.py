"""Two servers with one store in a bucket, of which one serves and the other waits to take over."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import uvloop

from bench.curves.axes import Axis
from bench.curves.curve import Point
from bench.curves.growths.growth import Place
from bench.curves.subject import grow_at
from bench.results import LoadFailed
from bench.server import OwnServer, last_words
from tests.harness.object_store import BUCKET, ObjectServer

_LEASE_TTL_MS: Final = 4_000
_WAITS: Final = '"event":"lease_awaited"'
_WAITS_S_MAX: Final = 600
_LOOK_S: Final = 0.05


class PairSubject:
    """Two servers, and a bucket in the memory of this process. A context manager, which ends them."""

    def __init__(self, axis: Axis, directory: Path, _measured_s: float) -> None:
        self._axis, self._directory = axis, directory
        self._growth = axis.growth()
        self._serving, self._waiting = (self._server(directory / name, number) for number, name in enumerate("ab", 1))
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._until_the_end = ExitStack()

    def _server(self, directory: Path, node_id: int) -> OwnServer:
        settings = (f"node_id={node_id}", f"lease_ttl_ms={_LEASE_TTL_MS}", *self._growth.settings)
        arguments = ["--store", f"s3://{BUCKET}/curves", "--lease"]
        return OwnServer(directory, arguments=[*arguments, *(part for each in settings for part in ("--set", each))])

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            # Its objects have the time of this machine. The servers inherit the way to it.
            bucket = stack.enter_context(ObjectServer(wall_seconds=None))
            os.environ.update(bucket.environment())
            stack.enter_context(self._runner)
            for each in (self._serving, self._waiting):
                stack.callback(each.stop)
            self._serving.start()
            _begin_to_wait(self._waiting)
            self._until_the_end = stack.pop_all()
        return self

    def __exit__(self, *_failure: object) -> None:
        self._until_the_end.close()

    def grow(self, have: float, to: float) -> float:
        """Grow the store through the server that has it. Raises: NoRoom, LoadFailed."""
        place = Place(self._serving.endpoint, self._directory, self._serving.process_id)
        return grow_at(place, self._growth, self._runner, have, to)

    def measure(self, at: float) -> Point:
        """Kill the server that has the store, wait for the other one, and change their parts. Raises: LoadFailed."""
        began_s = time.monotonic()
        self._serving.kill()
        self._waiting.wait_until_ready()
        takeover_ms = (time.monotonic() - began_s) * 1_000
        self._serving, self._waiting = self._waiting, self._serving
        _begin_to_wait(self._waiting)
        return Point(at, {"takeover_ms": takeover_ms})


def _begin_to_wait(server: OwnServer) -> None:
    """Launch a server beside one that has the store, and return once it waits for the lease. Raises: LoadFailed."""
    already = _times_awaited(server)
    server.launch()
    until_s = time.monotonic() + _WAITS_S_MAX
    while _times_awaited(server) == already:
        server.check()
        if time.monotonic() > until_s:
            raise LoadFailed(f"a server does not wait for the lease: {last_words(server.log)}")
        time.sleep(_LOOK_S)


def _times_awaited(server: OwnServer) -> int:
    said = server.log.read_text(errors="replace") if server.log.exists() else ""
    return said.replace(" ", "").count(_WAITS)
