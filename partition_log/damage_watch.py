"""Damage that reads of the log meet: the refusal for the reader, and one event for each damaged place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import PartitionRef
from coordinator_runtime.store import Family, StoreDamaged, StoreUnreadable
from partition_log.batches import LogDamaged
from partition_log.records import DamageFound

_PLACES_MAX: Final = 10_000
"""Largest number of damaged places that are reported. With more, the disk is lost, and that has been reported."""


class DamageWatch:
    """Turns damage into the refusal for the reader, and reports every new place to `on_found`."""

    def __init__(self) -> None:
        self._reported: set[tuple[int, Family, int | bytes | None]] = set()
        self.on_found: Callable[[DamageFound], None] = lambda _event: None

    def met(self, ref: PartitionRef, met: LogDamaged | StoreUnreadable) -> Refused:
        """Return the refusal for a read of a partition that failed.

        CORRUPT_MESSAGE: the stored bytes are damaged, and reading them again cannot help.
        UNSUPPORTED_FOR_MESSAGE_FORMAT: the batch is whole, and of a newer version. UNKNOWN_SERVER_ERROR: the bytes
        could not be read now, and may be whole."""
        name = f"{ref.topic}-{ref.partition}"
        match met:
            case LogDamaged(code=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT as code, offset=offset, reason=reason):
                return Refused(
                    code,
                    f"{name} has a batch at offset {offset} whose {reason} of the server: start the one that wrote it, "
                    f"or a later one, or go on at {met.next_offset} to do without it",
                )
            case LogDamaged(family=family, offset=offset, next_offset=next_offset, reason=reason):
                self._report(ref, family, offset, next_offset, reason)
                return Refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{name} is damaged at offset {offset}: {reason}. Go on at {next_offset} to do without what lies "
                    "before it, or restore a backup",
                )
            case StoreDamaged(family=family, key=key):
                self._report(ref, family, key, None, str(met))
                return Refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the index {family.name} of {name} is damaged: {met}. Records can still be fetched; restore a "
                    "backup to search and count them",
                )
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: {met}; try again")

    def _report(
        self, ref: PartitionRef, family: Family, place: int | bytes | None, next_offset: int | None, reason: str
    ) -> None:
        at = (ref.ordinal, family, place)
        if at not in self._reported and len(self._reported) < _PLACES_MAX:
            self._reported.add(at)
            offset = place if isinstance(place, int) else None
            self.on_found(DamageFound(ref.topic, ref.partition, family, offset, next_offset, reason))
