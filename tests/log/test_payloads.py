"""Payloads: accepted ones can be read, and refused ones change nothing."""

from __future__ import annotations

import re
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.encodings import decode_rows, encode_records, unpack
from coordinator_protocol.arrow_payload import NotArrow, arrow_record_count
from coordinator_protocol.batch import BatchHeader, Compression, Encoding
from coordinator_protocol.compression import UNPACKED_BYTES_MAX, pack
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import KIBI, MEBI, Limits
from coordinator_protocol.wire import bytes_field, field_prefix
from coordinator_runtime.ports import PartitionName
from partition_log.batch_checks import (
    FIELDS_MAX,
    RECORDS_HERE_MAX,
    RECORDS_MAX,
    BatchChecks,
    unread,
    why_unreadable,
)
from tests.harness.compaction import arrow_payload, records_payload
from tests.harness.store_features import EveryFeature
from tests.harness.workers import HeldWorker
from tests.log.driven_log import TOPIC, Batch, DrivenLog, code
from tests.log.payloads import (
    ROW,
    batch_of,
    checking_log,
    encoded,
    large,
    with_payload,
)


@pytest.fixture
def driven() -> DrivenLog:
    return checking_log()


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("encoding", [Encoding.RECORDS_V1, Encoding.ARROW_V1])
def test_what_readers_can_decode_is_stored_as_it_was_sent(
    driven: DrivenLog, encoding: Encoding, compression: Compression
) -> None:
    batch = batch_of([ROW] * 3, encoding=encoding, compression=compression)
    assert driven.append(batch).error is None
    ((_, stored),) = driven.read().batches
    assert bytes(stored).endswith(batch.payload)


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        pytest.param(lambda: with_payload(b"garbage"), "no Records message", id="garbage"),
        pytest.param(lambda: batch_of([ROW] * 3, count=2), "holds 2 records and holds 3", id="too many"),
        pytest.param(lambda: batch_of([ROW] * 3, count=4), "holds 4 records and holds 3", id="too few"),
        pytest.param(
            lambda: with_payload(encode_records([ROW]), compression=Compression.GZIP),
            "its gzip payload cannot be unpacked",
            id="plain bytes called gzip",
        ),
        pytest.param(
            lambda: with_payload(pack(encode_records([ROW]), Compression.ZSTD), compression=Compression.LZ4),
            "its lz4 payload cannot be unpacked",
            id="zstd called lz4",
        ),
        pytest.param(
            lambda: with_payload(pack(b"garbage", Compression.ZSTD), compression=Compression.ZSTD),
            "no Records message",
            id="packed garbage",
        ),
        pytest.param(
            lambda: Batch(payload=encode_records([ROW]), changes={"encoding": Encoding.ARROW_V1}),
            "no Arrow record batch of the agreed schema",
            id="records called Arrow",
        ),
        pytest.param(
            lambda: with_payload(pack(bytes(UNPACKED_BYTES_MAX + 1), Compression.ZSTD), compression=Compression.ZSTD),
            f"unpacks to more than {UNPACKED_BYTES_MAX} bytes",
            id="bomb",
        ),
        pytest.param(
            lambda: with_payload(pack(b"\n\0" * (1 << 16), Compression.GZIP), compression=Compression.GZIP),
            "holds 1 records and holds more",
            id="many records called one",
        ),
        pytest.param(
            lambda: with_payload(pack(b"\n\0" * 9, Compression.GZIP), compression=Compression.GZIP, count=9 << 17),
            "holds 1179648 records and holds 9",
            id="few records called a million",
        ),
        pytest.param(
            lambda: with_payload(b"\n\0" * 9, count=RECORDS_MAX + 1),
            f"a batch holds at most {RECORDS_MAX}",
            id="more records than there may be",
        ),
        pytest.param(
            lambda: with_payload(pack(b"\n\xff" * 99_999, Compression.GZIP), compression=Compression.GZIP),
            "no Records message",
            id="large garbage",
        ),
    ],
)
def test_what_no_reader_could_decode_is_refused_and_changes_nothing(driven: DrivenLog, batch: Any, why: str) -> None:
    before = driven.state()
    sent: Batch = batch()
    result = driven.append(sent)
    assert code(result) is ErrorCode.INVALID_RECORD
    assert result.error is not None
    assert why in result.error.message
    assert driven.state() == before
    assert driven.append(batch_of()).base_offset == 0


