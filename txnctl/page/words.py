"""Values as text for people: sizes, durations, times, and foreign text made visible."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

NOTHING: Final = "–"
_BYTES_MAX: Final = 2_000
"""Largest number of bytes of a key or value that is shown."""
_FIRST: Final = ("method", "result", "codes", "transactional_id", "group_id", "topic", "partition", "cause", "quota")
_UNTOLD: Final = frozenset({"advice", "unwritten_before"})
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def visible(text: object, *, is_block: bool = False) -> str:
    """Return foreign text with every invisible or direction-changing character as an escape. `is_block` keeps ends of
    lines and tabs."""
    shown = str(text)
    if shown.isprintable():
        return shown
    kept = "\n\t" if is_block else ""
    return "".join(
        character if character.isprintable() or character in kept else character.encode("unicode_escape").decode()
        for character in shown
    )


def facts(found: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the facts of an event, those that say most first. Empty ones and advice are left out."""
    told = [(name, value) for name, value in found.items() if name not in _UNTOLD and value not in ("", "[]", "null")]
    return sorted(told, key=lambda fact: (_FIRST.index(fact[0]) if fact[0] in _FIRST else len(_FIRST), fact[0]))


def number(value: float | None) -> str:
    """Return a number with separated thousands."""
    if value is None:
        return NOTHING
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.1f}" if abs(value) < 1_000 else f"{value:,.0f}"
    return f"{int(value):,}"


def size(value: float | None) -> str:
    """Return bytes in a unit that leaves a short number."""
    if value is None:
        return NOTHING
    left = float(value)
    for unit in _UNITS:
        if abs(left) < 1_024 or unit == _UNITS[-1]:
            return f"{left:,.0f} {unit}" if unit == "B" or abs(left) >= 100 else f"{left:,.1f} {unit}"
        left /= 1_024
    raise AssertionError("the last unit takes everything")


def duration(ms: float | None) -> str:
    """Return milliseconds as the two largest units."""
    if ms is None:
        return NOTHING
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.1f} s"
    seconds = round(ms / 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def moment(ms: int | None) -> str:
    """Return a time in UTC, with milliseconds."""
    if ms is None or ms < 0:
        return NOTHING
    try:
        found = datetime.fromtimestamp(ms / 1_000, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{ms} ms"
    return f"{found:%Y-%m-%d %H:%M:%S}.{ms % 1_000:03d}"


def clock(ms: int) -> str:
    """Return the time of day in UTC."""
    return moment(ms)[11:]


def iso(ms: int) -> str:
    """Return a time for programs."""
    return moment(ms).replace(" ", "T") + "Z"


def content(data: bytes | None, form: str) -> str:
    """Return a key or value as `text`, `json` or `hex`, cut if it is long."""
    if data is None:
        return "null"
    cut = data[:_BYTES_MAX]
    rest = f" … {len(data) - len(cut):,} more bytes" if len(cut) < len(data) else ""
    if form == "hex":
        return cut.hex(" ") + rest
    if form == "json":
        try:
            return (
                visible(json.dumps(json.loads(data), indent=2, ensure_ascii=False)[:_BYTES_MAX], is_block=True) + rest
            )
        except (ValueError, RecursionError):
            return content(data, "text")
    try:
        return visible(cut.decode(), is_block=True) + rest
    except UnicodeDecodeError:
        if rest and len(data) > 3:
            return visible(cut.decode(errors="replace"), is_block=True) + rest
        return "0x" + cut.hex() + rest
