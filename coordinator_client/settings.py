"""What callers give to several kinds of client, checked: times, the isolation level, and what to do with a batch that
cannot be read.

A time is whole milliseconds, by a keyword whose name ends in `_ms`. Clients of Kafka disagree: one takes `poll(1.0)`
for a second, another `poll(1000)`. A wrong guess waits a thousand times too long, or not at all, and nobody notices. So
nothing is guessed here: a time comes with its unit, and a float, which is nearly always seconds, is refused like a
negative number.

At a batch that it cannot read, a reader raises, or goes on behind it and counts. Skipping is never the default: records
are lost to whoever reads past them, and only their owner can say that this is better than standing still.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from coordinator_api.v1.common_pb2 import (
    ISOLATION_LEVEL_READ_COMMITTED,
    ISOLATION_LEVEL_READ_UNCOMMITTED,
    IsolationLevel,
)
from coordinator_client.errors import CorruptBatch, TransactionError, rejected, wrong_argument, wrong_setting
from coordinator_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


DURATION_MS_MAX: Final = 2**31 - 1
"""24 days: as much as Kafka's settings hold, and every clock and message on the way."""

TIMESTAMP_MS_MAX: Final = 2**63 - 1

_MILLISECONDS: Final = "milliseconds as a whole number; for one second write {}=1000"


def duration_ms(name: str, value: object) -> int:
    """Return how long to wait. Raises: TypeError unless it is a whole number; Rejected where nothing can wait so
    long."""
    wanted = _whole(name, value, _MILLISECONDS.format(name))
    if not 0 <= wanted <= DURATION_MS_MAX:
        raise rejected(
            ErrorCode.INVALID_REQUEST, f"{name} is {wanted} and must be between 0 and {DURATION_MS_MAX} milliseconds"
        )
    return wanted


def timestamp_ms(name: str, value: object) -> int:
    """Return a point in time. Raises: TypeError unless it is a whole number; Rejected (INVALID_TIMESTAMP) where it is
    before 1970, or no 64 bits hold it."""
    wanted = _whole(name, value, "Unix milliseconds as a whole number; for now write int(time.time() * 1000)")
    if not 0 <= wanted <= TIMESTAMP_MS_MAX:
        raise rejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"{name} is {wanted} and must be Unix milliseconds from 0 to {TIMESTAMP_MS_MAX}",
        )
    return wanted


def check_durations(
    settings: DataclassInstance,
    refuse: Callable[[str, object, str], TransactionError],
    *,
    may_be_zero: Collection[str] = (),
) -> None:
    """Check every setting whose name ends in `_ms`. Raises: TypeError unless it is a whole number; what `refuse` makes
    of its name, its value and the rule where it is out of range."""
    for setting in fields(settings):
        name, value = setting.name, getattr(settings, setting.name)
        if not name.endswith("_ms") or (value is None and setting.type == "int | None"):
            continue
        least = 0 if name in may_be_zero else 1
        if not least <= _whole(name, value, _MILLISECONDS.format(name)) <= DURATION_MS_MAX:
            raise refuse(name, value, f"must be between {least} and {DURATION_MS_MAX} milliseconds")


def _whole(name: str, value: object, rule: str) -> int:
    # True and False are ints to Python, and no times.
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r} and must be {rule}")
    return value


RAISE: Final = "raise"
SKIP: Final = "skip"
ON_CORRUPT_BATCH: Final = (RAISE, SKIP)
"""Values of the option `on_corrupt_batch`."""


@dataclass(slots=True)
class Skipped:
    """Counts what a reader has skipped so far because it cannot be read."""

    batches: int = 0
    """How often the reader had to go on behind something that it cannot read."""
    offsets: int = 0
    """How many offsets were passed over, of records and of markers among them."""
    last: CorruptBatch | None = None
    """The error of the last place that was skipped."""
    on_skip: Callable[[CorruptBatch], None] = lambda _: None
    """Called with the error of each place that is skipped."""

    def add(self, error: CorruptBatch) -> None:
        """Count what the error is about."""
        self.batches += 1
        self.offsets += error.next_offset - error.offset
        self.last = error
        self.on_skip(error)


def check_on_corrupt_batch(value: str) -> None:
    """Check a value of the option. Raises: Misconfigured where there is no such value."""
    if value not in ON_CORRUPT_BATCH:
        raise wrong_setting("on_corrupt_batch", value, f"must be one of {', '.join(ON_CORRUPT_BATCH)}")


EARLIEST_MS: Final = -2
LATEST_MS: Final = -1
"""Two values that ListOffsets takes in place of a time."""

_ISOLATION_LEVELS: Final = MappingProxyType(
    {
        "read_committed": ISOLATION_LEVEL_READ_COMMITTED,
        "read_uncommitted": ISOLATION_LEVEL_READ_UNCOMMITTED,
    }
)


def isolation_level(isolation: str) -> IsolationLevel.ValueType:
    """Return the wire's number for a name. Raises: Rejected (INVALID_REQUEST)."""
    found = _ISOLATION_LEVELS.get(isolation)
    if found is None:
        raise wrong_argument("isolation", isolation, f"must be one of {', '.join(_ISOLATION_LEVELS)}")
    return found
