"""Frames of `txnctl top`: lines of text that fit any terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

from txnctl.live_screen import ScreenSize
from txnctl.output import NOTHING, duration, moment, printable
from txnctl.page.charts import charts
from txnctl.tables import GAP, CellMark, painted
from txnctl.top.facts import TopFacts

OLD_MS: Final = 60_000
"""Age from which an open transaction is marked, because it holds up readers (ms)."""
KEYS: Final = "q ends it"
_RATES_PART: Final = 4
"""Rates take this part of the lines at most."""


@dataclass(frozen=True, slots=True)
class TopLine:
    """A line of a frame, and its colour."""

    text: str = ""
    mark: CellMark | None = None


@dataclass(frozen=True, slots=True)
class TopSection:
    """A title, and a table below it. The last column may be cut at the end of the line."""

    title: str
    heads: Sequence[str]
    rows: Sequence[tuple[Sequence[str], CellMark | None]]
    note: str
    """Text in place of the table if it has no rows."""

    def lines(self) -> list[TopLine]:
        """Return all lines of the section."""
        if not self.rows:
            return [TopLine(f"{self.title}: {self.note}")]
        texts = [self.heads, *([printable(cell) for cell in cells] for cells, _mark in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
        marks = [None, *(mark for _cells, mark in self.rows)]
        laid = [TopLine(_laid(cells, widths), mark) for cells, mark in zip(texts, marks, strict=True)]
        return [TopLine(self.title), *laid]


def top_lines(
    facts: TopFacts, size: ScreenSize, *, server: str, away: str = "", is_coloured: bool = False, keys: str = KEYS
) -> list[str]:
    """Return the lines of a frame, none of them wider than the terminal, and no more of them than it has."""
    head = [TopLine(f"{server}  {moment(facts.at_ms)}  {keys}".rstrip())]
    if away:
        head.append(TopLine(f"no answer: {away}; the state below is the last one known", CellMark.BAD))
    rates = list(_packed(_rates(facts), size.columns))
    head += [TopLine(text) for text in rates[: max(1, size.lines // _RATES_PART)]]
    sections = [each.lines() for each in sections_of(facts)]
    room = size.lines - len(head)
    # With room for it an empty line stands before each section.
    gap = 1 if room >= sum(min(len(each), 3) + 1 for each in sections) else 0
    lines = list(head)
    for section, height in zip(sections, _shares([len(each) + gap for each in sections], room), strict=True):
        kept = [TopLine()] * gap + section
        if height < len(kept):
            more = len(kept) - height + 1
            kept = [*kept[: max(0, height - 1)], TopLine(f"... {more} more")][: max(0, height)]
        lines += kept
    return [_shown(line, size.columns, is_coloured=is_coloured) for line in lines[: size.lines]]


def sections_of(facts: TopFacts) -> Iterator[TopSection]:
    """Yield the sections of a frame."""
    listed = facts.open.transactions if facts.open is not None else ()
    yield TopSection(
        f"Open transactions ({len(listed) if facts.open is None else facts.open.matching})",
        ("AGE", "STATE", "PRODUCER ID", "TRANSACTIONAL ID"),
        [
            ((duration(each.age_ms), each.state, str(each.producer_id), each.transactional_id), _old(each.age_ms))
            for each in listed
        ],
        facts.refusals.get("open", "none"),
    )
    blocked = [(each, each.blocker) for each in facts.blocked if each.blocker is not None]
    yield TopSection(
        f"Partitions whose readers wait ({len(blocked)})",
        ("AGE", "UNDECIDED", "PARTITION", "FOR"),
        [
            (
                (
                    duration(blocker.age_ms),
                    str(each.high_watermark - each.last_stable_offset),
                    f"{each.topic}-{each.partition}",
                    blocker.transactional_id or NOTHING,
                ),
                _old(blocker.age_ms),
            )
            for each, blocker in blocked
        ],
        facts.refusals.get("blocked", "none"),
    )
    yield TopSection(
        f"Groups ({len(facts.groups)})",
        ("LAG", "LAG TO END", "WAITING", "STATE", "TYPE", "GROUP"),
        [
            (
                (_count(each.lag), _count(each.lag_to_end), str(each.pending), each.state, each.kind, each.group_id),
                CellMark.WARNING if each.pending else None,
            )
            for each in facts.groups
        ],
        facts.refusals.get("groups", "none"),
    )
    yield TopSection(
        f"Throttled callers ({len(facts.throttled)})",
        ("PAUSE", "QUOTA", "CALLER"),
        [((duration(each.pause_ms), each.quota, each.principal), CellMark.WARNING) for each in facts.throttled],
        facts.refusals.get("throttled", "none"),
    )


def _rates(facts: TopFacts) -> list[str]:
    if facts.rates is None:
        return [f"Rates: {facts.refusals.get('rates', NOTHING)}"]
    return [f"{each.title} {each.now}" for each in charts(facts.rates) if not each.is_empty] or ["no rates yet"]


def _packed(parts: Sequence[str], width: int) -> Iterator[str]:
    """Yield lines with as many of the parts as fit into each."""
    line = ""
    for part in parts:
        longer = f"{line}   {part}" if line else part
        if line and cell_len(longer) > width:
            yield line
            longer = part
        line = longer
    yield line


def _laid(cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = [cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True)]
    return (" " * GAP).join(parts).rstrip()


def _shares(wanted: Sequence[int], room: int) -> list[int]:
    """Return the height of each section: what it wants, or else an equal part of the room that the others leave."""
    heights = [0] * len(wanted)
    left = max(0, room)
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    for position, at in enumerate(order):
        heights[at] = min(wanted[at], left // (len(order) - position))
        left -= heights[at]
    return heights


def _shown(line: TopLine, width: int, *, is_coloured: bool) -> str:
    text = clipped(line.text, width)
    return painted(text, line.mark) if is_coloured else text


def clipped(text: str, width: int) -> str:
    """Return the text, cut to a width of cells."""
    if cell_len(text) <= width:
        return text
    kept, used = "", 0
    for letter in text:
        used += cell_len(letter)
        if used > width:
            break
        kept += letter
    return kept


def _old(age_ms: int | None) -> CellMark | None:
    return CellMark.WARNING if age_ms is not None and age_ms >= OLD_MS else None


def _count(number: int | None) -> str:
    return NOTHING if number is None else f"{number:,}"
