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
from tests.log.log_room import (
    ABORT,
    COMMIT,
    COMMITTED,
    CONTEXT,
    NOBODY,
    TOPIC,
    UNCOMMITTED,
    Batch,
    LogRoom,
    Producer,
    code,
    transactional,
)
from tests.log.test_delete_records import delete
from txnctl.commands.stopped_log import stopped_log

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
    producer: Producer = NOBODY,
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


def room_with(*batches: Batch, **fields: Any) -> LogRoom:
    room = LogRoom(**fields)
    room.create(config=CHECKED)
    for batch in batches:
        assert room.append(batch).error is None
    return room


def found(room: LogRoom, timestamp_ms: int, isolation: Isolation = COMMITTED) -> tuple[int, int]:
    (result,) = room.offsets(timestamp_ms, isolation)
    assert result.error is None, result.error
    return result.offset, result.timestamp_ms


def ask(room: LogRoom, *timestamps_ms: int, isolation: Isolation = COMMITTED) -> Pending[list[OffsetResult]]:
    """Begin one search for each of the times, in the same partition, by one call."""
    name = PartitionName(TOPIC, b"", 0)
    command = ListOffsets([OffsetQuery(name, timestamp_ms) for timestamp_ms in timestamps_ms], isolation)
    return room.positions.list_offsets(command, CONTEXT)


def go_on(room: LogRoom) -> None:
    """Let one more turn of the loop come."""
    room.clock.advance(1)
    room.runtime.run_due_timers()


# The record


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("encoding", [Encoding.RECORDS_V1, Encoding.ARROW_V1])
def test_the_first_record_of_the_time_or_later_is_found(encoding: Encoding, compression: Compression) -> None:
    room = room_with(plain(1, 2), batch_at(OUT_OF_ORDER, encoding=encoding, compression=compression))
    answers = {time_ms: found(room, time_ms) for time_ms in (2, 10, 11, 30, 50, 51, 60, 61)}
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


@pytest.mark.parametrize("how", [Left.RECORDS, Left.ARROW])
def test_a_batch_with_holes_answers_a_record_that_is_left(how: Left) -> None:
    pytest.importorskip("pyarrow")
    room = room_with(plain(*OUT_OF_ORDER), plain(70))
    assert isinstance(room.store, MemoryStore)
    compact(room.store, room.ordinal(), 5, lambda _base_offset: (how, {0, 1}))
    holed = LogRoom(room.store, room.clock)
    assert [found(holed, time_ms) for time_ms in (0, 25, 40)] == [(2, 30), (2, 30), (4, 60)]


def test_a_batch_in_which_compaction_left_nothing_is_passed() -> None:
    room = room_with(plain(*OUT_OF_ORDER), plain(70))
    assert isinstance(room.store, MemoryStore)
    compact(room.store, room.ordinal(), 5, lambda _base_offset: (Left.EMPTY, set()))
    assert found(LogRoom(room.store, room.clock), 0) == (5, 70)


def test_a_batch_whose_header_promises_more_than_its_records_have_is_passed() -> None:
    room = room_with(plain(1, 2, max_timestamp_ms=99), gzipped(3, 4, max_timestamp_ms=99), plain(98))
    assert found(room, 50) == (4, 98)
    assert found(room, 99) == (-1, -1)


def test_records_before_the_log_start_are_no_answer() -> None:
    room = room_with(gzipped(*OUT_OF_ORDER), plain(40))
    delete(room, 2)
    assert [found(room, time_ms) for time_ms in (0, 40, 61)] == [(2, 30), (4, 60), (-1, -1)]


def test_the_epoch_is_that_of_the_record() -> None:
    room = room_with(plain(*OUT_OF_ORDER))
    (result,) = room.offsets(55)
    assert (result.offset, result.leader_epoch) == (4, 0)
    (none,) = room.offsets(61)
    assert (none.offset, none.leader_epoch) == (-1, None)


# Isolation


