"""Stored rows that only a newer program knows: some may be ignored, the others must not be.

A later version of the program adds rows to a store that this version may have to open again. The number of a new kind
of row (the kind byte in a key, a record type) tells an older program how to treat it:

- below 0x80 the row matters: without it, other rows would be misread (a fenced producer, say, would pass for a valid
  one). Whatever the row belongs to is not served.
- from 0x80 on the row can be ignored. It stays unread in its place, and is deleted with what it belongs to.

A version byte in a value that is greater than the known one always matters. A change for which the whole store must be
refused has its own format number, or a feature in META (`coordinator_runtime/own_rows.py`).

Source: docs/store-format.md, "Unknown things".
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

Member = TypeVar("Member", bound=IntEnum)

IGNORABLE_FROM: Final = 0x80
"""First number of the kinds of rows that an older program can ignore."""


class UnknownRow(Exception):
    """A stored row matters and only a newer program knows its meaning. Whatever it belongs to must not be served."""


def pass_over(number: int, what: str) -> None:
    """Return only if a row of this unknown kind or record type can be ignored. Raises UnknownRow.

    `what` names the row and its place."""
    if number < IGNORABLE_FROM:
        raise UnknownRow(
            f"{what} is of type {number}, which this program does not know and must not pass over: start the version"
            " that wrote it, or a later one"
        )


def check_version(version: int, known: int, what: str) -> None:
    """Return only for the known version of a value. Raises UnknownRow."""
    if version != known:
        raise UnknownRow(
            f"{what} has version {version} and this program knows {known}: start the version that wrote it, or a later"
            " one"
        )


def known_member(of: type[Member], number: int, what: str) -> Member:
    """Return the member of an enum that is stored as this number. Raises UnknownRow if there is none."""
    try:
        return of(number)
    except ValueError:
        raise UnknownRow(
            f"{what} is {number}, which this program does not know: start the version that wrote it, or a later one"
        ) from None
