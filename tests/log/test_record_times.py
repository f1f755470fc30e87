"""The record that a search by time answers: the first from a time on, and the newest, in every encoding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.batch import ENCODINGS_WITH_DELTAS, Compression, Encoding, TimestampType, decode_header
from coordinator_protocol.kafka_records import PlacedRecord
from partition_log.record_times import NotOpened, first_at_or_after, newest
from tests.harness.every_encoding import READABLE, placed_records, stored

pytest.importorskip("pyarrow")


@given(st.data(), st.sampled_from(READABLE), st.sampled_from(Compression), st.integers(-1, 60))
def test_the_record_is_found_in_every_encoding_and_compression(
    data: st.DataObject, encoding: Encoding, compression: Compression, timestamp_ms: int
) -> None:
    records = data.draw(placed_records(has_holes=encoding in ENCODINGS_WITH_DELTAS))
    batch = stored(records, encoding, compression=compression, base_offset=1_000) if records else None
    if batch is None:
        return
    header = decode_header(batch)
    places = [(1_000 + record[0], record[1]) for record in records]
    since = [place for place in places if place[1] >= timestamp_ms]
    assert first_at_or_after(header, batch, timestamp_ms) == (since[0] if since else None)
    largest = max(time_ms for _offset, time_ms in places)
    assert newest(header, batch) == next(place for place in places if place[1] == largest)


@pytest.mark.parametrize("encoding", [Encoding.RECORDS_V2, Encoding.ARROW_V2, Encoding.KAFKA_V2])
def test_a_batch_without_records_has_no_newest(encoding: Encoding) -> None:
    batch = stored([], encoding, last_delta=3)
    assert newest(decode_header(batch), batch) is None
    assert first_at_or_after(decode_header(batch), batch, -1) is None


def test_all_records_have_the_time_that_the_log_stamped() -> None:
    records: list[PlacedRecord] = [(0, 5, None, None, ()), (1, 9, None, None, ())]
    batch = stored(records, Encoding.KAFKA_V2, base_offset=7, timestamp_type=TimestampType.LOG_APPEND_TIME)
    header = decode_header(batch)
    assert newest(header, batch) == first_at_or_after(header, batch, 9) == (7, 9)
    assert first_at_or_after(header, batch, 10) is None


@pytest.mark.parametrize(
    ("count", "places", "why"),
    [
        (1, (0, 1), "it holds 2 records and its header says 1"),
        (3, (0, 1), "it holds 2 records and its header says 3"),
        (2, (0, 6), "it holds a record at place 6 of a batch that ends at place 5"),
        (2, (-1, 1), "it holds a record at place -1 of a batch that ends at place 5"),
    ],
)
def test_records_that_the_header_does_not_have_are_named(count: int, places: tuple[int, int], why: str) -> None:
    records: list[PlacedRecord] = [(place, 5, None, None, ()) for place in places]
    batch = stored(records, Encoding.KAFKA_V2, record_count=count, hole_count=6 - count)
    with pytest.raises(NotOpened) as refused:
        newest(decode_header(batch), batch)
    assert str(refused.value) == why
