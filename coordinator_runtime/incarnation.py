"""The incarnation of a store: one continuous history of its writes.

A store that continues with less than was durable (`--accept-data-loss`, a restored backup) has two histories. Clients
have seen the lost one; the other begins now, and would assign numbers of the first again. The incarnation, stored in
META, keeps the two apart. It grows before anything else is written, and numbers are assigned above all that a lost
incarnation can have assigned.

It is the second of its beginning, counted from 2025, and so grows even if the number of the lost incarnation is
unknown. A backup that is restored twice begins two incarnations with two numbers. Counters (producer ids, csns) begin
at the incarnation times the number that one incarnation can use up in a second. A plain restart loses nothing that was
answered, and begins no incarnation.

Three assumptions are made. The clock is not set back by more than the lost incarnation lasted. A shard is opened at
most once per second, on average over the life of a store. Numbers are assigned no faster, on average, than the
constants here say.

Source: docs/decisions/0028-incarnations.md; KIP-101 and KIP-320 for leader epochs.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from msgspec import Struct

from coordinator_runtime.unknown_rows import UnknownRow

_BEGAN_2025_MS: Final = 1_735_689_600_000
_NUMBER_MAX: Final = 2**31 - 1
"""Greatest number of an incarnation. The number is also the least leader epoch and coordinator epoch in it, and those
have 31 bits: enough until 2093."""

_STORED: Final = struct.Struct(">IB")

_CSNS_PER_SECOND: Final = 1 << 20
_PRODUCER_IDS_PER_SECOND: Final = 1 << 18


class IncarnationCause(IntEnum):
    """Cause of a new incarnation of a store, or of a new leader epoch of a partition. The numbers are stored.

    3 is reserved for another server that takes a partition over: the epoch then rises by one, and the incarnation
    stays."""

    CREATED = 0
    DATA_LOSS = 1
    """Acknowledged writes were missing, and the operator passed `--accept-data-loss`."""
    RESTORE = 2
    """A backup replaced the former content."""


class Incarnation(Struct, frozen=True, gc=False):
    """Number of an incarnation, and the cause of its beginning."""

    number: int
    cause: IncarnationCause

    @property
    def least_csn(self) -> int:
        """Every csn of this incarnation is greater than this."""
        return self.number * _CSNS_PER_SECOND

    @property
    def least_producer_id(self) -> int:
        """Least producer id of this incarnation, relative to the first one of its kind."""
        return self.number * _PRODUCER_IDS_PER_SECOND


FIRST: Final = Incarnation(0, IncarnationCause.CREATED)
"""Incarnation of a store that never lost anything."""


def next_incarnation(before: Incarnation, cause: IncarnationCause, wall_ms: int) -> Incarnation:
    """Return the incarnation that follows in a store whose present one ends at this wall time."""
    return Incarnation(_raised(before.number, (wall_ms - _BEGAN_2025_MS) // 1_000), cause)


def next_beginning_ms(incarnation: Incarnation) -> int:
    """Return the earliest wall time (ms) at which any new incarnation has a greater number than this one."""
    return _BEGAN_2025_MS + (incarnation.number + 1) * 1_000


def first_epoch(before: int, incarnation: Incarnation) -> int:
    """Return the epoch of a leader or coordinator in this incarnation. `before` is the last known one of an older
    incarnation."""
    return _raised(before, incarnation.number)


def _raised(before: int, least: int) -> int:
    return min(max(before + 1, least), _NUMBER_MAX)


def stored_incarnation(incarnation: Incarnation) -> bytes:
    """Return the value of the incarnation's row."""
    return _STORED.pack(incarnation.number, incarnation.cause)


def incarnation_of(stored: bytes | None) -> Incarnation:
    """Return the incarnation in that row; the first one if there is no row. Raises UnknownRow."""
    if stored is None:
        return FIRST
    try:
        number, cause = _STORED.unpack(stored)
        return Incarnation(number, IncarnationCause(cause))
    except (struct.error, ValueError) as unknown:
        raise UnknownRow(f"the row of the store's incarnation cannot be read: {unknown}") from unknown
