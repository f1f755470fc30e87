"""Verdicts on growth, from the samples of a run. Pure.

A killed server starts anew, and takes more and more memory while buffers and caches fill. So only the last part of a
run is judged, in which the server runs undisturbed and is warm. The median of the last third of that part may exceed
the median of its first third by a share of it. A fixed allowance applies where that share would be next to nothing.
Medians of thirds are not affected by single peaks, by the sawtooth of compactions, or by the point at which a run
happens to end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import linear_regression, mean, median
from typing import Final

JUDGED_FROM: Final = 0.5
"""Share of a run after which it is judged."""
KILLED_UNTIL: Final = 0.3
"""Share of a run at which the server is killed for the last time.

Spark reads all records once before the judged part (`is_read_due`). Such a read fills the block cache at once, and its
replies take memory that was never used before. When the first read was at the start of the judged part, it was a rise
in it."""
READ_EVERY: Final = 0.1
SAMPLES_MIN: Final = 9
_BLOCKS: Final = 10
_T_95: Final = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}
"""Student's t for an interval of 95 %, by degrees of freedom: two fewer than there are blocks."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurements at one moment."""

    elapsed_s: float
    memory_mib: float
    """Anonymous memory of the server."""
    buffers_mib: float
    """Part of the memory in RocksDB's write buffers. They fill and are emptied in turn, within their limit."""
    cache_mib: float
    """Part of the memory in RocksDB's block cache. It fills up to its limit and stays there."""
    outside_python_mib: float
    """Memory that C and Rust have allocated and not freed, including write buffers and block cache."""
    python_blocks: float
    """Number of memory blocks of Python's objects."""
    handles: float
    threads: float
    disk_mib: float
    transactions: int
    """Number of transactions until then."""
    p50_ms: float = 0.0
    """Median latency of the commits since the previous sample, measured by their clients; 0 if there were none."""
    p99_ms: float = 0.0
    is_after_kill: bool = False
    """True if the server was killed since the previous sample."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity that must not grow."""

    name: str
    of: Callable[[Sample], float]
    share: float
    """Allowed growth as a share of the early value."""
    room: float
    """Allowed growth in the unit of the measure, even if the share is smaller."""


MEASURES: Final = (
    Measure(
        "memory without buffers and cache, MiB",
        lambda sample: sample.memory_mib - sample.buffers_mib - sample.cache_mib,
        share=0.05,
        room=8,
    ),
    # Freed memory is kept while a server is busy, up to a limit (`MemoryKeeper`), and counts in the first row only.
    Measure(
        "allocated outside Python, without buffers and cache, MiB",
        lambda sample: sample.outside_python_mib - sample.buffers_mib - sample.cache_mib,
        share=0.05,
        room=4,
    ),
    Measure("blocks of Python's objects", lambda sample: sample.python_blocks, share=0.05, room=0),
    # Both have a limit of their own: their allowance is the default of the setting.
    Measure("write buffers of the store, MiB", lambda sample: sample.buffers_mib, share=0.0, room=64),
    Measure("block cache of the store, MiB", lambda sample: sample.cache_mib, share=0.0, room=32),
    Measure("open handles", lambda sample: sample.handles, share=0.05, room=16),
    Measure("threads", lambda sample: sample.threads, share=0.0, room=2),
    Measure("disk, MiB", lambda sample: sample.disk_mib, share=0.15, room=64),
    Measure("commit p99, ms", lambda sample: sample.p99_ms, share=0.5, room=10),
)


@dataclass(frozen=True, slots=True)
class Trend:
    """Slope of a measure: a straight line through the means of equal time spans.

    A sawtooth makes neighbouring samples alike, so a line through all of them would seem more certain than it is."""

    per_hour: float
    margin: float
    """Half the width of the 95 % confidence interval."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Verdict on one measure."""

    measure: Measure
    early: float
    """Median of the first third of the judged part."""
    late: float
    """Median of the last third."""
    trend: Trend
    """Shown beside the rule, to estimate how long a run would have to be to break it."""

    @property
    def limit(self) -> float:
        return self.early + max(self.early * self.measure.share, self.measure.room)

    @property
    def grows(self) -> bool:
        return self.late > self.limit

    @property
    def words(self) -> str:
        """Verdict as text. A line that certainly rises is not called level only because the run was too short for the
        rule."""
        if self.grows:
            return "GROWS"
        return "rises, within what is allowed" if self.trend.per_hour > self.trend.margin else "level"


def age_s(samples: Sequence[Sample]) -> float:
    """Return the age of the server at the start of the judged part (s)."""
    born_s = max((sample.elapsed_s for sample in samples if sample.is_after_kill), default=0.0)
    return max((sample.elapsed_s for sample in samples), default=0.0) * JUDGED_FROM - born_s


def is_read_due(number: int, samples: int) -> bool:
    """Return True if Spark shall read all records at this sample.

    There is no read before the last kill, because reads that meet the death of the server are the subject of another
    test. After it, reads are at regular intervals."""
    return number > samples * KILLED_UNTIL and number % int(samples * READ_EVERY) == 0


def judge(samples: Sequence[Sample]) -> list[Judgement]:
    """Judge every measure. Returns an empty list if there are too few samples."""
    end_s = max((sample.elapsed_s for sample in samples), default=0.0)
    judged = [sample for sample in samples if sample.elapsed_s >= end_s * JUDGED_FROM]
    if len(judged) < SAMPLES_MIN:
        return []
    third = len(judged) // 3
    return [
        Judgement(
            measure,
            early=median(map(measure.of, judged[:third])),
            late=median(map(measure.of, judged[-third:])),
            trend=trend([(sample.elapsed_s, measure.of(sample)) for sample in judged]),
        )
        for measure in MEASURES
    ]


def trend(points: Sequence[tuple[float, float]]) -> Trend:
    """Fit a line to values at seconds, of which there are at least `SAMPLES_MIN`."""
    blocks = min(_BLOCKS, len(points) // 3)
    cut = [points[number * len(points) // blocks : (number + 1) * len(points) // blocks] for number in range(blocks)]
    hours = [mean(at_s for at_s, _ in block) / 3_600 for block in cut]
    values = [mean(value for _, value in block) for block in cut]
    slope, intercept = linear_regression(hours, values)
    left = sum((value - intercept - slope * hour) ** 2 for hour, value in zip(hours, values, strict=True))
    middle = mean(hours)
    error = sqrt(left / (blocks - 2) / sum((hour - middle) ** 2 for hour in hours))
    return Trend(slope, _T_95[blocks - 2] * error)
