"""Output of commands on stdout: tables for people, JSON and YAML for programs, all from the same values.

JSON and YAML have all fields, with the names of the API and units in the names (`start_ms`). Tables have the fields
that people look for. Stdout has nothing but the result: notes for people go to stderr. Control characters in foreign
text (keys, ids) are escaped before they reach a terminal. Colours mark what is wrong, and only in tables.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NoReturn, TextIO, TypeAlias

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.tables import CellMark, TableColumn, painted, table_lines

Value: TypeAlias = "str | int | float | bool | Sequence[Value] | Mapping[str, Value] | None"
Row: TypeAlias = Mapping[str, Value]

NOTHING: Final = "-"
"""Text of a table cell without a value."""


class ColorChoice(StrEnum):
    """Times at which text has colours."""

    AUTO = "auto"
    """In a terminal, unless the variable NO_COLOR is set."""
    ALWAYS = "always"
    NEVER = "never"


ON_ONE_LINE: Final[ContextVar[bool]] = ContextVar("ON_ONE_LINE", default=False)
"""True while a JSON document is one line of several, as with `--watch`."""

COLOR: Final[ContextVar[ColorChoice]] = ContextVar("COLOR", default=ColorChoice.AUTO)
"""Value of `--color`."""


class OutputFormat(StrEnum):
    """Format in which a command prints its result."""

    TABLE = "table"
    """Table for people; its layout may change."""
    JSON = "json"
    """A list is one document. A stream of records is one object per line."""
    YAML = "yaml"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `words` turns the value under `key` into text for people."""

    title: str
    key: str
    words: Callable[[Value], str] | None = None
    is_number: bool = False
    mark: Callable[[Value], CellMark | None] | None = None
    """Colour of a value that shows something wrong."""

    def cell(self, row: Row) -> str:
        """Return the text of one cell."""
        value = row.get(self.key)
        return printable(shown(value) if self.words is None else self.words(value))

    def mark_of(self, row: Row) -> CellMark | None:
        """Return the colour of one cell."""
        return None if self.mark is None else self.mark(row.get(self.key))

    def below(self, rows: Sequence[Row]) -> TableColumn:
        """Return the column of a table with these rows."""
        is_whole = self.is_number or self.words in (moment, duration, size)
        cells, marks = [self.cell(row) for row in rows], [self.mark_of(row) for row in rows]
        return TableColumn(self.title, cells, marks, is_right=self.is_number, is_whole=is_whole)


def marked_words(*, bad: Iterable[str] = (), warning: Iterable[str] = ()) -> Callable[[Value], CellMark | None]:
    """Return the marks of a column whose values are words."""
    marks = {**dict.fromkeys(bad, CellMark.BAD), **dict.fromkeys(warning, CellMark.WARNING)}
    return lambda value: marks.get(str(value))


def marked_if(mark: CellMark, *, above: int = 0) -> Callable[[Value], CellMark | None]:
    """Return the marks of a column: for numbers above a limit, or for texts and lists that are not empty."""

    def mark_of(value: Value) -> CellMark | None:
        return mark if (value > above if isinstance(value, int | float) else bool(value)) else None

    return mark_of


def print_list(rows: Sequence[Row], columns: Sequence[Column], output: OutputFormat, *, empty: str) -> None:
    """Print rows as one table or one document. `empty` is the note to print instead of an empty table."""
    if output is not OutputFormat.TABLE:
        print_document(rows, output)
    elif rows:
        print_table([column.below(rows) for column in columns])
    else:
        print_note(empty)


def print_document(document: Value, output: OutputFormat) -> None:
    """Print one value as JSON or YAML."""
    write(
        f"{_json(document, indent=None if ON_ONE_LINE.get() else 2)}\n"
        if output is OutputFormat.JSON
        else to_yaml(document)
    )


def print_facts(row: Row, columns: Sequence[Column]) -> None:
    """Print one row as lines of title and value."""
    width = max(len(column.title) for column in columns)
    paint = painted if is_coloured(sys.stdout) else _unpainted
    write(
        "".join(f"{column.title.ljust(width)}  {paint(column.cell(row), column.mark_of(row))}\n" for column in columns)
    )


def print_table(columns: Sequence[TableColumn]) -> None:
    """Print a table. A terminal limits its width, and a pipe does not."""
    is_unicode = "utf" in (sys.stdout.encoding or "").lower()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = table_lines(columns, width, ruler="─" if is_unicode else "-", is_coloured=is_coloured(sys.stdout))
    write("".join(f"{line}\n" for line in lines))


class RowStream:
    """Prints rows as they arrive: a line of text, a JSON object per line, or the items of one YAML list."""

    def __init__(self, output: OutputFormat, line: Callable[[Row], str]) -> None:
        """`line` turns a row into text for people."""
        self._output = output
        self._line = line
        self._pending: list[str] = []

    def add(self, row: Row) -> None:
        """Print a row at the next `flush`."""
        match self._output:
            case OutputFormat.TABLE:
                self._pending.append(f"{self._line(row)}\n")
            case OutputFormat.JSON:
                self._pending.append(f"{_json(row)}\n")
            case OutputFormat.YAML:
                self._pending.append(to_yaml([row]))

    def add_all(self, batches: Iterable[Iterable[Row]], count_max: int | None) -> int:
        """Print at most `count_max` rows, each batch as soon as it arrives. Returns the number of printed rows."""
        count = 0
        for rows in batches:
            for row in rows:
                self.add(row)
                count += 1
                if count == count_max:
                    self.flush()
                    return count
            self.flush()
        return count

    def flush(self) -> None:
        """Print the added rows. Ends the program quietly if the reader of stdout is gone."""
        text, self._pending = "".join(self._pending), []
        if text:
            write(text)


