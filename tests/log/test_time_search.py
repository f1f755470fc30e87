"""ListOffsets by time answers a record: in every encoding and compression, and beside everything else on the loop."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator_client.encodings import encode_records
from coordinator_protocol.batch import Compression, Encoding
from coordinator_protocol.compression import UNPACKED_BYTES_MAX, pack
from coordinator_protocol.errors import ErrorClass, ErrorCode, error_class
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import ALLOW_ALL, CallContext, PartitionName, Permission, ResourceType
from coordinator_runtime.store import Family
from coordinator_runtime.worker import WorkerLost
from partition_log import codec, positions, time_search
from partition_log.batch_checks import RECORDS_HERE_MAX, UNPACKED_HERE_BYTES_MAX
from partition_log.reading import ReadBudget
from partition_log.record_times import NotOpened, first_since
from partition_log.requests import DeleteTopics, ListOffsets, OffsetQuery, OffsetResult, TopicName
from partition_log.state import Isolation, PartitionConfig
from tests.harness.compaction import Left, compact
from tests.harness.memory_store import Damage, MemoryStore
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    COMMITTED,
    CONTEXT,
    NO_PRODUCER,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    Producer,
    code,
    transactional,
)
from tests.log.test_delete_records import delete
from txnctl.commands.stopped_log import StoppedLog

CHECKED: dict[str, str] = {}
"""A topic that takes what every reader can decode."""
TX = transactional()
OUT_OF_ORDER = (10, 50, 30, 20, 60)


def rows_at(times_ms: Sequence[int]) -> list[Any]:
    return [(b"k", b"v", time_ms, ()) for time_ms in times_ms]


def batch_at(
    times_ms: Sequence[int],
    *,
    encoding: Encoding = Encoding.RECORDS_V1,
    compression: Compression = Compression.NONE,
    producer: Producer = NO_PRODUCER,
    sequence: int = -1,
    max_timestamp_ms: int | None = None,
) -> Batch:
    """A batch whose records have these timestamps; its header says which is the largest, or lies."""
    rows = rows_at(times_ms)
    if encoding is Encoding.RECORDS_V1:
        payload = encode_records(rows)
    else:
        pytest.importorskip("pyarrow")
        from coordinator_client.arrow_encoding import encode_arrow

        payload = encode_arrow(rows)
    changes = {
        "encoding": encoding,
        "compression": compression,
        "base_timestamp_ms": times_ms[0],
        "max_timestamp_ms": max(times_ms) if max_timestamp_ms is None else max_timestamp_ms,
    }
    return Batch(producer, sequence, len(rows), pack(payload, compression), changes=changes)


def gzipped(*times_ms: int, **fields: Any) -> Batch:
    return batch_at(times_ms, compression=Compression.GZIP, **fields)


def plain(*times_ms: int, **fields: Any) -> Batch:
    return batch_at(times_ms, **fields)


def driven_with(*batches: Batch, **fields: Any) -> DrivenLog:
    driven = DrivenLog(**fields)
    driven.create(config=CHECKED)
    for batch in batches:
        assert driven.append(batch).error is None
    return driven


def found(driven: DrivenLog, timestamp_ms: int, isolation: Isolation = COMMITTED) -> tuple[int, int]:
    (result,) = driven.offsets(timestamp_ms, isolation)
    assert result.error is None, result.error
    return result.offset, result.timestamp_ms


def ask(driven: DrivenLog, *timestamps_ms: int, isolation: Isolation = COMMITTED) -> Pending[list[OffsetResult]]:
    """Begin one search for each of the times, in the same partition, by one call."""
    name = PartitionName(TOPIC, b"", 0)
    command = ListOffsets([OffsetQuery(name, timestamp_ms) for timestamp_ms in timestamps_ms], isolation)
    return driven.positions.list_offsets(command, CONTEXT)


def go_on(driven: DrivenLog) -> None:
    """Let one more turn of the loop come."""
    driven.clock.advance(1)
    driven.runtime.run_due_timers()


# The record


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("encoding", [Encoding.RECORDS_V1, Encoding.ARROW_V1])
def test_the_first_record_of_the_time_or_later_is_found(encoding: Encoding, compression: Compression) -> None:
    driven = driven_with(plain(1, 2), batch_at(OUT_OF_ORDER, encoding=encoding, compression=compression))
    answers = {time_ms: found(driven, time_ms) for time_ms in (2, 10, 11, 30, 50, 51, 60, 61)}
    assert answers == {
        2: (1, 2),
        10: (2, 10),
        11: (3, 50),
        30: (3, 50),
        50: (3, 50),
        51: (6, 60),
        60: (6, 60),
        61: (-1, -1),
    }


@pytest.mark.parametrize("how", [Left.RECORDS, Left.ARROW, Left.KAFKA])
def test_a_batch_with_holes_answers_a_record_that_is_left(how: Left) -> None:
    pytest.importorskip("pyarrow")
    driven = driven_with(plain(*OUT_OF_ORDER), plain(70))
    assert isinstance(driven.store, MemoryStore)
    compact(driven.store, driven.ordinal(), 5, lambda _base_offset: (how, {0, 1}))
    holed = DrivenLog(driven.store, driven.clock)
    assert [found(holed, time_ms) for time_ms in (0, 25, 40)] == [(2, 30), (2, 30), (4, 60)]


def test_a_batch_in_which_compaction_left_nothing_is_passed() -> None:
    driven = driven_with(plain(*OUT_OF_ORDER), plain(70))
    assert isinstance(driven.store, MemoryStore)
    compact(driven.store, driven.ordinal(), 5, lambda _base_offset: (Left.EMPTY, set()))
    assert found(DrivenLog(driven.store, driven.clock), 0) == (5, 70)


def test_a_batch_whose_header_promises_more_than_its_records_have_is_passed() -> None:
    driven = driven_with(plain(1, 2, max_timestamp_ms=99), gzipped(3, 4, max_timestamp_ms=99), plain(98))
    assert found(driven, 50) == (4, 98)
    assert found(driven, 99) == (-1, -1)


def test_records_before_the_log_start_are_no_answer() -> None:
    driven = driven_with(gzipped(*OUT_OF_ORDER), plain(40))
    delete(driven, 2)
    assert [found(driven, time_ms) for time_ms in (0, 40, 61)] == [(2, 30), (4, 60), (-1, -1)]


def test_the_epoch_is_that_of_the_record() -> None:
    driven = driven_with(plain(*OUT_OF_ORDER))
    (result,) = driven.offsets(55)
    assert (result.offset, result.leader_epoch) == (4, 0)
    (none,) = driven.offsets(61)
    assert (none.offset, none.leader_epoch) == (-1, None)


# Isolation


def test_aborted_records_are_no_answer_for_who_is_not_shown_them() -> None:
    driven = driven_with(plain(10), plain(50, 60, producer=TX, sequence=0))
    driven.end(TX, ABORT)
    driven.append(gzipped(20, 55))
    assert [found(driven, time_ms) for time_ms in (40, 56)] == [(5, 55), (-1, -1)]
    assert [found(driven, time_ms, UNCOMMITTED) for time_ms in (40, 56)] == [(1, 50), (2, 60)]


def test_what_is_not_decided_yet_is_no_answer_before_it_is() -> None:
    driven = driven_with(plain(10), gzipped(20, 50, producer=TX, sequence=0), plain(60))
    assert found(driven, 20) == (-1, -1)
    assert found(driven, 30, UNCOMMITTED) == (2, 50)
    driven.end(TX, COMMIT)
    assert found(driven, 30) == (2, 50)


# Batches that cannot be opened


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_payload_that_no_reader_can_decode_is_found_as_a_whole(compression: Compression) -> None:
    """A topic that takes any payload."""
    driven = DrivenLog()
    driven.create()
    driven.append(plain(1, 2))
    driven.append(Batch(count=3, timestamp_ms=50, changes={"compression": compression}))
    driven.append(plain(60))
    assert [found(driven, time_ms) for time_ms in (2, 40, 51)] == [(1, 2), (2, 50), (5, 60)]
    delete(driven, 4)
    assert found(driven, 40) == (4, 50)


def test_a_payload_with_more_records_than_its_header_says_is_found_as_a_whole() -> None:
    driven = DrivenLog()
    driven.create()
    wrong = Batch(count=2, payload=encode_records(rows_at([1, 2, 50])), changes={"max_timestamp_ms": 1_000})
    driven.append(wrong)
    assert found(driven, 50) == (0, 1_000)
    assert found(driven, 2) == (1, 2)


def test_a_payload_with_fewer_records_than_its_header_says_is_found_as_a_whole() -> None:
    """Bytes that happen to be a message without any are such a payload."""
    driven = DrivenLog()
    driven.create()
    driven.append(plain(1))
    driven.append(Batch(count=3, payload=b"x" * 9, timestamp_ms=50))
    assert found(driven, 2) == (1, 50)


def test_a_payload_that_unpacks_to_too_much_is_not_unpacked_to_the_end() -> None:
    driven = DrivenLog()
    driven.create()
    bomb = pack(bytes(UNPACKED_BYTES_MAX + 1), Compression.ZSTD)
    driven.append(Batch(count=2, payload=bomb, timestamp_ms=50, changes={"compression": Compression.ZSTD}))
    assert found(driven, 40) == (0, 50)


def test_a_damaged_batch_is_found_as_a_whole_and_told_to_who_reads_it() -> None:
    rows = [(b"k", b"v" * 100, time_ms, ()) for time_ms in OUT_OF_ORDER]
    changes = {"base_timestamp_ms": 10, "max_timestamp_ms": 60}
    large_row = Batch(count=len(rows), payload=encode_records(rows), changes=changes)
    driven = driven_with(plain(1, 2), large_row, plain(70))
    assert isinstance(driven.store, MemoryStore)
    driven.store.damage(Family.LOG, codec.log_key(driven.ordinal(), 6), Damage.VALUE)
    assert [found(driven, time_ms) for time_ms in (2, 55, 65)] == [(1, 2), (2, 60), (7, 70)]
    assert code(driven.read(fetch_offset=2)) is ErrorCode.CORRUPT_MESSAGE


# In a stopped store


def test_a_stopped_log_is_dumped_from_the_record_on() -> None:
    driven = driven_with(plain(1, 2), gzipped(*OUT_OF_ORDER, producer=TX, sequence=0))
    driven.end(TX, ABORT)
    driven.append(plain(70))
    for time_ms, first in ((2, 1), (11, 3), (55, 6), (65, 8), (71, None)):
        start = datetime.fromtimestamp(time_ms / 1_000, UTC)
        (dumped,) = [
            [(batch.first_offset, batch.marker is not None) for batch in StoppedLog(driven.store, TOPIC, None, start)]
        ]
        assert dumped[:1] == ([] if first is None else [(first, False)])


# Off the loop


def held(*batches: Batch, **fields: Any) -> DrivenLog:
    """A log whose worker computes nothing before the test says so."""
    driven = driven_with(*batches, **fields)
    driven.worker.is_held = True
    return driven


def test_a_small_batch_without_compression_is_opened_at_once() -> None:
    driven = held(plain(*OUT_OF_ORDER))
    assert found(driven, 55) == (4, 60)


def many_records(**fields: Any) -> Batch:
    return batch_at(range(RECORDS_HERE_MAX + 1), **fields)


def large_values() -> Batch:
    count = UNPACKED_HERE_BYTES_MAX // 1_000 + 1
    payload = encode_records([(b"k", b"v" * 1_000, time_ms, ()) for time_ms in range(count)])
    return Batch(count=count, payload=payload, changes={"base_timestamp_ms": 0, "max_timestamp_ms": count - 1})


@pytest.mark.parametrize("batch", [gzipped(*range(100)), many_records(), large_values()], ids=["gzip", "many", "large"])
def test_what_takes_long_to_open_is_opened_by_the_worker(batch: Batch) -> None:
    driven = held(batch)
    searched = ask(driven, 42)
    assert not searched.is_settled
    driven.append(plain(1_000))
    assert driven.read_all(fetch_offset=batch.count) == [batch.count], "everybody else is served meanwhile"
    driven.worker.release()
    (result,) = searched.result()
    assert (result.offset, result.timestamp_ms) == (42, 42)


def test_one_batch_is_opened_at_a_time_and_those_that_wait_hold_none() -> None:
    driven = held(gzipped(10, 20), gzipped(30, 40), plain(50))
    searched = ask(driven, 15, 35, 45, 99)
    assert len(driven.worker.tasks) == 1
    other = ask(driven, 45)
    assert other.result()[0].offset == 4, "a batch that needs no worker does not wait"
    driven.worker.release()
    assert (len(driven.worker.tasks), searched.is_settled) == (1, False)
    driven.worker.release()
    assert [result.offset for result in searched.result()] == [1, 3, 4, -1]


def test_what_is_appended_while_a_batch_is_opened_is_no_answer() -> None:
    """All positions of an answer are of one moment."""
    driven = held(gzipped(10, 20, max_timestamp_ms=99))
    searched = ask(driven, 50, -1)
    driven.append(plain(60))
    driven.worker.release()
    assert [result.offset for result in searched.result()] == [-1, 2]


def test_a_log_start_that_moves_while_a_batch_is_opened_is_heeded() -> None:
    driven = held(gzipped(10, 50, 20, 60), plain(70))
    searched = ask(driven, 30)
    delete(driven, 2)
    driven.worker.release()
    assert not searched.is_settled, "the batch is opened again, for what is left of it"
    driven.worker.release()
    assert searched.result()[0].offset == 3
    late = ask(driven, 30)
    delete(driven, 4)
    driven.worker.release()
    assert late.result()[0].offset == 4


def test_a_topic_that_is_deleted_while_a_batch_is_opened_is_unknown() -> None:
    driven = held(gzipped(10, 50))
    searched = ask(driven, 30)
    driven.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    driven.flush()
    driven.worker.is_held = False
    driven.create(config=CHECKED)
    driven.append(plain(40))
    driven.worker.release()
    driven.flush()
    (result,) = searched.result()
    assert (result.offset, code(result)) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Revocable:
    """Allows everything until the test says otherwise."""

    is_allowing = True

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return self.is_allowing

    def __getattr__(self, name: str) -> Any:
        return getattr(ALLOW_ALL, name)


def test_a_right_that_is_taken_away_while_a_batch_is_opened_is_heeded() -> None:
    authorizer: Any = Revocable()
    driven = held(gzipped(10, 50), authorizer=authorizer)
    searched = ask(driven, 30)
    authorizer.is_allowing = False
    driven.worker.release()
    driven.flush()
    assert code(searched.result()[0]) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_worker_that_dies_is_asked_again_by_the_caller() -> None:
    driven = held(gzipped(10, 50), gzipped(60))
    searched = ask(driven, 30, 55, -1)
    driven.worker.die(WorkerLost("it was killed"))
    driven.worker.release()
    lost, second, end = searched.result()
    assert code(lost) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error_class(Method.LIST_OFFSETS, code(lost)) is ErrorClass.REFRESH, "clients come again by themselves"
    assert (second.offset, end.offset) == (2, 3)
    driven.worker.is_held = False
    assert found(driven, 30) == (1, 50)


def test_a_caller_that_leaves_takes_its_search_away() -> None:
    driven = held(gzipped(10, 50), gzipped(60, 70))
    left, waits = ask(driven, 30), ask(driven, 30, 65)
    left.cancel()
    waits.cancel()
    assert (left.is_settled, waits.is_settled) == (True, True)
    driven.worker.release()
    assert driven.worker.tasks == [], "nothing is opened without a caller"


# In turns


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn ends after some ten batches."""
    budget = partial(ReadBudget, batches=80)
    monkeypatch.setattr(positions, "ReadBudget", budget)
    monkeypatch.setattr(time_search, "ReadBudget", budget)


