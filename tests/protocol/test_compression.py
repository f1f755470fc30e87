"""Packed payloads: unpacked with the payload of every packer, within the limit of memory."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.batch import Compression, Encoding
from coordinator_protocol.compression import (
    COMPRESSION_NAMES,
    NotUnpackable,
    pack,
    unpack,
    unpack_as,
    unpack_into,
    unpack_kafka,
)
from coordinator_protocol.limits import MEBI
from tests.harness.every_encoding import xerial

PACKING = sorted(set(Compression) - {Compression.NONE})
MAGIC = {
    Compression.GZIP: "1f8b",
    Compression.SNAPPY: "ff060000734e61507059",
    Compression.LZ4: "04224d18",
    Compression.ZSTD: "28b52ffd",
}
"""First bytes of the framings that the protocol names."""


@given(payload=st.binary(min_size=1, max_size=300), times=st.integers(1, 500), compression=st.sampled_from(Compression))
def test_what_is_packed_is_unpacked(payload: bytes, times: int, compression: Compression) -> None:
    plain = payload * times
    packed = pack(plain, compression)
    assert unpack(packed, compression) == plain
    assert unpack(memoryview(packed), compression, bytes_max=len(plain)) == plain


@pytest.mark.parametrize("compression", PACKING)
def test_the_framing_is_the_one_that_the_protocol_names(compression: Compression) -> None:
    assert pack(b"x" * 100, compression).hex().startswith(MAGIC[compression])


def test_settings_have_a_name_for_each() -> None:
    assert list(COMPRESSION_NAMES) == ["none", "gzip", "snappy", "lz4", "zstd"]


def test_gzip_of_others_is_unpacked_and_theirs_unpack_ours() -> None:
    assert unpack(zlib.compress(b"some", wbits=31) + gzip.compress(b" more"), Compression.GZIP) == b"some more"
    assert gzip.decompress(pack(b"ours", Compression.GZIP)) == b"ours"


@pytest.mark.parametrize("compression", PACKING)
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda packed: packed[:-3], id="cut off"),
        pytest.param(lambda packed: packed + b"more", id="followed by others"),
        pytest.param(lambda packed: b"garbage", id="another kind"),
    ],
)
def test_what_is_damaged_is_refused(compression: Compression, damage) -> None:
    damaged = damage(pack(b"some bytes", compression))
    with pytest.raises(NotUnpackable, match=f"its {compression.name.lower()} payload cannot be unpacked"):
        unpack(damaged, compression)
    assert unpack_into(bytearray(100), damaged, compression) is None


@given(compression=st.sampled_from(PACKING), data=st.data())
def test_any_damage_is_refused_or_unpacks_within_bounds(compression: Compression, data: st.DataObject) -> None:
    packed = bytearray(pack(data.draw(st.binary(min_size=1, max_size=50)) * 20, compression))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        plain = unpack(bytes(packed), compression, bytes_max=2_000)
    except NotUnpackable:
        return
    assert len(plain) <= 2_000


@pytest.mark.parametrize("compression", PACKING)
def test_what_unpacks_to_too_much_is_refused_and_takes_no_more_than_that(compression: Compression) -> None:
    bomb = pack(bytes(8 * MEBI), compression)
    tracemalloc.start()
    try:
        with pytest.raises(NotUnpackable, match="unpacks to more than 1048576 bytes"):
            unpack(bomb, compression, bytes_max=MEBI)
        assert tracemalloc.get_traced_memory()[1] < 2 * MEBI
    finally:
        tracemalloc.stop()
    assert unpack_into(bytearray(1_000), bomb, compression) is None


@pytest.mark.parametrize("compression", PACKING)
def test_a_payload_that_fills_the_room_to_the_last_byte_is_unpacked(compression: Compression) -> None:
    packed = pack(bytes(1_000), compression)
    assert unpack(packed, compression, bytes_max=1_000) == bytes(1_000)
    with pytest.raises(NotUnpackable, match="more than 999 bytes"):
        unpack(packed, compression, bytes_max=999)


@given(st.binary(max_size=1_000), st.integers(1, 300))
def test_snappy_of_kafka_is_unpacked_in_blocks_and_bare(payload: bytes, block_bytes: int) -> None:
    blocks = xerial(payload, block_bytes)
    assert unpack_kafka(memoryview(blocks), Compression.SNAPPY, bytes_max=len(payload)) == payload
    assert unpack_kafka(bytes(cramjam.snappy.compress_raw(payload)), Compression.SNAPPY) == payload
    if payload:
        with pytest.raises(NotUnpackable, match=r"more than|cannot be unpacked"):
            unpack_kafka(blocks, Compression.SNAPPY, bytes_max=len(payload) - 1)


@pytest.mark.parametrize("cut", [1, 50, 85, 103])
def test_snappy_of_kafka_that_is_cut_off_is_refused(cut: int) -> None:
    blocks = xerial(bytes(range(256)))
    with pytest.raises(NotUnpackable):
        unpack_kafka(blocks[:-cut], Compression.SNAPPY)


def test_a_block_of_snappy_that_claims_to_be_large_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(NotUnpackable, match="more than 16777216 bytes"):
            unpack_kafka(b"\xff\xff\xff\xff\x0f" + bytes(10), Compression.SNAPPY)
        assert tracemalloc.get_traced_memory()[1] < MEBI
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_other_compressions_of_kafka_are_ours(compression: Compression) -> None:
    assert unpack_as(Encoding.KAFKA_V2, pack(b"some bytes", compression), compression) == b"some bytes"
    assert unpack_as(Encoding.ARROW_V1, pack(b"some bytes", compression), compression) == b"some bytes"