def write(text: str) -> None:
    """Write to stdout at once. Ends the program quietly if its reader is gone, as after `| head`.

    Raises CommandFailed if the text cannot be written, as on a full disk."""
    with _writing():
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError:
            # The terminal has no Unicode: escapes are better than a traceback.
            encoding = sys.stdout.encoding
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def write_bytes(content: bytes) -> None:
    """Write bytes to stdout at once, as `write` does."""
    with _writing():
        sys.stdout.buffer.write(content)


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _end_quietly()
    except OSError as error:
        _let_go_of_stdout()
        raise CommandFailed(ExitStatus.PROBLEM, f"the result cannot be written to stdout: {error.strerror}") from error


def is_coloured(stream: TextIO) -> bool:
    """True if text for people may have colours on this stream."""
    match COLOR.get():
        case ColorChoice.AUTO:
            return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        case choice:
            return choice is ColorChoice.ALWAYS


def _unpainted(text: str, mark: CellMark | None) -> str:
    return text


def end_if_reader_left() -> None:
    """Return, or end the program quietly if the reader of stdout is gone. A command without anything to write would not
    notice otherwise."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    poll = select.poll()
    poll.register(descriptor, 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        _end_quietly()


def _end_quietly() -> NoReturn:
    _let_go_of_stdout()
    raise SystemExit(0)


def _let_go_of_stdout() -> None:
    """Redirect stdout to the null device. The interpreter flushes stdout at its end, and would report the error
    again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_note(text: str) -> None:
    """Print a note for people on stderr, beside the result."""
    sys.stderr.write("".join(f"txnctl: {printable(line)}\n" for line in text.splitlines()))


def shown(value: Value) -> str:
    """Return a value as text for people."""
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case str() | int() | float():
            return str(value)
        case Mapping():
            return ", ".join(f"{key}={shown(item)}" for key, item in value.items()) or NOTHING
        case _:
            return ", ".join(shown(item) for item in value) or NOTHING


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that stored bytes cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def moment(wall_ms: Value) -> str:
    """Return a time in Unix milliseconds as text in UTC. A negative time means that there is none."""
    if not isinstance(wall_ms, int) or wall_ms < 0:
        return NOTHING
    try:
        return datetime.fromtimestamp(wall_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{wall_ms} ms"


def duration(span_ms: Value) -> str:
    """Return a time span in milliseconds as text with at most two units, such as 12.3s or 4m05s."""
    if not isinstance(span_ms, int) or span_ms < 0:
        return NOTHING
    if span_ms < 1_000:
        return f"{span_ms}ms"
    if span_ms < 60_000:
        return f"{span_ms / 1000:.1f}s"
    minutes, seconds = divmod(span_ms // 1_000, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 24 else f"{hours // 24}d{hours % 24:02}h"


def size(size_bytes: Value) -> str:
    """Return a number of bytes as text with a binary unit."""
    if not isinstance(size_bytes, int):
        return NOTHING
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def uuid_text(identity: bytes) -> str:
    """Return a UUID as text, with its digits in the usual groups."""
    digits = identity.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def to_yaml(value: Value) -> str:
    """Return a value as a YAML document in block style."""
    return "".join(f"{line}\n" for line in _yaml_lines(value))


def _yaml_lines(value: Value) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _yaml_entry(f"{_yaml_scalar(key)}:", item, "  ")
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        for item in value:
            lines = _yaml_lines(item)
            yield f"- {next(lines)}"
            yield from (f"  {line}" for line in lines)
    else:
        yield _yaml_scalar(value)


def _yaml_entry(label: str, item: Value, indent: str) -> Iterator[str]:
    is_block = isinstance(item, Mapping | Sequence) and not isinstance(item, str) and bool(item)
    if is_block:
        yield label
        yield from (indent + line for line in _yaml_lines(item))
    else:
        yield f"{label} {_yaml_scalar(item)}"


_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*(?: [A-Za-z0-9_./@+-]+)*")
# Words that readers of YAML 1.1 or 1.2 do not treat as text.
_NO_TEXT: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def _yaml_scalar(value: Value) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT:
            return value
        # Quotes and escapes of JSON are valid in YAML, but YAML requires more characters to be escaped.
        return "".join(_yaml_letter(letter) for letter in json.dumps(value, ensure_ascii=False))
    return json.dumps(value)


def _yaml_letter(letter: str) -> str:
    if letter.isprintable():
        return letter
    number = ord(letter)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


# Characters that JSON allows in texts. Terminals obey the first range, and many programs end a line at the last two.
_ESCAPED: Final = {number: f"\\u{number:04x}" for number in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


def _json(value: Value, indent: int | None = None) -> str:
    is_unicode = "utf" in (sys.stdout.encoding or "").lower()
    return json.dumps(value, ensure_ascii=not is_unicode, indent=indent).translate(_ESCAPED)
