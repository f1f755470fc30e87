"""Searches by time that go on: behind a batch without such a record, in a long payload, and after others that left."""

from __future__ import annotations

from coordinator_client.encodings import encode_records
from partition_log.batch_checks import PIECE_BYTES
from tests.log.driven_log import ABORT, Batch, DrivenLog
from tests.log.test_time_search import CHECKED, TX, ask, driven_with, found, gzipped, held, plain


def test_a_search_that_goes_on_still_hides_what_was_aborted() -> None:
    """The first batch promises more than its records have; behind it lies one that was aborted."""
    driven = DrivenLog()
    driven.create(config=CHECKED)
    driven.append(gzipped(10, 20, max_timestamp_ms=99))
    driven.append(plain(50, producer=TX, sequence=0))
    driven.end(TX, ABORT)
    driven.append(plain(60))
    driven.worker.is_held = True
    searched = ask(driven, 40)
    driven.worker.release()
    assert searched.result()[0].timestamp_ms == 60


def test_a_record_is_found_in_a_payload_of_several_pieces() -> None:
    count = 3 * PIECE_BYTES // 1_000
    payload = encode_records([(b"k", b"v" * 1_000, number, ()) for number in range(count)])
    times = {"base_timestamp_ms": 0, "max_timestamp_ms": count - 1}
    driven = driven_with(Batch(count=count, payload=payload, changes=times))
    assert found(driven, count - 5) == (count - 5, count - 5)


def test_a_caller_that_left_does_not_stop_those_behind_it() -> None:
    driven = held(gzipped(10, 50), gzipped(60, 70))
    first, left, last = ask(driven, 30), ask(driven, 30), ask(driven, 65)
    left.cancel()
    driven.worker.release()
    driven.worker.release()
    assert first.result()[0].offset == 1
    assert last.result()[0].offset == 3