def test_a_batch_damaged_on_its_way_is_told_to_be_sent_again(driven: DrivenLog) -> None:
    """The checksum is looked at first: a payload that is unreadable because it was damaged is not the client's
    fault."""
    result = driven.append(Batch(payload=b"garbage", crc=5))
    assert code(result) is ErrorCode.CORRUPT_MESSAGE


def test_a_topic_may_leave_payloads_to_its_writers() -> None:
    driven = DrivenLog()
    driven.create(config={"validate_payload": "header"})
    assert driven.append(Batch(payload=b"garbage")).error is None
    assert code(driven.append(Batch(payload=b"garbage", crc=5))) is ErrorCode.CORRUPT_MESSAGE
    driven = driven.crash()
    assert driven.append(Batch(payload=b"garbage")).base_offset == 1


def test_what_is_large_is_checked_elsewhere_and_what_is_small_is_not(driven: DrivenLog) -> None:
    driven.append(batch_of([ROW] * 100))
    driven.append(batch_of([ROW] * 100, compression=Compression.ZSTD))
    assert driven.worker.done_count == 0
    driven.append(large())
    assert driven.worker.done_count == 1
    many = [(None, None, 0, ())] * (RECORDS_HERE_MAX + 1)
    assert driven.append(batch_of(many)).error is None
    assert driven.worker.done_count == 2


CONTENT = st.none() | st.binary(max_size=20)
ROWS = st.lists(
    st.tuples(
        CONTENT,
        CONTENT,
        st.integers(-1, 2**62),
        st.lists(st.tuples(st.text(max_size=5), CONTENT), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=4,
)
CHECKS = BatchChecks(HeldWorker(), Limits(), features=EveryFeature())


def is_taken(batch: Batch) -> bool:
    item = batch.item(PartitionName(TOPIC, b"", 0))
    assert not isinstance(item.header, Refused)
    try:
        _, check = CHECKS.take(item.header, item.payload, crc=None, validates_payload=True)
        if check is not None:
            check.result()
    except Refused as why:
        return why.code is not ErrorCode.INVALID_RECORD
    return True


def read(batch: Batch) -> list[Any]:
    """Decode as every reader of ours does."""
    header = batch.item(PartitionName(TOPIC, b"", 0)).header
    assert isinstance(header, BatchHeader)
    _offsets, rows = decode_rows(unpack(batch.payload, header, "here"), header, "here")
    return rows


@pytest.mark.parametrize("encoding", [Encoding.RECORDS_V1, Encoding.ARROW_V1])
def test_what_is_accepted_can_be_read_whatever_was_damaged(encoding: Encoding) -> None:
    encoded(encoding, [ROW])

    @settings(max_examples=300)
    @given(rows=ROWS, compression=st.sampled_from(Compression), data=st.data())
    def holds(rows: Any, compression: Compression, data: st.DataObject) -> None:
        batch = batch_of(rows, encoding=encoding, compression=compression)
        assert is_taken(batch)
        assert read(batch) == rows
        # Compression with a checksum of its own lets damage hardly through: damage the packed bytes, too.
        plain = bytearray(encoded(encoding, rows))
        for _ in range(data.draw(st.integers(1, 3))):
            plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
        packed = bytearray(pack(bytes(plain), compression))
        if data.draw(st.booleans()):
            packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
        damaged = Batch(count=batch.count, payload=bytes(packed), changes=batch.changes)
        if is_taken(damaged):
            assert len(read(damaged)) == batch.count

    holds()


def test_arrow_that_claims_to_be_larger_than_all_memory_takes_none() -> None:
    rows = [(None, b"vv", 5, ()), *[(b"k", b"vv", 5, ())] * 1_236]
    claimed = encoded(Encoding.ARROW_V1, rows).replace(struct.pack("<q", len(rows)), struct.pack("<q", 2**62))
    with pytest.raises(NotArrow, match=f"key does not say which of its {2**62} places are null"):
        arrow_record_count(claimed)


def test_offsets_of_arrow_ascend_from_one_piece_that_is_looked_at_to_the_next() -> None:
    rows = [(b"k", None, 5, ())] * 70_000
    good = encoded(Encoding.ARROW_V1, rows)
    assert arrow_record_count(good) == len(rows)
    offsets = struct.pack(f"<{len(rows) + 1}i", *range(len(rows) + 1))
    assert good.count(offsets) == 1
    piece = 1 << 16
    fallen = struct.pack(f"<{len(rows) + 1}i", *range(piece), *range(len(rows) + 1 - piece))
    with pytest.raises(NotArrow, match="the offsets of key do not ascend"):
        arrow_record_count(good.replace(offsets, fallen))


def why_holed(encoding: Encoding, places: list[int], *, last_delta: int = 5) -> str | None:
    """Return the finding of `store verify` on a batch that compaction left."""
    records = [(delta, log.Record(key=b"k", value=b"v" * 9, timestamp_ms=5)) for delta in places]
    header = BatchHeader(
        base_offset=7,
        record_count=len(places),
        hole_count=last_delta + 1 - len(places),
        base_timestamp_ms=5,
        max_timestamp_ms=5,
        encoding=encoding,
    )
    payload = arrow_payload(records) if encoding is Encoding.ARROW_V2 else records_payload(records)
    return why_unreadable(unread(header, payload))


@pytest.mark.parametrize("encoding", [Encoding.RECORDS_V2, Encoding.ARROW_V2])
@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([0, 2, 5], None),
        ([], None),
        ([0, 2, 2], "one is 2|one is at 2"),
        ([3, 1], "one is 1|one is at 1"),
        ([0, 6], "one is 6|one is at 6"),
        ([-1, 2], "one is -1|one is at -1"),
    ],
)
def test_records_that_say_where_they_lie_are_looked_at(encoding: Encoding, places: list[int], said: str | None) -> None:
    found = why_holed(encoding, places)
    assert (found is None) if said is None else re.search(said, found or "")


