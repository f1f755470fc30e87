"""Kafka Streams' word count with `exactly_once_v2` and `group.protocol=streams`: one instance with two threads, over a
repartition topic and a changelog topic.

The same program counts the words of a full topic on both sides, to its end, twice in one process. The second time is
measured: a time of fixed length would begin when the faster side has counted more, and has more of its code compiled.
A record is a line of eight words. It counts when all of its words have reached the store, so its commit may be still to
come: there is one every 100 ms.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from bench.arena import Arena
from bench.case import Case, Row
from bench.contenders import JAVA, kafka, own
from bench.results import RECORDS_PER_SECOND, Run

if TYPE_CHECKING:
    from bench.kafka.kafka_server import KafkaServer

WORD_COUNT: Final = "word count"

_PARTITIONS: Final = 4
_WORDS: Final = 8
"""Number of words of a line."""
_THREADS: Final = 2
_TOPIC_NUMBERS: Final = count()


def rows(arena: Arena) -> list[Row]:
    """Return the only row."""
    contenders = [
        own(JAVA, lambda: _measure(arena, arena.front())),
        *kafka(arena, JAVA, lambda broker: _measure(arena, broker)),
    ]
    return [Row(WORD_COUNT, RECORDS_PER_SECOND, contenders)]


def _measure(arena: Arena, server: KafkaServer) -> Run:
    topic = f"lines-{next(_TOPIC_NUMBERS)}"
    work = {"topic": topic, "partitions": _PARTITIONS, "records": arena.scale.records_1k // 2, "words": _WORDS}
    server.load("lines", **work)
    return server.load(
        "word-count",
        **work,
        threads=_THREADS,
        protocol="streams",
    )


CASE: Final = Case("streams", "Kafka Streams' word count, exactly once", rows)