def test_aborted_records_are_no_answer_for_who_is_not_shown_them() -> None:
    room = room_with(plain(10), plain(50, 60, producer=TX, sequence=0))
    room.end(TX, ABORT)
    room.append(gzipped(20, 55))
    assert [found(room, time_ms) for time_ms in (40, 56)] == [(5, 55), (-1, -1)]
    assert [found(room, time_ms, UNCOMMITTED) for time_ms in (40, 56)] == [(1, 50), (2, 60)]


def test_what_is_not_decided_yet_is_no_answer_before_it_is() -> None:
    room = room_with(plain(10), gzipped(20, 50, producer=TX, sequence=0), plain(60))
    assert found(room, 20) == (-1, -1)
    assert found(room, 30, UNCOMMITTED) == (2, 50)
    room.end(TX, COMMIT)
    assert found(room, 30) == (2, 50)


# What cannot be opened


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_payload_that_no_reader_can_decode_is_found_as_a_whole(compression: Compression) -> None:
    """A topic that takes any payload."""
    room = LogRoom()
    room.create()
    room.append(plain(1, 2))
    room.append(Batch(count=3, timestamp_ms=50, changes={"compression": compression}))
    room.append(plain(60))
    assert [found(room, time_ms) for time_ms in (2, 40, 51)] == [(1, 2), (2, 50), (5, 60)]
    delete(room, 4)
    assert found(room, 40) == (4, 50)


def test_a_payload_with_more_records_than_its_header_says_is_found_as_a_whole() -> None:
    room = LogRoom()
    room.create()
    wrong = Batch(count=2, payload=encode_records(rows_at([1, 2, 50])), changes={"max_timestamp_ms": 1_000})
    room.append(wrong)
    assert found(room, 50) == (0, 1_000)
    assert found(room, 2) == (1, 2)


def test_a_payload_with_fewer_records_than_its_header_says_is_found_as_a_whole() -> None:
    """Bytes that happen to be a message without any are such a payload."""
    room = LogRoom()
    room.create()
    room.append(plain(1))
    room.append(Batch(count=3, payload=b"x" * 9, timestamp_ms=50))
    assert found(room, 2) == (1, 50)


def test_a_payload_that_unpacks_to_too_much_is_not_unpacked_to_the_end() -> None:
    room = LogRoom()
    room.create()
    bomb = pack(bytes(UNPACKED_BYTES_MAX + 1), Compression.ZSTD)
    room.append(Batch(count=2, payload=bomb, timestamp_ms=50, changes={"compression": Compression.ZSTD}))
    assert found(room, 40) == (0, 50)


def test_a_damaged_batch_is_found_as_a_whole_and_told_to_who_reads_it() -> None:
    rows = [(b"k", b"v" * 100, time_ms, ()) for time_ms in OUT_OF_ORDER]
    changes = {"base_timestamp_ms": 10, "max_timestamp_ms": 60}
    large_row = Batch(count=len(rows), payload=encode_records(rows), changes=changes)
    room = room_with(plain(1, 2), large_row, plain(70))
    assert isinstance(room.store, MemoryStore)
    room.store.damage(Family.LOG, codec.log_key(room.ordinal(), 6), Damage.VALUE)
    assert [found(room, time_ms) for time_ms in (2, 55, 65)] == [(1, 2), (2, 60), (7, 70)]
    assert code(room.read(fetch_offset=2)) is ErrorCode.CORRUPT_MESSAGE


# In a stopped store


def test_a_stopped_log_is_dumped_from_the_record_on() -> None:
    room = room_with(plain(1, 2), gzipped(*OUT_OF_ORDER, producer=TX, sequence=0))
    room.end(TX, ABORT)
    room.append(plain(70))
    for time_ms, first in ((2, 1), (11, 3), (55, 6), (65, 8), (71, None)):
        start = datetime.fromtimestamp(time_ms / 1_000, UTC)
        (dumped,) = [
            [(batch.first_offset, batch.marker is not None) for batch in stopped_log(room.store, TOPIC, None, start)]
        ]
        assert dumped[:1] == ([] if first is None else [(first, False)])


# Off the loop


def held(*batches: Batch, **fields: Any) -> LogRoom:
    """A room whose worker computes nothing before the test says so."""
    room = room_with(*batches, **fields)
    room.worker.is_held = True
    return room


