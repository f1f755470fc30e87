"""Spark writes to topics: our sink, which writes exactly once, and Kafka's with acks=all, which writes at least
once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.arena import Arena, create_topic
from bench.case import Case, Contender, Row
from bench.cases.spark_read import kafka_scan, need_java, scan
from bench.contenders import kafka, own
from bench.results import ROWS_PER_SECOND, Run, Unit

if TYPE_CHECKING:
    from bench.kafka.broker import Broker

_MILLISECONDS: Final = Unit("ms", is_less_better=True)
_PROGRAM: Final = "spark_sink"


def rows(arena: Arena) -> list[Row]:
    """Return two rows: records in bulk, and a stream from topic to topic in small micro-batches."""
    count, micro_batches = (15_000, 2) if arena.scale.is_quick else (1_000_000, 60)
    written = {"rows": count, "value_bytes": 1_024}
    copied = {"rows": 0, "value_bytes": 100, "micro_batches": micro_batches}
    return [
        Row("records of 1 KiB, in bulk", ROWS_PER_SECOND, _contenders(arena, written)),
        Row("topic to topic, a micro-batch of 1,000 records of 100 B", _MILLISECONDS, _contenders(arena, copied)),
    ]


def _contenders(arena: Arena, wanted: dict[str, int]) -> list[Contender]:
    def ours(delivery: str) -> Run:
        need_java()
        server, source, target = arena.own(), *_names(arena)
        for topic in (source, target):
            create_topic(server, topic)
        endpoint = {"endpoint": server.endpoint}
        settings = {
            "format": "txnlog",
            "options": {**endpoint, "subscribe": source},
            "write_options": {**endpoint, "delivery": delivery},
            "server_process_id": server.process_id,
        }
        return scan({**settings, "source": source, "target": target, **wanted}, program=_PROGRAM)

    def theirs(broker: Broker) -> Run:
        source, target = _names(arena)
        for topic in (source, target):
            broker.create_topic(topic)
        options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.acks": "all"}
        return kafka_scan(
            arena, broker, source, _PROGRAM, write_options=options, source=source, target=target, **wanted
        )

    return [
        own("txnlog sink", lambda: ours("exactly-once")),
        own("txnlog sink, at least once", lambda: ours("at-least-once")),
        *kafka(arena, "kafka sink", theirs),
    ]


def _names(arena: Arena) -> tuple[str, str]:
    """Return new names of topics."""
    made = arena.scratch("topics").name
    return f"{made}-source", f"{made}-target"


CASE: Final = Case("spark_sink", "rows per second that Spark writes, and how long a micro-batch takes", rows)