@pytest.mark.usefixtures("short_turns")
def test_a_long_search_goes_on_in_later_turns_side_by_side_with_others() -> None:
    driven = DrivenLog(config=PartitionConfig(index_interval_batches=2))
    driven.create(config=CHECKED)
    driven.append(plain(1_000))
    for time_ms in range(100):
        driven.append(plain(time_ms))
    delete(driven, 1)
    worked: list[int] = []
    driven.positions.searches.on_work = worked.append
    long, short = ask(driven, 99), ask(driven, 0)
    assert (long.is_settled, short.result()[0].offset) == (False, 1)
    turns = 0
    while not long.is_settled:
        go_on(driven)
        turns += 1
    assert long.result()[0].offset == 100
    assert 1 < turns < 20
    assert len(worked) == turns
    assert min(worked) > 0


@pytest.mark.usefixtures("short_turns")
def test_one_call_for_many_partitions_is_done_in_turns() -> None:
    driven = DrivenLog()
    driven.create(partition_count=40, config=CHECKED)
    for partition in range(40):
        driven.append(plain(10, 20), partition=partition)
    queries = [OffsetQuery(PartitionName(TOPIC, b"", partition), 15) for partition in range(40)]
    searched = driven.positions.list_offsets(ListOffsets(queries), CONTEXT)
    turns = 0
    while not searched.is_settled:
        go_on(driven)
        turns += 1
    assert turns > 10
    assert [result.offset for result in searched.result()] == [1] * 40


