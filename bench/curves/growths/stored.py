"""Bytes of records that are stored."""

from __future__ import annotations

import shutil
from typing import Final

from bench.curves.growths.appending import append, create
from bench.curves.growths.growth import Growth, NoRoom, Place
from bench.load.stubs import open_channel
from coordinator_protocol.limits import KIBI, MEBI

_TOPIC: Final = "stored"
_PARTITIONS: Final = 4
_VALUE_BYTES: Final = KIBI
_RECORDS: Final = 256
"""Number of records of a batch."""
_GIBI: Final = 1024 * MEBI
_KEPT_FREE_BYTES: Final = 2 * _GIBI
"""Room that is left on the disk."""


class StoredBytes(Growth):
    """Records of 1 KiB in batches of 256 KiB; amounts are MiB."""

    async def grow(self, place: Place, have: int, to: int) -> None:
        check_room(shutil.disk_usage(place.directory).free, (to - have) * MEBI)
        async with open_channel(place.endpoint) as channel:
            if not have:
                await create(channel, _TOPIC, _PARTITIONS)
            batches = (to - have) * MEBI // (_VALUE_BYTES * _RECORDS)
            partitions = range(_PARTITIONS)
            await append(channel, _TOPIC, partitions, batches, value_bytes=_VALUE_BYTES, records=_RECORDS)


def check_room(free_bytes: int, wanted_bytes: int) -> None:
    """Raise NoRoom if the disk would be all but full. Files that are merged exist twice for a moment."""
    if free_bytes < wanted_bytes * 1.2 + _KEPT_FREE_BYTES:
        free, wanted = free_bytes / _GIBI, wanted_bytes / _GIBI
        raise NoRoom(f"the disk has {free:.1f} GiB free, and {wanted:.1f} GiB more are wanted")
