"""Searches by time that go on: behind a batch without such a record, in a long payload, and after others that left."""

from __future__ import annotations

from coordinator_client.encodings import encode_records
from partition_log.batch_checks import PIECE_BYTES
from tests.log.log_room import ABORT, Batch, LogRoom
from tests.log.test_time_search import CHECKED, TX, ask, found, gzipped, held, plain, room_with


def test_a_search_that_goes_on_still_hides_what_was_aborted() -> None:
    """The first batch promises more than its records have; behind it lies one that was aborted."""
    room = LogRoom()
    room.create(config=CHECKED)
    room.append(gzipped(10, 20, max_timestamp_ms=99))
    room.append(plain(50, producer=TX, sequence=0))
    room.end(TX, ABORT)
    room.append(plain(60))
    room.worker.is_held = True
    searched = ask(room, 40)
    room.worker.release()
    assert searched.result()[0].timestamp_ms == 60


def test_a_record_is_found_in_a_payload_of_several_pieces() -> None:
    count = 3 * PIECE_BYTES // 1_000
    payload = encode_records([(b"k", b"v" * 1_000, number, ()) for number in range(count)])
    times = {"base_timestamp_ms": 0, "max_timestamp_ms": count - 1}
    room = room_with(Batch(count=count, payload=payload, changes=times))
    assert found(room, count - 5) == (count - 5, count - 5)


def test_a_caller_that_left_does_not_stop_those_behind_it() -> None:
    room = held(gzipped(10, 50), gzipped(60, 70))
    first, left, last = ask(room, 30), ask(room, 30), ask(room, 65)
    left.cancel()
    room.worker.release()
    room.worker.release()
    assert first.result()[0].offset == 1
    assert last.result()[0].offset == 3
