"""Axes: what is grown, how far, and what is measured on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from bench.curves.figures import BESIDE, GROWING, STARTS
from bench.curves.growths.connections import Connections
from bench.curves.growths.consumers import Groups, Members
from bench.curves.growths.growth import Growth
from bench.curves.growths.ids import Ids
from bench.curves.growths.partitions import Partitions
from bench.curves.growths.shares import SharedRecords
from bench.curves.growths.stored import StoredBytes
from bench.curves.growths.uptime import Uptime

ONE_SERVER: Final = "one `txnctl serve` with its defaults, and a store on the disk"
TWO_SERVERS: Final = "two servers with a lease of 4 s, and a store in a bucket in memory"
ON: Final = (*BESIDE, *GROWING)
ON_AND_STARTS: Final = (*BESIDE, *STARTS, *GROWING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One kind of work, and the points at which its cost is measured."""

    name: str
    title: str
    unit: str
    first: int
    last: int
    points: int
    """Number of points, the first and the last included. Neighbours have the same quotient."""
    figures: Sequence[str]
    """Names of `FIGURES`."""
    growth: Callable[[], Growth]
    seconds_per_point: float
    """Usual time of one measurement on two cores, without what the work adds."""
    seconds_per_unit: float
    """Usual time that each unit of the last point adds, growth and measurements together."""
    subject: str = ONE_SERVER
    limit: str = ""
    """Known limit, for a cost that is worse than linear and stays so."""

    def places(self, points: int = 0, last: int = 0) -> Sequence[int]:
        """Return the amounts of work, ascending. `points` and `last` replace those of the axis, if they are given.

        An end beyond the usual one adds points in the usual steps, unless their number is given, too."""
        last = last or self.last
        if not points:
            quotient = (self.last / self.first) ** (1 / (self.points - 1))
            points = max(1, 1 + round(math.log(last / self.first, quotient)))
        if points == 1 or last <= self.first:
            return [last]
        found = [_rounded(self.first * (last / self.first) ** (at / (points - 1))) for at in range(points)]
        return sorted({*found[:-1], last})

    def expected_s(self, places: Sequence[float]) -> float:
        """Return the usual duration of a walk through these amounts."""
        return self.seconds_per_point * len(places) + self.seconds_per_unit * places[-1]


def _rounded(value: float) -> int:
    """Return a number with two significant digits."""
    return int(float(f"{value:.1e}"))


_AXES: Final = (
    Axis(
        name="ids",
        title="Transactional ids",
        unit="ids",
        first=1_000,
        last=1_000_000,
        points=7,
        figures=ON_AND_STARTS,
        growth=Ids,
        seconds_per_point=15,
        seconds_per_unit=0.0003,
    ),
    Axis(
        name="takeover",
        title="Transactional ids of a server that another one takes over from",
        unit="ids",
        first=1_000,
        last=100_000,
        points=5,
        figures=("takeover_ms", *GROWING),
        growth=Ids,
        seconds_per_point=15,
        seconds_per_unit=0.001,
        subject=TWO_SERVERS,
    ),
    Axis(
        name="partitions",
        title="Partitions, each with a committed record",
        unit="partitions",
        first=10,
        last=10_000,
        points=7,
        figures=ON_AND_STARTS,
        growth=Partitions,
        seconds_per_point=15,
        seconds_per_unit=0.006,
    ),
    Axis(
        name="stored",
        title="Stored bytes",
        unit="MiB",
        first=128,
        last=8_192,
        points=7,
        figures=ON_AND_STARTS,
        growth=StoredBytes,
        seconds_per_point=15,
        seconds_per_unit=0.02,
    ),
    Axis(
        name="groups",
        title="Consumer groups of one member, each with a committed offset",
        unit="groups",
        first=10,
        last=10_000,
        points=7,
        figures=ON_AND_STARTS,
        growth=Groups,
        seconds_per_point=15,
        seconds_per_unit=0.003,
    ),
    Axis(
        name="members",
        title="Members of one consumer group, which share 1,000 partitions",
        unit="members",
        first=3,
        last=1_000,
        points=6,
        figures=ON_AND_STARTS,
        growth=Members,
        seconds_per_point=15,
        seconds_per_unit=0.06,
    ),
    Axis(
        name="shares",
        title="Records in flight in share groups",
        unit="records",
        first=1_000,
        last=1_000_000,
        points=7,
        figures=ON,
        growth=SharedRecords,
        seconds_per_point=8,
        seconds_per_unit=0.00008,
    ),
    Axis(
        name="connections",
        title="Idle connections of Kafka's clients",
        unit="connections",
        first=10,
        last=10_000,
        points=7,
        figures=ON,
        growth=Connections,
        seconds_per_point=8,
        seconds_per_unit=0.002,
    ),
    Axis(
        name="uptime",
        title="Time since the start, under load",
        unit="s",
        first=30,
        last=480,
        points=5,
        figures=BESIDE,
        growth=Uptime,
        seconds_per_point=0,
        seconds_per_unit=1.02,
    ),
)
AXES: Final[Mapping[str, Axis]] = MappingProxyType({axis.name: axis for axis in _AXES})
