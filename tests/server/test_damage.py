"""Bits of a real store flip: a process that meets them tells their readers, and serves everything else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from coordinator_api.v1 import log_pb2, log_pb2_grpc
from coordinator_protocol.errors import ErrorCode
from coordinator_server.exits import ExitStatus
from tests.harness.server_process import DEADLINE_SECONDS, ServerProcess

pytestmark = pytest.mark.slow

LARGE = b"large" * 10_000
"""A batch of this lies in a segment."""
SMALL = b"small" * 100
"""Small enough that a few of these values lie in one block of sorted rows."""


@contextmanager
def log_of(server: ServerProcess) -> Iterator[log_pb2_grpc.LogServiceStub]:
    with grpc.insecure_channel(server.address) as channel:
        yield log_pb2_grpc.LogServiceStub(channel)


def create(log: log_pb2_grpc.LogServiceStub) -> None:
    request = log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=2)])
    assert not log.CreateTopics(request, timeout=DEADLINE_SECONDS).results[0].error_code


def produce(log: log_pb2_grpc.LogServiceStub, partition: int, value: bytes) -> None:
    batch = log_pb2.RecordBatch(
        record_count=1,
        encoding=log_pb2.ENCODING_RECORDS_V1,
        payload=log_pb2.Records(records=[log_pb2.Record(value=value)]).SerializeToString(),
    )
    request = log_pb2.ProduceRequest(batches=[log_pb2.PartitionBatch(topic="t", partition=partition, batch=batch)])
    assert not log.Produce(request, timeout=DEADLINE_SECONDS).results[0].error_code


def fetch(log: log_pb2_grpc.LogServiceStub, *places: tuple[int, int]) -> list[log_pb2.FetchResult]:
    """Read partitions from these offsets on."""
    request = log_pb2.FetchRequest(
        partitions=[log_pb2.FetchPartition(topic="t", partition=number, fetch_offset=at) for number, at in places]
    )
    answer = log.Fetch(request, timeout=DEADLINE_SECONDS)
    assert not answer.error_code, answer
    return list(answer.results)


def read_around(log: log_pb2_grpc.LogServiceStub, end: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Offsets of all that can be read of partition 0, and what has to be left out."""
    offsets: list[int] = []
    left_out: list[tuple[int, int]] = []
    at = 0
    while at < end:
        [result] = fetch(log, (0, at))
        if result.error_code == ErrorCode.CORRUPT_MESSAGE:
            left_out.append((at, result.next_offset))
        else:
            assert not result.error_code, result
            offsets += [batch.base_offset for batch in result.batches]
        assert result.next_offset > at
        at = result.next_offset
    return offsets, left_out


def flip(directory: Path, pattern: str, value: bytes) -> None:
    """Change one bit of the first file that has the value."""
    path = next(path for path in sorted(directory.glob(pattern)) if value in path.read_bytes())
    stored = bytearray(path.read_bytes())
    stored[stored.find(value) + len(value) // 2] ^= 1
    path.write_bytes(stored)


def damage_lines(server: ServerProcess) -> list[dict[str, Any]]:
    lines = (json.loads(line) for line in server.output.splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == "damage_found"]


def serves_the_rest(server: ServerProcess, log: log_pb2_grpc.LogServiceStub) -> None:
    """Reads and writes of what is healthy, and writes of what is not."""
    for partition in (0, 1):
        produce(log, partition, b"written afterwards")
    [healthy] = fetch(log, (1, 0))
    assert (healthy.error_code, healthy.next_offset) == (0, 2)
    assert "Traceback" not in server.output
    assert server.terminate() == ExitStatus.OK


def test_a_bit_of_a_segment(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with log_of(server) as log:
            create(log)
            for value in (b"before", LARGE, b"behind"):
                produce(log, 0, value)
            produce(log, 1, b"healthy")
        assert server.terminate() == ExitStatus.OK
        flip(tmp_path / "data" / "segments", "*.segment", LARGE)
        server.start()
        with log_of(server) as log:
            for _ in range(3):
                assert read_around(log, 3) == ([0, 2], [(1, 2)])
            damaged, healthy = fetch(log, (0, 1), (1, 0))
            assert (damaged.error_code, damaged.next_offset) == (ErrorCode.CORRUPT_MESSAGE, 2)
            assert "t-0 is damaged at offset 1" in damaged.error_message
            assert (healthy.error_code, [batch.base_offset for batch in healthy.batches]) == (0, [0])
            [line] = damage_lines(server)
            assert (line["partition"], line["offset"], line["next_offset"]) == (0, 1, 2)
            serves_the_rest(server, log)


@pytest.mark.long
def test_a_bit_of_a_sorted_file(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with log_of(server) as log:
            create(log)
            for number in range(100):
                produce(log, 0, SMALL + b"%03d" % number)
            produce(log, 1, b"healthy")
        # A start moves the content of the write-ahead log into sorted files.
        for _ in range(2):
            assert server.terminate() == ExitStatus.OK
            server.start()
        assert server.terminate() == ExitStatus.OK
        flip(tmp_path / "data" / "store", "*.sst", SMALL + b"050")
        server.start()
        with log_of(server) as log:
            for _ in range(3):
                assert read_around(log, 100) == ([*range(50), *range(51, 100)], [(50, 51)])
            [line] = damage_lines(server)
            assert (line["offset"], line["next_offset"], "checksum mismatch" in line["reason"]) == (50, 51, True)
            serves_the_rest(server, log)