def test_a_small_batch_without_compression_is_opened_at_once() -> None:
    room = held(plain(*OUT_OF_ORDER))
    assert found(room, 55) == (4, 60)


def many_records(**fields: Any) -> Batch:
    return batch_at(range(RECORDS_HERE_MAX + 1), **fields)


def large_values() -> Batch:
    count = UNPACKED_HERE_BYTES_MAX // 1_000 + 1
    payload = encode_records([(b"k", b"v" * 1_000, time_ms, ()) for time_ms in range(count)])
    return Batch(count=count, payload=payload, changes={"base_timestamp_ms": 0, "max_timestamp_ms": count - 1})


@pytest.mark.parametrize("batch", [gzipped(*range(100)), many_records(), large_values()], ids=["gzip", "many", "large"])
def test_what_takes_long_to_open_is_opened_by_the_worker(batch: Batch) -> None:
    room = held(batch)
    searched = ask(room, 42)
    assert not searched.is_settled
    room.append(plain(1_000))
    assert room.read_all(fetch_offset=batch.count) == [batch.count], "everybody else is served meanwhile"
    room.worker.release()
    (result,) = searched.result()
    assert (result.offset, result.timestamp_ms) == (42, 42)


def test_one_batch_is_opened_at_a_time_and_those_that_wait_hold_none() -> None:
    room = held(gzipped(10, 20), gzipped(30, 40), plain(50))
    searched = ask(room, 15, 35, 45, 99)
    assert len(room.worker.tasks) == 1
    other = ask(room, 45)
    assert other.result()[0].offset == 4, "whose batch needs no worker waits for nobody"
    room.worker.release()
    assert (len(room.worker.tasks), searched.is_settled) == (1, False)
    room.worker.release()
    assert [result.offset for result in searched.result()] == [1, 3, 4, -1]


def test_what_is_appended_while_a_batch_is_opened_is_no_answer() -> None:
    """All positions of an answer are of one moment."""
    room = held(gzipped(10, 20, max_timestamp_ms=99))
    searched = ask(room, 50, -1)
    room.append(plain(60))
    room.worker.release()
    assert [result.offset for result in searched.result()] == [-1, 2]


def test_a_log_start_that_moves_while_a_batch_is_opened_is_heeded() -> None:
    room = held(gzipped(10, 50, 20, 60), plain(70))
    searched = ask(room, 30)
    delete(room, 2)
    room.worker.release()
    assert not searched.is_settled, "the batch is opened again, for what is left of it"
    room.worker.release()
    assert searched.result()[0].offset == 3
    late = ask(room, 30)
    delete(room, 4)
    room.worker.release()
    assert late.result()[0].offset == 4


def test_a_topic_that_is_deleted_while_a_batch_is_opened_is_unknown() -> None:
    room = held(gzipped(10, 50))
    searched = ask(room, 30)
    room.topics.delete_topics(DeleteTopics([TopicName(TOPIC)]), CONTEXT)
    room.flush()
    room.worker.is_held = False
    room.create(config=CHECKED)
    room.append(plain(40))
    room.worker.release()
    room.flush()
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
    room = held(gzipped(10, 50), authorizer=authorizer)
    searched = ask(room, 30)
    authorizer.is_allowing = False
    room.worker.release()
    room.flush()
    assert code(searched.result()[0]) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_worker_that_dies_is_asked_again_by_the_caller() -> None:
    room = held(gzipped(10, 50), gzipped(60))
    searched = ask(room, 30, 55, -1)
    room.worker.die(WorkerLost("it was killed"))
    room.worker.release()
    lost, second, end = searched.result()
    assert code(lost) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert error_class(Method.LIST_OFFSETS, code(lost)) is ErrorClass.REFRESH, "clients come again by themselves"
    assert (second.offset, end.offset) == (2, 3)
    room.worker.is_held = False
    assert found(room, 30) == (1, 50)


def test_a_caller_that_leaves_takes_its_search_away() -> None:
    room = held(gzipped(10, 50), gzipped(60, 70))
    left, waits = ask(room, 30), ask(room, 30, 65)
    left.cancel()
    waits.cancel()
    assert (left.is_settled, waits.is_settled) == (True, True)
    room.worker.release()
    assert room.worker.tasks == [], "nothing is opened for nobody"


