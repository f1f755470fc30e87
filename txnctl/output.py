"""Output of commands on stdout: tables for people, JSON and YAML for programs, all from the same values.

JSON and YAML have all fields, with the names of the API and units in the names (`start_ms`). Tables have the fields
that people look for. Stdout has nothing but the result: notes for people go to stderr. Control characters in foreign
text (keys, ids) are escaped before they reach a terminal.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NoReturn, TypeAlias

from coordinator_server.exits import CommandFailed, ExitStatus

Value: TypeAlias = "str | int | float | bool | Sequence[Value] | Mapping[str, Value] | None"
Row: TypeAlias = Mapping[str, Value]

NOTHING: Final = "-"
"""Text of a table cell without a value."""


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

    def cell(self, row: Row) -> str:
        """Return the text of one cell."""
        value = row.get(self.key)
        return printable(shown(value) if self.words is None else self.words(value))


def print_list(rows: Sequence[Row], columns: Sequence[Column], output: OutputFormat, *, empty: str) -> None:
    """Print rows as one table or one document. `empty` is the note to print instead of an empty table."""
    if output is not OutputFormat.TABLE:
        print_document(rows, output)
    elif rows:
        print_table(
            [column.title for column in columns],
            [[column.cell(row) for column in columns] for row in rows],
            {at for at, column in enumerate(columns) if column.is_number},
        )
    else:
        print_note(empty)


def print_document(document: Value, output: OutputFormat) -> None:
    """Print one value as JSON or YAML."""
    write(f"{_json(document, indent=2)}\n" if output is OutputFormat.JSON else to_yaml(document))


def print_facts(row: Row, columns: Sequence[Column]) -> None:
    """Print one row as lines of title and value."""
    width = max(len(column.title) for column in columns)
    write("".join(f"{column.title.ljust(width)}  {column.cell(row)}\n" for column in columns))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[int]) -> None:
    """Print a table, with the columns in `numbers` aligned right. Long cells are folded in a terminal only."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for at, title in enumerate(titles):
        table.add_column(title, justify="right" if at in numbers else "left", overflow="fold")
    for row in rows:
        # As Text, because rich would interpret square brackets in a transactional id as markup.
        table.add_row(*(Text(cell) for cell in row))
    # The width has no limit in a pipe: a table cut at 80 columns would be useless there.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)
    with console.capture() as capture:
        console.print(table)
    write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


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
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _end_quietly()
    except UnicodeEncodeError:
        # The terminal has no Unicode: escapes are better than a traceback.
        encoding = sys.stdout.encoding
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        _let_go_of_stdout()
        raise CommandFailed(ExitStatus.PROBLEM, f"the result cannot be written to stdout: {error.strerror}") from error


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
    """Return a time span in milliseconds as text with at most two units: 250ms, 12.3s, 4m05s, 2h10m, 3d04h."""
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
