"""Messages between consumers of a classic group, carried by the coordinator: subscriptions and assignments.

The bytes are Kafka's, so that its clients and ours can be in one group: a version, then fields, none of them flexible.

| | fields (since version) |
| --- | --- |
| subscription | topics (0), user data (0), owned partitions (1), generation (2), rack (3) |
| assignment | partitions (0), user data (0) |
| user data of sticky | previous partitions, generation (missing in its version 0; the bytes have no version) |
| user data of cooperative-sticky | generation |

A later version only adds fields at the end: a reader takes the fields it knows and leaves the rest, of any version.

Numbers are big-endian, strings and lists have their length before them.

Source: Kafka's `ConsumerProtocolSubscription.json` and `ConsumerProtocolAssignment.json`; its protocol guide, "Protocol
Primitive Types" (non-flexible versions); KIP-429, KIP-792, KIP-881; spec groups 2.4.4 and 5.4.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from coordinator_protocol.assignors.values import NO_GENERATION, Share
from coordinator_protocol.errors import ErrorCode, Refused

FieldT = TypeVar("FieldT")

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_STRING_BYTES_MAX: Final = 2**15 - 1
_NULL: Final = -1

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members send these bytes."""
VERSION_MAX: Final = 3
"""The newest version known here."""

_OWNED_SINCE: Final = 1
_GENERATION_SINCE: Final = 2
_RACK_SINCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The request of a consumer when it joins."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """Data of the assignor, in a format of its own."""
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Partitions that it holds while it joins: none, for consumers that give everything up first (eager)."""
    generation: int = NO_GENERATION
    """Generation in which it got the owned partitions."""
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The partitions that a consumer gets."""

    partitions: Share[str]
    user_data: bytes | None = None
    """Data from the leader's assignor to the member's assignor, in a format of its own."""


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """Return the subscription in the bytes of a version; fields that the version lacks are left out.

    Raises: Refused (INVALID_REQUEST) if a name is too long for them."""
    fields = [
        _version(version),
        _pack_list([_pack_string(topic) for topic in sorted(subscription.topics)]),
        _pack_bytes(subscription.user_data),
    ]
    if version >= _OWNED_SINCE:
        fields.append(_pack_topic_partitions(subscription.owned))
    if version >= _GENERATION_SINCE:
        fields.append(_INT32.pack(subscription.generation))
    if version >= _RACK_SINCE:
        fields.append(_pack_string(subscription.rack_id))
    return b"".join(fields)


def decode_subscription(encoded: bytes) -> Subscription:
    """Return the subscription in a member's metadata, with the fields that its version has.

    Raises: Refused (INVALID_REQUEST), which names the field that is wrong."""
    reader = FieldReader("consumer subscription", encoded)
    version = _read_version(reader)
    return Subscription(
        topics=tuple(reader.list_of(reader.string, "topics")),
        user_data=reader.nullable_bytes("user data"),
        owned=reader.topic_partitions("owned partitions") if version >= _OWNED_SINCE else {},
        generation=max(reader.int32("generation"), NO_GENERATION) if version >= _GENERATION_SINCE else NO_GENERATION,
        rack_id=reader.nullable_string("rack") if version >= _RACK_SINCE else None,
    )


def subscribed_topics(encoded: bytes) -> frozenset[str]:
    """Return the topics of a subscription: all that a coordinator may read of it, at the same place in every version.

    Raises: Refused (INVALID_REQUEST); the coordinator then assumes that the group subscribes to everything."""
    reader = FieldReader("consumer subscription", encoded)
    _read_version(reader)
    return frozenset(reader.list_of(reader.string, "topics"))


def version_of(encoded: bytes) -> int:
    """Return the version in which to answer the writer of these bytes: the same, or the newest known here if that is
    lower.

    Raises: Refused (INVALID_REQUEST) if they do not start with a version."""
    return min(_read_version(FieldReader("consumer subscription or assignment", encoded)), VERSION_MAX)


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """Return the assignment in the bytes of a version; versions differ only in the version number.

    Raises: Refused (INVALID_REQUEST) if a name is too long for them."""
    return b"".join(
        (
            _version(version),
            _pack_topic_partitions(assignment.partitions),
            _pack_bytes(assignment.user_data),
        )
    )


def decode_assignment(encoded: bytes) -> Assignment:
    """Return the leader's decision for a member.

    A member that the leader's plan does not name gets no bytes at all; the caller checks for that first.

    Raises: Refused (INVALID_REQUEST), which names the field that is wrong."""
    reader = FieldReader("consumer assignment", encoded)
    _read_version(reader)
    return Assignment(
        partitions=reader.topic_partitions("assigned partitions"), user_data=reader.nullable_bytes("user data")
    )


def encode_sticky_user_data(owned: Share[str], generation: int) -> bytes:
    """Return the user data of the sticky assignor, in its version 1."""
    return _pack_topic_partitions(owned) + _INT32.pack(generation)


def decode_sticky_user_data(user_data: bytes | None) -> tuple[Share[str], int]:
    """Return partitions and generation; none and -1 if the bytes cannot be read: they are only a preference."""
    reader = FieldReader("sticky user data", user_data or b"")
    try:
        owned = reader.topic_partitions("previous partitions")
    except Refused:
        return {}, NO_GENERATION
    try:
        return owned, max(reader.int32("generation"), NO_GENERATION)
    except Refused:  # version 0 of the user data
        return owned, NO_GENERATION


def encode_cooperative_user_data(generation: int) -> bytes:
    """Return the user data of cooperative-sticky, for readers of its versions before 2."""
    return _INT32.pack(generation)


def decode_cooperative_user_data(user_data: bytes | None) -> int:
    """Return the generation; -1 if the bytes cannot be read."""
    try:
        return max(FieldReader("cooperative user data", user_data or b"").int32("generation"), NO_GENERATION)
    except Refused:
        return NO_GENERATION


def _version(version: int) -> bytes:
    assert 0 <= version <= VERSION_MAX, f"there is no version {version} to write"
    return _INT16.pack(version)


def _read_version(reader: FieldReader) -> int:
    version = reader.int16("version")
    if version < 0:
        raise reader.malformed("version", f"it is {version}")
    return version


class FieldReader:
    """Reads fields one after the other; the bytes left at the end are for later versions.

    Every method raises Refused (INVALID_REQUEST), with the field and the byte it starts at, if the bytes do not hold
    the field. A length is checked against the available bytes before anything of that length is made."""

    __slots__ = ("_at", "_buffer", "_what")

    def __init__(self, what: str, buffer: bytes) -> None:
        self._what = what
        self._buffer = buffer
        self._at = 0

    def int16(self, name: str) -> int:
        value: int
        (value,) = _INT16.unpack(self._next(_INT16.size, name))
        return value

    def int32(self, name: str) -> int:
        value: int
        (value,) = _INT32.unpack(self._next(_INT32.size, name))
        return value

    def string(self, name: str) -> str:
        """Read a string that must not be null."""
        text = self.nullable_string(name)
        if text is None:
            raise self.malformed(name, "it is null and must not be")
        return text

    def nullable_string(self, name: str) -> str | None:
        size = self.int16(name)
        if size == _NULL:
            return None
        encoded = self._next(size, name)
        try:
            return encoded.decode()
        except UnicodeDecodeError:
            raise self.malformed(name, f"its {size} bytes are not UTF-8") from None

    def nullable_bytes(self, name: str) -> bytes | None:
        size = self.int32(name)
        return None if size == _NULL else self._next(size, name)

    def list_of(self, read: Callable[[str], FieldT], name: str) -> list[FieldT]:
        """Read a list of fields that take at least two bytes each."""
        count = self.int32(name)
        left = len(self._buffer) - self._at
        if not 0 <= count <= left // _INT16.size:
            raise self.malformed(name, f"it should hold {count} entries, and {left} bytes are left")
        return [read(name) for _ in range(count)]

    def int32_list(self, name: str) -> tuple[int, ...]:
        count = self.int32(name)
        if count < 0:
            raise self.malformed(name, f"it should hold {count} entries")
        return struct.unpack(f">{count}i", self._next(_INT32.size * count, name))

    def topic_partitions(self, name: str) -> dict[str, tuple[int, ...]]:
        """Read partitions by topic, both ascending. A repeated topic is read as one; one without partitions is
        dropped."""
        found: dict[str, set[int]] = {}
        for topic, partitions in self.list_of(self._topic_partitions, name):
            found.setdefault(topic, set()).update(partitions)
        return {topic: tuple(sorted(partitions)) for topic, partitions in found.items() if partitions}

    def malformed(self, name: str, why: str) -> Refused:
        """Return the error to raise about a field."""
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"not a {self._what}: its {name}, before byte {self._at} of {len(self._buffer)}, is wrong: {why}",
        )

    def _topic_partitions(self, name: str) -> tuple[str, tuple[int, ...]]:
        return self.string(name), self.int32_list(name)

    def _next(self, size: int, name: str) -> bytes:
        start, end = self._at, self._at + size
        if size < 0 or end > len(self._buffer):
            raise self.malformed(name, f"it should take {size} bytes, and {len(self._buffer) - start} are left")
        self._at = end
        return self._buffer[start:end]


def _pack_string(text: str | None) -> bytes:
    """Return a string with its length before it.

    Raises: Refused (INVALID_REQUEST) if the text takes more than 32,767 bytes of UTF-8."""
    if text is None:
        return _INT16.pack(_NULL)
    encoded = text.encode()
    if len(encoded) > _STRING_BYTES_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the string {text[:40]!r}... takes {len(encoded)} bytes and Kafka's layout allows {_STRING_BYTES_MAX}",
        )
    return _INT16.pack(len(encoded)) + encoded


def _pack_bytes(value: bytes | None) -> bytes:
    return _INT32.pack(_NULL) if value is None else _INT32.pack(len(value)) + value


def _pack_list(items: Sequence[bytes]) -> bytes:
    """Return a list of packed fields with their number before it."""
    return b"".join((_INT32.pack(len(items)), *items))


def _pack_topic_partitions(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Return a list of topics with their partitions, both ascending, so that equal sets are equal bytes."""
    return _pack_list(
        [
            _pack_string(topic)
            + struct.pack(f">i{len(partitions[topic])}i", len(partitions[topic]), *sorted(partitions[topic]))
            for topic in sorted(partitions)
        ]
    )
