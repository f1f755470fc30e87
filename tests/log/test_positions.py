"""ListOffsets and the producers of a partition."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.store import Family
from partition_log.requests import DeleteRecords, DescribeProducers, RecordsToDelete
from partition_log.state import PartitionConfig
from tests.log.log_room import ABORT, COMMIT, CONTEXT, TOPIC, UNCOMMITTED, Batch, LogRoom, Producer, code, transactional

EARLIEST, LATEST = -2, -1
TX = transactional()


def found(room: LogRoom, timestamp_ms: int, **fields: object) -> tuple[int, int]:
    (result,) = room.offsets(timestamp_ms, **fields)  # type: ignore[arg-type]  # passed through
    assert result.error is None
    return result.offset, result.timestamp_ms


def test_the_ends_depend_on_the_isolation_level(room: LogRoom) -> None:
    room.append(Batch(count=2))
    room.append(Batch(TX, 0, 3))
    assert found(room, EARLIEST) == (0, -1)
    assert found(room, LATEST) == (2, -1)
    assert found(room, LATEST, isolation=UNCOMMITTED) == (5, -1)


def test_all_positions_are_durable_ones_of_one_moment(room: LogRoom) -> None:
    room.append(Batch())
    room.send(Batch(), partition=0)
    room.send(Batch(), partition=1)
    assert [result.offset for result in room.offsets(LATEST, partitions=(0, 1))] == [1, 0]


def test_a_time_is_found_no_earlier_than_the_log_starts(room: LogRoom) -> None:
    room.append(Batch(count=3, timestamp_ms=10))
    wanted = RecordsToDelete(PartitionName(TOPIC, b"", 0), 1)
    room.log.delete_records(DeleteRecords([wanted]), CONTEXT)
    room.flush()
    assert found(room, 10) == (1, 10)


@pytest.fixture(params=[1, 2, 3, 100])
def timed(request: pytest.FixtureRequest) -> LogRoom:
    """Batches of two records with the times 10, 30, 20, 40, 40, and index rows at every distance."""
    room = LogRoom(config=PartitionConfig(index_interval_batches=request.param))
    room.create()
    for timestamp_ms in (10, 30, 20, 40, 40):
        room.append(Batch(count=2, timestamp_ms=timestamp_ms))
    return room


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [(0, (0, 10)), (10, (0, 10)), (11, (2, 30)), (25, (2, 30)), (31, (6, 40)), (40, (6, 40)), (41, (-1, -1))],
)
def test_a_time_is_found_at_the_first_batch_that_reaches_it(
    timed: LogRoom, timestamp_ms: int, expected: tuple[int, int]
) -> None:
    assert found(timed, timestamp_ms) == expected


def test_the_time_index_survives_a_crash_and_goes_on(timed: LogRoom) -> None:
    room = timed.crash()
    room.append(Batch(timestamp_ms=50))
    assert found(room, 45) == (10, 50)
    assert found(room, 11) == (2, 30)


def test_a_batch_without_a_time_is_found_by_none(room: LogRoom) -> None:
    room.append(Batch(timestamp_ms=-1))
    assert found(room, 0) == (-1, -1)
    room.append(Batch(timestamp_ms=0))
    assert found(room, 0) == (1, 0)


def test_a_marker_is_not_found_by_its_time(room: LogRoom) -> None:
    room.append(Batch(TX, 0, timestamp_ms=10))
    room.end(TX, COMMIT)
    assert found(room, 11) == (-1, -1)
    later_ms = room.clock.wall_ms() + 1_000
    room.append(Batch(timestamp_ms=later_ms))
    assert found(room, 11) == (2, later_ms)


def test_a_record_that_may_not_be_read_yet_is_not_found(room: LogRoom) -> None:
    room.append(Batch(TX, 0, timestamp_ms=10))
    assert found(room, 10) == (-1, -1)
    assert found(room, 10, isolation=UNCOMMITTED) == (0, 10)


def test_a_record_that_is_not_durable_is_not_found() -> None:
    room = LogRoom(config=PartitionConfig(index_interval_batches=1))
    room.create()
    room.append(Batch(timestamp_ms=10))
    room.send(Batch(timestamp_ms=20))
    room.runtime.groups.seal()
    room.store.write(room.driver.handed_over)
    assert found(room, 15) == (-1, -1)


def test_the_index_has_a_row_per_stretch_and_not_per_batch() -> None:
    room = LogRoom(config=PartitionConfig(index_interval_bytes=1_000))
    room.create()
    for _ in range(20):
        room.append(Batch(payload=b"x" * 136))
    assert len(list(room.store.scan(Family.STRETCHES, b"", b"\xff" * 20))) == 4


def test_an_unknown_position_is_refused(room: LogRoom) -> None:
    assert code(room.offsets(-3)[0]) is ErrorCode.INVALID_REQUEST


def test_an_unknown_partition_is_refused_alone(room: LogRoom) -> None:
    good, bad = room.offsets(LATEST, partitions=(1, 2))
    assert (code(good), code(bad)) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_producers_are_described_as_they_are_on_disk(room: LogRoom) -> None:
    room.append(Batch(TX, 0, 3))
    room.append(Batch(Producer(3), 0))
    room.append(Batch(Producer(4), 0))
    room.end(TX, ABORT)
    room.send(Batch(Producer(5), 0))
    (described,) = room.log.describe_producers(DescribeProducers([PartitionName(TOPIC, b"", 0)]), CONTEXT).result()
    found = {producer_id: (entry.epoch, entry.last_sequence) for producer_id, entry in described.producers}
    assert found == {3: (0, 0), 4: (0, 0), 7: (1, -1)}


def test_producers_of_an_unknown_partition_are_refused(room: LogRoom) -> None:
    (described,) = room.log.describe_producers(DescribeProducers([PartitionName("missing", b"", 0)]), CONTEXT).result()
    assert code(described) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
