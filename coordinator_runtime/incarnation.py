"""The incarnation of a store: which line of its history this is.

A store that goes on with less than had been durable (`--accept-data-loss`, a restored backup) has two futures: the one
that was lost, which clients have seen, and the one that begins now. The numbers that were given in the first are given
again in the second, unless something keeps the two apart. That is the incarnation, which META holds: it grows before
anything else is written, and numbers are given above all that a lost incarnation can have given.

It is the second of its beginning, counted from 2025, and so grows although the number of the lost incarnation is not
known: a backup that is restored twice begins two lines with two numbers. What is counted (producer ids, csns) begins at
the incarnation times what one line can use up in a second. A plain restart loses nothing that anybody was told, and
begins no line.

It rests on a clock that is not set back by more than the lost incarnation lasted, and on no more shards being opened,
and numbers given, per second than said here, on average over the life of a store.

Source: docs/decisions/0028-lines-of-a-store.md; KIP-101 and KIP-320 for leader epochs.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from msgspec import Struct

from coordinator_runtime.unknown_rows import UnknownRow

_BEGAN_2025_MS: Final = 1_735_689_600_000
_NUMBER_MAX: Final = 2**31 - 1
"""It is the least leader epoch and coordinator epoch of its line, and those have 31 bits: enough until 2093."""

_STORED: Final = struct.Struct(">IB")

_CSNS_PER_SECOND: Final = 1 << 20
_PRODUCER_IDS_PER_SECOND: Final = 1 << 18


class LineCause(IntEnum):
    """Why a line of a store, or of a partition's log, began; the numbers are stored. 3 is kept for another server that
    takes a partition over: the epoch then rises by one, and the store stays in its line."""

    CREATED = 0
    DATA_LOSS = 1
    """Acknowledged writes were missing, and the operator said `--accept-data-loss`."""
    RESTORE = 2
    """A backup took the place of what was there."""


class Incarnation(Struct, frozen=True, gc=False):
    """Which line of a store this is, and why it began."""

    number: int
    cause: LineCause

    @property
    def least_csn(self) -> int:
        """No csn up to this one is given in this line."""
        return self.number * _CSNS_PER_SECOND

    @property
    def least_producer_id(self) -> int:
        """No producer id below this one is given in this line, counted from the first of its kind."""
        return self.number * _PRODUCER_IDS_PER_SECOND


FIRST: Final = Incarnation(0, LineCause.CREATED)
"""What a store has that never lost anything."""


def next_incarnation(before: Incarnation, cause: LineCause, wall_ms: int) -> Incarnation:
    """The incarnation of a store whose present line ends here, at this wall time."""
    return Incarnation(_raised(before.number, (wall_ms - _BEGAN_2025_MS) // 1_000), cause)


def next_beginning_ms(incarnation: Incarnation) -> int:
    """The wall time from which on a line that begins has a greater number than this one, whatever it follows."""
    return _BEGAN_2025_MS + (incarnation.number + 1) * 1_000


def first_epoch(before: int, incarnation: Incarnation) -> int:
    """The epoch of a leader or coordinator in this line, the last known one of an older line being `before`."""
    return _raised(before, incarnation.number)


def _raised(before: int, least: int) -> int:
    return min(max(before + 1, least), _NUMBER_MAX)


def stored_incarnation(incarnation: Incarnation) -> bytes:
    """The value of its row."""
    return _STORED.pack(incarnation.number, incarnation.cause)


def incarnation_of(stored: bytes | None) -> Incarnation:
    """The incarnation in that row; the first one where there is none. Raises UnknownRow."""
    if stored is None:
        return FIRST
    try:
        number, cause = _STORED.unpack(stored)
        return Incarnation(number, LineCause(cause))
    except (struct.error, ValueError) as unknown:
        raise UnknownRow(f"the row of the store's incarnation cannot be read: {unknown}") from unknown