# Against a list

times = st.sampled_from((-1, 5, 10, 20, 30, 40))
commands = st.lists(
    st.tuples(
        st.sampled_from(("plain", "append", "append", "commit", "abort", "delete")),
        st.integers(1, 2),
        st.lists(times, min_size=1, max_size=4),
        st.sampled_from((Encoding.RECORDS_V1, Encoding.ARROW_V1)),
        st.sampled_from((Compression.NONE, Compression.NONE, Compression.GZIP, Compression.ZSTD)),
    ),
    max_size=25,
)


class NaiveLog:
    """Every record with its offset, its time, and the producer whose transaction it is in."""

    def __init__(self) -> None:
        self.end = self.start = 0
        self.records: list[tuple[int, int, int]] = []
        self.fates: dict[int, str] = {}
        """By offset: committed, aborted or open."""
        self.batches: list[list[tuple[int, int]]] = []
        """Offset and time of the records of each batch."""

    def append(self, producer_id: int, times_ms: Sequence[int]) -> None:
        self.batches.append(list(enumerate(times_ms, self.end)))
        for time_ms in times_ms:
            self.records.append((self.end, time_ms, producer_id))
            self.fates[self.end] = "open" if producer_id else "committed"
            self.end += 1

    def finish(self, producer_id: int, fate: str) -> None:
        for offset, _time_ms, writer in self.records:
            if writer == producer_id and self.fates[offset] == "open":
                self.fates[offset] = fate
        self.end += 1

    @property
    def stable(self) -> int:
        return min((offset for offset, fate in self.fates.items() if fate == "open"), default=self.end)

    def first_since(self, timestamp_ms: int, isolation: Isolation) -> tuple[int, int]:
        for offset, time_ms, _producer_id in self.records:
            if self.is_shown(offset, isolation) and time_ms >= timestamp_ms:
                return offset, time_ms
        return -1, -1

    def newest(self, isolation: Isolation) -> tuple[int, int]:
        """The newest record that is left of the batch with the largest timestamp in its header."""
        shown = [batch for batch in self.batches if self.is_shown(batch[-1][0], isolation)]
        newest = max(shown, key=_largest_time, default=[])
        if not newest or _largest_time(newest) < 0:
            return -1, -1
        return max((record for record in newest if record[0] >= self.start), key=lambda record: record[1])

    def is_shown(self, offset: int, isolation: Isolation) -> bool:
        if offset < self.start:
            return False
        return isolation is UNCOMMITTED or (self.fates[offset] == "committed" and offset < self.stable)


