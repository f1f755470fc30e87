"""A batch read on a server that lost acknowledged records between planning and reading, or between two reads. No Spark
session: the source is asked as Spark asks it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition

from coordinator_client.errors import Rejected
from coordinator_runtime.rocks.store_directory import StoreDirectory
from pyspark_txnlog.bounds import Position, offsets_json
from pyspark_txnlog.options import parse_options
from pyspark_txnlog.read.ranges import DataLoss, OffsetRange
from pyspark_txnlog.read.reading import RangeReader
from tests.harness.server_process import ServerProcess
from tests.spark.topics import Topics

pytestmark = pytest.mark.slow

TOPIC = "flights-1"


def reader(server: ServerProcess, **options: str) -> RangeReader:
    return RangeReader(parse_options({"endpoint": server.address, "subscribe": TOPIC, "columns": "value"} | options))


def read(by: RangeReader, planned: list[InputPartition]) -> list[bytes]:
    return [value.as_py() for part in planned for rows in by.read(part) for value in rows.column("value")]


@pytest.fixture
def accepted(tmp_path: Path) -> Iterator[tuple[ServerProcess, OffsetRange]]:
    """A server that went on from an older copy of its directory, in which half of the records lie that it had; what
    was planned when it had all of them, up to offset 4."""
    data_dir, copy = tmp_path / "data", tmp_path / "copy"
    with ServerProcess(data_dir) as server, Topics(server.address, prefix="flights") as topics:
        assert topics.create() == TOPIC
        topics.commit(TOPIC, ["a"])
        server.terminate()
    shutil.copytree(data_dir, copy)
    with ServerProcess(data_dir) as server, Topics(server.address, prefix="flights") as topics:
        topics.commit(TOPIC, ["lost"])
        (planned,) = reader(server).partitions()
        assert read(reader(server), [planned]) == [b"a", b"lost"]
        server.terminate()
    shutil.rmtree(data_dir)
    shutil.move(copy, data_dir)
    StoreDirectory(data_dir).durable_mark_path.unlink()
    with ServerProcess(data_dir, "--accept-data-loss") as server, Topics(server.address, prefix="new") as topics:
        topics.commit(TOPIC, ["other", "records"])
        yield server, planned.value


@pytest.mark.long
def test_a_task_reads_what_was_planned_or_fails(accepted: tuple[ServerProcess, OffsetRange]) -> None:
    server, planned = accepted
    assert (planned.start_offset, planned.end_offset, planned.leader_epoch) == (0, 4, 0)
    with pytest.raises(Rejected, match=r"planned in leader epoch 0, and is not all in this log.* from offset 2 on"):
        read(reader(server), [InputPartition(planned)])
    (anew,) = reader(server).partitions()
    assert read(reader(server), [anew]) == [b"a", b"other", b"records"]


def test_a_read_that_goes_on_behind_a_lost_one_is_refused_or_begins_where_the_logs_parted(
    accepted: tuple[ServerProcess, OffsetRange],
) -> None:
    server, planned = accepted
    behind = offsets_json({TOPIC: {0: Position(planned.end_offset, planned.leader_epoch)}})
    with pytest.raises(DataLoss, match=r"startingOffsets is of a log of flights-1-0 .* from offset 2 on"):
        reader(server, startingOffsets=behind).partitions()
    with pytest.raises(DataLoss, match=r"endingOffsets is of a log of flights-1-0 .* from offset 2 on"):
        reader(server, endingOffsets=behind).partitions()
    with pytest.warns(RuntimeWarning, match="from offset 2 on"):
        left = reader(server, startingOffsets=behind, failOnDataLoss="false").partitions()
    assert read(reader(server), left) == [b"other", b"records"]
    number_alone = offsets_json({TOPIC: {0: Position(planned.end_offset)}})
    assert read(reader(server), reader(server, startingOffsets=number_alone).partitions()) == [], "the line is unknown"
