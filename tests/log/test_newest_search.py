"""ListOffsets answers the newest record: the one with the largest timestamp that the reader is shown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_client.encodings import encode_records
from coordinator_protocol.batch import Compression, Encoding
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.store import CommitGroup, Family
from partition_log import codec, positions, time_search
from partition_log.reading import ReadBudget
from partition_log.requests import NEWEST_TIMESTAMP
from partition_log.state import PartitionConfig
from tests.harness.compaction import Left, compact
from tests.harness.every_encoding import stored
from tests.harness.memory_store import Damage, MemoryStore
from tests.log.driven_log import ABORT, COMMIT, COMMITTED, UNCOMMITTED, Batch, DrivenLog, code, transactional
from tests.log.test_delete_records import delete
from tests.log.test_time_search import (
    OUT_OF_ORDER,
    ask,
    batch_at,
    commands,
    driven_with,
    found,
    go_on,
    gzipped,
    held,
    plain,
    played,
    rows_at,
)

TX = transactional()
NONE = (-1, -1)
newest = partial(found, timestamp_ms=NEWEST_TIMESTAMP)


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("encoding", [Encoding.RECORDS_V1, Encoding.ARROW_V1])
def test_the_newest_record_may_lie_anywhere(encoding: Encoding, compression: Compression) -> None:
    pytest.importorskip("pyarrow")
    wanted = batch_at(OUT_OF_ORDER, encoding=encoding, compression=compression)
    assert newest(driven_with(plain(1, 2), wanted, plain(40))) == (6, 60)


def test_the_first_of_several_newest_is_found() -> None:
    driven = driven_with(plain(10), plain(50, 20, 50), plain(50), plain(20))
    (result,) = driven.offsets(NEWEST_TIMESTAMP)
    assert (result.offset, result.timestamp_ms, result.leader_epoch) == (1, 50, 0)


@pytest.mark.parametrize("interval", [1, 2, 100])
def test_it_is_found_behind_any_number_of_older_ones(interval: int) -> None:
    driven = driven_with(
        plain(5),
        plain(70),
        *(plain(time_ms) for time_ms in range(20)),
        config=PartitionConfig(index_interval_batches=interval),
    )
    assert newest(driven) == (1, 70)
    assert newest(driven.crash()) == (1, 70)


def test_an_empty_log_has_none() -> None:
    driven = driven_with()
    assert newest(driven) == NONE
    driven.append(Batch(TX, 0, payload=encode_records(rows_at([50])), timestamp_ms=50))
    assert (newest(driven), newest(driven, isolation=UNCOMMITTED)) == (NONE, (0, 50))


def test_records_without_a_time_are_no_answer() -> None:
    driven = driven_with(plain(-1), plain(-1, -1))
    assert newest(driven) == NONE
    driven.append(plain(0))
    assert newest(driven) == (3, 0)


def test_markers_are_no_answer() -> None:
    driven = driven_with(plain(10, producer=TX, sequence=0))
    driven.end(TX, COMMIT)
    assert newest(driven) == (0, 10)


def test_aborted_and_open_records_are_no_answer_for_committed_readers() -> None:
    driven = driven_with(plain(10), plain(90, producer=TX, sequence=0))
    driven.end(TX, ABORT)
    driven.append(gzipped(20, 40))
    driven.append(plain(70, producer=TX.at(1), sequence=0))
    driven.append(plain(60))
    assert newest(driven) == (4, 40)
    assert newest(driven, isolation=UNCOMMITTED) == (1, 90)


def test_deleted_records_are_no_answer() -> None:
    driven = driven_with(plain(90), gzipped(80, 30, 40), plain(35), config=PartitionConfig(index_interval_batches=1))
    delete(driven, 1)
    assert newest(driven) == (1, 80)
    delete(driven, 2)
    assert newest(driven) == (3, 40), "the newest that is left of a batch that had the newest"
    delete(driven, 4)
    assert newest(driven) == (4, 35)
    delete(driven, 5)
    assert newest(driven) == NONE


def test_a_batch_in_which_compaction_left_nothing_is_no_answer() -> None:
    driven = driven_with(plain(*OUT_OF_ORDER), plain(50))
    assert isinstance(driven.store, MemoryStore)
    compact(driven.store, driven.ordinal(), 5, lambda _base_offset: (Left.EMPTY, set()))
    assert newest(DrivenLog(driven.store, driven.clock)) == (5, 50)


def test_a_header_that_promises_more_than_its_records_have_is_believed() -> None:
    driven = driven_with(plain(1, 2, max_timestamp_ms=99), plain(50))
    assert newest(driven) == (1, 2)


def test_a_batch_that_cannot_be_opened_is_found_as_a_whole() -> None:
    driven = DrivenLog()
    driven.create()
    driven.append(plain(1, 2))
    driven.append(Batch(count=3, timestamp_ms=50))
    assert newest(driven) == (2, 50)
    rows = [(b"k", b"v" * 100, time_ms, ()) for time_ms in OUT_OF_ORDER]
    changes = {"base_timestamp_ms": 10, "max_timestamp_ms": 60}
    driven.append(Batch(count=5, payload=encode_records(rows), changes=changes))
    assert newest(driven) == (9, 60)
    assert isinstance(driven.store, MemoryStore)
    driven.store.damage(Family.LOG, codec.log_key(driven.ordinal(), 9), Damage.VALUE)
    assert newest(driven) == (5, 60)


# Batches of Kafka


def kafkas(times_ms: Sequence[int], value: bytes = b"v", **fields: Any) -> DrivenLog:
    """A log whose second row is a batch of Kafka."""
    driven = driven_with(plain(1, 2), plain(*times_ms), plain(3))
    records = [(place, time_ms, None, value, ()) for place, time_ms in enumerate(times_ms)]
    row = stored(records, Encoding.KAFKA_V2, base_offset=2, leader_epoch=0, **fields)
    key = codec.log_key(driven.ordinal(), 1 + len(times_ms))
    driven.store.write([CommitGroup(driven.store.version() + 1, [(Family.LOG, key, row)])])
    return driven


@pytest.mark.parametrize("compression", Compression)
def test_records_of_kafka_are_found_by_time_and_as_the_newest(compression: Compression) -> None:
    driven = kafkas(OUT_OF_ORDER, compression=compression)
    assert [found(driven, time_ms) for time_ms in (2, 10, 11, 55, 61)] == [(1, 2), (2, 10), (3, 50), (6, 60), (-1, -1)]
    assert newest(driven) == (6, 60)


@pytest.mark.parametrize(("value", "is_opened_here"), [(b"v", True), (b"v" * 5_000, False)], ids=["small", "large"])
def test_a_large_batch_of_kafka_is_opened_by_the_worker(value: bytes, *, is_opened_here: bool) -> None:
    driven = kafkas(OUT_OF_ORDER, value)
    driven.worker.is_held = True
    searched = ask(driven, NEWEST_TIMESTAMP, 40)
    assert searched.is_settled is is_opened_here
    while not searched.is_settled:
        driven.worker.release()
    assert [result.offset for result in searched.result()] == [6, 3]


# Off the loop, and in turns


def test_a_compressed_batch_is_opened_by_the_worker_and_waits_for_its_turn() -> None:
    driven = held(gzipped(10, 50, 20))
    searched, other = ask(driven, NEWEST_TIMESTAMP, 15), ask(driven, NEWEST_TIMESTAMP)
    assert len(driven.worker.tasks) == 1
    driven.append(plain(90))
    for _ in range(3):
        driven.worker.release()
    assert [result.offset for result in (*searched.result(), *other.result())] == [1, 1, 1]


def test_a_log_start_that_moves_while_the_batch_is_opened_is_heeded() -> None:
    driven = held(gzipped(10, 50, 20), plain(30))
    searched = ask(driven, NEWEST_TIMESTAMP)
    delete(driven, 2)
    driven.worker.release()
    assert not searched.is_settled
    driven.worker.release()
    assert searched.result()[0].offset == 2
    late = ask(driven, NEWEST_TIMESTAMP)
    delete(driven, 3)
    driven.worker.release()
    assert late.result()[0].offset == 3


def test_a_batch_that_is_deleted_while_its_turn_has_not_come_is_passed() -> None:
    driven = held(gzipped(10, 50), gzipped(70), plain(30))
    first, waits = ask(driven, 10), ask(driven, NEWEST_TIMESTAMP)
    delete(driven, 3)
    while not (first.is_settled and waits.is_settled):
        driven.worker.release()
        go_on(driven)
    assert (waits.result()[0].offset, waits.result()[0].timestamp_ms) == (3, 30)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[ReadBudget]:
    """The budgets of all turns; each ends after some sixteen batches."""
    budgets: list[ReadBudget] = []

    def budget(**fields: Any) -> ReadBudget:
        budgets.append(ReadBudget(**{"batches": 16, **fields}))
        return budgets[-1]

    monkeypatch.setattr(positions, "ReadBudget", budget)
    monkeypatch.setattr(time_search, "ReadBudget", budget)
    return budgets


def test_a_log_in_order_of_time_is_looked_at_in_its_last_entry(looked_at: list[ReadBudget]) -> None:
    driven = driven_with(*(plain(time_ms) for time_ms in range(200)), config=PartitionConfig(index_interval_batches=8))
    assert newest(driven) == (199, 199)
    assert len(looked_at) == 1


def test_a_long_search_goes_on_in_later_turns(looked_at: list[ReadBudget]) -> None:
    driven = driven_with(plain(1_000, producer=TX, sequence=0), config=PartitionConfig(index_interval_batches=8))
    driven.end(TX, ABORT)
    for time_ms in (*range(100), 500, *range(100)):
        driven.append(plain(time_ms))
    searched = ask(driven, NEWEST_TIMESTAMP)
    while not searched.is_settled:
        go_on(driven)
    assert searched.result()[0].offset == 102
    assert 10 < len(looked_at) < 40


def test_a_partition_that_is_unknown_or_led_by_another_epoch_is_refused_alone() -> None:
    driven = driven_with(plain(10))
    known, unknown = driven.offsets(NEWEST_TIMESTAMP, partitions=(0, 1))
    assert (known.offset, code(unknown)) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@given(st.integers(1, 5), commands)
@settings(max_examples=60, deadline=None)
def test_what_is_found_is_what_a_list_of_all_records_has(interval: int, given_commands: list[Any]) -> None:
    driven, naive = played(interval, given_commands)
    for isolation in (COMMITTED, UNCOMMITTED):
        assert newest(driven, isolation=isolation) == naive.newest(isolation)
