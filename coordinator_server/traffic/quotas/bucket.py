"""The rule of rates: a bucket that fills evenly, and may be taken from until it is below empty.

A caller that finds it not below empty is served whatever the cost, so a large request never waits for ever. The excess
is waited for afterwards. Over any time T at most rate x T, the burst and one request are taken.

Integers throughout: microseconds times units per second are millionths of a unit, and nothing is lost by rounding.

Source: KIP-599 (a bucket that may go below zero).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

BURST_US: Final = 100_000
"""Time for which an unused rate is saved up. It is short because the calls of others wait behind the saved burst."""
_MILLIONTHS: Final = 1_000_000


class Bucket(Struct, frozen=True):
    """Available amount of a rate, as of a moment."""

    rate: int
    """Units per second."""
    left: int
    """Millionths of a unit; below zero if more was taken than there was."""
    at_us: int
    """Monotonic."""


def full(rate: int, now_us: int) -> Bucket:
    """Return a bucket from which nothing was taken yet."""
    return Bucket(rate, _burst(rate), now_us)


def _burst(rate: int) -> int:
    """Return the maximum that is saved up, in millionths: one unit at least."""
    return max(rate * BURST_US, _MILLIONTHS)


def refilled(bucket: Bucket, now_us: int) -> Bucket:
    """Return the bucket as of now. A clock that goes back adds nothing."""
    added = max(0, now_us - bucket.at_us) * bucket.rate
    left = min(bucket.left + added, _burst(bucket.rate))
    return Bucket(bucket.rate, left, max(now_us, bucket.at_us))


def taken(bucket: Bucket, units: int, now_us: int) -> Bucket:
    """Return the bucket after so many units were taken."""
    now = refilled(bucket, now_us)
    return Bucket(now.rate, now.left - units * _MILLIONTHS, now.at_us)


def pause_us(bucket: Bucket, now_us: int) -> int:
    """Return the time until more may be taken (us); 0 means now."""
    left = refilled(bucket, now_us).left
    return 0 if left >= 0 else -(left // bucket.rate)


def with_rate(bucket: Bucket, rate: int, now_us: int) -> Bucket:
    """Return the bucket with a changed rate. Debt stays, and savings beyond the new burst are lost."""
    now = refilled(bucket, now_us)
    return refilled(Bucket(rate, now.left, now.at_us), now.at_us)
