"""Parsers for records on stdin: plain lines, or one JSON object per line as `consume` prints them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Final

from txnctl.commands.log_rows import bytes_of
from txnctl.output import Value

_TAKEN: Final = ("key", "value", "headers", "partition", "timestamp_ms")
_EXAMPLE: Final = '{"key": "alice", "value": "42 EUR"}'
_IGNORED: Final = frozenset({"topic", "offset"})
"""Fields that `consume` prints, but that the log sets anew."""


_RAW: Final = frozenset({"fate", "marker", "producer_id", "producer_epoch", "base_sequence", "last_sequence"})
"""Fields of `consume --raw` and `log dump`, whose output also has aborted records and markers."""


class InputRefused(Exception):
    """A line of the input is not a record. The message has the line number and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def plain_records(lines: Iterable[bytes], key_separator: bytes | None) -> Iterator[InputRecord]:
    """Parse each line as a value, or as key, separator and value. Raises InputRefused for a line without the
    separator."""
    for number, line in enumerate(lines, start=1):
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if key_separator is None:
            yield InputRecord(value=text)
            continue
        key, found, value = text.partition(key_separator)
        if not found:
            raise InputRefused(f"line {number} has no key: {key_separator.decode()!r} is not in it")
        yield InputRecord(key=key, value=value)


def json_records(lines: Iterable[bytes]) -> Iterator[InputRecord]:
    """Parse each line as an object with `value`, and optionally `key`, `headers`, `partition` and `timestamp_ms`. Empty
    lines are skipped. Raises InputRefused."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield _record(json.loads(line))
            except json.JSONDecodeError as error:
                raise InputRefused(
                    f"line {number}: this is no JSON ({error.msg}, column {error.colno}): "
                    f"write an object such as {_EXAMPLE}"
                ) from error
            except (ValueError, TypeError) as error:
                raise InputRefused(f"line {number}: {error}") from error


def repartitioned(records: Iterable[InputRecord], partition_count: int) -> Iterator[InputRecord]:
    """Yield the records without their partitions, so that the producer chooses them by key. Records without a key go to
    the partitions in turn."""
    turns = cycle(range(partition_count))
    for record in records:
        yield replace(record, partition=next(turns) if record.key is None else None)


class NamedPartitions:
    """Records on their way to a topic, and the largest partition that one of them has named."""

    def __init__(self, records: Iterable[InputRecord]) -> None:
        self._records = records
        self.largest = -1
        """-1: no record has named a partition."""
        self.has_keys = False

    def __iter__(self) -> Iterator[InputRecord]:
        for record in self._records:
            if record.partition is not None:
                self.largest = max(self.largest, record.partition)
                self.has_keys = self.has_keys or record.key is not None
            yield record


def _record(found: object) -> InputRecord:
    if not isinstance(found, dict):
        raise TypeError(f"a record is an object such as {_EXAMPLE}")
    if not _RAW.isdisjoint(found):
        raise ValueError("a raw dump has aborted records and markers, too; `txnctl consume -o json` leaves them out")
    for name in found:
        if name not in _TAKEN and name not in _IGNORED:
            near = difflib.get_close_matches(name, _TAKEN, n=1)
            hint = f"did you mean {near[0]}?" if near else f"a record has {', '.join(_TAKEN)}"
            raise ValueError(f"{name!r} is no part of a record; {hint}")
    if "value" not in found:
        raise ValueError("the record has no value; write null for a deletion")
    return InputRecord(
        value=_content("value", found["value"]),
        key=_content("key", found.get("key")),
        headers=tuple(_headers(found.get("headers"))),
        partition=_number("partition", found.get("partition")),
        timestamp_ms=_number("timestamp_ms", found.get("timestamp_ms")),
    )


def _content(name: str, value: Value) -> bytes | None:
    try:
        return bytes_of(value)
    except ValueError as error:
        raise ValueError(f"the {name} is no text that can be stored: {error}") from error


def _headers(found: object) -> Iterator[tuple[str, bytes | None]]:
    match found:
        case None:
            return
        case dict():
            for name, value in found.items():
                yield str(name), _content(f"header {name}", value)
        case list():
            for header in found:
                if not isinstance(header, dict) or not isinstance(header.get("key"), str):
                    raise TypeError('headers are a list of objects such as {"key": "trace", "value": "17"}')
                yield header["key"], _content(f"header {header['key']}", header.get("value"))
        case _:
            raise TypeError("headers are an object, or a list of objects with key and value")


def _number(name: str, found: object) -> int | None:
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise TypeError(f"{name} is {found!r} and must be a whole number from 0 on")
    return found
