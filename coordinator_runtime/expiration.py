"""What nobody has used for long is forgotten: which of it now, and when to look again.

Every shard that forgets has one timer. When it fires, the shard looks through what it holds, in an ordinary operation:
whether something is due is decided there and then, so what was used a moment ago is safe, and a timer that was lost or
fires twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, TypeVar

from coordinator_runtime.decision import ArmTimer, Operation, ShardKey

T = TypeVar("T")

EXPIRED_PER_TURN_MAX: Final = 500
"""What one operation forgets, so that it holds up nobody."""
LOOKED_AT_PER_TURN_MAX: Final = 5_000
"""What one operation looks at: about a millisecond."""

_SWEEPS_PER_EXPIRATION: Final = 100
_SWEEP_STAGGER_MS: Final = 20
"""Pause between the shards, so that their looks do not add up to one long turn."""
_SWEEP_PAUSE_MS_MAX: Final = 3_600_000
"""Longest pause between two looks, as in Kafka: what is due is forgotten at most so much later than it could be."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a look at everything has come, which may take several operations."""

    position: int = 0
    """How much of what is there was looked at. What moves up because others went is found by the next look."""
    oldest_ms: int | None = None
    """The earliest last use among that."""


START: Final = Progress()


@dataclass(frozen=True, slots=True)
class Sweep(Generic[T]):
    """What one operation found."""

    expired: Sequence[T]
    delay_ms: int
    """How long to wait before the next operation."""
    progress: Progress
    """Where the next operation goes on."""


def sweep(things: Iterable[tuple[int, T]], progress: Progress, *, now_ms: int, expiration_ms: int) -> Sweep[T]:
    """Find what was not used for `expiration_ms` or longer. `things`: the wall time of the last use of everything from
    `progress.position` on; what something else keeps counts as used now."""
    due_ms = now_ms - expiration_ms
    oldest_ms = now_ms if progress.oldest_ms is None else progress.oldest_ms
    expired: list[T] = []
    count = 0
    for last_used_ms, each in islice(things, LOOKED_AT_PER_TURN_MAX):
        count += 1
        # One comparison is all that most of them cost: only what is older than all before it is worth a look.
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
    # No sooner than after the pause, however many come due one by one; and no later than what becomes idle now can
    # expire.
    pause_ms = min(max(expiration_ms // _SWEEPS_PER_EXPIRATION, 1), _SWEEP_PAUSE_MS_MAX)
    return Sweep(expired, max(oldest_ms + expiration_ms - now_ms, pause_ms), START)


def next_sweep(kind: str, key: ShardKey, done: Sweep[T]) -> ArmTimer:
    """Lets a shard look on, or once more: its `decide_expire` is the operation."""
    return _timer(kind, key, done.delay_ms, done.progress)


def first_sweep(kind: str, key: ShardKey) -> ArmTimer:
    """Lets a shard look soon after a load: what came due meanwhile is forgotten then."""
    return _timer(kind, key, 1 + _SWEEP_STAGGER_MS * key.number, START)


def _timer(kind: str, key: ShardKey, delay_ms: int, progress: Progress) -> ArmTimer:
    operation = Operation(key, lambda shard, turn: shard.decide_expire(turn, progress))
    return ArmTimer((kind, key.number), delay_ms, operation)
