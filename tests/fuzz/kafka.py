"""Bytes of Kafka's clients: frames in any pieces, headers, and requests of every API and version."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from coordinator_server.kafka_front.frame_limits import FrameLimits
from coordinator_server.kafka_front.framing import Frames
from coordinator_server.kafka_front.headers import request_header
from coordinator_server.kafka_front.malformed import Malformed
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from tests.fuzz.choices import Choices
from tests.harness.kio_messages import encoded, kio_class, random_message

_FRAME_LIMITS: Final = FrameLimits(bytes_max=300, common_bytes_max=200)
_VERSIONS: Final = [
    (api, version) for api in API_DEFINITIONS.values() for version in range(api.version_max, api.version_min - 1, -1)
]


def frames(data: bytes) -> None:
    """However the bytes are cut, the same frames come out, up to the same end."""
    choices = Choices(data)
    cut = [choices.short() for _piece in range(choices.number(8))] + [choices.rest()]
    whole, pieces = Frames(_FRAME_LIMITS), Frames(_FRAME_LIMITS)
    at_once: list[bytes] = []
    in_pieces: list[bytes] = []
    for splitter, parts, found in ((whole, [b"".join(cut)], at_once), (pieces, cut, in_pieces)):
        with suppress(Malformed):
            for part in parts:
                found.extend(bytes(frame) for frame in splitter.feed(part))
    # A size that cannot be takes the frames before it, in the same piece, with it.
    assert at_once == in_pieces or at_once == []
    for frame in in_pieces:
        for is_flexible in (False, True):
            with suppress(Malformed):
                request_header(memoryview(frame), is_flexible=is_flexible)


def requests(data: bytes) -> None:
    """A body is read as a request, or it is malformed."""
    choices = Choices(data)
    api, version = choices.one_of(_VERSIONS)
    with suppress(Malformed):
        api.decoder()(memoryview(choices.rest()), version)


def frame_seeds() -> Iterator[bytes]:
    header = bytes.fromhex("0012000300000007") + b"\x00\x03abc\x00\x02a\x02b\x00"
    yield b"\x00" + len(header).to_bytes(4, "big") + header
    yield b"\x01\x06" + len(header).to_bytes(4, "big") + header


def request_seeds() -> Iterator[bytes]:
    """A request of each API in its last version, then of all others."""
    chance = random.Random(46)
    last = [number for number, (api, version) in enumerate(_VERSIONS) if version == api.version_max]
    assert len(_VERSIONS) <= 256, "a choice among more takes two bytes"
    for number in dict.fromkeys([*last, *range(len(_VERSIONS))]):
        api, version = _VERSIONS[number]
        message = random_message(kio_class(api.key, version, is_request=True), chance)
        yield bytes([number]) + encoded(message.kio)
