"""Values of settings as users write them, and the whole numbers that are stored for them.

The stored form of a setting is a number, also of one with words. `earliest` and `latest` have the numbers that
ListOffsets has for them. An age is its milliseconds. Only a name is stored as text.

Source: KIP-932 (share.auto.offset.reset), KIP-1106 (by_duration).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from coordinator_protocol.errors import Refused
from coordinator_protocol.names import check_topic_name

LATEST: Final = -1
EARLIEST: Final = -2

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d{1,6})D)?(?:T(?=.)(?:(\d{1,8})H)?(?:(\d{1,9})M)?(?:(\d{1,11})(?:\.(\d{1,3}))?S)?)?", re.ASCII
)
_MS_OF_UNIT: Final = (86_400_000, 3_600_000, 60_000, 1_000)


class Words(Struct, frozen=True):
    """Values of one setting."""

    read: Callable[[int | str], int | str | None]
    """Returns the stored form; None if there is no such value."""
    show: Callable[[int | str], int | str]
    described: str
    """Possible values, for people."""


NUMBERS: Final = Words(lambda value: value if isinstance(value, int) else None, lambda value: value, "a whole number")


def words_of(*words: str) -> Words:
    """Return the values that are stored as their places in this order. Never change the order, only add."""
    places = {word: place for place, word in enumerate(words)}

    def read(value: int | str) -> int | None:
        return places.get(value.lower()) if isinstance(value, str) else None

    def show(value: int | str) -> int | str:
        return words[value] if isinstance(value, int) and 0 <= value < len(words) else value

    return Words(read, show, " or ".join(words))


def _read_reset(value: int | str) -> int | None:
    if isinstance(value, int):
        return None
    if value in _RESETS:
        return _RESETS[value]
    return duration_ms(value.removeprefix(_BY_DURATION)) if value.startswith(_BY_DURATION) else None


def _show_reset(value: int | str) -> int | str:
    if isinstance(value, str):
        return value
    for word, number in _RESETS.items():
        if value == number:
            return word
    return value if value < 0 else f"{_BY_DURATION}{duration_text(value)}"


def _read_topic(value: int | str) -> str | None:
    if isinstance(value, int):
        return None
    try:
        if value:
            check_topic_name(value)
    except Refused:
        return None
    return value


TOPIC: Final = Words(_read_topic, lambda value: value, "the name of a topic, or an empty text for none")

_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST}

OFFSET_RESETS: Final = Words(_read_reset, _show_reset, "earliest, latest, or by_duration: with an age such as PT1H30M")


def duration_ms(text: str) -> int | None:
    """Return the length of a duration of ISO 8601 with days, hours, minutes and seconds; None for another text."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    *units, fraction = found.groups()
    whole_ms = sum(int(number or 0) * unit_ms for number, unit_ms in zip(units, _MS_OF_UNIT, strict=True))
    return whole_ms + int((fraction or "").ljust(3, "0"))


def duration_text(length_ms: int) -> str:
    """Return the duration as `duration_ms` reads it."""
    parts = []
    rest_ms = length_ms
    for unit, unit_ms in zip("HM", _MS_OF_UNIT[1:3], strict=True):
        number, rest_ms = divmod(rest_ms, unit_ms)
        parts += [f"{number}{unit}"] if number else []
    seconds, rest_ms = divmod(rest_ms, 1_000)
    if seconds or rest_ms or not parts:
        fraction = f".{rest_ms:03}".rstrip("0") if rest_ms else ""
        parts.append(f"{seconds}{fraction}S")
    return "PT" + "".join(parts)
