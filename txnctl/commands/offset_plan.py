"""Choice of partitions for `txnctl group`, and the files that store planned offsets.

A CSV file has one line per partition. A line is `topic,partition,offset`, as Kafka's tool writes it for one group, or
`group,topic,partition,offset`, as it does for several. A JSON file has a list of objects with these names, as `-o json`
prints them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.output import Row

FORMATS: Final = (".csv", ".json")


class TopicChoice(NamedTuple):
    """Some partitions of a topic, or all if `partitions` is None."""

    topic: str
    partitions: tuple[int, ...] | None


def parse_topic_choice(text: str | TopicChoice) -> TopicChoice:
    """Parse TOPIC, or TOPIC:0,1 for some of its partitions. Raises BadParameter."""
    if isinstance(text, TopicChoice):
        return text
    topic, colon, numbers = text.partition(":")
    if not colon:
        return TopicChoice(topic, None)
    if not all(number.isascii() and number.isdigit() for number in numbers.split(",")):
        raise typer.BadParameter(f"{text!r} names no partitions: write TOPIC, or TOPIC:0,1 for some of its partitions")
    return TopicChoice(topic, tuple(int(number) for number in numbers.split(",")))


class PlannedLine(NamedTuple):
    """Planned offset of a group in one partition."""

    topic: str
    partition: int
    offset: int


def check_plan_name(path: Path) -> None:
    """Raise CommandFailed for a file name without a known extension."""
    if path.suffix not in FORMATS:
        raise CommandFailed(ExitStatus.USAGE, f"{path}: the name of a plan ends in {' or '.join(FORMATS)}")


def read_plan(path: Path, group_id: str) -> list[PlannedLine]:
    """Return the lines of a plan for a group, without those of other groups.

    Raises CommandFailed for a file that cannot be read or has no line for the group."""
    check_plan_name(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(ExitStatus.USAGE, f"{path} cannot be read: {error}") from error
    read = _csv_lines if path.suffix == ".csv" else _json_lines
    lines = [line for line, group in read(path, text) if group in (None, group_id)]
    if not lines:
        raise CommandFailed(ExitStatus.USAGE, f"{path} plans nothing for the group {group_id!r}")
    twice = _first_repeated((line.topic, line.partition) for line in lines)
    if twice is not None:
        raise CommandFailed(ExitStatus.USAGE, f"{path} plans {twice[0]}-{twice[1]} twice; leave one of them out")
    return lines


def write_plan(path: Path, rows: Sequence[Row]) -> None:
    """Write planned rows to a file, in the format of its extension. Raises CommandFailed."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                csv.writer(file).writerows((row["topic"], row["partition"], row["offset"]) for row in rows)
            else:
                json.dump(rows, file, indent=2)
                file.write("\n")
    except OSError as error:
        raise CommandFailed(ExitStatus.PROBLEM, f"{path} cannot be written: {error.strerror}") from error


def _csv_lines(path: Path, text: str) -> Iterator[tuple[PlannedLine, str | None]]:
    reader = csv.reader(text.splitlines())
    for fields in reader:
        if not fields:
            continue
        *groups, topic, partition, offset = fields if len(fields) in (3, 4) else ("", "", "")
        line = _line(topic, _number(partition), _number(offset))
        if line is None:
            raise _malformed(path, f"line {reader.line_num}", "topic,partition,offset")
        yield line, groups[0] if groups else None


def _json_lines(path: Path, text: str) -> Iterator[tuple[PlannedLine, str | None]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise CommandFailed(ExitStatus.USAGE, f"{path} is no JSON: {error}") from error
    for number, item in enumerate(document if isinstance(document, list) else [None]):
        fields = item if isinstance(item, dict) else {}
        line = _line(fields.get("topic"), fields.get("partition"), fields.get("offset"))
        group_id = fields.get("group_id")
        if line is None or not isinstance(group_id, str | None):
            raise _malformed(path, f"item {number}", 'a list of {"topic": ..., "partition": ..., "offset": ...}')
        yield line, group_id


def _line(topic: object, partition: object, offset: object) -> PlannedLine | None:
    # To Python, True and False are integers. To the writer of a JSON file they are not numbers.
    if not isinstance(topic, str) or not topic or isinstance(partition, bool) or isinstance(offset, bool):
        return None
    if not isinstance(partition, int) or not isinstance(offset, int) or partition < 0 or offset < 0:
        return None
    return PlannedLine(topic, partition, offset)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _malformed(path: Path, where: str, expected: str) -> CommandFailed:
    return CommandFailed(ExitStatus.USAGE, f"{path}, {where}: it must be {expected}, with numbers from 0 on")


def _first_repeated(names: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    seen: set[tuple[str, int]] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
