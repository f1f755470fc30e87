"""Leases: the records that a reader holds are kept while its lease lasts.

Retention or an administrator may want to remove records that a lease holds. A lease that is taken from then on begins
behind them. Otherwise overlapping leases, such as those of a job that runs again and again, would keep everything
permanently.

A lease is in memory only, and ends with the server. The snapshot itself says what it shows, so a reader that has lost
its lease reads on. It is refused only where records are really gone (decision 40).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from coordinator_protocol.acls import ANONYMOUS
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import LEASE_PARTS_MAX
from coordinator_runtime.ports import Level, Levels, PartitionName
from coordinator_runtime.runtime import Runtime

LEASES_MAX: Final = 1_000
"""Largest number of leases at a time. Each costs a few bytes for each partition, and keeps records."""
LEASE_MS_MAX: Final = 3_600_000
"""Longest time between two renewals. The records of a dead reader are kept for that long at most."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Records that one snapshot holds."""

    names: tuple[PartitionName, ...]
    first_offsets: Mapping[int, int]
    """First held offset by ordinal."""
    principal: str = ANONYMOUS
    """Principal that took the lease."""
    taken_ms: int = 0
    """Time at which it was taken, on the monotonic clock."""
    parts: int = 0
    """Number of parts in which it is released; 0 if no caller has said yet."""
    parts_done: int = 0
    """Bit set of the parts that are released."""


@dataclass(frozen=True, slots=True)
class HeldLease:
    """One lease, as operators see it."""

    principal: str
    age_ms: int
    topics: tuple[str, ...]
    partition_count: int
    parts: int
    parts_done: int


class Leases:
    """Implements `coordinator_runtime.ports.OffsetLeases`."""

    def __init__(self, runtime: Runtime, new_id: Callable[[], bytes], levels: Levels | None = None) -> None:
        self._runtime = runtime
        self._new_id = new_id
        self._levels = levels
        self._leases: dict[bytes, Lease] = {}
        self._holders: Counter[int] = Counter()
        """Number of leases by ordinal."""
        self._due: dict[int, int] = {}
        """Log starts that would be due without leases, by ordinal of a held partition."""

    def __len__(self) -> int:
        return len(self._leases)

    def oldest_age_ms(self) -> int:
        """Return the age of the oldest lease, renewals included; 0 if there is none."""
        now_ms = self._runtime.clock.monotonic_ms()
        return max((now_ms - lease.taken_ms for lease in self._leases.values()), default=0)

    def held(self) -> list[HeldLease]:
        """Return all leases, the oldest first."""
        now_ms = self._runtime.clock.monotonic_ms()
        return [
            HeldLease(
                principal=lease.principal,
                age_ms=now_ms - lease.taken_ms,
                topics=tuple(sorted({name.topic for name in lease.names})),
                partition_count=len(lease.names),
                parts=lease.parts,
                parts_done=lease.parts_done.bit_count(),
            )
            for lease in sorted(self._leases.values(), key=lambda lease: lease.taken_ms)
        ]

    def oldest(self, ordinal: int) -> int | None:
        """Return the first offset of a partition that a lease holds; None if there is none."""
        if ordinal not in self._holders:
            return None
        held = (lease.first_offsets.get(ordinal) for lease in self._leases.values())
        return min((offset for offset in held if offset is not None), default=None)

    def note_due(self, ordinal: int, offset: int) -> None:
        """Note the offset at which the log of a held partition would begin without leases."""
        if self._holders[ordinal]:
            self._due[ordinal] = max(offset, self._due.get(ordinal, 0))

    def first_offset(self, ordinal: int, log_start_offset: int) -> int:
        """Return the first offset of a partition that a lease holds if it is taken now."""
        return max(log_start_offset, self._due.get(ordinal, 0))

    def check_limits(self, lease_ms: int, principal: str) -> None:
        """Return only if the principal may take a lease of that length. Raises Refused INVALID_REQUEST,
        THROTTLING_QUOTA_EXCEEDED."""
        check_lease_ms(lease_ms)
        if lease_ms and len(self._leases) >= LEASES_MAX:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{LEASES_MAX} snapshots are held already: release those that are read, or try again later",
            )
        if lease_ms and self._levels is not None:
            self._levels.check(Level.SNAPSHOTS, principal, lambda: self._held_by(principal))

    def _held_by(self, principal: str) -> int:
        return sum(1 for lease in self._leases.values() if lease.principal == principal)

    def take(self, lease: Lease, lease_ms: int) -> bytes:
        """Hold records for `lease_ms` from now on, and return the id of the lease."""
        lease_id = self._new_id()
        self._leases[lease_id] = replace(lease, taken_ms=self._runtime.clock.monotonic_ms())
        self._holders.update(lease.first_offsets.keys())
        self._arm(lease_id, lease_ms)
        return lease_id

    def find(self, lease_id: bytes) -> Lease:
        """Return the lease with this id. Raises Refused SNAPSHOT_NOT_FOUND."""
        lease = self._leases.get(lease_id)
        if lease is None:
            raise Refused(
                ErrorCode.SNAPSHOT_NOT_FOUND,
                f"no snapshot {lease_id.hex() or '(no id)'} is held: its lease ran out, it was released, or the server "
                "was started since. What is left of its records can still be read; take another one to hold them",
            )
        return lease

    def renew(self, lease_id: bytes, lease_ms: int) -> None:
        """Let an existing lease last `lease_ms` from now on. Raises Refused INVALID_REQUEST."""
        check_lease_ms(lease_ms)
        if not lease_ms:
            raise Refused(ErrorCode.INVALID_REQUEST, "lease_ms is 0: release the snapshot to hold it no longer")
        self._arm(lease_id, lease_ms)

    def release(self, lease_id: bytes) -> None:
        """Hold the records of a lease no longer."""
        self._runtime.timers.cancel(("snapshot_lease", lease_id))
        lease = self._leases.pop(lease_id, None)
        for ordinal in () if lease is None else lease.first_offsets:
            self._holders[ordinal] -= 1
            if not self._holders[ordinal]:
                del self._holders[ordinal]
                self._due.pop(ordinal, None)

    def release_part(self, lease_id: bytes, part: int, parts: int) -> None:
        """Note that one part of a lease was read, and release the lease with the last part. A part may be reported more
        than once. Raises Refused SNAPSHOT_NOT_FOUND, INVALID_REQUEST."""
        lease = self.find(lease_id)
        if not 0 <= part < parts <= LEASE_PARTS_MAX or lease.parts not in (0, parts):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"part {part} of {parts} is none: parts are counted from 0, there are at most {LEASE_PARTS_MAX}"
                + (f", and this snapshot has {lease.parts}" if lease.parts else ""),
            )
        done = lease.parts_done | 1 << part
        self._leases[lease_id] = replace(lease, parts=parts, parts_done=done)
        if done.bit_count() == parts:
            self.release(lease_id)

    def _arm(self, lease_id: bytes, lease_ms: int) -> None:
        self._runtime.arm(("snapshot_lease", lease_id), lease_ms, lambda: self.release(lease_id))


def check_lease_ms(lease_ms: int) -> None:
    """Return only if this is a valid duration of a lease. Raises Refused INVALID_REQUEST."""
    if not 0 <= lease_ms <= LEASE_MS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"lease_ms is {lease_ms} and must be from 0 (no lease) to {LEASE_MS_MAX}: renew the lease while you read",
        )
