"""Start and end of a read: offsets, times, or committed offsets of a group, for all partitions or for each.

The choices and their precedence are Kafka's. A time for all partitions overrides times for each, which override
offsets. An offset may be written as `{"offset":23,"leaderEpoch":0}`, with the leader epoch in which it was learned.
Then a read fails that would start or end after records that the log has lost since.

Source: docs/spark.md; the options startingTimestamp to endingOffsetsByTimestamp of Spark's Kafka source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, TypeGuard

EARLIEST: Final = -2
LATEST: Final = -1
COMMITTED: Final = -3
"""Committed offset of the group. In a partition without one, the earliest offset."""


class Position(NamedTuple):
    """An offset, `EARLIEST`, `LATEST` or `COMMITTED`, and the leader epoch in which it was learned."""

    offset: int
    leader_epoch: int | None = None
    """Leader epoch; None if not known. Then a change of the log before the offset goes unnoticed."""


class AtTime(NamedTuple):
    """The first offset with a record of this time or later."""

    timestamp_ms: int


Place: TypeAlias = Position | AtTime
PartitionOffsets: TypeAlias = Mapping[str, Mapping[int, Position]]
"""Start or end of a read by topic and partition."""
Bound: TypeAlias = Place | Mapping[str, Mapping[int, Place]]
"""Start or end of a read: the same place in all partitions, or a place for each."""

FROM_EARLIEST: Final = Position(EARLIEST)
TO_LATEST: Final = Position(LATEST)

_OFFSET: Final = "offset"
_LEADER_EPOCH: Final = "leaderEpoch"
_WORDS: Final = {EARLIEST: "earliest", LATEST: "latest"}


class InvalidOption(ValueError):
    """An option of the source is wrong, missing or unknown. The message says what to write."""


def place_in(bound: Bound, topic: str, partition: int) -> Place:
    """Return the place of the bound in a partition. Raises KeyError for a partition that it does not name."""
    return bound[topic][partition] if isinstance(bound, Mapping) else bound


def parse_starting(options: Mapping[str, str], *, is_stream: bool = False) -> Bound:
    """Return the start of a read. Keys of `options` are in lower case.

    Raises: InvalidOption.
    """
    by_time = _by_time(options, "starting")
    if by_time is not None:
        return by_time
    text = options.get("startingoffsets", "latest" if is_stream else "earliest")
    match text.lower():
        case "earliest":
            return FROM_EARLIEST
        case "group":
            return Position(COMMITTED)
        case "latest" if is_stream:
            return TO_LATEST
        case "latest":
            raise InvalidOption(
                "startingOffsets=latest would read nothing in a batch; use earliest, or JSON with offsets "
                '(-2 = earliest): {"topic":{"0":23,"1":-2}}'
            )
    words = "none of earliest, latest and group" if is_stream else "neither earliest nor group"
    return _parse_offsets("startingOffsets", text, words, (EARLIEST, LATEST) if is_stream else (EARLIEST,))


def parse_ending(options: Mapping[str, str]) -> Bound:
    """Return the end of a batch read; `TO_LATEST` stands for the end at the time of planning.

    Raises: InvalidOption.
    """
    by_time = _by_time(options, "ending")
    if by_time is not None:
        return by_time
    text = options.get("endingoffsets", "latest")
    if text.lower() == "latest":
        return TO_LATEST
    if text.lower() == "earliest":
        raise InvalidOption(
            "endingOffsets=earliest would read nothing; use latest, or JSON with offsets "
            '(-1 = latest): {"topic":{"0":50,"1":-1}}'
        )
    return _parse_offsets("endingOffsets", text, "not latest", (LATEST,))


def parse_assign(text: str) -> Mapping[str, tuple[int, ...]]:
    """Return the partitions to read of each topic. Raises: InvalidOption."""
    example = '{"topic":[0,1]}'
    found = _json_object("assign", text, example)
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, list) or not partitions or not all(_is_count(number) for number in partitions):
            raise InvalidOption(
                f"assign must list partition numbers for {topic!r}, like {example}; it has {partitions!r}"
            )
        assigned[topic] = tuple(sorted(set(partitions)))
    return assigned


def offsets_json(offsets: PartitionOffsets) -> str:
    """Return the offsets in the format of startingOffsets and endingOffsets."""
    return json.dumps(
        {
            topic: {
                str(partition): offset if epoch is None else {_OFFSET: offset, _LEADER_EPOCH: epoch}
                for partition, (offset, epoch) in found.items()
            }
            for topic, found in offsets.items()
        },
        separators=(",", ":"),
    )


def parse_timestamp(name: str, text: str) -> int:
    """Return milliseconds since 1970. Raises: InvalidOption."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**63):
        raise InvalidOption(f"{name} is {text!r} and must be milliseconds since 1970, like 1767225600000")
    return int(text)


