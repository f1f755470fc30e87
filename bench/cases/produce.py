"""Idempotent records outside transactions, one producer, as many as the server takes."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.arena import TOPIC, Arena, create_topic
from bench.case import Case, Row
from bench.contenders import JAVA, client_settings, kafka, own
from bench.load.produce import DRIVERS
from bench.results import MEGABYTES_PER_SECOND, Run
from bench.sizes import in_words
from coordinator_protocol.limits import KIBI, MEBI

# The largest is a little less than 1 MiB, which is what a batch may be at most, its framing included.
_VALUE_BYTES: Final = (KIBI, 64 * KIBI, MEBI - 16 * KIBI)
_OWN_TOPIC: Final = "produce"


def rows(arena: Arena) -> list[Row]:
    """A row for each size of a record."""
    return [_row(arena, value_bytes) for value_bytes in _VALUE_BYTES]


def _row(arena: Arena, value_bytes: int) -> Row:
    scale = arena.scale

    def measure_own(driver: str) -> Run:
        server = arena.own()
        arena.once("ours", f"topic {_OWN_TOPIC}", lambda: create_topic(server, _OWN_TOPIC))
        run = arena.load(
            "produce",
            server,
            driver=driver,
            value_bytes=value_bytes,
            topic=_OWN_TOPIC,
            warm_up_s=scale.warm_up_s,
            measured_s=scale.measured_s,
        )
        return run.scaled(value_bytes / 1e6)

    ours = [own(driver, partial(measure_own, driver)) for driver in DRIVERS]
    theirs = kafka(
        arena,
        JAVA,
        lambda broker: broker.load(
            "produce",
            bytes=value_bytes,
            topic=TOPIC,
            client=client_settings(broker.profile.producer),
            warm_up=scale.warm_up_s,
            measured=scale.measured_s,
        ).scaled(value_bytes / 1e6),
    )
    return Row(f"records of {in_words(value_bytes)}", MEGABYTES_PER_SECOND, [*ours, *theirs])


CASE: Final = Case("produce", "idempotent records, MB per second, by size", rows)
