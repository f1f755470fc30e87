"""Frames come out of bytes in pieces of any size, and sizes that cannot be end the connection."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_server.kafka_front.apis import ApiKey
from coordinator_server.kafka_front.frame_limits import FrameLimits, frame_limits
from coordinator_server.kafka_front.framing import Frames
from coordinator_server.kafka_front.malformed import Malformed, TooLarge

FRAMES = st.lists(st.binary(max_size=40), max_size=8)
CUTS = st.lists(st.integers(0, 400), max_size=12)


def frames_of(bytes_max: int) -> Frames:
    """Return a splitter that takes frames of this size from any API."""
    return Frames(FrameLimits(bytes_max, bytes_max))


def wire(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@given(frames=FRAMES, cuts=CUTS)
def test_frames_come_out_as_they_were_sent_however_the_bytes_are_cut(frames: list[bytes], cuts: list[int]) -> None:
    sent = wire(frames)
    edges = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    splitter = frames_of(40)
    found = [frame for start, stop in itertools.pairwise(edges) for frame in splitter.feed(sent[start:stop])]
    assert [bytes(frame) for frame in found] == frames
    assert splitter.held_bytes == 0


def test_bytes_one_by_one_make_frames() -> None:
    splitter = frames_of(10)
    found = [frame for byte in wire([b"", b"abc", b"0123456789"]) for frame in splitter.feed(bytes([byte]))]
    assert [bytes(frame) for frame in found] == [b"", b"abc", b"0123456789"]


def test_a_frame_stays_as_it_is_while_later_ones_come() -> None:
    splitter = frames_of(1_000)
    sent = wire([b"a" * 100, b"b" * 100])
    (first,) = [*splitter.feed(sent[:50]), *splitter.feed(sent[50:150])]
    records = first[10:20]
    splitter.feed(sent[150:])
    splitter.feed(wire([b"c" * 300]))
    assert bytes(records) == b"a" * 10
    assert first.readonly


def test_a_large_frame_in_small_pieces_is_copied_a_few_times_at_most() -> None:
    piece, count = bytes(4_096), 1_024
    splitter = frames_of(len(piece) * count)
    splitter.feed((len(piece) * count).to_bytes(4, "big"))
    tracemalloc.start()
    try:
        found = [frame for _ in range(count) for frame in splitter.feed(piece)]
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(frame) for frame in found] == [len(piece) * count]
    # A buffer that moves while it grows is there twice for a moment.
    assert peak < 2.5 * len(piece) * count


def test_a_stated_size_alone_takes_no_memory() -> None:
    splitter = frames_of(1 << 30)
    tracemalloc.start()
    try:
        assert splitter.feed((1 << 30).to_bytes(4, "big") + b"x") == []
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 65_536
    assert splitter.held_bytes == 1


def test_the_largest_frame_may_grow_while_the_connection_lives() -> None:
    splitter = frames_of(10)
    assert len(splitter.feed(wire([b"x" * 10]))) == 1
    splitter.limits = FrameLimits(100, 100)
    assert len(splitter.feed(wire([b"x" * 100]))) == 1
    with pytest.raises(Malformed, match="a frame of 101 bytes; at most 100 are allowed"):
        splitter.feed(wire([b"x" * 101]))


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\xff\xff\xff\xff", "a frame of -1 bytes; at most 1000 are allowed"),
        (b"\x16\x03\x01\x02\x00\x01", "looks like a TLS handshake"),
        (b"GET / HTTP/1.1\r\n", "looks like an HTTP request"),
        (b"POST / HTTP/1.1\r\n", "looks like an HTTP request"),
        (b"PRI * HTTP/2.0\r\n", "looks like HTTP/2, perhaps of a gRPC client"),
    ],
)
def test_a_size_that_cannot_be_says_what_the_bytes_look_like(sent: bytes, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        frames_of(1_000).feed(sent)


@pytest.mark.parametrize("cuts", [(), (4,), (5,), (6,), (1, 5)])
def test_only_records_and_groups_make_large_frames(cuts: tuple[int, ...]) -> None:
    limits = frame_limits(message_bytes_max=8 << 20)

    def feed(key: ApiKey, size: int) -> None:
        sent = size.to_bytes(4, "big") + key.to_bytes(2, "big")
        splitter = Frames(limits)
        for start, stop in itertools.pairwise((0, *cuts, len(sent))):
            splitter.feed(sent[start:stop])

    feed(ApiKey.PRODUCE, 8 << 20)
    feed(ApiKey.SYNC_GROUP, 4 << 20)
    feed(ApiKey.FETCH, 1 << 20)
    for key, size in ((ApiKey.PRODUCE, 8 << 20), (ApiKey.SYNC_GROUP, 4 << 20), (ApiKey.FETCH, 1 << 20)):
        with pytest.raises(TooLarge, match=f"at most {size} are allowed"):
            feed(key, size + 1)


def test_every_api_has_a_limit() -> None:
    limits = frame_limits(message_bytes_max=8 << 20)
    of_groups = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT}
    assert {key for key in ApiKey if limits.of_api(key) == 4 << 20} == of_groups
    assert {key for key in ApiKey if limits.of_api(key) > 4 << 20} == {ApiKey.PRODUCE}


def test_a_small_server_takes_no_larger_frames_than_its_messages() -> None:
    limits = frame_limits(message_bytes_max=1_000)
    assert {limits.of_api(key) for key in ApiKey} == {1_000}
