"""Leases: who reads old records says so, and they are kept while the lease lasts.

A lease is memory only, and ends with the server: what a snapshot shows is in the snapshot, so a reader whose lease is
lost reads on, and is refused only where something is really gone (decision 40).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.runtime import Runtime

LEASES_MAX: Final = 1_000
"""Leases at a time. Each costs a few bytes for each partition, and keeps records."""
LEASE_MS_MAX: Final = 3_600_000
"""The longest time between two renewals: how long the records of a dead reader are kept at most."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What one snapshot holds."""

    names: tuple[PartitionName, ...]
    first_offsets: Mapping[int, int]
    """By ordinal."""


class Leases:
    """Implements `coordinator_runtime.ports.OffsetLeases`."""

    def __init__(self, runtime: Runtime, new_id: Callable[[], bytes]) -> None:
        self._runtime = runtime
        self._new_id = new_id
        self._leases: dict[bytes, Lease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def oldest(self, ordinal: int) -> int | None:
        """The first offset of a partition that somebody holds; None: nobody holds any."""
        held = (lease.first_offsets.get(ordinal) for lease in self._leases.values())
        return min((offset for offset in held if offset is not None), default=None)

    def check_room(self, lease_ms: int) -> None:
        """Return only if a lease of that length may be taken. Raises Refused INVALID_REQUEST,
        THROTTLING_QUOTA_EXCEEDED."""
        check_lease_ms(lease_ms)
        if lease_ms and len(self._leases) >= LEASES_MAX:
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{LEASES_MAX} snapshots are held already: release those that are read, or try again later",
            )

    def take(self, lease: Lease, lease_ms: int) -> bytes:
        """Hold records from now on, for so long; returns the id of the lease."""
        lease_id = self._new_id()
        self._leases[lease_id] = lease
        self._arm(lease_id, lease_ms)
        return lease_id

    def find(self, lease_id: bytes) -> Lease:
        """Raises Refused SNAPSHOT_NOT_FOUND."""
        lease = self._leases.get(lease_id)
        if lease is None:
            raise Refused(
                ErrorCode.SNAPSHOT_NOT_FOUND,
                f"no snapshot {lease_id.hex() or '(no id)'} is held: its lease ran out, it was released, or the server "
                "was started since. What is left of its records can still be read; take another one to hold them",
            )
        return lease

    def renew(self, lease_id: bytes, lease_ms: int) -> None:
        """Let a lease that is there last so long from now on. Raises Refused INVALID_REQUEST."""
        check_lease_ms(lease_ms)
        if not lease_ms:
            raise Refused(ErrorCode.INVALID_REQUEST, "lease_ms is 0: release the snapshot to hold it no longer")
        self._arm(lease_id, lease_ms)

    def release(self, lease_id: bytes) -> None:
        """Hold these records no longer."""
        self._runtime.timers.cancel(("snapshot_lease", lease_id))
        self._leases.pop(lease_id, None)

    def _arm(self, lease_id: bytes, lease_ms: int) -> None:
        self._runtime.arm(("snapshot_lease", lease_id), lease_ms, lambda: self.release(lease_id))


def check_lease_ms(lease_ms: int) -> None:
    """Raises Refused INVALID_REQUEST for what is no time for a lease."""
    if not 0 <= lease_ms <= LEASE_MS_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"lease_ms is {lease_ms} and must be from 0 (no lease) to {LEASE_MS_MAX}: renew the lease while you read",
        )
