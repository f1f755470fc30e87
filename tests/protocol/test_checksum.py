"""CRC-32C: the vectors of RFC 3720, and going on from where one stopped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.checksum import crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_the_checksum_is_castagnolis(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_checksum_goes_on_where_it_stopped(head: bytes, tail: bytes) -> None:
    assert crc32c(memoryview(tail), crc32c(head)) == crc32c(head + tail)
