"""Commits of one offset, one after the other in each of many groups."""

from __future__ import annotations

from functools import partial
from typing import Final

from bench.arena import TOPIC, Arena
from bench.case import Case, Row
from bench.contenders import JAVA, kafka, own
from bench.load.offset_commits import DRIVERS
from bench.results import OPERATIONS_PER_SECOND, Run

GROUPS: Final = 64


def rows(arena: Arena) -> list[Row]:
    """Return one row."""
    scale = arena.scale

    def measure_own(driver: str) -> Run:
        return arena.load(
            "offset_commits",
            arena.own(),
            driver=driver,
            groups=GROUPS,
            topic=TOPIC,
            warm_up_s=scale.warm_up_s,
            measured_s=scale.measured_s,
        )

    ours = [own(driver, partial(measure_own, driver)) for driver in DRIVERS]
    theirs = kafka(
        arena,
        JAVA,
        lambda broker: broker.load(
            "offset-commits", groups=GROUPS, topic=TOPIC, warm_up=scale.java_warm_up_s, measured=scale.measured_s
        ),
    )
    return [Row(f"{GROUPS} groups", OPERATIONS_PER_SECOND, [*ours, *theirs])]


CASE: Final = Case("offset_commits", "offsets committed per second", rows)
