"""Offsets as users write them: `earliest`, `latest`, or Kafka's JSON with one number per topic and partition.

Source: the options startingOffsets, endingOffsets and assign of Spark's Kafka source; spec spark 8.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, TypeAlias

EARLIEST: Final = -2
LATEST: Final = -1

PartitionOffsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> offset, `EARLIEST` or `LATEST`."""


class InvalidOption(ValueError):
    """An option of the source is wrong, missing, or not understood. The message says what to write."""


def parse_starting(text: str) -> PartitionOffsets | None:
    """Return the first offsets of a batch read, None = everything from the earliest.

    Raises: InvalidOption.
    """
    if text.lower() == "earliest":
        return None
    if text.lower() == "latest":
        raise InvalidOption(
            "startingOffsets=latest would read nothing in a batch; use earliest, or JSON with offsets "
            '(-2 = earliest): {"topic":{"0":23,"1":-2}}'
        )
    return _parse_json("startingOffsets", text, word="earliest", special=EARLIEST)


def parse_ending(text: str) -> PartitionOffsets | None:
    """Return the offsets before which a batch read stops, None = the end as it is when the read is planned.

    Raises: InvalidOption.
    """
    if text.lower() == "latest":
        return None
    if text.lower() == "earliest":
        raise InvalidOption(
            "endingOffsets=earliest would read nothing; use latest, or JSON with offsets "
            '(-1 = latest): {"topic":{"0":50,"1":-1}}'
        )
    return _parse_json("endingOffsets", text, word="latest", special=LATEST)


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
    """Return the offsets as `parse_starting` and `parse_ending` read them."""
    return json.dumps(
        {topic: {str(partition): offset for partition, offset in found.items()} for topic, found in offsets.items()},
        separators=(",", ":"),
    )


def _parse_json(option: str, text: str, *, word: str, special: int) -> PartitionOffsets:
    example = f'{{"topic":{{"0":23,"1":{special}}}}}'
    parsed: dict[str, dict[int, int]] = {}
    for topic, partitions in _json_object(option, text, example, word=word).items():
        if not isinstance(partitions, dict) or not partitions:
            raise InvalidOption(f"{option} must give an offset per partition for {topic!r}, like {example}")
        parsed[topic] = {}
        for key, offset in partitions.items():
            if not (key.isascii() and key.isdigit()):
                raise InvalidOption(f"{option} has {key!r} where the number of a partition of {topic!r} belongs")
            if not (_is_count(offset) or offset == special):
                raise InvalidOption(
                    f"{option} has {offset!r} for {topic}-{key}; an offset from 0 or {special} ({word}) belongs there"
                )
            parsed[topic][int(key)] = offset
    return parsed


def _json_object(option: str, text: str, example: str, *, word: str = "") -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidOption(
            f"{option} is neither {word or 'set'} nor JSON ({error}); write JSON like {example}"
        ) from None
    if not isinstance(found, dict) or not found:
        raise InvalidOption(f"{option} must be a JSON object with a topic in it, like {example}; it is {text}")
    return found


def _is_count(number: object) -> bool:
    # True and False are ints to Python, but not to JSON.
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
