"""What nobody has used for long is forgotten: which of it now, and when to look again.

Every shard that forgets has one timer. When it fires, the shard looks through what it holds, in an ordinary operation:
whether something is due is decided there and then, so what was used a moment ago is safe, and a timer that was lost or
fires twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from coordinator_runtime.decision import ArmTimer, Operation, ShardKey

T = TypeVar("T")

EXPIRED_PER_TURN_MAX: Final = 500
"""What one operation forgets, so that it holds up nobody."""

_SWEEPS_PER_EXPIRATION: Final = 100
_SWEEP_STAGGER_MS: Final = 20
"""Between the shards, so that their looks do not add up to one long turn."""
_SWEEP_PAUSE_MS_MAX: Final = 3_600_000
"""Between two looks at most, as in Kafka: what is due is forgotten at most so much later than it could be."""


@dataclass(frozen=True, slots=True)
class Sweep(Generic[T]):
    """What one look found."""

    expired: Sequence[T]
    delay_ms: int
    """Until the next look."""


def sweep(idle: Iterable[tuple[int, T]], *, now_ms: int, expiration_ms: int) -> Sweep[T]:
    """Find what was not used for `expiration_ms` or longer. `idle` gives the wall time of the last use of everything
    that nothing else keeps. Stops when it has found enough for one operation; the rest follows at once."""
    due_ms, oldest_ms = now_ms - expiration_ms, now_ms
    expired: list[T] = []
    for last_used_ms, each in idle:
        # One comparison is all that most of them cost: only what is older than all before it is worth a look.
        if last_used_ms >= oldest_ms:
            continue
        if last_used_ms > due_ms:
            oldest_ms = last_used_ms
        elif len(expired) < EXPIRED_PER_TURN_MAX:
            expired.append(each)
        else:
            return Sweep(expired, 1)
    # No sooner than after the pause, however many come due one by one; and no later than what becomes idle now can
    # expire.
    pause_ms = min(max(expiration_ms // _SWEEPS_PER_EXPIRATION, 1), _SWEEP_PAUSE_MS_MAX)
    return Sweep(expired, max(oldest_ms + expiration_ms - now_ms, pause_ms))


def next_sweep(kind: str, key: ShardKey, delay_ms: int) -> ArmTimer:
    """Lets a shard look again: its `decide_expire` is the operation."""
    return ArmTimer((kind, key.number), delay_ms, Operation(key, lambda shard, turn: shard.decide_expire(turn)))


def first_sweep(kind: str, key: ShardKey) -> ArmTimer:
    """The same soon after a load: what came due meanwhile is forgotten then."""
    return next_sweep(kind, key, 1 + _SWEEP_STAGGER_MS * key.number)
