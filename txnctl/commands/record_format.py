r"""Records in a format of the user: `txnctl consume --format '%o %k %v\n'`, with the letters of kcat.

A pipe or file gets the bytes of keys and values as they are stored. On a terminal control characters are escaped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.log_rows import bytes_of
from txnctl.output import Row, Value, printable, write_bytes

Directive: TypeAlias = Callable[[Row], bytes]
"""Content of one part of a format for a record."""

LETTERS: Final = "%t topic, %p partition, %o offset, %k key, %v or %s value, %T timestamp (ms), %h headers"
"""The letters of a format, as its help and its errors list them."""


def _content(value: Value) -> bytes:
    return bytes_of(value) or b""


def _length(value: Value) -> bytes:
    content = bytes_of(value)
    return b"-1" if content is None else b"%d" % len(content)


def _headers(row: Row) -> bytes:
    headers = row["headers"]
    assert isinstance(headers, list)
    return b",".join(b"%s=%s" % (str(each["key"]).encode(), _content(each["value"])) for each in headers)


_DIRECTIVES: Final[dict[str, Directive]] = {
    "t": lambda row: str(row["topic"]).encode(),
    "p": lambda row: str(row["partition"]).encode(),
    "o": lambda row: str(row["offset"]).encode(),
    "k": lambda row: _content(row["key"]),
    "v": lambda row: _content(row["value"]),
    "s": lambda row: _content(row["value"]),
    "K": lambda row: _length(row["key"]),
    "S": lambda row: _length(row["value"]),
    "T": lambda row: str(row["timestamp_ms"]).encode(),
    "h": _headers,
    "%": lambda _row: b"%",
}
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PART: Final = re.compile(
    r"%(?P<letter>.?)|\\x(?P<number>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL
)


class RecordFormat:
    """A format of records. Null keys and values are empty, and their length is -1."""

    def __init__(self, text: str) -> None:
        """Raises CommandFailed that names the part that means nothing, and its place."""
        self._parts: list[bytes | Directive] = [_part(found) for found in _PART.finditer(text)]

    def record(self, row: Row, *, is_terminal: bool) -> bytes:
        """Return the record of a row of `record_rows`. On a terminal its content cannot control the terminal."""
        made = (part if isinstance(part, bytes) else _safe(part(row), is_terminal) for part in self._parts)
        return b"".join(made)


def _safe(content: bytes, is_terminal: bool) -> bytes:
    return printable(content.decode("utf-8", "backslashreplace")).encode() if is_terminal else content


def _part(found: re.Match[str]) -> bytes | Directive:
    letter, number, escape = found["letter"], found["number"], found["escape"]
    if letter is not None and letter in _DIRECTIVES:
        return _DIRECTIVES[letter]
    if number is not None:
        return bytes([int(number, 16)])
    if escape is not None and escape in _ESCAPES:
        return _ESCAPES[escape]
    if found["text"] is not None:
        return found["text"].encode()
    place = f"--format: '{found[0]}' at character {found.start() + 1}"
    allowed = (
        f"there is {LETTERS}, lengths %K and %S, and %% for a percent sign"
        if letter is not None
        else "there is \\n, \\r, \\t, \\0, \\xNN, and \\\\ for a backslash"
    )
    raise CommandFailed(ExitStatus.USAGE, f"{place} means nothing; {allowed}")


class FormattedStream:
    """Prints records in a format as they arrive."""

    def __init__(self, record_format: RecordFormat) -> None:
        self._format = record_format

    def add_all(self, batches: Iterable[Iterable[Row]], count_max: int | None) -> int:
        """Print at most `count_max` records, each batch as soon as it arrives. Returns the number of printed ones."""
        is_terminal = sys.stdout.isatty()
        count = 0
        for rows in batches:
            made: Sequence[bytes] = [
                self._format.record(row, is_terminal=is_terminal)
                for row in islice(rows, None if count_max is None else count_max - count)
            ]
            if made:
                write_bytes(b"".join(made))
            count += len(made)
            if count == count_max:
                break
        return count
