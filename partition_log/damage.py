"""What readers are told of damage. Logs and metrics hear of each damaged place once, however often it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import PartitionRef
from coordinator_runtime.store import Family, StoreDamaged, StoreUnreadable
from partition_log.batches import LogDamaged
from partition_log.events import DamageFound

PLACES_TOLD_MAX: Final = 10_000
"""Beyond so many, a new one is not told any more: the disk is lost, and that has been said."""


class DamageWatch:
    """Turns damage into the refusal that the reader gets, and tells `on_found` of every new place."""

    def __init__(self) -> None:
        self._told: set[tuple[int, Family, int | bytes | None]] = set()
        self.on_found: Callable[[DamageFound], None] = lambda _event: None

    def met(self, ref: PartitionRef, met: LogDamaged | StoreUnreadable) -> Refused:
        """The refusal for a read of a partition that could not be done.

        CORRUPT_MESSAGE: what is stored is damaged, and reading it again cannot help. UNKNOWN_SERVER_ERROR: it could not
        be read now, and may be whole."""
        name = f"{ref.topic}-{ref.partition}"
        match met:
            case LogDamaged(family=family, offset=offset, next_offset=next_offset, reason=reason):
                self._tell(ref, family, offset, next_offset, reason)
                return Refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{name} is damaged at offset {offset}: {reason}. Go on at {next_offset} to do without what lies "
                    "before it, or restore a backup",
                )
            case StoreDamaged(family=family, key=key):
                self._tell(ref, family, key, None, str(met))
                return Refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the index {family.name} of {name} is damaged: {met}. Records can still be fetched; restore a "
                    "backup to search and count them",
                )
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: {met}; try again")

    def _tell(
        self, ref: PartitionRef, family: Family, place: int | bytes | None, next_offset: int | None, reason: str
    ) -> None:
        at = (ref.ordinal, family, place)
        if at not in self._told and len(self._told) < PLACES_TOLD_MAX:
            self._told.add(at)
            offset = place if isinstance(place, int) else None
            self.on_found(DamageFound(ref.topic, ref.partition, family, offset, next_offset, reason))