def _largest_time(batch: Sequence[tuple[int, int]]) -> int:
    return max(time_ms for _offset, time_ms in batch)


def played(interval: int, given_commands: list[Any]) -> tuple[DrivenLog, NaiveLog]:
    """The same log twice."""
    pytest.importorskip("pyarrow")
    driven = DrivenLog(config=PartitionConfig(index_interval_batches=interval))
    driven.create(config=CHECKED)
    naive, epochs, sequences = NaiveLog(), {1: 0, 2: 0}, {1: 0, 2: 0}
    for command, producer_id, times_ms, encoding, compression in given_commands:
        producer = transactional(producer_id, epochs[producer_id])
        shape: dict[str, Any] = {"encoding": encoding, "compression": compression}
        if command == "plain":
            driven.append(batch_at(times_ms, **shape))
            naive.append(0, times_ms)
        elif command == "append":
            sequence = sequences[producer_id]
            assert driven.append(batch_at(times_ms, producer=producer, sequence=sequence, **shape)).error is None
            sequences[producer_id] += len(times_ms)
            naive.append(producer_id, times_ms)
        elif command == "delete":
            naive.start = max(naive.start, min(naive.stable, naive.end, naive.start + len(times_ms)))
            delete(driven, naive.start)
        else:
            driven.end(producer, COMMIT if command == "commit" else ABORT)
            epochs[producer_id], sequences[producer_id] = producer.epoch + 1, 0
            naive.finish(producer_id, "committed" if command == "commit" else "aborted")
    return driven, naive


@given(st.integers(1, 5), commands)
@settings(max_examples=60, deadline=None)
def test_what_is_found_is_what_a_list_of_all_records_has(interval: int, given_commands: list[Any]) -> None:
    driven, naive = played(interval, given_commands)
    for isolation in (COMMITTED, UNCOMMITTED):
        for timestamp_ms in (0, 5, 6, 20, 21, 40, 41):
            assert found(driven, timestamp_ms, isolation) == naive.first_since(timestamp_ms, isolation)


@given(st.binary(max_size=200), st.sampled_from(Encoding), st.sampled_from(Compression))
@settings(deadline=None)
def test_any_bytes_are_opened_or_said_not_to_be(payload: bytes, encoding: Encoding, compression: Compression) -> None:
    try:
        place = first_since((encoding, compression, 4, 0, 0, 3, 10, payload))
    except NotOpened:
        return
    assert place is None or (0 <= place[0] <= 3 and place[1] >= 10)
