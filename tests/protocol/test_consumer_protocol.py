"""Messages between consumers: Kafka's bytes, read in every version, and refused with the field that is wrong."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_protocol.consumer_protocol import (
    VERSION_MAX,
    Assignment,
    Subscription,
    decode_assignment,
    decode_cooperative_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_user_data,
    encode_sticky_user_data,
    encode_subscription,
    subscribed_topics,
    version_of,
)
from coordinator_protocol.errors import ErrorCode, Refused

SUBSCRIPTION = Subscription(
    topics=("orders", "clicks"),
    user_data=b"\x01\x02",
    owned={"orders": (7,), "clicks": (0, 2)},
    generation=9,
    rack_id="r1",
)

# As kafka-python 3.0.12 writes them, from Kafka's own schemas.
TOPICS = bytes.fromhex("00000002 0006 636c69636b73 0006 6f7264657273")
USER_DATA = bytes.fromhex("00000002 0102")
CLICKS_0_2 = bytes.fromhex("0006 636c69636b73 00000002 00000000 00000002")
OWNED = bytes.fromhex("00000002") + CLICKS_0_2 + bytes.fromhex("0006 6f7264657273 00000001 00000007")
GENERATION = bytes.fromhex("00000009")
RACK = bytes.fromhex("0002 7231")
WRITTEN_BY_OTHERS = [
    bytes.fromhex("0000") + TOPICS + USER_DATA,
    bytes.fromhex("0001") + TOPICS + USER_DATA + OWNED,
    bytes.fromhex("0002") + TOPICS + USER_DATA + OWNED + GENERATION,
    bytes.fromhex("0003") + TOPICS + USER_DATA + OWNED + GENERATION + RACK,
]
SUBSCRIPTION_BYTES = WRITTEN_BY_OTHERS[VERSION_MAX]
ASSIGNMENT = Assignment(partitions={"clicks": (0, 2)})
ASSIGNMENT_TAIL = bytes.fromhex("00000001") + CLICKS_0_2 + bytes.fromhex("ffffffff")

every_version = pytest.mark.parametrize("version", range(VERSION_MAX + 1))
few = settings(max_examples=60)

names = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
shares = st.dictionaries(
    names, st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=4).map(lambda found: tuple(sorted(found)))
)
user_data = st.none() | st.binary(max_size=9)
subscriptions = st.builds(
    Subscription,
    topics=st.frozensets(names, max_size=4).map(lambda found: tuple(sorted(found))),
    user_data=user_data,
    owned=shares,
    generation=st.integers(-1, 2**31 - 1),
    rack_id=st.none() | names,
)


def cut_to(subscription: Subscription, version: int) -> Subscription:
    """Return the part of it that a version has fields for."""
    cut = replace(subscription, topics=tuple(sorted(subscription.topics)))
    if version < 3:
        cut = replace(cut, rack_id=None)
    if version < 2:
        cut = replace(cut, generation=-1)
    return cut if version > 0 else replace(cut, owned={})


@every_version
def test_a_subscription_is_written_as_others_write_it(version: int) -> None:
    assert encode_subscription(SUBSCRIPTION, version) == WRITTEN_BY_OTHERS[version]
    assert decode_subscription(WRITTEN_BY_OTHERS[version]) == cut_to(SUBSCRIPTION, version)


@every_version
def test_an_assignment_is_written_as_others_write_it(version: int) -> None:
    written = version.to_bytes(2, "big") + ASSIGNMENT_TAIL
    assert encode_assignment(ASSIGNMENT, version) == written
    assert decode_assignment(written) == ASSIGNMENT


@few
@given(subscriptions, st.integers(0, VERSION_MAX))
def test_what_is_written_is_read(subscription: Subscription, version: int) -> None:
    encoded = encode_subscription(subscription, version)
    assert decode_subscription(encoded) == cut_to(subscription, version)
    assert subscribed_topics(encoded) == frozenset(subscription.topics)
    assert version_of(encoded) == version


@few
@given(st.builds(Assignment, partitions=shares, user_data=user_data), st.integers(0, VERSION_MAX))
def test_an_assignment_that_is_written_is_read(assignment: Assignment, version: int) -> None:
    assert decode_assignment(encode_assignment(assignment, version)) == assignment


@given(st.integers(VERSION_MAX + 1, 2**15 - 1), st.binary(max_size=20))
@settings(max_examples=20)
def test_a_later_version_with_more_at_its_end_is_read_as_the_newest_known(version: int, more: bytes) -> None:
    later = version.to_bytes(2, "big") + SUBSCRIPTION_BYTES[2:] + more
    assert decode_subscription(later) == cut_to(SUBSCRIPTION, VERSION_MAX)
    assert subscribed_topics(later) == {"clicks", "orders"}
    assert version_of(later) == VERSION_MAX
    assert decode_assignment(version.to_bytes(2, "big") + ASSIGNMENT_TAIL + more) == ASSIGNMENT


def test_the_topics_are_read_even_where_the_rest_cannot_be() -> None:
    assert subscribed_topics(SUBSCRIPTION_BYTES[: 2 + len(TOPICS)]) == {"clicks", "orders"}


def test_a_topic_that_comes_twice_counts_once_and_one_without_partitions_not_at_all() -> None:
    clicks_2_1 = bytes.fromhex("0006 636c69636b73 00000002 00000002 00000001")
    nothing = bytes.fromhex("0001 78 00000000")
    encoded = bytes.fromhex("0000 00000003") + CLICKS_0_2 + nothing + clicks_2_1 + bytes.fromhex("ffffffff")
    assert decode_assignment(encoded).partitions == {"clicks": (0, 1, 2)}


@pytest.mark.parametrize(
    ("encoded", "complaint"),
    [
        (b"", "version.*2 bytes, and 0 are left"),
        (b"\xff\xff" + SUBSCRIPTION_BYTES[2:], "version.*-1"),
        (SUBSCRIPTION_BYTES[:4], "topics.*4 bytes, and 2"),
        (bytes.fromhex("0000 ffffffff"), "topics.*-1 entries"),
        (bytes.fromhex("0000 7fffffff 0001"), "topics.*2147483647 entries, and 2 bytes"),
        (bytes.fromhex("0000 00000001 ffff"), "topics.*null"),
        (bytes.fromhex("0000 00000001 fffe"), "topics.*-2 bytes"),
        (bytes.fromhex("0000 00000001 0002 c328"), "topics.*not UTF-8"),
        (bytes.fromhex("0000 00000000 fffffffe"), "user data.*-2 bytes"),
        (bytes.fromhex("0001 00000000 ffffffff 00000001 0001 78 ffffffff"), "owned partitions.*-1 entries"),
        (bytes.fromhex("0001 00000000 ffffffff 00000001 0001 78 7fffffff"), "owned partitions.*8589934588 bytes"),
        (SUBSCRIPTION_BYTES[: -len(RACK) - 1], "generation"),
        (SUBSCRIPTION_BYTES[:-1], "rack.*2 bytes, and 1"),
    ],
)
def test_what_is_malformed_is_refused_with_the_field_that_is_wrong(encoded: bytes, complaint: str) -> None:
    with pytest.raises(Refused, match=f"consumer subscription: its {complaint}") as refusal:
        decode_subscription(encoded)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: b"\x00\x01\x00\x00\x00\x01" + tail))
@settings(max_examples=150)
def test_any_bytes_are_read_or_refused(encoded: bytes) -> None:
    for decode in (decode_subscription, decode_assignment, subscribed_topics, version_of):
        with contextlib.suppress(Refused):
            decode(encoded)
    decode_sticky_user_data(encoded)
    decode_cooperative_user_data(encoded)


def test_a_name_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Refused, match="32768 bytes") as refusal:
        encode_subscription(Subscription(topics=("x" * 2**15,)))
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


# Memory of assignors


def test_sticky_remembers_partitions_and_their_generation() -> None:
    written = bytes.fromhex("00000001") + CLICKS_0_2 + GENERATION
    assert encode_sticky_user_data({"clicks": (0, 2)}, 9) == written
    assert decode_sticky_user_data(written) == ({"clicks": (0, 2)}, 9)


def test_sticky_reads_what_its_first_version_wrote() -> None:
    assert decode_sticky_user_data(bytes.fromhex("00000001") + CLICKS_0_2) == ({"clicks": (0, 2)}, -1)


def test_cooperative_remembers_the_generation() -> None:
    assert decode_cooperative_user_data(encode_cooperative_user_data(7)) == 7


@pytest.mark.parametrize("unreadable", [None, b"", b"\x00\x00\x00", b"\xff\xff\xff\xff"])
def test_what_an_assignor_cannot_read_it_does_not_remember(unreadable: bytes | None) -> None:
    assert decode_sticky_user_data(unreadable) == ({}, -1)
    assert decode_cooperative_user_data(unreadable) == -1