def test_places_ascend_from_one_piece_that_is_looked_at_to_the_next() -> None:
    places = [*range(60_000), *range(50_000)]
    found = why_holed(Encoding.RECORDS_V2, places, last_delta=120_000)
    assert found is not None
    assert re.search("do not lie in ascending places up to 120000, one is at 0", found)


def test_arrow_without_the_places_of_its_records_is_no_arrow_of_the_second_version() -> None:
    payload = encoded(Encoding.ARROW_V1, [(b"k", b"v", 5, ())])
    assert "it has 7 arrays in 17 buffers, and the schema takes 8 in 19" in str(
        why_unreadable((int(Encoding.ARROW_V2), int(Compression.NONE), 1, 3, payload))
    )


@given(payload=st.binary(min_size=1, max_size=60), count=st.integers(1, 3))
def test_any_bytes_are_refused_or_can_be_read(payload: bytes, count: int) -> None:
    for encoding in (Encoding.RECORDS_V1, Encoding.ARROW_V1):
        for compression in Compression:
            batch = Batch(payload=payload, count=count, changes={"encoding": encoding, "compression": compression})
            if is_taken(batch):
                assert len(read(batch)) == count


def test_a_large_payload_is_parsed_piece_by_piece() -> None:
    """A parsed record takes many times its bytes: never all records at once."""
    rows = 200_000
    batch = Batch(payload=pack(b"\n\0" * rows, Compression.GZIP), count=rows, changes={"compression": Compression.GZIP})
    tracemalloc.start()
    try:
        item = batch.item(PartitionName(TOPIC, b"", 0))
        assert not isinstance(item.header, Refused)
        CHECKS.take(item.header, item.payload, crc=None, validates_payload=True)
        assert tracemalloc.get_traced_memory()[1] < 4 * MEBI
    finally:
        tracemalloc.stop()


