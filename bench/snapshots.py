"""Measures snapshots: the loop time of taking one, and the speed of reading one.

    python -m bench snapshots

*Taking*: a snapshot of 64 partitions while 10,000 transactions are open, each in two of them, and then while none is.
Taking one is one turn of the loop, so the time of the call is the turn. The figures are the median and the longest of
many, and the longest by the processor time of the loop's thread. Other processes of the machine do not lengthen the
latter.

*Reading*: committed records of four partitions through Fetch, plain and of a snapshot, in turns. The snapshot is read
once with nothing excluded and once with 100 excluded transactions. The figures are records per second, and the median
of the ratios of the rounds.

A whole server runs in this process, without a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bench.inside import Inside, run_inside

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from coordinator_api.v1 import log_pb2

MessageT = TypeVar("MessageT", bound="Message")

PARTITIONS: Final = 64
OPEN: Final = 10_000
_TOUCHED: Final = 2
"""Number of partitions of each open transaction."""
_READ: Final = 4
_BATCH_RECORDS: Final = 100
_VALUE_BYTES: Final = 1_024
_FETCH_BYTES: Final = 4 << 20
_AT_ONCE: Final = 100
_TIMEOUT_MS: Final = 600_000
_TAKES: Final = 200
_BATCHES: Final = 400
_ROUNDS: Final = 15


@dataclass(frozen=True, slots=True)
class Taken:
    """Times of taking snapshots (ms), and the size of a reply (bytes)."""

    took_ms: Sequence[float]
    processor_ms: Sequence[float]
    answer_bytes: int

    def __str__(self) -> str:
        longest = f"{max(self.took_ms):.2f} | {max(self.processor_ms):.2f}"
        return f"{median(self.took_ms):.2f} | {longest} | {self.answer_bytes / 1_024:,.0f}"


def main(_arguments: Sequence[str] = ()) -> None:
    """Print two tables."""
    run_inside(_story)


async def _story(inside: Inside) -> None:
    story = _Story(inside)
    await story.create("idle", PARTITIONS)
    await story.create("busy", PARTITIONS)
    await story.create("read", _READ)
    print(f"| a snapshot of {PARTITIONS} partitions | ms | longest turn ms | by processor time | KiB of the answer |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| nothing open | {story.take('idle', PARTITIONS, _TAKES)} |")
    await story.leave_open("busy", PARTITIONS, OPEN)
    print(f"| {OPEN:,} open transactions in it | {story.take('busy', PARTITIONS, _TAKES)} |")
    await story.commit("read", _BATCHES)
    print(f"\n| {_BATCHES * _BATCH_RECORDS * _READ:,} records of {_VALUE_BYTES} B | records/s | to plain |")
    print("| --- | --- | --- |")
    plain, filtered = await story.read("read", _ROUNDS)
    ratio = median(one / other for one, other in zip(filtered, plain, strict=True))
    print(f"| plain | {median(plain):,.0f} | 1.00 |")
    print(f"| snapshot, nothing excluded | {median(filtered):,.0f} | {ratio:.2f} |")
    await story.leave_open("read", _READ, _AT_ONCE)
    plain, filtered = await story.read("read", _ROUNDS)
    ratio = median(one / other for one, other in zip(filtered, plain, strict=True))
    print(f"| snapshot, {_AT_ONCE} excluded | {median(filtered):,.0f} | {ratio:.2f} |")


class _Story:
    """Calls of the story."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._ids = 0

    async def create(self, topic: str, partition_count: int) -> None:
        from coordinator_api.v1 import log_pb2 as log

        new = log.NewTopic(name=topic, partition_count=partition_count)
        await self._ask("CreateTopics", log.CreateTopicsRequest(topics=[new]), log.CreateTopicsResponse)

    async def leave_open(self, topic: str, partition_count: int, count: int) -> None:
        """Open `count` transactions, each with a batch in some of the partitions."""
        for first in range(0, count, _AT_ONCE):
            for number in range(first, min(first + _AT_ONCE, count)):
                places = [(number + step) % partition_count for step in range(min(_TOUCHED, partition_count))]
                await self._open(topic, places)

    async def _open(self, topic: str, places: Sequence[int], record_count: int = 1) -> tuple[str, int, int]:
        from coordinator_api.v1 import log_pb2 as log
        from coordinator_api.v1 import transaction_pb2 as txn

        self._ids += 1
        name = f"snapshots-{self._ids}"
        init = txn.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=_TIMEOUT_MS)
        given = await self._ask("InitProducerId", init, txn.InitProducerIdResponse)
        identity = given.producer_id, given.producer_epoch
        batches = [self._batch(topic, place, *identity, record_count) for place in places]
        await self._ask("Produce", log.ProduceRequest(transactional_id=name, batches=batches), log.ProduceResponse)
        return name, *identity

    def _batch(
        self, topic: str, partition: int, producer_id: int, producer_epoch: int, record_count: int
    ) -> log_pb2.PartitionBatch:
        from bench.load.stubs import encoded_batch
        from coordinator_api.v1 import log_pb2 as log

        batch = encoded_batch(_VALUE_BYTES, record_count, is_transactional=True)
        batch.producer_id, batch.producer_epoch = producer_id, producer_epoch
        return log.PartitionBatch(topic=topic, partition=partition, batch=batch)

    async def commit(self, topic: str, batch_count: int) -> None:
        """Write `batch_count` batches to each partition, each in a transaction of its own."""
        from coordinator_api.v1 import transaction_pb2 as txn

        for _ in range(batch_count):
            name, producer_id, producer_epoch = await self._open(topic, range(_READ), _BATCH_RECORDS)
            end = txn.EndTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=producer_epoch, committed=True
            )
            await self._ask("EndTxn", end, txn.EndTxnResponse)

    def take(self, topic: str, partition_count: int, count: int) -> Taken:
        """Take snapshots, one after the other."""
        request = self._snapshot_of(topic, partition_count)
        took_ms, processor_ms = [], []
        answer_bytes = 0
        for _ in range(count):
            began, processor_began = perf_counter(), thread_time()
            reply = self._inside.call("TakeSnapshot", request)
            assert reply.is_settled, "it is one turn"
            took_ms.append((perf_counter() - began) * 1_000)
            processor_ms.append((thread_time() - processor_began) * 1_000)
            answer_bytes = len(reply.result())
        return Taken(took_ms, processor_ms, answer_bytes)

    def _snapshot_of(self, topic: str, partition_count: int) -> bytes:
        from coordinator_api.v1 import common_pb2 as common
        from coordinator_api.v1 import log_pb2 as log

        places = common.TopicPartitions(topic=topic, partitions=range(partition_count))
        return log.TakeSnapshotRequest(topics=[places]).SerializeToString()

    async def read(self, topic: str, rounds: int) -> tuple[list[float], list[float]]:
        """Return the records per second of each round, plain and of a snapshot."""
        from coordinator_api.v1 import log_pb2 as log

        taken = log.TakeSnapshotResponse.FromString(
            await self._inside.ask("TakeSnapshot", self._snapshot_of(topic, _READ))
        )
        figures: tuple[list[float], list[float]] = [], []
        for _ in range(rounds):
            for found, is_filtered in zip(figures, (False, True), strict=True):
                found.append(await self._scan(taken, is_filtered=is_filtered))
        return figures

    async def _scan(self, taken: log_pb2.TakeSnapshotResponse, *, is_filtered: bool) -> float:
        from coordinator_api.v1 import log_pb2 as log

        records, began = 0, perf_counter()
        for view in taken.partitions:
            at, end = view.start_offset, view.end_offset if is_filtered else view.last_stable_offset
            while at < end:
                asked = log.FetchPartition(
                    topic=view.topic,
                    partition=view.partition,
                    fetch_offset=at,
                    end_offset=end,
                    end_epoch=view.leader_epoch,
                    snapshot=view.shown if is_filtered else None,
                )
                request = log.FetchRequest(partitions=[asked], max_bytes=_FETCH_BYTES)
                reply = await self._ask("Fetch", request, log.FetchResponse)
                (result,) = reply.results
                records += sum(batch.record_count for batch in result.batches)
                at = result.next_offset
        return records / (perf_counter() - began)

    async def _ask(self, method: str, request: Message, response_type: type[MessageT]) -> MessageT:
        response = response_type.FromString(await self._inside.ask(method, request.SerializeToString()))
        replies: list[Any] = [response, *getattr(response, "results", ())]
        for reply in replies:
            assert not reply.error_code, f"{method} was refused: {reply}"
        return response
