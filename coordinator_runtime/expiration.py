"""Expiration of unused state: which items expire now, and when to look again.

Every shard with such state has one timer. When it fires, the shard looks through its state in an ordinary operation,
which decides what has expired. So a recently used item is safe, and a timer that was lost or fires twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from coordinator_runtime.decision import ArmTimer, Operation, ShardKey

T = TypeVar("T")

EXPIRED_PER_TURN_MAX: Final = 500
"""Number of items that one operation forgets at most, so that it does not hold up others."""
LOOKED_AT_PER_TURN_MAX: Final = 5_000
"""Number of items that one operation looks at: about a millisecond."""

_SWEEPS_PER_EXPIRATION: Final = 100
_SWEEP_STAGGER_MS: Final = 20
"""Pause between the shards, so that their looks do not add up to one long turn."""
_SWEEP_PAUSE_MS_MAX: Final = 3_600_000
"""Longest pause between two looks, as in Kafka. An item is forgotten at most this much later than it could be."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a look at all items, which may take several operations."""

    position: int = 0
    """Number of items looked at. Items that move up because others went are found by the next look."""
    oldest_ms: int | None = None
    """Earliest last use among those items."""


START: Final = Progress()


@dataclass(frozen=True, slots=True)
class Sweep(Generic[T]):
    """Result of one operation."""

    expired: Sequence[T]
    delay_ms: int
    """Pause before the next operation."""
    progress: Progress
    """Start of the next operation."""


def sweep(things: Iterable[tuple[int, T]], progress: Progress, *, now_ms: int, expiration_ms: int) -> Sweep[T]:
    """Find the items that were not used for `expiration_ms` or longer.

    `things`: every item from `progress.position` on, with the wall time of its last use. An item that is still needed
    counts as used now."""
    due_ms = now_ms - expiration_ms
    oldest_ms = now_ms if progress.oldest_ms is None else progress.oldest_ms
    expired: list[T] = []
    count = 0
    for last_used_ms, each in islice(things, LOOKED_AT_PER_TURN_MAX):
        count += 1
        # Most items cost one comparison: only those older than all before need a closer look.
        if last_used_ms >= oldest_ms:
            continue
        if last_used_ms > due_ms:
            oldest_ms = last_used_ms
            continue
        expired.append(each)
        if len(expired) == EXPIRED_PER_TURN_MAX:
            break
    if count == LOOKED_AT_PER_TURN_MAX or len(expired) == EXPIRED_PER_TURN_MAX:
        return Sweep(expired, 1, Progress(progress.position + count - len(expired), oldest_ms))
    # Not before the pause is over, even if items expire one by one. Not later than an item that becomes idle now can
    # expire.
    pause_ms = min(max(expiration_ms // _SWEEPS_PER_EXPIRATION, 1), _SWEEP_PAUSE_MS_MAX)
    return Sweep(expired, max(oldest_ms + expiration_ms - now_ms, pause_ms), START)


def next_sweep(kind: str, key: ShardKey, done: Sweep[T]) -> ArmTimer:
    """Return the timer that lets a shard look on, or again. Its operation is `decide_expire`."""
    return _timer(kind, key, done.delay_ms, done.progress)


def first_sweep(kind: str, key: ShardKey) -> ArmTimer:
    """Return the timer that lets a shard look soon after a load: what expired meanwhile is forgotten then."""
    return _timer(kind, key, 1 + _SWEEP_STAGGER_MS * key.number, START)


def _timer(kind: str, key: ShardKey, delay_ms: int, progress: Progress) -> ArmTimer:
    operation = Operation(key, lambda shard, turn: shard.decide_expire(turn, progress))
    return ArmTimer((kind, key.number), delay_ms, operation)
