"""Cost of an idle Spark stream for a server: ten empty triggers a second, on a topic of three partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.arena import TOPIC, Arena
from bench.case import Case, Row
from bench.cases.spark_read import kafka_scan, need_java, scan
from bench.contenders import kafka, own
from bench.results import Run, Unit

if TYPE_CHECKING:
    from bench.kafka.broker import Broker

_MICROSECONDS: Final = Unit("us of the server", is_less_better=True)
_PROGRAM: Final = "spark_stream"


def rows(arena: Arena) -> list[Row]:
    """Return one row: the server's processor time for a trigger."""
    idle_s = 2 if arena.scale.is_quick else 20

    def ours() -> Run:
        need_java()
        server = arena.own()
        options = {"endpoint": server.endpoint, "subscribe": TOPIC}
        settings = {"format": "txnlog", "options": options, "server_process_id": server.process_id, "idle_s": idle_s}
        return scan(settings, program=_PROGRAM)

    def theirs(broker: Broker) -> Run:
        return kafka_scan(arena, broker, TOPIC, _PROGRAM, idle_s=idle_s)

    contenders = [own("txnlog source", ours), *kafka(arena, "kafka source", theirs)]
    return [Row("an empty trigger", _MICROSECONDS, contenders)]


CASE: Final = Case("spark_idle", "what an empty trigger of a Spark stream costs the server", rows)
