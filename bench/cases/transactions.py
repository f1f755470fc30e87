"""Transactions of one record to each of three partitions, back to back, by many producers at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from bench.arena import TOPIC, Arena
from bench.case import Case, Contender, Row
from bench.contenders import JAVA, RAW, kafka, own
from bench.load.transactions import DRIVERS, FALLBACKS
from bench.results import TRANSACTIONS_PER_SECOND, Run
from bench.sizes import in_words

if TYPE_CHECKING:
    from bench.kafka.broker import Broker

_MAIN: Final = ((1, 1_024, True), (64, 1_024, True))
"""Producers, size and outcome of the rows with every driver."""
_TUNED_BYTES: Final = 1_024
"""Record size of the commits that are measured with every Kafka profile. All other rows use the first profile."""
_PROGRAMS: Final = ((JAVA, "transactions"), (RAW, "raw-transactions"))


def rows(arena: Arena) -> list[Row]:
    """Return all sizes and numbers of producers with commits, and aborts with the largest size only."""
    scale = arena.scale
    found = [_row(arena, producers, size, True) for size in scale.payload_bytes for producers in scale.producers]
    aborting = scale.producers if not scale.is_quick else scale.producers[-1:]
    return found + [_row(arena, producers, scale.payload_bytes[0], False) for producers in aborting]


def _row(arena: Arena, producers: int, value_bytes: int, committed: bool) -> Row:
    drivers = [driver for driver in DRIVERS if driver not in FALLBACKS]
    if (producers, value_bytes, committed) in _MAIN:
        drivers = [*DRIVERS]
    elif arena.scale.is_quick:
        drivers = drivers[:1]
    label = f"3 x {in_words(value_bytes)}, {producers} producer{'s' * (producers > 1)}"
    return Row(
        f"{label}, {'commit' if committed else 'abort'}",
        TRANSACTIONS_PER_SECOND,
        _contenders(arena, drivers, producers=producers, value_bytes=value_bytes, committed=committed),
    )


def _contenders(
    arena: Arena, drivers: Sequence[str], *, producers: int, value_bytes: int, committed: bool
) -> list[Contender]:
    scale = arena.scale

    def measure_own(driver: str) -> Run:
        return arena.load(
            "transactions",
            arena.own(),
            driver=driver,
            producers=producers,
            value_bytes=value_bytes,
            committed=committed,
            topic=TOPIC,
            warm_up_s=scale.warm_up_s,
            measured_s=scale.measured_s,
        )

    def measure_kafka(program: str, broker: Broker) -> Run:
        return broker.load(
            program,
            producers=producers,
            bytes=value_bytes,
            committed=committed,
            topic=TOPIC,
            warm_up=scale.java_warm_up_s,
            measured=scale.measured_s,
        )

    found = [own(driver, partial(measure_own, driver)) for driver in drivers]
    profiles = arena.profiles if committed and value_bytes == _TUNED_BYTES else arena.profiles[:1]
    for client, program in _PROGRAMS:
        found += kafka(arena, client, partial(measure_kafka, program), profiles)
    return found


CASE: Final = Case("transactions", "transactions per second, by producers, size and outcome", rows)
