"""Measures a compaction: the bytes that it leaves, its time, and its cost for other callers.

    python -m bench compaction            2 GiB of 1 KiB records, and of 64 KiB records
    python -m bench.compaction 0.1        as much as this (GiB)

One record of a hundred is the newest of its key. Plain producers fill a topic, which is then made compact. Meanwhile
another topic is written and read, one call after the other. The figures are those of these calls before and during the
compaction, and the longest turn of the loop. A whole server runs in this process, without a network.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeVar

from bench.inside import Inside, run_inside
from bench.turn_meter import TurnMeter

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from coordinator_api.v1 import log_pb2

MessageT = TypeVar("MessageT", bound="Message")

GIB_DEFAULT: Final = 2.0
RECORDS_PER_KEY: Final = 100
_BATCH_BYTES: Final = 256 << 10
_CALLS_BEFORE: Final = 8_000
_CALLS_PER_LOOK: Final = 100
_P99: Final = 0.99
_LOOK_S: Final = 0.001
_QUIET_SECONDS: Final = 30
"""Time without a file that goes, after which no more are waited for."""
_COMPACTION_SECONDS_MAX: Final = 900


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table with a row for each size of records."""
    size_bytes = int(float(arguments[0] if arguments else GIB_DEFAULT) * (1 << 30))
    print(
        "| records | MiB before | MiB left | of it RocksDB's logs | s | write p99 ms | during | read p99 ms | during"
        " | longest turn ms |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for value_bytes in (1 << 10, 64 << 10):
        with tempfile.TemporaryDirectory(prefix="bench-compaction-") as directory:
            story = partial(_story, Path(directory) / "data", size_bytes, value_bytes)
            run_inside(story, data_dir=Path(directory) / "data", compaction_check_interval_ms=100)


async def _story(data_dir: Path, size_bytes: int, value_bytes: int, inside: Inside) -> None:
    story = _Story(inside)
    count = size_bytes // value_bytes
    await story.create("log")
    await story.create("other")
    await story.fill("log", count, value_bytes)
    quiet: tuple[list[float], list[float]] = [], []
    while len(quiet[0]) < _CALLS_BEFORE:
        await story.use_and_look(quiet)
    before = _bytes_in(data_dir)
    turns, began = TurnMeter(_LOOK_S), perf_counter()
    await story.compact("log")
    during: tuple[list[float], list[float]] = [], []
    while (
        records := await story.use_and_look(during)
    ) > 2 * count // RECORDS_PER_KEY + 2 * _BATCH_BYTES // value_bytes:
        if perf_counter() - began > _COMPACTION_SECONDS_MAX:
            raise RuntimeError(f"the log still has {records} records: the server's log says why")
    took = perf_counter() - began
    turns.end()
    left = await story.settled_bytes(data_dir, before)
    columns = [
        f"{value_bytes >> 10} KiB",
        f"{before >> 20:,}",
        f"{left >> 20:,}",
        f"{_bytes_in(data_dir, '*.log') >> 20:,}",
        f"{took:.1f}",
        *(f"{_p99(times):.2f}" for times in (quiet[0], during[0], quiet[1], during[1])),
        f"{turns.took_ms:.1f}",
    ]
    print(f"| {' | '.join(columns)} |")


class _Story:
    """Calls of the story."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._at = 0

    async def create(self, topic: str) -> None:
        from coordinator_api.v1 import log_pb2 as log

        new = log.NewTopic(name=topic, partition_count=1)
        await self._ask("CreateTopics", log.CreateTopicsRequest(topics=[new]), log.CreateTopicsResponse)

    async def compact(self, topic: str) -> None:
        from coordinator_api.v1 import log_pb2 as log

        change = log.TopicToAlter(name=topic, set={"cleanup_policy": "compact", "max_compaction_lag_ms": "1"})
        await self._ask(
            "AlterTopicConfigs", log.AlterTopicConfigsRequest(topics=[change]), log.AlterTopicConfigsResponse
        )

    async def fill(self, topic: str, count: int, value_bytes: int) -> None:
        per_batch, value = max(1, _BATCH_BYTES // value_bytes), os.urandom(value_bytes)
        key_count = max(1, count // RECORDS_PER_KEY)
        for first in range(0, count, per_batch):
            keys = [b"%d" % (number % key_count) for number in range(first, min(first + per_batch, count))]
            await self._produce(topic, _batch(keys, value))

    async def use_and_look(self, times_ms: tuple[list[float], list[float]]) -> int:
        """Add the times of some writes and reads of the other topic. Return the number of records in the log."""
        from coordinator_api.v1 import log_pb2 as log

        written_ms, read_ms = times_ms
        for _ in range(_CALLS_PER_LOOK):
            began = perf_counter()
            await self._produce("other", _batch([b"k"], b"v" * 100))
            written_ms.append((perf_counter() - began) * 1_000)
            began = perf_counter()
            asked = log.FetchPartition(topic="other", partition=0, fetch_offset=self._at)
            await self._ask("Fetch", log.FetchRequest(partitions=[asked], max_bytes=1 << 20), log.FetchResponse)
            read_ms.append((perf_counter() - began) * 1_000)
            self._at += 1
        counted = log.CountRecordsRequest(partitions=[log.CountQuery(topic="log", partition=0)])
        (result,) = (await self._ask("CountRecords", counted, log.CountRecordsResponse)).results
        found: int = result.records
        return found

    async def settled_bytes(self, data_dir: Path, before: int) -> int:
        """Delete the other topic, and return the bytes of all files once the store has given back the room. Less may
        not come back: files that are still written stay."""
        from coordinator_api.v1 import log_pb2 as log

        gone = log.DeleteTopicsRequest(topics=[log.TopicName(name="other")])
        await self._ask("DeleteTopics", gone, log.DeleteTopicsResponse)
        least, seconds_alike = before, 0
        while seconds_alike < _QUIET_SECONDS:
            await asyncio.sleep(1)
            now = _bytes_in(data_dir)
            seconds_alike = 0 if now < least else seconds_alike + 1
            least = min(least, now)
        return least

    async def _produce(self, topic: str, batch: log_pb2.RecordBatch) -> None:
        from coordinator_api.v1 import log_pb2 as log

        batches = [log.PartitionBatch(topic=topic, partition=0, batch=batch)]
        reply = await self._ask("Produce", log.ProduceRequest(batches=batches), log.ProduceResponse)
        assert not reply.results[0].error_code, reply.results[0].error_message

    async def _ask(self, method: str, request: Message, response_type: type[MessageT]) -> MessageT:
        return response_type.FromString(await self._inside.ask(method, request.SerializeToString()))


def _batch(keys: Sequence[bytes], value: bytes) -> log_pb2.RecordBatch:
    from coordinator_api.v1 import log_pb2 as log

    records = [log.Record(key=key, value=value, timestamp_ms=1) for key in keys]
    return log.RecordBatch(
        record_count=len(keys),
        base_timestamp_ms=1,
        max_timestamp_ms=1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        encoding=log.ENCODING_RECORDS_V1,
        payload=log.Records(records=records).SerializeToString(),
    )


def _bytes_in(data_dir: Path, files: str = "*") -> int:
    """Return the bytes of all files of the server, or of those with such names, as they are now."""
    return sum(path.stat().st_size for path in data_dir.rglob(files) if path.is_file())


def _p99(times_ms: Sequence[float]) -> float:
    return sorted(times_ms)[int(len(times_ms) * _P99)] if times_ms else 0.0


if __name__ == "__main__":
    main(sys.argv[1:])