class TestWhatMayHoldMuch:
    """The cost of a payload does not rest on its own claims."""

    @pytest.fixture
    def parsed(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Number of records that were parsed each time."""
        parsed: list[int] = []

        def parse(plain: bytes) -> log.Records:
            records = log.Records.FromString(plain)
            parsed.append(len(records.records))
            return records

        monkeypatch.setattr("partition_log.codec._parse_records", parse)
        return parsed

    @pytest.mark.parametrize("record", [b"\n\0", b"\x8a\0\0"], ids=["shortest tag", "longer tag"])
    def test_more_records_than_it_says(self, driven: DrivenLog, parsed: list[int], record: bytes) -> None:
        payload = record * ((MEBI - KIBI) // len(record))
        for count in (1, 1_000):
            parsed.clear()
            driven.worker.is_held = True
            sent = driven.send(with_payload(payload, count=count))
            assert not parsed, "so many are not parsed on the loop"
            driven.worker.is_held = False
            driven.worker.release()
            driven.flush()
            (result,) = sent.result()
            assert result.error is not None
            assert f"holds {count} records and holds more" in result.error.message
            assert len(parsed) == 1, "nor behind the piece that has too many"
            assert parsed[0] <= 256 * KIBI // len(record)

    def test_what_is_parsed_on_the_loop_has_a_bounded_number_of_records(
        self, driven: DrivenLog, parsed: list[int]
    ) -> None:
        """The worker is not asked, whatever lies in the values, unless it looks like records."""
        for content in (b"v" * 100, b"one\ntwo\n" * 12, b'{"name": "value"}' * 6):
            rows = [(None, content, 5, ())] * (512 * KIBI // (len(content) + 4))
            assert driven.append(batch_of(rows)).error is None
        assert driven.worker.done_count == 1, "one line in four bytes may be a record"
        lines = [(None, b"\n" * 500 * KIBI, 5, ())]
        assert driven.append(batch_of(lines)).error is None
        assert driven.worker.done_count == 2

    @pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
    def test_a_record_of_nothing_but_headers(
        self, driven: DrivenLog, parsed: list[int], compression: Compression
    ) -> None:
        def record(field_count: int) -> Batch:
            content = b'"\0' * field_count
            return with_payload(pack(field_prefix(b"\n", len(content)) + content, compression), compression=compression)

        assert driven.append(record(FIELDS_MAX)).error is None
        assert parsed == [1]
        for more in (1, 300_000):
            refused = driven.append(record(FIELDS_MAX + more))
            assert code(refused) is ErrorCode.INVALID_RECORD
            assert refused.error is not None
            assert f"its record 0 has more than {FIELDS_MAX} fields" in refused.error.message
        assert parsed == [1], "it was never parsed"

    def test_arrow_with_many_headers_is_checked_elsewhere(self, driven: DrivenLog) -> None:
        many = [(None, None, 5, (("", None),) * (RECORDS_HERE_MAX + 1))]
        assert driven.append(batch_of(many, encoding=Encoding.ARROW_V1)).error is None
        assert driven.worker.done_count == 1
        assert len(read(batch_of(many, encoding=Encoding.ARROW_V1))) == 1

    def test_what_a_newer_writer_adds_may_be_large(self, driven: DrivenLog) -> None:
        """Only records have a limit to their fields: what is not known here is no message of ours."""
        unknown = bytes_field(9) + field_prefix(b"", 400 * KIBI) + b"\x78\x05" * (200 * KIBI)
        payload = pack(encode_records([ROW]) + unknown, Compression.ZSTD)
        assert driven.append(with_payload(payload, compression=Compression.ZSTD)).error is None


def test_records_of_newer_writers_are_taken(driven: DrivenLog) -> None:
    """Fields that are not known here are skipped by every reader."""
    newer = log.Records(records=[log.Record(key=b"k")]).SerializeToString() + b"\x78\x05" + b"\x82\x01\x02hi"
    assert driven.append(with_payload(newer)).error is None
    packed = pack(newer * (70 * KIBI // len(newer)), Compression.ZSTD)
    count = 70 * KIBI // len(newer)
    assert driven.append(with_payload(packed, compression=Compression.ZSTD, count=count)).error is None
