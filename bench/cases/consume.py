"""One consumer that reads the committed records of a topic in which one transaction in ten was aborted."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.arena import Arena
from bench.case import Case, Row
from bench.contenders import JAVA, client_settings, kafka, own
from bench.filled import FullTopic, fill_kafka, fill_own, full_topics
from bench.load.consume import DRIVERS
from bench.results import RECORDS_PER_SECOND, Run


def rows(arena: Arena) -> list[Row]:
    """Return a row for each record size."""
    topics = full_topics(arena)
    return [_row(arena, topic) for topic in (topics[:1] if arena.scale.is_quick else topics)]


def _row(arena: Arena, topic: FullTopic) -> Row:
    def measure_own(driver: str) -> Run:
        server = fill_own(arena, topic)
        return arena.load("consume", server, driver=driver, topic=topic.name, value_bytes=topic.value_bytes)

    ours = [own(driver, partial(measure_own, driver)) for driver in DRIVERS]
    theirs = kafka(
        arena,
        JAVA,
        lambda broker: fill_kafka(arena, broker, topic).load(
            "consume", topic=topic.name, bytes=topic.value_bytes, client=client_settings(broker.profile.consumer)
        ),
    )
    return Row(topic.label, RECORDS_PER_SECOND, [*ours, *theirs])


CASE: Final = Case("consume", "committed records read per second, by size", rows)
