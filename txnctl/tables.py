"""Layout of tables for people, as lines of text of a given width.

A number, a time and a UUID are never cut, because a part of one says nothing. In a narrow terminal titles are folded
first, then words move to the next line, then other texts are folded. If that is not enough, each row becomes a block of
lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rich.cells import cell_len

GAP: Final = 2
"""Spaces between columns."""
_TITLE_MIN: Final = 6
"""Width to which a word of a title may be folded."""
_TEXT_MINS: Final = (16, 8)
"""Widths to which texts may be folded, tried in this order."""

_WHOLE: Final = re.compile(
    r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z?"
)
"""A UUID or a time. Neither is cut."""
_ATOM: Final = re.compile(rf"{_WHOLE.pattern}|\s+|(?:(?!{_WHOLE.pattern})[^\s\-._/:,])+[\-._/:,]*|[\-._/:,]+")
"""Text that a line break leaves together: a UUID, a time, or a word up to its next dash or dot."""


class CellMark(StrEnum):
    """Colour of a cell that shows something wrong: the SGR parameter of the terminal."""

    BAD = "31"
    WARNING = "33"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A title, the texts below it, and the marks of these texts."""

    title: str
    cells: Sequence[str]
    marks: Sequence[CellMark | None]
    is_right: bool = False
    """True for numbers, which are aligned on their last digit."""
    is_whole: bool = False
    """True if no cell may be cut."""

    def widest(self) -> int:
        """Return the width of the widest cell."""
        return max(map(cell_len, self.cells), default=0)

    def widest_atom(self, *, is_word: bool) -> int:
        """Return the largest width that may not be cut: that of a word, or else of a UUID or a time."""
        if self.is_whole:
            return self.widest()
        found = _ATOM if is_word else _WHOLE
        return max((cell_len(atom) for cell in self.cells for atom in found.findall(cell)), default=0)


def table_lines(
    columns: Sequence[TableColumn], width: int | None, *, ruler: str = "─", is_coloured: bool = False
) -> list[str]:
    """Return the lines of a table. `width` is that of the terminal; None is no limit."""
    widths = _widths(columns, width)
    if widths is None:
        return _blocks(columns, is_coloured=is_coloured)
    titles = [list(fold(each.title, size, hyphen="-")) for each, size in zip(columns, widths, strict=True)]
    height = max(map(len, titles))
    head = [[*[""] * (height - len(lines)), *lines] for lines in titles]
    lines = _joined(columns, widths, head, [None] * len(columns), is_coloured=False)
    lines.append(ruler * (sum(widths) + GAP * (len(widths) - 1)))
    for at in range(len(columns[0].cells)):
        cells = [list(fold(each.cells[at], size)) for each, size in zip(columns, widths, strict=True)]
        lines += _joined(columns, widths, cells, [each.marks[at] for each in columns], is_coloured=is_coloured)
    return lines


def painted(text: str, mark: CellMark | None) -> str:
    """Return the text in the colour of its mark."""
    return text if mark is None or not text else f"\x1b[{mark}m{text}\x1b[0m"


def fold(text: str, width: int, *, hyphen: str = "") -> Iterator[str]:
    """Yield the text in lines of a width. A word that is wider is cut; `hyphen` then ends its parts."""
    line, used = "", 0
    for atom in _ATOM.findall(text):
        size = cell_len(atom)
        if used + size > width and line:
            yield line.rstrip()
            line, used = "", 0
            if atom.isspace():
                continue
        if size > width and not _WHOLE.fullmatch(atom):
            *parts, atom = _cut(atom, max(1, width - len(hyphen)))
            yield from (part + hyphen for part in parts)
            size = cell_len(atom)
        line, used = line + atom, used + size
    yield line.rstrip()


def _cut(word: str, width: int) -> Iterator[str]:
    """Yield the word in parts of about the same width."""
    even = -(-cell_len(word) // -(-cell_len(word) // width))
    part, used = "", 0
    for letter in word:
        size = cell_len(letter)
        if part and used + size > even:
            yield part
            part, used = "", 0
        part, used = part + letter, used + size
    yield part


def _widths(columns: Sequence[TableColumn], limit: int | None) -> list[int] | None:
    """Return the width of each column, or None if no folding lets the table fit."""
    wanted = [max(cell_len(each.title), each.widest()) for each in columns]
    if limit is None:
        return wanted
    room = limit - GAP * (len(columns) - 1)
    for least in _floors(columns, wanted):
        left = room - sum(least)
        if left >= 0:
            return _widened(least, wanted, left)
        wanted = least
    return None


def _floors(columns: Sequence[TableColumn], natural: list[int]) -> Iterator[list[int]]:
    """Yield narrower and narrower widths: as they are, with folded titles, with folded texts."""
    yield natural
    title_words = [max(map(cell_len, each.title.split()), default=0) for each in columns]
    titles = [min(each, _TITLE_MIN) for each in title_words]
    widest = [each.widest() for each in columns]
    words = [each.widest_atom(is_word=True) for each in columns]
    kept = [each.widest_atom(is_word=False) for each in columns]
    for heads, cells in ((title_words, widest), (title_words, words), (titles, words)):
        yield [max(pair) for pair in zip(heads, cells, strict=True)]
    for least in _TEXT_MINS:
        texts = [max(keep, min(word, least)) for keep, word in zip(kept, words, strict=True)]
        yield [max(pair) for pair in zip(titles, texts, strict=True)]


def _widened(least: list[int], wanted: list[int], left: int) -> list[int]:
    """Share the room that is left: first to the columns that need least to be as wide as they want."""
    widths = list(least)
    for at in sorted(range(len(widths)), key=lambda at: wanted[at] - widths[at]):
        more = min(left, wanted[at] - widths[at])
        widths[at] += more
        left -= more
    return widths


def _joined(
    columns: Sequence[TableColumn],
    widths: Sequence[int],
    cells: Sequence[Sequence[str]],
    marks: Sequence[CellMark | None],
    *,
    is_coloured: bool,
) -> list[str]:
    """Return the lines of one row, whose cells have several lines."""
    lines = []
    for at in range(max(map(len, cells))):
        parts = []
        for column, width, texts, mark in zip(columns, widths, cells, marks, strict=True):
            text = texts[at] if at < len(texts) else ""
            blank = " " * (width - cell_len(text))
            shown = painted(text, mark) if is_coloured else text
            parts.append(blank + shown if column.is_right else shown + blank)
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def _blocks(columns: Sequence[TableColumn], *, is_coloured: bool) -> list[str]:
    """Return each row as lines of title and value, with an empty line between rows."""
    width = max(cell_len(each.title) for each in columns)
    lines = []
    for at in range(len(columns[0].cells)):
        if at:
            lines.append("")
        for each in columns:
            shown = painted(each.cells[at], each.marks[at]) if is_coloured else each.cells[at]
            lines.append(f"{each.title.ljust(width)}  {shown}")
    return lines
