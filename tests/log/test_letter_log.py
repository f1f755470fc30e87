"""Records that get letters are read out of batches of every encoding, and letters fit into their topics."""

from __future__ import annotations

import pytest

from coordinator_protocol.batch import BatchHeader, Compression, Encoding, decode_header
from coordinator_protocol.kafka_records import PlacedRecord
from partition_log.letter_log import LetterLog
from tests.harness.every_encoding import READABLE, stored
from tests.harness.payloads import checks_here
from tests.harness.world import World

RECORDS: list[PlacedRecord] = [
    (0, 1_000, b"k", b"v", ((b"h", b"x"), (b"none", None))),
    (1, 1_001, None, b"", ()),
    (2, 1_002, b"", None, ()),
]


def letter_log(world: World | None = None) -> LetterLog:
    found = World() if world is None else world
    return LetterLog(found.inside.catalog, checks_here(found.options.limits()))


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("encoding", READABLE)
def test_records_are_found_at_their_offsets(encoding: Encoding, compression: Compression) -> None:
    batch = stored(RECORDS, encoding, base_offset=40, compression=compression)
    found = letter_log().records_at((_header(batch), batch), [40, 42, 50]).result()
    assert found == {40: RECORDS[0], 42: RECORDS[2]}


def test_an_unreadable_payload_has_none() -> None:
    header = BatchHeader(0, 1, 0, 0, Encoding.RECORDS_V1)
    whole = stored(RECORDS[:1], Encoding.RECORDS_V1)
    assert letter_log().records_at((header, whole[:64] + b"no record"), [0]).result() == {}


def _header(batch: bytes) -> BatchHeader:
    return decode_header(batch)
