"""What consumers of a classic group tell each other through the coordinator: subscriptions and assignments.

The bytes are Kafka's, so that its clients and ours can be in one group: a version, then fields, none of them flexible.

| | fields (since version) |
| --- | --- |
| subscription | topics (0), user data (0), owned partitions (1), generation (2), rack (3) |
| assignment | partitions (0), user data (0) |
| user data of sticky | previous partitions, generation (missing in its version 0; which one it is, is not told) |
| user data of cooperative-sticky | generation |

A later version only adds fields at the end: a reader takes what it knows and leaves the rest, of any version.

Source: Kafka's `ConsumerProtocolSubscription.json` and `ConsumerProtocolAssignment.json`; KIP-429, KIP-792, KIP-881;
spec groups 2.4.4 and 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator_protocol import kafka_fields
from coordinator_protocol.assignors.values import NO_GENERATION, Share
from coordinator_protocol.errors import Refused
from coordinator_protocol.kafka_fields import FieldReader

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members send these bytes."""
VERSION_MAX: Final = 3
"""The newest version known here."""

_OWNED_SINCE: Final = 1
_GENERATION_SINCE: Final = 2
_RACK_SINCE: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a consumer asks for when it joins."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    """What the assignor remembers, in a format of its own."""
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """What it holds while it joins: nothing, for consumers that give everything up first (eager)."""
    generation: int = NO_GENERATION
    """The generation in which it got what it owns."""
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a consumer gets."""

    partitions: Share[str]
    user_data: bytes | None = None
    """What the assignor tells its fellow in the member, in a format of its own."""


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """Return the subscription in the bytes of a version; what that version cannot express is left out. Raises: Refused
    (INVALID_REQUEST) where a name is too long for them."""
    fields = [
        _version(version),
        kafka_fields.pack_list([kafka_fields.pack_string(topic) for topic in sorted(subscription.topics)]),
        kafka_fields.pack_bytes(subscription.user_data),
    ]
    if version >= _OWNED_SINCE:
        fields.append(kafka_fields.pack_topic_partitions(subscription.owned))
    if version >= _GENERATION_SINCE:
        fields.append(kafka_fields.pack_int32(subscription.generation))
    if version >= _RACK_SINCE:
        fields.append(kafka_fields.pack_string(subscription.rack_id))
    return b"".join(fields)


def decode_subscription(encoded: bytes) -> Subscription:
    """Return what a member's metadata says, as far as its version says it.

    Raises: Refused (INVALID_REQUEST), which names the field that is wrong.
    """
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
    """Return the topics of a subscription: all that a coordinator may know of it, at the same place in every version.

    Raises: Refused (INVALID_REQUEST); the coordinator then takes the group to subscribe to everything.
    """
    reader = FieldReader("consumer subscription", encoded)
    _read_version(reader)
    return frozenset(reader.list_of(reader.string, "topics"))


def version_of(encoded: bytes) -> int:
    """Return the version in which to answer the writer of these bytes: the same, or the newest known here if that is
    lower. Raises: Refused (INVALID_REQUEST) where they do not start with a version."""
    return min(_read_version(FieldReader("consumer subscription or assignment", encoded)), VERSION_MAX)


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """Return the assignment in the bytes of a version; versions differ in the version number alone. Raises: Refused
    (INVALID_REQUEST) where a name is too long for them."""
    return b"".join(
        (
            _version(version),
            kafka_fields.pack_topic_partitions(assignment.partitions),
            kafka_fields.pack_bytes(assignment.user_data),
        )
    )


def decode_assignment(encoded: bytes) -> Assignment:
    """Return what the leader decided for a member.

    A member that the leader's plan does not name gets no bytes at all; the caller asks for that first.

    Raises: Refused (INVALID_REQUEST), which names the field that is wrong.
    """
    reader = FieldReader("consumer assignment", encoded)
    _read_version(reader)
    return Assignment(
        partitions=reader.topic_partitions("assigned partitions"), user_data=reader.nullable_bytes("user data")
    )


def encode_sticky_user_data(owned: Share[str], generation: int) -> bytes:
    """Return what the sticky assignor remembers in a subscription, in its version 1."""
    return kafka_fields.pack_topic_partitions(owned) + kafka_fields.pack_int32(generation)


def decode_sticky_user_data(user_data: bytes | None) -> tuple[Share[str], int]:
    """Return partitions and generation; none and -1 where the bytes cannot be read: they are only a wish."""
    reader = FieldReader("sticky user data", user_data or b"")
    try:
        owned = reader.topic_partitions("previous partitions")
    except Refused:
        return {}, NO_GENERATION
    try:
        return owned, max(reader.int32("generation"), NO_GENERATION)
    except Refused:  # its version 0
        return owned, NO_GENERATION


def encode_cooperative_user_data(generation: int) -> bytes:
    """Return what cooperative-sticky says in a subscription, for readers of its versions before 2."""
    return kafka_fields.pack_int32(generation)


def decode_cooperative_user_data(user_data: bytes | None) -> int:
    """Return the generation; -1 where the bytes cannot be read."""
    try:
        return max(FieldReader("cooperative user data", user_data or b"").int32("generation"), NO_GENERATION)
    except Refused:
        return NO_GENERATION


def _version(version: int) -> bytes:
    assert 0 <= version <= VERSION_MAX, f"there is no version {version} to write"
    return kafka_fields.pack_int16(version)


def _read_version(reader: FieldReader) -> int:
    version = reader.int16("version")
    if version < 0:
        raise reader.malformed("version", f"it is {version}")
    return version
