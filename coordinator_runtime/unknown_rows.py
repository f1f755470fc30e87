"""Stored rows that only a newer program knows: which of them may be left alone, and which must not be passed over.

A later version of the program adds rows to a store that this one may have to open again. Whoever numbers a new kind of
row (the kind byte in a key, a record type) says by the number what an older program shall do with it:

- below 0x80 the row matters: without it the rest would be taken for something else (a producer that is fenced, say, for
  one that is not). What the row belongs to is not served.
- from 0x80 on the row can be done without. It stays where it is, unread, and goes with what it belongs to.

A version byte in a value that is greater than the known one matters always. What a whole store must be refused for is
told by its format number, or by a feature in META (`coordinator_runtime/rocks/own_rows.py`).

Source: docs/store-format.md, "Unknown things".
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

Member = TypeVar("Member", bound=IntEnum)

IGNORABLE_FROM: Final = 0x80
"""The first number of a kind of row that a program which does not know it can do without."""


class UnknownRow(Exception):
    """A stored row matters and only a newer program knows what it means: what it belongs to must not be served."""


def pass_over(number: int, what: str) -> None:
    """Return only if a row with this unknown kind or record type can be done without. `what` names the row and where it
    lies. Raises UnknownRow."""
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
    """The member of an enum that is stored as this number. Raises UnknownRow where there is none."""
    try:
        return of(number)
    except ValueError:
        raise UnknownRow(
            f"{what} is {number}, which this program does not know: start the version that wrote it, or a later one"
        ) from None
