"""The hashes: Java's and Kafka's published values, and the definition itself as the oracle."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator_protocol.hashing import coordinator_key, java_string_hash, murmur2, partition_for, shard_of

INT32_MIN = -(2**31)
HASHES_TO_INT32_MIN = "polygenelubricants"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("é", 233),
        ("😀", 0xD83D * 31 + 0xDE00),
        (HASHES_TO_INT32_MIN, INT32_MIN),
    ],
)
def test_a_string_hashes_as_in_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


@given(st.text(st.characters(exclude_categories=()), max_size=60))
@example("\ud83d")
def test_the_string_hash_is_its_definition(text: str) -> None:
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = [int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2)]
    total = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units)) % 2**32
    assert java_string_hash(text) == (total if total < 2**31 else total - 2**32)


def test_the_one_hash_without_an_absolute_value_means_shard_zero() -> None:
    assert shard_of(HASHES_TO_INT32_MIN, 50) == 0
    assert shard_of(HASHES_TO_INT32_MIN, 7) == 0


@given(st.text(max_size=30), st.integers(1, 1000))
def test_a_shard_is_the_absolute_hash_modulo_the_count(key: str, shard_count: int) -> None:
    number = java_string_hash(key)
    assert shard_of(key, shard_count) == (0 if number == INT32_MIN else abs(number) % shard_count)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # Kafka's own test of `Utils.murmur2`.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_bytes_hash_as_in_kafka(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


@given(st.binary(max_size=300))
@example(bytes(256))
@example(bytes(260))
def test_murmur2_is_its_definition(data: bytes) -> None:
    assert murmur2(data) == murmur2_in_small_steps(data)


@given(st.binary(max_size=40), st.integers(1, 10_000))
def test_a_key_has_a_partition_that_exists(key: bytes, partition_count: int) -> None:
    partition = partition_for(key, partition_count)
    assert 0 <= partition < partition_count
    assert partition == (murmur2(key) & 0x7FFFFFFF) % partition_count


def test_a_negative_hash_loses_its_sign_bit_not_its_sign() -> None:
    # Kafka's toPositive masks the bit; taking the absolute value instead would send keys to other partitions.
    assert partition_for(b"21", 1000) == (2**31 - 973932308) % 1000


def murmur2_in_small_steps(data: bytes) -> int:
    """Austin Appleby's algorithm, written as it is described, without any hurry."""

    def times(number: int) -> int:
        return number * 0x5BD1E995 % 2**32

    state = 0x9747B28C ^ len(data)
    whole, rest = data[: len(data) // 4 * 4], data[len(data) // 4 * 4 :]
    for at in range(0, len(whole), 4):
        word = times(int.from_bytes(whole[at : at + 4], "little"))
        word = times(word ^ (word >> 24))
        state = times(state) ^ word
    for place, byte in enumerate(rest):
        state ^= byte << 8 * place
    if rest:
        state = times(state)
    state = times(state ^ (state >> 13))
    state ^= state >> 15
    return state if state < 2**31 else state - 2**32


@pytest.mark.parametrize(
    ("transactional_id", "key"),
    [
        ("orders", "orders"),
        ("__member/sink/1", "sink"),
        ("__member/a/b/7", "a/b"),
        ("__member/sink/", "sink"),
        ("__member/sink", "__member/sink"),
        ("__member//1", "__member//1"),
        ("member/sink/1", "member/sink/1"),
        ("__members/sink/1", "__members/sink/1"),
    ],
)
def test_the_members_of_one_decision_share_its_key(transactional_id: str, key: str) -> None:
    assert coordinator_key(transactional_id) == key


@given(st.text(min_size=1), st.text().filter(lambda text: "/" not in text))
def test_members_go_where_their_group_goes_whatever_its_name(group: str, attempt: str) -> None:
    assert coordinator_key(f"__member/{group}/{attempt}") == group
