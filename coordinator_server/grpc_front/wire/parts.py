"""How many parts a message has, counted before it is parsed.

An empty element of a list takes two bytes on the wire, a number one, and each some fifty once it is parsed; then it is
mapped, checked and answered. So 16 MiB hold eight million of them, and compressed they are some kilobytes: one such
request would take gigabytes, and the loop for minutes. Bytes bound the content of a message, and this its parts.

What is malformed is left to the parser, which says so.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from msgspec import Struct

from coordinator_protocol.wire import fields

FIELDS_PER_PART: Final = 10
"""Fields that an element has at most, and a few that nobody knows."""
_FOLLOWED_BYTES: Final = bytes(range(0x80, 0x100))
"""Bytes of a number that are followed by another one of it."""
_NEVER_PACKED: Final = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_MESSAGE)


class _Shape(Struct, frozen=True):
    """What of one kind of message holds parts."""

    lists: frozenset[int]
    """Numbers of the fields that are lists."""
    packed: frozenset[int]
    """Numbers of the lists whose elements are numbers: one field may hold many."""
    messages: dict[int, Descriptor]
    """The fields that hold messages with lists, and of which kind."""


def parts_are_too_many(message: bytes, kind: Descriptor, parts_max: int) -> bool:
    """Whether the lists in a message of this kind, and in the messages in it, have more elements than this together, or
    it has more fields than so many elements have. Takes time in proportion to no more of them."""
    parts_left, fields_left = parts_max, parts_max * FIELDS_PER_PART
    waiting = [(0, len(message), kind)]
    while waiting:
        start, end, kind = waiting.pop()
        shape = _shape(kind)
        # What is malformed ends here, and what comes beside it may be looked at by the parser all the same.
        with suppress(ValueError):
            for number, content, after in fields(message, start, end):
                fields_left -= 1
                if number in shape.lists:
                    parts_left -= _numbers(message[content:after]) if number in shape.packed and content < after else 1
                if parts_left < 0 or fields_left < 0:
                    return True
                if content < after and number in shape.messages:
                    waiting.append((content, after, shape.messages[number]))
    return False


def _numbers(packed: bytes) -> int:
    """How many numbers these are: each ends with a byte that says so."""
    return len(packed.translate(None, _FOLLOWED_BYTES))


@cache
def _has_lists(kind: Descriptor | None) -> bool:
    """Whether a message of this kind has lists, or one in it. No kind of ours holds itself."""
    return kind is not None and any(field.is_repeated or _has_lists(field.message_type) for field in kind.fields)


@cache
def _shape(kind: Descriptor) -> _Shape:
    lists = [field for field in kind.fields if field.is_repeated]
    return _Shape(
        frozenset(field.number for field in lists),
        frozenset(field.number for field in lists if field.cpp_type not in _NEVER_PACKED),
        {
            field.number: field.message_type
            for field in kind.fields
            if field.message_type is not None and _has_lists(field.message_type)
        },
    )