def _by_time(options: Mapping[str, str], edge: str) -> Bound | None:
    whole, each = f"{edge}Timestamp", f"{edge}OffsetsByTimestamp"
    text = options.get(whole.lower())
    if text is not None:
        return AtTime(parse_timestamp(whole, text))
    text = options.get(each.lower())
    if text is None:
        return None
    example = '{"topic":{"0":1767225600000}}'
    found: dict[str, dict[int, Place]] = {}
    for topic, partition, given in _entries(each, text, example):
        if not _is_count(given) or given >= 2**63:
            raise InvalidOption(
                f"{each} has {given!r} for {topic}-{partition}; milliseconds since 1970 belong there: {example}"
            )
        found.setdefault(topic, {})[partition] = AtTime(given)
    return found


def _parse_offsets(option: str, text: str, words: str, special: tuple[int, ...]) -> PartitionOffsets:
    example = f'{{"topic":{{"0":23,"1":{special[0]}}}}}'
    parsed: dict[str, dict[int, Position]] = {}
    for topic, partition, given in _entries(option, text, example, words):
        parsed.setdefault(topic, {})[partition] = _position(option, f"{topic}-{partition}", given, special)
    return parsed


def _position(option: str, place: str, given: object, special: tuple[int, ...]) -> Position:
    if isinstance(given, int) and not isinstance(given, bool) and given in special:
        return Position(given)
    position = given if isinstance(given, dict) else {_OFFSET: given}
    offset, epoch = position.get(_OFFSET), position.get(_LEADER_EPOCH)
    if not _is_count(offset) or offset >= 2**63:
        names = ", ".join(f"{number} ({_WORDS[number]})" for number in special)
        raise InvalidOption(
            f"{option} has {given!r} for {place}; an offset from 0 or {names} belongs there, "
            f'or {{"{_OFFSET}":23,"{_LEADER_EPOCH}":0}}'
        )
    if position.keys() - {_OFFSET, _LEADER_EPOCH} or not (epoch is None or (_is_count(epoch) and epoch <= _EPOCH_MAX)):
        raise InvalidOption(
            f"{option} has {given!r} for {place}; {_OFFSET} and {_LEADER_EPOCH}, a number from 0 to "
            f"{_EPOCH_MAX}, are all that belongs there"
        )
    return Position(offset, epoch)


def _entries(option: str, text: str, example: str, words: str = "") -> list[tuple[str, int, object]]:
    entries: list[tuple[str, int, object]] = []
    for topic, partitions in _json_object(option, text, example, words).items():
        if not isinstance(partitions, dict) or not partitions:
            raise InvalidOption(f"{option} must give one number per partition for {topic!r}, like {example}")
        for key, given in partitions.items():
            if not (key.isascii() and key.isdigit()):
                raise InvalidOption(f"{option} has {key!r} where the number of a partition of {topic!r} belongs")
            entries.append((topic, int(key), given))
    return entries


def _json_object(option: str, text: str, example: str, words: str = "") -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidOption(
            f"{option} is {words + ' and ' if words else ''}no JSON ({error}); write JSON like {example}"
        ) from None
    if not isinstance(found, dict) or not found:
        raise InvalidOption(f"{option} must be a JSON object with a topic in it, like {example}; it is {text}")
    return found


def _is_count(number: object) -> TypeGuard[int]:
    # True and False are ints in Python, but not in JSON.
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0


_EPOCH_MAX: Final = 2**31 - 1
