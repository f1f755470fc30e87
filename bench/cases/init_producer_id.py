"""InitProducerId of transactional ids that the server has never seen.

Our requests go over one session, as in a process with many producers, or as a call for each. Kafka's go over one
connection per request under way.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.arena import Arena
from bench.case import Case, Row
from bench.contenders import RAW, kafka, own
from bench.load.init_producer_id import DRIVERS
from bench.results import OPERATIONS_PER_SECOND, Run

_IN_FLIGHT: Final = (1, 64)


def rows(arena: Arena) -> list[Row]:
    """Return two rows: one id at a time, and many."""
    return [_row(arena, in_flight) for in_flight in _IN_FLIGHT]


def _row(arena: Arena, in_flight: int) -> Row:
    warm_up_s, measured_s = arena.scale.warm_up_s, arena.scale.measured_s

    def measure_own(driver: str) -> Run:
        return arena.load(
            "init_producer_id",
            arena.own(),
            driver=driver,
            in_flight=in_flight,
            warm_up_s=warm_up_s,
            measured_s=measured_s,
        )

    ours = [own(driver, partial(measure_own, driver)) for driver in DRIVERS]
    theirs = kafka(
        arena,
        RAW,
        lambda broker: broker.load("raw-init", in_flight=in_flight, warm_up=warm_up_s, measured=measured_s),
    )
    return Row(f"new ids, {in_flight} at a time", OPERATIONS_PER_SECOND, [*ours, *theirs])


CASE: Final = Case("init_producer_id", "new transactional ids per second", rows)
