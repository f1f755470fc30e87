"""Records of a share group, handed out and acknowledged one by one, by 8 members on 4 partitions.

Each acknowledgement of ours is flushed before it is answered. Stock Kafka flushes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from bench.arena import Arena
from bench.case import Case, Contender, Row
from bench.contenders import JAVA, kafka, own
from bench.kafka.settings import PROFILES
from bench.results import MILLISECONDS, RECORDS_PER_SECOND, LoadFailed, Run

if TYPE_CHECKING:
    from bench.kafka.kafka_server import KafkaServer

MANY: Final = "polls of 500"
ONE: Final = "polls of one record"
LATENCY: Final = "from produced to acknowledged"

_CONSUMERS: Final = 8
_PARTITIONS: Final = 4
_VALUE_BYTES: Final = 100
_MANY: Final = 500
_RATE: Final = 1_000
_TOPIC_NUMBERS: Final = count()


@dataclass(frozen=True, slots=True)
class _Work:
    """Work of a row. Without a rate the members drain a full topic."""

    poll_records: int
    records: int
    rate: int = 0

    def settings(self, topic: str) -> Mapping[str, object]:
        """Return what the programs of both clients take."""
        return {
            "topic": topic,
            "partitions": _PARTITIONS,
            "consumers": _CONSUMERS,
            "poll_records": self.poll_records,
            "records": self.records,
            "rate": self.rate,
        }


def rows(arena: Arena) -> list[Row]:
    """Return a row for each size of a poll, and one for the latency beside a steady producer."""
    records = arena.scale.records_1k
    return [
        Row(MANY, RECORDS_PER_SECOND, _contenders(arena, _Work(_MANY, records), _as_it_is)),
        Row(ONE, RECORDS_PER_SECOND, _contenders(arena, _Work(1, records // 4), _as_it_is)),
        Row(
            f"{LATENCY}, {_RATE:,} records/s, p99",
            MILLISECONDS,
            _contenders(arena, _Work(_MANY, 0, _RATE), _latency),
        ),
    ]


def _contenders(arena: Arena, work: _Work, figure: Callable[[Run], Run]) -> list[Contender]:
    profiles = [*arena.profiles[:1], *([PROFILES["flushed"]] if arena.profiles and not arena.scale.is_quick else [])]

    def measure(server: KafkaServer) -> Run:
        return figure(_by_java(arena, work, server))

    return [
        own("SDK", lambda: figure(_by_sdk(arena, work))),
        own(JAVA, lambda: measure(arena.front())),
        *kafka(arena, JAVA, measure, profiles),
    ]


def _by_java(arena: Arena, work: _Work, server: KafkaServer) -> Run:
    topic = _fill(server, work)
    run = server.load(
        "share-latency" if work.rate else "share-acknowledge",
        **work.settings(topic),
        bytes=_VALUE_BYTES,
        stamped=bool(work.rate),
        warm_up=arena.scale.java_warm_up_s,
        measured=arena.scale.measured_s,
    )
    server.delete_topic(topic)
    return run


def _by_sdk(arena: Arena, work: _Work) -> Run:
    front = arena.front()
    topic = _fill(front, work)
    run = arena.load(
        "share",
        arena.own_with_front(),
        **work.settings(topic),
        value_bytes=_VALUE_BYTES,
        warm_up_s=arena.scale.warm_up_s,
        measured_s=arena.scale.measured_s,
    )
    front.delete_topic(topic)
    return run


def _fill(server: KafkaServer, work: _Work) -> str:
    """Return a new topic with its records, and a group of its name that begins at the first. The same program writes
    to all servers."""
    topic = f"share-{next(_TOPIC_NUMBERS)}"
    server.load("share-fill", topic=topic, partitions=_PARTITIONS, records=work.records, bytes=_VALUE_BYTES)
    return topic


def _as_it_is(run: Run) -> Run:
    return run


def _latency(run: Run) -> Run:
    """Return the run with its 99th percentile as the main figure. Raises: LoadFailed."""
    if run.p99_ms is None or not run.figure:
        raise LoadFailed("no record was acknowledged")
    return run.scaled(run.p99_ms / run.figure)


CASE: Final = Case("share", "records of a share group, acknowledged one by one", rows)
