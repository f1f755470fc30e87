"""Bodies that break the protocol are refused with the name of the field, soon and in little memory."""

from __future__ import annotations

import random
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_server.kafka_front.api_definition import ApiDefinition
from coordinator_server.kafka_front.malformed import Malformed
from coordinator_server.kafka_front.messages import consumer_group_heartbeat_request as heartbeat_request
from coordinator_server.kafka_front.messages import describe_topic_partitions_request as topic_partitions_request
from coordinator_server.kafka_front.messages import fetch_request, metadata_request, produce_request
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from coordinator_server.kafka_front.reading import unsigned_varint
from tests.harness.kio_messages import encoded, kio_class, random_message

HOSTILE = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80" * 6, b"\xff\xff\xff\xff\x07", b"\xff\xfe", b"\0", b"\x7f")
"""Bytes that make lengths and counts which cannot be."""
EMPTY_PRODUCE = bytes.fromhex("0000010000000001")
"""A flexible Produce request up to its tagged fields: no transactional id, acks, timeout, no topics."""
EMPTY_FETCH = bytes.fromhex("00000000 00000000 00000000 00 00000000 00000000 01 01 01")
"""A Fetch request of version 15, likewise."""


@given(seed=st.integers(0, 2**32 - 1))
def test_a_changed_request_is_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    for api in API_DEFINITIONS.values():
        version = chance.randint(api.version_min, api.version_max)
        body = bytearray(encoded(random_message(kio_class(api.key, version, is_request=True), chance).kio))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(body) + 1)
            body[at : at + chance.choice((0, 1, 4))] = chance.choice((*HOSTILE, chance.randbytes(1), b""))
        with suppress(Malformed):
            api.decoder()(memoryview(body), version)


