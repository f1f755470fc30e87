"""Idempotent records outside transactions, from one producer, as many as the server accepts."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final

from bench.arena import Arena, create_topic, delete_topic
from bench.case import Case, Row
from bench.contenders import JAVA, client_settings, kafka, own
from bench.load.produce import DRIVERS
from bench.results import MEGABYTES_PER_SECOND, Run
from bench.sizes import in_words
from coordinator_protocol.limits import KIBI, MEBI

if TYPE_CHECKING:
    from bench.kafka.broker import Broker

# The largest is a little less than 1 MiB, the limit of a batch with its framing.
_VALUE_BYTES: Final = (KIBI, 64 * KIBI, MEBI - 16 * KIBI)
_TOPIC_NUMBERS: Final = count()


def rows(arena: Arena) -> list[Row]:
    """Return a row for each record size."""
    sizes = _VALUE_BYTES[1:2] if arena.scale.is_quick else _VALUE_BYTES
    return [_row(arena, value_bytes) for value_bytes in sizes]


def _row(arena: Arena, value_bytes: int) -> Row:
    ours = [own(driver, partial(_measure_own, arena, value_bytes, driver)) for driver in DRIVERS]
    theirs = kafka(arena, JAVA, partial(_measure_kafka, arena, value_bytes))
    return Row(f"records of {in_words(value_bytes)}", MEGABYTES_PER_SECOND, [*ours, *theirs])


def _measure_own(arena: Arena, value_bytes: int, driver: str) -> Run:
    server, topic = arena.own(), _new_topic()
    create_topic(server, topic)
    run = arena.load(
        "produce",
        server,
        driver=driver,
        value_bytes=value_bytes,
        topic=topic,
        warm_up_s=arena.scale.warm_up_s,
        measured_s=arena.scale.measured_s,
    )
    delete_topic(server, topic)
    return run.scaled(value_bytes / 1e6)


def _measure_kafka(arena: Arena, value_bytes: int, broker: Broker) -> Run:
    topic = _new_topic()
    broker.create_topic(topic)
    run = broker.load(
        "produce",
        bytes=value_bytes,
        topic=topic,
        client=client_settings(broker.profile.producer),
        warm_up=arena.scale.java_warm_up_s,
        measured=arena.scale.measured_s,
    )
    broker.delete_topic(topic)
    return run.scaled(value_bytes / 1e6)


def _new_topic() -> str:
    """Return the name of a new topic. Each measurement deletes its topic at the end: all of them together would fill a
    disk."""
    return f"produce-{next(_TOPIC_NUMBERS)}"


CASE: Final = Case("produce", "idempotent records, MB per second, by size", rows)
