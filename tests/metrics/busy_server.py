"""A server to which everything happens that is counted: outcomes of every cause, zombies, timeouts, crowds, a disk that
stops, a participant that refuses, and bugs of ours. Every moment that shows something is noted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from coordinator_api.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    common_pb2,
    log_pb2,
    log_pb2_grpc,
    transaction_pb2,
    transaction_pb2_grpc,
)
from coordinator_protocol.batch import BatchHeader, Compression, Encoding
from coordinator_protocol.compression import pack
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.clock import SystemClock
from coordinator_runtime.decision import Coordinator, Decision, Operation, ShardKey, Turn
from coordinator_runtime.rows import SHARD_EPOCH_TYPE, state_row
from coordinator_runtime.store import Family
from coordinator_runtime.worker import WorkerLost
from coordinator_server.metrics.instruments import Histogram, Readings, Sample
from coordinator_server.metrics.server import LoopLag
from coordinator_server.traffic.answer_bytes import AnswerLimits
from partition_log.batch_checks import WAITING_BYTES_MAX
from partition_log.codec import log_key
from partition_log.shard import Append, LogShard, PartitionMarkers
from partition_log.snapshots import TakeSnapshot
from tests.harness.calls import partition_name
from tests.harness.group_calls import ANYBODY
from tests.harness.in_process import InProcessServer
from tests.harness.memory_store import Damage
from tests.harness.patience import DEADLINE_SECONDS, TRANSACTION_TIMEOUT_MS, until
from tests.harness.workers import HeldWorker
from txn_coordinator.counters import COUNTERS, CountersShard
from txn_coordinator.state import Transaction, TransactionState, step

EPOCH_MAX = 20
"""Small, so that producer ids rotate."""

Identity = tuple[int, int]


@dataclass
class Seen:
    """The largest value of every sample, over all moments that were noted."""

    largest: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)

    def note(self, readings: Readings) -> None:
        for name, values in readings.items():
            family = self.largest.setdefault(name, {})
            for labels, sample in values.items():
                family[labels] = max(family.get(labels, 0.0), size_of(sample))

    def labels(self, name: str) -> set[tuple[str, ...]]:
        """Labels with which a metric was more than nothing."""
        return {labels for labels, value in self.largest.get(name, {}).items() if value}


def size_of(sample: Sample) -> float:
    return sample.count if isinstance(sample, Histogram) else sample


class BusyServer:
    """Drives one server over the wire, and behind its back where no client can do it."""

    def __init__(self, server: InProcessServer, seen: Seen) -> None:
        self.server = server
        self.seen = seen
        self.transactions = transaction_pb2_grpc.TransactionServiceStub(server.channel)
        self.log = log_pb2_grpc.LogServiceStub(server.channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(server.channel)
        LoopLag(SystemClock(), server.parts.readings.numbers.runtime.loop_lag).start()

    def note(self) -> Readings:
        """Take the numbers of this moment."""
        readings = self.server.parts.readings()
        self.seen.note(readings)
        return readings

    async def until(self, is_true: Callable[[Readings], bool]) -> None:
        """Give way to the server until its numbers say something."""
        await until(lambda: is_true(self.note()))

    async def until_state(self, state: str, number: int = 1) -> None:
        await self.until(lambda readings: readings["txn_coordinator_transactions"][state,] == number)

    # Calls of clients

    async def topic(self, name: str, partition_count: int = 2) -> None:
        request = log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name=name, partition_count=partition_count)])
        answer = await self.log.CreateTopics(request, timeout=DEADLINE_SECONDS)
        assert answer.results[0].error_code == 0, answer

    async def delete(self, name: str) -> None:
        request = log_pb2.DeleteTopicsRequest(topics=[log_pb2.TopicName(name=name)])
        answer = await self.log.DeleteTopics(request, timeout=DEADLINE_SECONDS)
        assert answer.results[0].error_code == 0, answer

    async def init(self, name: str, *, timeout_ms: int = TRANSACTION_TIMEOUT_MS) -> Identity:
        request = transaction_pb2.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        answer = await self.transactions.InitProducerId(request, timeout=DEADLINE_SECONDS)
        assert answer.error_code == 0, answer
        return answer.producer_id, answer.producer_epoch

    async def produce(self, name: str, identity: Identity, topic: str = "t", *, sequence: int = 0) -> int:
        """Returns the error code."""
        batch = log_pb2.RecordBatch(
            record_count=1,
            producer_id=identity[0],
            producer_epoch=identity[1],
            base_sequence=sequence,
            is_transactional=True,
            encoding=log_pb2.ENCODING_RECORDS_V1,
            payload=log_pb2.Records(records=[log_pb2.Record(value=b"x")]).SerializeToString(),
        )
        request = log_pb2.ProduceRequest(
            transactional_id=name, batches=[log_pb2.PartitionBatch(topic=topic, partition=0, batch=batch)]
        )
        answer = await self.log.Produce(request, timeout=DEADLINE_SECONDS)
        assert answer.error_code == 0, answer
        return int(answer.results[0].error_code)

    async def opened(self, name: str, topic: str = "t", **init: Any) -> Identity:
        identity = await self.init(name, **init)
        assert await self.produce(name, identity, topic) == 0
        return identity

    async def end(self, name: str, identity: Identity, *, committed: bool) -> int:
        """Returns the error code."""
        request = transaction_pb2.EndTxnRequest(
            transactional_id=name, producer_id=identity[0], producer_epoch=identity[1], committed=committed
        )
        return int((await self.transactions.EndTxn(request, timeout=DEADLINE_SECONDS)).error_code)

    async def verify(self, name: str, identity: Identity, partition: int) -> None:
        """AddPartitionsToTxn that only asks."""
        asked = common_pb2.TopicPartitions(topic="t", partitions=[partition])
        request = transaction_pb2.AddPartitionsToTxnRequest(
            transactional_id=name,
            producer_id=identity[0],
            producer_epoch=identity[1],
            topics=[asked],
            verify_only=True,
        )
        await self.transactions.AddPartitionsToTxn(request, timeout=DEADLINE_SECONDS)

    async def abort(self, name: str) -> None:
        """Abort a transaction as an administrator does."""
        request = admin_pb2.AbortTransactionsRequest(selector=admin_pb2.TransactionSelector(transactional_ids=[name]))
        answer = await self.admin.AbortTransactions(request, timeout=DEADLINE_SECONDS)
        assert answer.results[0].error_code == 0, answer

    async def damage(self) -> None:
        """The disk lost a batch, which a reader meets, and a row of a shard, which a load does."""
        parts = self.server.parts
        ordinal = parts.core.catalog.resolve("t", b"", 0).ordinal
        self.server.store.damage(Family.LOG, log_key(ordinal, 0), Damage.VALUE)
        await self.fetch(common_pb2.ISOLATION_LEVEL_READ_COMMITTED)
        shard = ShardKey(Coordinator.TRANSACTIONS, 0)
        self.server.store.damage(*state_row(shard, SHARD_EPOCH_TYPE, b""), Damage.BLOCK)
        request = admin_pb2.LoadShardRequest(coordinator="transactions", shard=shard.number)
        answer = await self.admin.LoadShard(request, timeout=DEADLINE_SECONDS)
        assert answer.error_code == ErrorCode.CORRUPT_MESSAGE, answer
        self.note()

    async def fetch(self, isolation: common_pb2.IsolationLevel.ValueType, *, max_wait_ms: int = 0) -> None:
        request = log_pb2.FetchRequest(
            isolation_level=isolation,
            max_wait_ms=max_wait_ms,
            partitions=[log_pb2.FetchPartition(topic="t", partition=1 if max_wait_ms else 0)],
        )
        await self.log.Fetch(request, timeout=DEADLINE_SECONDS)

    # The story

    async def outcomes(self) -> None:
        """Every outcome by every cause, with readers of both isolation levels, and a zombie."""
        await self.topic("t")
        await self.topic("passing")
        for committed in (True, False):
            assert await self.end("a", await self.opened("a"), committed=committed) == 0
        for isolation in (common_pb2.ISOLATION_LEVEL_READ_COMMITTED, common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED):
            await self.fetch(isolation)
        await self.topic("trimmed")
        assert await self.end("a", await self.opened("a", "trimmed"), committed=True) == 0
        oldest = log_pb2.RecordsToDelete(topic="trimmed", offset=1)
        await self.log.DeleteRecords(log_pb2.DeleteRecordsRequest(partitions=[oldest]), timeout=DEADLINE_SECONDS)
        zombie = await self.opened("a")
        for partition in (0, 1):
            await self.verify("a", zombie, partition)
        await self.init("a")
        assert await self.produce("a", zombie, sequence=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await self.end("a", zombie, committed=True) == ErrorCode.PRODUCER_FENCED
        await self.verify("a", zombie, 0)
        await self.opened("unwanted")
        await self.abort("unwanted")
        await self.opened("slow", timeout_ms=50)
        await self.opened("leaving", "passing")
        await self.until_state("Ongoing", 1)
        await self.delete("passing")
        await self.until(lambda readings: readings["txn_coordinator_oldest_open_age_seconds"][()] == 0)
        for _ in range(EPOCH_MAX + 1):
            await self.init("rotating")
        self.note()

    async def outside_decision(self) -> None:
        """A transaction waits for another producer."""
        identity = await self.opened("two-phase")
        request = transaction_pb2.PrepareTransactionRequest(
            transactional_id="two-phase", producer_id=identity[0], producer_epoch=identity[1]
        )
        assert (await self.transactions.PrepareTransaction(request, timeout=DEADLINE_SECONDS)).error_code == 0
        name = "txn_coordinator_oldest_prepared_2pc_age_seconds"
        await self.until(lambda readings: readings[name][()] != 0)

    async def stuck_marker(self) -> None:
        """A participant refuses its marker, so that others wait behind the transaction."""
        identity = await self.opened("stuck")
        self._marker_that_contradicts_the_next(identity)
        assert await self.end("stuck", identity, committed=False) == 0
        name = "txn_coordinator_oldest_pending_marker_age_seconds"
        await self.until(lambda readings: readings[name][()] != 0)
        waiting = self._try_init("stuck")
        await self.until(lambda readings: readings["txn_coordinator_parked_calls"][()] == 1)
        waiting.cancel()
        await self.until(lambda readings: bool(readings["txn_coordinator_concurrent_waits_total"]))

    async def readers_that_stand_still(self) -> None:
        """Answers that are not taken, and a reader that finds no room."""
        answers = self.server.parts.answers
        answers.hold("somebody", AnswerLimits().bytes_max)
        await self.log.ListOffsets(log_pb2.ListOffsetsRequest())
        await self.until(lambda readings: readings["txn_rpc_answers_refused_total"]["server",] == 1)
        answers.release("somebody", AnswerLimits().bytes_max)

    async def full_disk(self) -> None:
        """The disk is nearly full for a while, and a batch is refused."""
        disk, identity = self.server.parts.core.checks.disk, await self.opened("full")
        disk.looked(1)
        assert await self.produce("full", identity, sequence=1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        self.note()
        disk.looked(2 * disk.free_bytes_min)
        assert await self.end("full", identity, committed=False) == 0

    async def snapshots(self) -> None:
        """A reader holds one for a while."""
        await self.topic("held", 1)
        snapshots = self.server.parts.core.log.snapshots
        snapshots.take(TakeSnapshot([partition_name("held-0")], 60_000), ANYBODY)
        await self.until(lambda readings: readings["txn_partition_oldest_snapshot_age_seconds"][()] > 0)
        self.note()

    async def sinks(self) -> None:
        """A batch that is decided twice and then replayed, and one that is given up; its second member is noted while
        it is sealed."""
        for batch_id in (0, 1):
            joined = await self._join_batch(batch_id, b"%016d" % batch_id)
            await self.until(lambda readings: readings["txn_sink_members"]["open",] == 1)
            identity = {"producer_id": joined.producer_id, "producer_epoch": joined.producer_epoch}
            seal = transaction_pb2.SealMemberRequest(transactional_id=joined.transactional_id, **identity)
            assert (await self.transactions.SealMember(seal, timeout=DEADLINE_SECONDS)).error_code == 0
            await self.until(lambda readings: readings["txn_sink_oldest_sealed_age_seconds"][()] > 0)
            commit = transaction_pb2.CommitBatchRequest(
                sink="s", run_id="r", batch_id=batch_id, members=[transaction_pb2.SinkMember(**identity)]
            )
            for _ in range(2 - 2 * batch_id):
                assert (await self.transactions.CommitBatch(commit, timeout=DEADLINE_SECONDS)).error_code == 0
        assert (await self._join_batch(0, b"%016d" % 2)).already_committed
        abort = transaction_pb2.AbortBatchRequest(sink="s", every_run=True)
        assert (await self.transactions.AbortBatch(abort, timeout=DEADLINE_SECONDS)).member_count == 1
        await self.until(lambda readings: readings["txn_sink_batches_total"]["given_up",] == 1)

    async def _join_batch(self, batch_id: int, request_id: bytes) -> transaction_pb2.JoinBatchResponse:
        request = transaction_pb2.JoinBatchRequest(
            header=common_pb2.RequestHeader(request_id=request_id),
            sink="s",
            run_id="r",
            batch_id=batch_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        return await self.transactions.JoinBatch(request, timeout=DEADLINE_SECONDS)

    async def payloads(self) -> None:
        """Payloads that take long to check: one that readers can decode, one that they cannot, one that is lost with
        the process that checks, and one that finds no room."""
        checks, worker = self.server.parts.core.checks, HeldWorker(is_held=True)
        checks.worker = worker
        await self.topic("packed", 1)
        plain = log_pb2.Records(records=[log_pb2.Record(value=bytes(100_000))]).SerializeToString()
        sent = [asyncio.ensure_future(self._produce_packed(plain, record_count)) for record_count in (1, 2)]
        await self.until(lambda readings: readings["txn_partition_unchecked_batches"][()] == len(sent))
        worker.release()
        assert await asyncio.gather(*sent) == [0, ErrorCode.INVALID_RECORD]
        sent = [asyncio.ensure_future(self._produce_packed(plain, 1))]
        await self.until(lambda readings: readings["txn_partition_unchecked_batches"][()] == len(sent))
        checks.waiting_bytes += WAITING_BYTES_MAX
        assert await self._produce_packed(plain, 1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        checks.waiting_bytes -= WAITING_BYTES_MAX
        worker.die(WorkerLost("the test ends it"))
        assert await asyncio.gather(*sent) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert self.note()["txn_partition_unchecked_bytes"][()] == 0

    async def _produce_packed(self, plain: bytes, record_count: int) -> int:
        """Returns the error code."""
        batch = log_pb2.RecordBatch(
            record_count=record_count,
            encoding=log_pb2.ENCODING_RECORDS_V1,
            compression=log_pb2.COMPRESSION_GZIP,
            payload=pack(plain, Compression.GZIP),
        )
        request = log_pb2.ProduceRequest(batches=[log_pb2.PartitionBatch(topic="packed", batch=batch)])
        return int((await self.log.Produce(request, timeout=DEADLINE_SECONDS)).results[0].error_code)

    async def crowd(self) -> None:
        """Stop the disk: calls wait, groups queue, and calls that come too late are refused."""
        held = self.server.store.hold_sync()
        waiting: list[Awaitable[object]] = [self._try_init("crowd-0")]
        await self.until(lambda readings: in_flight(readings, "InitProducerId") == 1)
        await asyncio.to_thread(held.wait_until_arrived)
        waiting += [self._try_init(f"crowd-{number}") for number in range(1, 12)]
        waiting.append(asyncio.ensure_future(self.fetch(common_pb2.ISOLATION_LEVEL_READ_COMMITTED, max_wait_ms=200)))
        await self.until(lambda readings: rejected(readings, "overload") and in_flight(readings, "Fetch") == 1)
        # As it would be if it were large: a small one grows until the write is reported.
        self.server.parts.core.runtime.groups.seal()
        await self.until(lambda readings: readings["txn_runtime_commit_queue_groups"][()] != 0)
        held.release()
        await asyncio.gather(*waiting)

    def _try_init(self, name: str) -> asyncio.Future[object]:
        request = transaction_pb2.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

        async def call() -> object:
            return await self.transactions.InitProducerId(request, timeout=DEADLINE_SECONDS)

        return asyncio.ensure_future(call())

    async def bugs(self) -> None:
        """A step that no table allows, and an unknown transaction."""

        def decide(_shard: object, _turn: object) -> Decision:
            decided = Transaction(transactional_id="x", producer_id=0, txn_timeout_ms=1, last_update_ms=0)
            step(step(decided, TransactionState.PREPARE_ABORT), TransactionState.ONGOING)
            return Decision()

        self.server.parts.core.runtime.write(Operation(COUNTERS, decide))
        await self._append_behind_the_coordinators_back()
        parts = self.server.parts
        parts.core.admin.hanging.audit()
        self.note()

    def _marker_that_contradicts_the_next(self, identity: Identity) -> None:
        parts = self.server.parts
        ordinal = parts.core.catalog.resolve("t", b"", 0).ordinal
        counters: CountersShard = self.server.parts.core.runtime.shard(COUNTERS)
        marker = Marker(
            producer_id=identity[0],
            txn_epoch=identity[1],
            next_epoch=identity[1],
            coordinator_shard=0,
            coordinator_epoch=0,
            outcome=Outcome.COMMIT,
            csn=counters.durable_csn() + 1,
        )
        self.server.parts.core.runtime.write(PartitionMarkers(parts.core.catalog).partition_marker(ordinal, marker))

    async def _append_behind_the_coordinators_back(self) -> None:
        parts = self.server.parts
        placed = parts.core.catalog.place("t", b"", 0)
        header = BatchHeader(
            base_offset=0,
            record_count=1,
            base_timestamp_ms=0,
            max_timestamp_ms=0,
            producer_id=7_777,
            producer_epoch=0,
            base_sequence=0,
            encoding=Encoding.RECORDS_V1,
            is_transactional=True,
        )

        def decide(log: LogShard, turn: Turn) -> Decision:
            append = Append(placed.ref.ordinal, header, (bytes(56), bytes(24)), is_admitted=True)
            return log.decide_append(turn, append=append)

        await self.server.parts.core.runtime.write(Operation(placed.shard, decide))


def in_flight(readings: Readings, method: str) -> Sample:
    return readings["txn_rpc_in_flight"][method,]


def rejected(readings: Readings, reason: str) -> bool:
    return bool(readings["txn_rpc_rejected_total"][reason,])
