"""Values of measurements: one run, the runs of one contender, and their comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from statistics import median
from typing import Final, Self


class CannotRun(Exception):
    """Something that this measurement needs is missing. The message has its name and advice."""


class LoadFailed(Exception):
    """A program that puts load on a server failed. The message has its last output."""


class Side(StrEnum):
    """Side that a server belongs to."""

    OURS = "ours"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of the main figure of a row."""

    name: str
    is_less_better: bool = False


TRANSACTIONS_PER_SECOND: Final = Unit("txn/s")
OPERATIONS_PER_SECOND: Final = Unit("ops/s")
MEGABYTES_PER_SECOND: Final = Unit("MB/s")
RECORDS_PER_SECOND: Final = Unit("records/s")
ROWS_PER_SECOND: Final = Unit("rows/s")
MILLISECONDS: Final = Unit("ms", is_less_better=True)
MICROSECONDS: Final = Unit("us of the server", is_less_better=True)
PERCENT: Final = Unit("%", is_less_better=True)
MEBIBYTES: Final = Unit("MiB", is_less_better=True)
BYTES: Final = Unit("bytes", is_less_better=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measurement. A field is None if it was not measured."""

    figure: float
    """Main figure, in the unit of the row."""
    operations: int = 0
    elapsed_s: float = 0.0
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    max_ms: float | None = None
    server_us: float | None = None
    """Processor time of the server per operation, user and system, all threads."""
    client_us: float | None = None
    server_cores: float | None = None
    client_cores: float | None = None
    other_cores: float | None = None
    """Number of processors that other programs on the machine kept busy. If it is large, the figure is too low."""
    server_mib: float | None = None
    """Resident memory of the server at the end."""
    errors: int = 0
    error_kinds: str = ""

    @classmethod
    def from_fields(cls, found: Mapping[str, object]) -> Self:
        """Return the run that a load program printed. Raises LoadFailed if a field is missing or unknown."""
        try:
            return cls(**found)  # type: ignore[arg-type]  # checked by the next line
        except TypeError as error:
            raise LoadFailed(f"the load program printed {dict(found)}: {error}") from None

    def scaled(self, factor: float) -> Self:
        """Return this run with the main figure in another unit, such as bytes instead of records."""
        return replace(self, figure=self.figure * factor)

    def per_item(self, items: int) -> Self:
        """Return this run counted in the items that each operation carried."""
        return replace(
            self,
            figure=self.figure * items,
            operations=self.operations * items,
            server_us=None if self.server_us is None else self.server_us / items,
            client_us=None if self.client_us is None else self.client_us / items,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """Time and room of a compaction, and the 99th percentiles of commits and reads elsewhere (`bench.cleaner`)."""

    mib_before: float
    mib_left: float
    took_s: float
    """Time from the change of the settings until the directory is small."""
    commit_p99_ms_before: float
    commit_p99_ms: float
    read_p99_ms_before: float
    read_p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All runs of one contender in one row."""

    case: str
    row: str
    unit: Unit
    side: Side
    contender: str
    durability: str
    """Durability at the time of the reply."""
    runs: Sequence[Run] = ()
    problem: str = ""
    """Reason for a missing figure; empty if there is a figure."""
    is_failure: bool = False
    """True if the contender should have run and failed."""

    @property
    def figure(self) -> float | None:
        """Median of the main figure."""
        return self.median_of("figure")

    @property
    def spread(self) -> float | None:
        """(largest - smallest) / median of the main figure; None for a single run."""
        middle = self.figure
        if not middle or len(self.runs) < 2:
            return None
        figures = [run.figure for run in self.runs]
        return (max(figures) - min(figures)) / middle

    def median_of(self, field: str) -> float | None:
        """Return the median of one field over the runs that have it."""
        values = [value for run in self.runs if (value := getattr(run, field)) is not None]
        return median(values) if values else None

    @property
    def errors(self) -> int:
        """Number of failed operations in all runs together."""
        return sum(run.errors for run in self.runs)


def ratio(ours: Result, theirs: Result) -> float | None:
    """Return how many times better ours is, in the better direction; None if one of them has no figure."""
    mine, other = ours.figure, theirs.figure
    if not mine or not other:
        return None
    return other / mine if ours.unit.is_less_better else mine / other


def rivals(result: Result, results: Iterable[Result]) -> list[Result]:
    """Return the results to compare with a result of ours: those of the other side in the same row."""
    if result.side is not Side.OURS:
        return []
    place = (result.case, result.row)
    return [each for each in results if each.side is Side.KAFKA and (each.case, each.row) == place]


def as_fields(run: Run | Cleaning) -> dict[str, object]:
    """Return the fields of a measurement that a load program prints."""
    return {name: value for name, value in asdict(run).items() if value not in (None, "")}


RUN_FIELDS: Final = tuple(field.name for field in fields(Run))
