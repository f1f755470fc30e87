"""Resident memory of a new server: idle, and under the load of 64 producers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.arena import TOPIC, Arena, create_topic
from bench.case import Case, Row
from bench.contenders import JAVA, kafka_alone, own
from bench.processes import resident_mib
from bench.results import MEBIBYTES, CannotRun, Run

if TYPE_CHECKING:
    from bench.kafka.settings import Profile

_PRODUCERS: Final = 64
_VALUE_BYTES: Final = 1_024


def rows(arena: Arena) -> list[Row]:
    """Return two rows; the first one needs a second start of each server."""
    found = [
        Row(label, MEBIBYTES, [own("SDK", partial(ours, arena)), *kafka_alone(arena, JAVA, partial(theirs, arena))])
        for label, ours, theirs in (
            ("idle, just started", _own_idle, _kafka_idle),
            (f"under load, {_PRODUCERS} producers", _own_loaded, _kafka_loaded),
        )
    ]
    return found[1:] if arena.scale.is_quick else found


def _own_idle(arena: Arena) -> Run:
    return _on_own(arena, lambda process_id, _: _resident(process_id))


def _own_loaded(arena: Arena) -> Run:
    return _on_own(arena, lambda _, load: _loaded(load()))


def _on_own(arena: Arena, measure: Callable[[int, Callable[[], Run]], Run]) -> Run:
    server = arena.new_own("memory")
    server.start()
    try:
        create_topic(server, TOPIC)
        settings = {"driver": "SDK", "producers": _PRODUCERS, "value_bytes": _VALUE_BYTES, "topic": TOPIC}
        times = {"warm_up_s": arena.scale.warm_up_s, "measured_s": arena.scale.measured_s}
        return measure(server.process_id, lambda: arena.load("transactions", server, **settings, **times))
    finally:
        server.stop()


def _kafka_idle(arena: Arena, profile: Profile) -> Run:
    return _on_kafka(arena, profile, lambda process_id, _: _resident(process_id))


def _kafka_loaded(arena: Arena, profile: Profile) -> Run:
    return _on_kafka(arena, profile, lambda _, load: _loaded(load()))


def _on_kafka(arena: Arena, profile: Profile, measure: Callable[[int, Callable[[], Run]], Run]) -> Run:
    broker = arena.new_broker(profile)
    broker.start()
    try:
        broker.create_topic(TOPIC)
        settings = {"producers": _PRODUCERS, "bytes": _VALUE_BYTES, "topic": TOPIC, "committed": True}
        times = {"warm_up": arena.scale.java_warm_up_s, "measured": arena.scale.measured_s}
        return measure(broker.process_id, lambda: broker.load("transactions", **settings, **times))
    finally:
        broker.kill()


def _resident(process_id: int) -> Run:
    found = resident_mib(process_id)
    if found is None:
        raise CannotRun("this system does not tell the memory of a process as Linux does")
    return Run(figure=found)


def _loaded(run: Run) -> Run:
    if run.server_mib is None:
        raise CannotRun("this system does not tell the memory of a process as Linux does")
    return Run(figure=run.server_mib, operations=run.operations, elapsed_s=run.elapsed_s)


CASE: Final = Case("memory", "resident memory, idle and under load", rows)
