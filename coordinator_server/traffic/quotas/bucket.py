"""The rule of rates: a bucket that fills evenly, and from which may be taken until it is below empty.

Whoever finds it not below empty is served whatever that costs, so a large request never waits for ever; what it took
too much is waited for afterwards. Over any time T at most rate x T, the burst and one request are taken.

Integers throughout: microseconds times units per second are millionths of a unit, and nothing is lost by rounding.

Source: KIP-599 (a bucket that may go below zero).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

BURST_US: Final = 100_000
"""How long an unused rate is saved up. It is short because the calls of others wait behind what was saved up."""
_MILLIONTHS: Final = 1_000_000


class Bucket(Struct, frozen=True):
    """What may be taken, as of a moment."""

    rate: int
    """Units per second."""
    left: int
    """Millionths of a unit; below zero: somebody took more than there was."""
    at_us: int
    """Monotonic."""


def full(rate: int, now_us: int) -> Bucket:
    """A bucket from which nothing was taken yet."""
    return Bucket(rate, _burst(rate), now_us)


def _burst(rate: int) -> int:
    """The most that is saved up, in millionths: one unit at least."""
    return max(rate * BURST_US, _MILLIONTHS)


def refilled(bucket: Bucket, now_us: int) -> Bucket:
    """The bucket as it is now. Time that goes back adds nothing."""
    added = max(0, now_us - bucket.at_us) * bucket.rate
    left = min(bucket.left + added, _burst(bucket.rate))
    return Bucket(bucket.rate, left, max(now_us, bucket.at_us))


def taken(bucket: Bucket, units: int, now_us: int) -> Bucket:
    """The bucket after so many units were taken."""
    now = refilled(bucket, now_us)
    return Bucket(now.rate, now.left - units * _MILLIONTHS, now.at_us)


def pause_us(bucket: Bucket, now_us: int) -> int:
    """How long until more may be taken; 0: now."""
    left = refilled(bucket, now_us).left
    return 0 if left >= 0 else -(left // bucket.rate)


def with_rate(bucket: Bucket, rate: int, now_us: int) -> Bucket:
    """The bucket when its rate is changed: what is owed stays owed, and what was saved up beyond the new burst goes."""
    now = refilled(bucket, now_us)
    return refilled(Bucket(rate, now.left, now.at_us), now.at_us)
