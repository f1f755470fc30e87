"""Times as callers give them: whole milliseconds, by a keyword whose name ends in `_ms`.

Clients of Kafka disagree: one takes `poll(1.0)` for a second, another `poll(1000)`. A wrong guess waits a thousand
times too long, or not at all, and nobody notices. So nothing is guessed here: a time comes with its unit, and a float,
which is nearly always seconds, is refused like a negative number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from coordinator_client.errors import TransactionError, rejected
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
