"""Time from the start of a killed server until a transaction that was open can be committed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from bench.arena import TOPIC, Arena, create_topic
from bench.case import Case, Row
from bench.contenders import RAW, kafka_alone, own
from bench.programs import finish
from bench.results import MILLISECONDS, Run

if TYPE_CHECKING:
    from bench.kafka.settings import Profile


def rows(arena: Arena) -> list[Row]:
    """Return one row. Every measurement prepares a new directory, so that all start from the same state."""
    label = f"kill -9 with {arena.scale.recovery_ids:,} ids, {arena.scale.recovery_open:,} open"
    theirs = kafka_alone(arena, RAW, partial(_measure_kafka, arena))
    return [Row(label, MILLISECONDS, [own("stubs", partial(_measure_own, arena)), *theirs])]


def _measure_own(arena: Arena) -> Run:
    server = arena.new_own("recovery")
    notes = server.log.with_name("open-transactions")
    server.start()
    try:
        create_topic(server, TOPIC)
        ids, opened = arena.scale.recovery_ids, arena.scale.recovery_open
        arena.load("recovery_open", server, topic=TOPIC, ids=ids, open=opened, notes=str(notes))
        probe = arena.begin_load("recovery_probe", server, notes=str(notes))
        server.kill()
        return finish(probe, str(server.start()))
    finally:
        server.stop()


def _measure_kafka(arena: Arena, profile: Profile) -> Run:
    broker = arena.new_broker(profile)
    notes = broker.log.with_name("open-transactions")
    broker.start()
    try:
        broker.create_topic(TOPIC)
        ids, opened = arena.scale.recovery_ids, arena.scale.recovery_open
        broker.load("open", topic=TOPIC, ids=ids, open=opened, notes=notes)
        probe = broker.begin_load("probe", notes=notes)
        broker.kill()
        return finish(probe, str(broker.launch()))
    finally:
        broker.kill()


CASE: Final = Case("recovery", "time until commits work again after kill -9", rows)
