"""Whether something grows, judged from its samples. Pure.

A server that is killed begins anew, and while buffers and caches fill it takes more and more; so only the last part of
a run is judged, in which it lives on undisturbed and is warm. The median of the last third of that part may lie above
the median of its first third by a share of it, or by an absolute room where the share would be next to nothing. Medians
of thirds do not care about single peaks, a sawtooth of compactions, or where in it a run happens to end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import linear_regression, mean, median
from typing import Final

JUDGED_FROM: Final = 0.5
"""The share of a run after which it is judged."""
KILLED_UNTIL: Final = 0.3
"""The share of a run at which the server is killed for the last time. Before it is judged, Spark reads all that there
is once (`is_read_due`): such a read fills the block cache at once, and its answers take memory that was never used
before. The first one at the begin of the judged part was a rise in it."""
READ_EVERY: Final = 0.1
SAMPLES_MIN: Final = 9
_BLOCKS: Final = 10
_T_95: Final = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306}
"""Student's t for an interval of 95 %, by degrees of freedom: two fewer than there are blocks."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured at one moment."""

    elapsed_s: float
    memory_mib: float
    """Anonymous memory of the server."""
    buffers_mib: float
    """The part of it that is RocksDB's write buffers: they fill and are emptied in turn, within their bound."""
    cache_mib: float
    """The part of it that is RocksDB's block cache: it fills up to its bound and stays there."""
    outside_python_mib: float
    """What C and Rust have allocated and not freed, write buffers and block cache included."""
    python_blocks: float
    """How many pieces of memory Python's objects have."""
    handles: float
    threads: float
    disk_mib: float
    transactions: int
    """How many there were until then."""
    p50_ms: float = 0.0
    """Median of the commits since the sample before, as their clients saw it; 0 where there were none."""
    p99_ms: float = 0.0
    is_after_kill: bool = False
    """Whether the server was killed since the sample before."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that must not grow."""

    name: str
    of: Callable[[Sample], float]
    share: float
    """By how much it may be more at the end."""
    room: float
    """In its unit: so much more is never held against it."""


MEASURES: Final = (
    Measure(
        "memory without buffers and cache, MiB",
        lambda sample: sample.memory_mib - sample.buffers_mib - sample.cache_mib,
        share=0.05,
        room=8,
    ),
    # What was freed is kept while a server is busy, up to a bound (`MemoryKeeper`), and is in the first row only.
    Measure(
        "allocated outside Python, without buffers and cache, MiB",
        lambda sample: sample.outside_python_mib - sample.buffers_mib - sample.cache_mib,
        share=0.05,
        room=4,
    ),
    Measure("blocks of Python's objects", lambda sample: sample.python_blocks, share=0.05, room=0),
    # Both have a bound of their own: their room is the default of the setting.
    Measure("write buffers of the store, MiB", lambda sample: sample.buffers_mib, share=0.0, room=64),
    Measure("block cache of the store, MiB", lambda sample: sample.cache_mib, share=0.0, room=32),
    Measure("open handles", lambda sample: sample.handles, share=0.05, room=16),
    Measure("threads", lambda sample: sample.threads, share=0.0, room=2),
    Measure("disk, MiB", lambda sample: sample.disk_mib, share=0.15, room=64),
    Measure("commit p99, ms", lambda sample: sample.p99_ms, share=0.5, room=10),
)


@dataclass(frozen=True, slots=True)
class Trend:
    """How fast something changes, as a straight line through means of equal stretches of time tells it.

    A sawtooth makes neighbouring samples alike, so a line through all of them would seem surer than it is."""

    per_hour: float
    margin: float
    """Half the width of the interval that holds it with 95 % confidence."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of one measure."""

    measure: Measure
    early: float
    """Median of the first third of what is judged."""
    late: float
    """Median of the last third."""
    trend: Trend
    """Shown beside the rule: it says how long a run would have to be for the rule to be broken."""

    @property
    def limit(self) -> float:
        return self.early + max(self.early * self.measure.share, self.measure.room)

    @property
    def grows(self) -> bool:
        return self.late > self.limit

    @property
    def words(self) -> str:
        """A line that surely rises is not called level only because the run was too short for the rule."""
        if self.grows:
            return "GROWS"
        return "rises, within what is allowed" if self.trend.per_hour > self.trend.margin else "level"


def age_s(samples: Sequence[Sample]) -> float:
    """How long the server had lived when it began to be judged."""
    born_s = max((sample.elapsed_s for sample in samples if sample.is_after_kill), default=0.0)
    return max((sample.elapsed_s for sample in samples), default=0.0) * JUDGED_FROM - born_s


def is_read_due(number: int, samples: int) -> bool:
    """Whether Spark reads all that there is at one of so many samples. Not before the last kill, because a batch read
    that meets the death of the server is another test's matter; then regularly."""
    return number > samples * KILLED_UNTIL and number % int(samples * READ_EVERY) == 0


def judge(samples: Sequence[Sample]) -> list[Judgement]:
    """Judge every measure; nothing where there are too few samples to say anything."""
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