@pytest.mark.parametrize("api", API_DEFINITIONS.values(), ids=lambda api: api.name)
def test_no_request_is_complete_before_its_end(api: ApiDefinition) -> None:
    for version in range(api.version_min, api.version_max + 1):
        body = memoryview(encoded(random_message(kio_class(api.key, version, is_request=True), random.Random(1)).kio))
        for end in range(0, len(body), 1 + len(body) // 40):
            with pytest.raises(Malformed, match=f"^{api.name}Request version {version}: "):
                api.decoder()(body[:end], version)
        # As in Kafka: librdkafka sends bytes after the last field of Metadata.
        assert api.decoder()(memoryview(bytes(body) + b"\0"), version) == api.decoder()(body, version)


def test_what_a_request_says_of_its_size_takes_no_memory() -> None:
    chance = random.Random(7)
    for api in API_DEFINITIONS.values():
        version = api.version_max
        decode = api.decoder()
        body = encoded(random_message(kio_class(api.key, version, is_request=True), chance).kio)
        changed = [
            memoryview(body[:at] + each + body[at + len(each) :])
            for at in range(min(len(body), 60))
            for each in HOSTILE
        ]
        tracemalloc.start()
        try:
            for each in changed:
                with suppress(Malformed):
                    decode(each, version)
            _now, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 200_000 + 20 * len(body), api.name


@pytest.mark.parametrize(
    ("body", "version", "said"),
    [
        (b"\x03\xff\xfe" + EMPTY_PRODUCE[1:], 9, "transactional_id: text that is not UTF-8"),
        (b"\x19abc" + EMPTY_PRODUCE[1:], 9, "transactional_id: a length of 24 bytes, with 10 left"),
        (b"\xff\xff\x03" + bytes(40_000), 9, "transactional_id: a text of 65534 bytes"),
        (b"\xff\xfe", 3, "transactional_id: a length of -2 bytes"),
        (EMPTY_PRODUCE[:7] + b"\0\0", 9, "topic_data is null"),
        (EMPTY_PRODUCE[:7] + b"\xff\xff\xff\x07", 9, "topic_data: a count of 16777214, with 0 bytes left"),
        (EMPTY_PRODUCE[:7] + b"\xff\xff\xff\xff\x0f", 9, "a variable-length integer has more than 31 bits"),
        (EMPTY_PRODUCE[:7] + b"\x02\0", 9, "name is null"),
        (EMPTY_PRODUCE[:7] + b"\x02\x02a\x02\0\0\0\0\x10", 9, "records: a length of 15 bytes, with 0 left"),
        (b"\xff\xff" + bytes(6) + b"\xff\xff\xff\xff", 3, "topic_data is null"),
        (EMPTY_PRODUCE, 9, "the body ends within a field"),
        (EMPTY_PRODUCE + b"\x02\x07\0\x07\0", 9, "tag 7 of a field follows tag 7"),
        (EMPTY_PRODUCE + b"\x01\x07\x05abc", 9, "tag 7: a length of 5 bytes, with 3 left"),
    ],
)
def test_a_broken_produce_request_is_refused_with_the_field(body: bytes, version: int, said: str) -> None:
    with pytest.raises(Malformed, match=f"^ProduceRequest version {version}: {said}"):
        produce_request.decode(memoryview(body), version)


def test_unknown_tagged_fields_are_skipped() -> None:
    body = EMPTY_PRODUCE + b"\x02\x00\x01x\x90\x4e\x02xy"
    assert produce_request.decode(memoryview(body), 9) == produce_request.ProduceRequest(acks=1)


def test_tagged_fields_may_come_beside_unknown_ones() -> None:
    state = b"\x00\x00\x00\x05" + bytes(7) + b"\x09\x00"
    body = EMPTY_FETCH + b"\x03" + b"\x00\x02\x02c" + b"\x01\x0d" + state + b"\x63\x01x"
    found = fetch_request.decode(memoryview(body), 15)
    assert (found.cluster_id, found.replica_state.replica_id, found.replica_state.replica_epoch) == ("c", 5, 9)


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (b"\x01\x00\x03\x02c\0", "tag 0 of a field has another size than it states"),
        (b"\x02\x01\x0d\0\0\0\x05" + bytes(8) + b"\0" + b"\x00\x02\x02c", "tag 0 of a field follows tag 1"),
    ],
)
def test_known_tagged_fields_are_held_to_their_size_and_order(tags: bytes, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        fetch_request.decode(memoryview(EMPTY_FETCH + tags), 15)


def test_null_is_none_where_the_version_has_it() -> None:
    assert metadata_request.decode(memoryview(b"\xff\xff\xff\xff"), 1).topics is None
    with pytest.raises(Malformed, match="topics is null"):
        metadata_request.decode(memoryview(b"\xff\xff\xff\xff"), 0)


def test_a_structure_that_may_be_null_says_which() -> None:
    start = b"\x01\0\0\0\x05"
    assert topic_partitions_request.decode(memoryview(start + b"\xff\0"), 0).cursor is None
    found = topic_partitions_request.decode(memoryview(start + b"\x01\x02t\0\0\0\x03\0\0"), 0)
    assert found.cursor == topic_partitions_request.Cursor(topic_name="t", partition_index=3)
    with pytest.raises(Malformed, match="cursor: a marker of 2, neither null nor present"):
        topic_partitions_request.decode(memoryview(start + b"\x02\0"), 0)


def test_what_a_version_lacks_is_at_its_default() -> None:
    found = heartbeat_request.decode(memoryview(b"\x02g\x01\0\0\0\0\0\0\xff\xff\xff\xff\0\0\0\0"), 0)
    assert (found.group_id, found.subscribed_topic_regex, found.topic_partitions) == ("g", None, None)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2**21, 2**28, 2**31 - 1])
def test_numbers_of_variable_length_are_read(value: int) -> None:
    groups = [value >> shift & 0x7F | 0x80 for shift in range(0, 35, 7)]
    while len(groups) > 1 and groups[-1] == 0x80:
        groups.pop()
    groups[-1] &= 0x7F
    assert unsigned_varint(bytes(groups) + b"rest", 0) == (value, len(groups))


@pytest.mark.parametrize("groups", [b"\x80\x80\x80\x80\x08", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 9])
def test_numbers_of_more_than_31_bits_are_refused(groups: bytes) -> None:
    with pytest.raises(Malformed, match="more than 31 bits"):
        unsigned_varint(groups, 0)
