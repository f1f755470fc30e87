"""Limit on the number of parts of a message, counted before it is parsed.

An empty element of a list takes two bytes on the wire, a number one, and each some fifty once it is parsed. Each is
then mapped, checked and answered. So 16 MiB hold eight million of them, and some kilobytes if compressed. One such
request would take gigabytes, and block the loop for minutes. The byte limit bounds the content of a message, and this
limit its parts.

Malformed messages are left to the parser, which reports them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from msgspec import Struct

from coordinator_protocol.wire import fields

FIELDS_PER_PART: Final = 10
"""Maximum number of fields per element, including a few unknown ones."""
_FOLLOWED_BYTES: Final = bytes(range(0x80, 0x100))
"""Bytes of a varint that are followed by another byte of it."""
_NEVER_PACKED: Final = (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_MESSAGE)


class _Shape(Struct, frozen=True):
    """Fields of one kind of message that hold parts."""

    lists: frozenset[int]
    """Numbers of the fields that are lists."""
    packed: frozenset[int]
    """Numbers of the lists whose elements are numbers: one field may hold many."""
    messages: dict[int, Descriptor]
    """Fields that hold messages with lists, and the kind of each."""


def parts_are_too_many(message: bytes, kind: Descriptor, parts_max: int) -> bool:
    """Return True if the message, with all messages in it, has too many parts or fields. Parts are the elements of
    lists, at most `parts_max`; fields are at most `FIELDS_PER_PART` times as many. The time is proportional to
    `parts_max` at most."""
    parts_left, fields_left = parts_max, parts_max * FIELDS_PER_PART
    waiting = [(0, len(message), kind)]
    while waiting:
        start, end, kind = waiting.pop()
        shape = _shape(kind)
        # The count ends at a malformed field. The parser may still read other parts of the message.
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
    """Return the number of varints: only the last byte of each is below 0x80."""
    return len(packed.translate(None, _FOLLOWED_BYTES))


@cache
def _has_lists(kind: Descriptor | None) -> bool:
    """Return True if a message of this kind, or one in it, has lists. None of our kinds contains itself."""
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
