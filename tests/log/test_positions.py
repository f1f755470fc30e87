"""ListOffsets and the producers of a partition."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.ports import PartitionName
from coordinator_runtime.store import Family
from partition_log.requests import EARLIEST_LOCAL_TIMESTAMP, DeleteRecords, DescribeProducers, RecordsToDelete
from partition_log.state import PartitionConfig
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    CONTEXT,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    Producer,
    code,
    transactional,
)

EARLIEST, LATEST = -2, -1
TX = transactional()


def found(driven: DrivenLog, timestamp_ms: int, **fields: object) -> tuple[int, int]:
    (result,) = driven.offsets(timestamp_ms, **fields)  # type: ignore[arg-type]  # passed through
    assert result.error is None
    return result.offset, result.timestamp_ms


def test_the_ends_depend_on_the_isolation_level(driven: DrivenLog) -> None:
    driven.append(Batch(count=2))
    driven.append(Batch(TX, 0, 3))
    assert found(driven, EARLIEST) == (0, -1)
    assert found(driven, LATEST) == (2, -1)
    assert found(driven, LATEST, isolation=UNCOMMITTED) == (5, -1)


def test_all_positions_are_durable_ones_of_one_moment(driven: DrivenLog) -> None:
    driven.append(Batch())
    driven.send(Batch(), partition=0)
    driven.send(Batch(), partition=1)
    assert [result.offset for result in driven.offsets(LATEST, partitions=(0, 1))] == [1, 0]


def test_a_time_is_found_no_earlier_than_the_log_starts(driven: DrivenLog) -> None:
    driven.append(Batch(count=3, timestamp_ms=10))
    wanted = RecordsToDelete(PartitionName(TOPIC, b"", 0), 1)
    driven.log.delete_records(DeleteRecords([wanted]), CONTEXT)
    driven.flush()
    assert found(driven, 10) == (1, 10)


@pytest.fixture(params=[1, 2, 3, 100])
def timed(request: pytest.FixtureRequest) -> DrivenLog:
    """Batches of two records with the times 10, 30, 20, 40, 40, and index rows at every distance."""
    driven = DrivenLog(config=PartitionConfig(index_interval_batches=request.param))
    driven.create()
    for timestamp_ms in (10, 30, 20, 40, 40):
        driven.append(Batch(count=2, timestamp_ms=timestamp_ms))
    return driven


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [(0, (0, 10)), (10, (0, 10)), (11, (2, 30)), (25, (2, 30)), (31, (6, 40)), (40, (6, 40)), (41, (-1, -1))],
)
def test_a_time_is_found_at_the_first_batch_that_reaches_it(
    timed: DrivenLog, timestamp_ms: int, expected: tuple[int, int]
) -> None:
    assert found(timed, timestamp_ms) == expected


def test_the_time_index_survives_a_crash_and_goes_on(timed: DrivenLog) -> None:
    driven = timed.crash()
    driven.append(Batch(timestamp_ms=50))
    assert found(driven, 45) == (10, 50)
    assert found(driven, 11) == (2, 30)


def test_a_batch_without_a_time_is_found_by_none(driven: DrivenLog) -> None:
    driven.append(Batch(timestamp_ms=-1))
    assert found(driven, 0) == (-1, -1)
    driven.append(Batch(timestamp_ms=0))
    assert found(driven, 0) == (1, 0)


def test_a_marker_is_not_found_by_its_time(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, timestamp_ms=10))
    driven.end(TX, COMMIT)
    assert found(driven, 11) == (-1, -1)
    later_ms = driven.clock.wall_ms() + 1_000
    driven.append(Batch(timestamp_ms=later_ms))
    assert found(driven, 11) == (2, later_ms)


def test_a_record_that_may_not_be_read_yet_is_not_found(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, timestamp_ms=10))
    assert found(driven, 10) == (-1, -1)
    assert found(driven, 10, isolation=UNCOMMITTED) == (0, 10)


def test_a_record_that_is_not_durable_is_not_found() -> None:
    driven = DrivenLog(config=PartitionConfig(index_interval_batches=1))
    driven.create()
    driven.append(Batch(timestamp_ms=10))
    driven.send(Batch(timestamp_ms=20))
    driven.runtime.groups.seal()
    driven.store.write(driven.driver.handed_over)
    assert found(driven, 15) == (-1, -1)


def test_the_index_has_a_row_per_stretch_and_not_per_batch() -> None:
    driven = DrivenLog(config=PartitionConfig(index_interval_bytes=1_000))
    driven.create()
    for _ in range(20):
        driven.append(Batch(payload=b"x" * 136))
    assert len(list(driven.store.scan(Family.STRETCHES, b"", b"\xff" * 20))) == 4


def test_an_unknown_position_is_refused(driven: DrivenLog) -> None:
    assert [code(driven.offsets(unknown)[0]) for unknown in (-5, -6, -(2**63))] == [ErrorCode.INVALID_REQUEST] * 3


def test_all_of_a_log_is_local(driven: DrivenLog) -> None:
    driven.append(Batch(count=3))
    driven.log.delete_records(DeleteRecords([RecordsToDelete(PartitionName(TOPIC, b"", 0), 2)]), CONTEXT)
    driven.flush()
    assert found(driven, EARLIEST_LOCAL_TIMESTAMP) == found(driven, EARLIEST) == (2, -1)


def test_an_unknown_partition_is_refused_alone(driven: DrivenLog) -> None:
    good, bad = driven.offsets(LATEST, partitions=(1, 2))
    assert (code(good), code(bad)) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_producers_are_described_as_they_are_on_disk(driven: DrivenLog) -> None:
    driven.append(Batch(TX, 0, 3))
    driven.append(Batch(Producer(3), 0))
    driven.append(Batch(Producer(4), 0))
    driven.end(TX, ABORT)
    driven.send(Batch(Producer(5), 0))
    (described,) = driven.log.describe_producers(DescribeProducers([PartitionName(TOPIC, b"", 0)]), CONTEXT).result()
    found = {producer_id: (entry.epoch, entry.last_sequence) for producer_id, entry in described.producers}
    assert found == {3: (0, 0), 4: (0, 0), 7: (1, -1)}


def test_producers_of_an_unknown_partition_are_refused(driven: DrivenLog) -> None:
    (described,) = driven.log.describe_producers(
        DescribeProducers([PartitionName("missing", b"", 0)]), CONTEXT
    ).result()
    assert code(described) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
