"""Servers that are grown and measured: real processes of `txnctl serve`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final, Self

import grpc
import uvloop

from bench.arena import TOPIC, create_topic
from bench.curves.axes import Axis
from bench.curves.beside import loaded
from bench.curves.curve import Point
from bench.curves.figures import STARTS
from bench.curves.growths.growth import Growth, Place
from bench.load.stubs import Refusal
from bench.processes import processor_seconds, resident_mib
from bench.programs import begin, finish, load_command, output_of
from bench.results import LoadFailed
from bench.server import OwnServer

_OPEN_IDS: Final = 1
_IDLE_S: Final = 3.0
_TICK_S: Final = 0.01
_OF_THE_LOAD: Final = {
    "commits_per_s": "figure",
    "p99_ms": "p99_ms",
    "server_us": "server_us",
    "memory_mib": "server_mib",
}
"""Fields of a `Run`, by the figures that they are."""


class ServerSubject:
    """One server in a directory of its own, started at once. A context manager, which ends it."""

    def __init__(self, axis: Axis, directory: Path, measured_s: float) -> None:
        self._axis, self._directory, self._measured_s = axis, directory, measured_s
        self._growth = axis.growth()
        arguments = [part for each in self._growth.settings for part in ("--set", each)]
        self._server = OwnServer(directory, arguments=arguments)
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)

    def __enter__(self) -> Self:
        try:
            self._server.start()
            create_topic(self._server, TOPIC)
        except BaseException:
            self._server.stop()
            raise
        return self

    def __exit__(self, *_failure: object) -> None:
        try:
            self._runner.run(self._growth.close())
            self._runner.close()
        finally:
            self._server.stop()

    def grow(self, have: float, to: float) -> float:
        """Grow the server. Raises: NoRoom, LoadFailed."""
        spent_s = grow_at(self._place(), self._growth, self._runner, have, to)
        self._server.check()
        return spent_s

    def measure(self, at: float) -> Point:
        """Measure what the axis asks for. Raises: LoadFailed."""
        idle_percent = self._idle_percent()
        run = loaded(self._place(), self._measured_s)
        figures = {name: getattr(run, field) for name, field in _OF_THE_LOAD.items()}
        figures["idle_percent"] = idle_percent
        if set(STARTS) & {*self._axis.figures}:
            figures |= self._starts()
        known = {name: value for name, value in figures.items() if value is not None}
        return Point(at, known, run.other_cores or 0.0)

    def _idle_percent(self) -> float | None:
        """Return the processor time of the server while nothing is asked of it, at least what the kernel counts in."""
        before_s = processor_seconds(self._server.process_id)
        time.sleep(_IDLE_S)
        after_s = processor_seconds(self._server.process_id)
        if before_s is None or after_s is None:
            return None
        return max(after_s - before_s, _TICK_S) / _IDLE_S * 100

    def _starts(self) -> dict[str, float | None]:
        """Stop and start the server, then kill it and start it again."""
        self._server.stop()
        start_ms = timed_start(self._server)
        started_mib, spent_s = resident_mib(self._server.process_id), processor_seconds(self._server.process_id)
        notes = self._directory / "open-transactions"
        self._run("recovery_open", topic=TOPIC, ids=_OPEN_IDS, open=_OPEN_IDS, notes=str(notes))
        command, environment = load_command("recovery_probe", self._settings() | {"notes": str(notes)})
        probe = begin(command, environment)
        self._server.kill()
        recovery_ms = finish(probe, str(self._server.start())).figure
        return {
            "start_ms": start_ms,
            "start_processor_ms": None if spent_s is None else spent_s * 1_000,
            "started_mib": started_mib,
            "recovery_ms": recovery_ms,
        }

    def _run(self, program: str, **settings: object) -> None:
        command, environment = load_command(program, self._settings() | settings)
        output_of(command, program, environment)

    def _settings(self) -> dict[str, object]:
        return {"endpoint": self._server.endpoint, "server_process_id": self._server.process_id}

    def _place(self) -> Place:
        has_kafka = any(each.startswith("kafka_listen=") for each in self._growth.settings)
        return Place(
            self._server.endpoint,
            self._directory,
            self._server.process_id,
            self._server.kafka_address() if has_kafka else "",
        )


def grow_at(place: Place, growth: Growth, runner: asyncio.Runner, have: float, to: float) -> float:
    """Grow a server from one amount of work to the next; return the time of it (s). Raises: NoRoom, LoadFailed."""
    began_s = time.monotonic()
    try:
        runner.run(growth.grow(place, int(have), int(to)))
    except (Refusal, grpc.RpcError, ExceptionGroup) as error:
        raise LoadFailed(f"the server does not grow to {to:,.0f}: {error!r}") from error
    return time.monotonic() - began_s


def timed_start(server: OwnServer) -> float:
    """Start a server; return the time until it takes work (ms). Raises: LoadFailed."""
    began_s = time.monotonic()
    server.start()
    return (time.monotonic() - began_s) * 1_000
