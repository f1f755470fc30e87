"""One producer that commits transaction after transaction: the latency of each, and the number of failures."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from bench.arena import TOPIC, Arena
from bench.case import Case, Row
from bench.contenders import JAVA, kafka, own
from bench.load.transactions import SDK_THREADS
from bench.results import TRANSACTIONS_PER_SECOND, Run

if TYPE_CHECKING:
    from bench.kafka.broker import Broker

_VALUE_BYTES: Final = 1_024


def rows(arena: Arena) -> list[Row]:
    """Return one row. The latencies are in its columns, failures below the table."""
    label = f"{arena.scale.back_to_back_transactions:,} of 3 x 1 KiB, at most {arena.scale.back_to_back_s_max:g} s"
    ours = [own(driver, partial(_measure_own, arena, driver)) for driver in ("SDK", SDK_THREADS)]
    return [Row(label, TRANSACTIONS_PER_SECOND, [*ours, *kafka(arena, JAVA, partial(_measure_kafka, arena))])]


def _measure_own(arena: Arena, driver: str) -> Run:
    return arena.load(
        "transactions",
        arena.own(),
        driver=driver,
        producers=1,
        value_bytes=_VALUE_BYTES,
        topic=TOPIC,
        warm_up_s=arena.scale.warm_up_s,
        measured_s=arena.scale.back_to_back_s_max,
        operations_max=arena.scale.back_to_back_transactions,
    )


def _measure_kafka(arena: Arena, broker: Broker) -> Run:
    return broker.load(
        "transactions",
        producers=1,
        bytes=_VALUE_BYTES,
        committed=True,
        topic=TOPIC,
        warm_up=arena.scale.java_warm_up_s,
        measured=arena.scale.back_to_back_s_max,
        operations_max=arena.scale.back_to_back_transactions,
    )


CASE: Final = Case("back_to_back", "latency of one producer that commits back to back", rows)
