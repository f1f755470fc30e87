"""Checks of arguments that several kinds of client share: times, the isolation level, and the reaction to an unreadable
batch.

A time is a whole number of milliseconds, passed by a keyword whose name ends in `_ms`. Clients of Kafka disagree: one
takes `poll(1.0)` for a second, another `poll(1000)`. A wrong guess waits a thousand times too long, or not at all,
without being noticed. So nothing is guessed here. A time comes with its unit. A float, which is nearly always seconds,
is refused like a negative number.

At a batch that it cannot read, a reader raises, or continues after it and counts it. Skipping is never the default: a
reader that skips loses records, and only their owner can decide that this is better than stopping.
"""

from __future__ import annotations

import datetime
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
"""Longest duration (ms): 24 days, as much as Kafka's settings can hold, and every clock and message involved."""

TIMESTAMP_MS_MAX: Final = 2**63 - 1

_MILLISECONDS: Final = "milliseconds as a whole number; for one second write {}=1000"


def duration_ms(name: str, value: object) -> int:
    """Return a checked duration. Raises: TypeError unless it is a whole number; Rejected if it is negative or too
    long."""
    wanted = _whole(name, value, _MILLISECONDS.format(name))
    if not 0 <= wanted <= DURATION_MS_MAX:
        raise rejected(
            ErrorCode.INVALID_REQUEST, f"{name} is {wanted} and must be between 0 and {DURATION_MS_MAX} milliseconds"
        )
    return wanted


def timestamp_ms(name: str, value: object) -> int:
    """Return a checked point in time. Raises: TypeError unless it is a whole number; Rejected (INVALID_TIMESTAMP) if it
    is before 1970 or exceeds 64 bits."""
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
    """Check every setting whose name ends in `_ms`. Raises: TypeError unless it is a whole number. If it is out of
    range, the error that `refuse` makes of its name, its value and the rule."""
    for setting in fields(settings):
        name, value = setting.name, getattr(settings, setting.name)
        if not name.endswith("_ms") or (value is None and setting.type == "int | None"):
            continue
        least = 0 if name in may_be_zero else 1
        if not least <= _whole(name, value, _MILLISECONDS.format(name)) <= DURATION_MS_MAX:
            raise refuse(name, value, f"must be between {least} and {DURATION_MS_MAX} milliseconds")


_OF_TIMES: Final = MappingProxyType(
    {
        datetime.datetime: "; of a datetime write int(moment.timestamp() * 1000)",
        datetime.timedelta: "; of a timedelta write span // timedelta(milliseconds=1)",
    }
)
"""Advice by the type of a value that is no number."""


def _whole(name: str, value: object, rule: str) -> int:
    # True and False are ints to Python, but not times.
    if not isinstance(value, int) or isinstance(value, bool):
        advice = _OF_TIMES.get(type(value), "")
        raise TypeError(f"{name} is {value!r} and must be {rule}{advice}")
    return value


def check_choice(name: str, found: str, allowed: tuple[str, ...]) -> None:
    """Check a setting whose values are words. Raises: Misconfigured if there is no such value."""
    if found not in allowed:
        raise wrong_setting(name, found, f"must be one of {', '.join(allowed)}")


RAISE: Final = "raise"
SKIP: Final = "skip"
ON_CORRUPT_BATCH: Final = (RAISE, SKIP)
"""Values of the option `on_corrupt_batch`."""


@dataclass(slots=True)
class Skipped:
    """Counts of the places that a reader has skipped so far because it cannot read them."""

    batches: int = 0
    """Number of times that the reader continued after an unreadable place."""
    offsets: int = 0
    """Number of skipped offsets, including those of markers."""
    last: CorruptBatch | None = None
    """Error of the last skipped place."""
    on_skip: Callable[[CorruptBatch], None] = lambda _: None
    """Called with the error of each skipped place."""

    def add(self, error: CorruptBatch) -> None:
        """Count the offsets of the error."""
        self.batches += 1
        self.offsets += error.next_offset - error.offset
        self.last = error
        self.on_skip(error)


def check_on_corrupt_batch(value: str) -> None:
    """Check a value of the option. Raises: Misconfigured if there is no such value."""
    check_choice("on_corrupt_batch", value, ON_CORRUPT_BATCH)


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