# In turns


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn ends after some ten batches."""
    budget = partial(ReadBudget, batches=80)
    monkeypatch.setattr(positions, "ReadBudget", budget)
    monkeypatch.setattr(time_search, "ReadBudget", budget)


@pytest.mark.usefixtures("short_turns")
def test_a_long_search_goes_on_in_later_turns_side_by_side_with_others() -> None:
    room = LogRoom(config=PartitionConfig(index_interval_batches=2))
    room.create(config=CHECKED)
    room.append(plain(1_000))
    for time_ms in range(100):
        room.append(plain(time_ms))
    delete(room, 1)
    worked: list[int] = []
    room.positions.searches.on_work = worked.append
    long, short = ask(room, 99), ask(room, 0)
    assert (long.is_settled, short.result()[0].offset) == (False, 1)
    turns = 0
    while not long.is_settled:
        go_on(room)
        turns += 1
    assert long.result()[0].offset == 100
    assert 1 < turns < 20
    assert len(worked) == turns
    assert min(worked) > 0


@pytest.mark.usefixtures("short_turns")
def test_one_call_for_many_partitions_is_done_in_turns() -> None:
    room = LogRoom()
    room.create(partition_count=40, config=CHECKED)
    for partition in range(40):
        room.append(plain(10, 20), partition=partition)
    queries = [OffsetQuery(PartitionName(TOPIC, b"", partition), 15) for partition in range(40)]
    searched = room.positions.list_offsets(ListOffsets(queries), CONTEXT)
    turns = 0
    while not searched.is_settled:
        go_on(room)
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

    def append(self, producer_id: int, times_ms: Sequence[int]) -> None:
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
            is_shown = isolation is UNCOMMITTED or (self.fates[offset] == "committed" and offset < self.stable)
            if is_shown and offset >= self.start and time_ms >= timestamp_ms:
                return offset, time_ms
        return -1, -1


@given(st.integers(1, 5), commands)
@settings(max_examples=60, deadline=None)
def test_what_is_found_is_what_a_list_of_all_records_has(interval: int, given_commands: list[Any]) -> None:
    pytest.importorskip("pyarrow")
    room = LogRoom(config=PartitionConfig(index_interval_batches=interval))
    room.create(config=CHECKED)
    naive, epochs, sequences = NaiveLog(), {1: 0, 2: 0}, {1: 0, 2: 0}
    for command, producer_id, times_ms, encoding, compression in given_commands:
        producer = transactional(producer_id, epochs[producer_id])
        shape: dict[str, Any] = {"encoding": encoding, "compression": compression}
        if command == "plain":
            room.append(batch_at(times_ms, **shape))
            naive.append(0, times_ms)
        elif command == "append":
            sequence = sequences[producer_id]
            assert room.append(batch_at(times_ms, producer=producer, sequence=sequence, **shape)).error is None
            sequences[producer_id] += len(times_ms)
            naive.append(producer_id, times_ms)
        elif command == "delete":
            naive.start = max(naive.start, min(naive.stable, naive.end, naive.start + len(times_ms)))
            delete(room, naive.start)
        else:
            room.end(producer, COMMIT if command == "commit" else ABORT)
            epochs[producer_id], sequences[producer_id] = producer.epoch + 1, 0
            naive.finish(producer_id, "committed" if command == "commit" else "aborted")
    for isolation in (COMMITTED, UNCOMMITTED):
        for timestamp_ms in (0, 5, 6, 20, 21, 40, 41):
            assert found(room, timestamp_ms, isolation) == naive.first_since(timestamp_ms, isolation)


@given(st.binary(max_size=200), st.sampled_from(Encoding), st.sampled_from(Compression))
@settings(deadline=None)
def test_any_bytes_are_opened_or_said_not_to_be(payload: bytes, encoding: Encoding, compression: Compression) -> None:
    try:
        place = first_since((encoding, compression, 4, 0, 3, 10, payload))
    except NotOpened:
        return
    assert place is None or (0 <= place[0] <= 3 and place[1] >= 10)
