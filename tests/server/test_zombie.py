"""A server that learns from a partition that a later coordinator runs: it lets the shard go, and takes it back on
request."""

from __future__ import annotations

from coordinator_api.v1 import common_pb2, transaction_pb2
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.decision import Coordinator, ShardRouter
from partition_log.shard import PartitionMarkers
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.patience import DEADLINE_SECONDS
from tests.metrics.busy_server import BusyServer, Identity, Seen

SHARD_COUNT = 4
SHARD_OF = ShardRouter(Coordinator.TRANSACTIONS, SHARD_COUNT).shard_key


async def add_without_a_record(busy: BusyServer, name: str, identity: Identity, partition: int) -> None:
    request = transaction_pb2.AddPartitionsToTxnRequest(
        transactional_id=name,
        producer_id=identity[0],
        producer_epoch=identity[1],
        topics=[common_pb2.TopicPartitions(topic="t", partitions=[partition])],
    )
    added = await busy.transactions.AddPartitionsToTxn(request, timeout=DEADLINE_SECONDS)
    assert [result.error_code for result in added.results] == [0]


async def marker_of_a_later_coordinator(server: InProcessServer, identity: Identity, partition: int) -> None:
    """It has read the same PREPARE, the first outcome of all, and finishes it."""
    parts = server.parts
    marker = Marker(
        producer_id=identity[0],
        txn_epoch=identity[1],
        next_epoch=identity[1] + 1,
        coordinator_shard=SHARD_OF("billing").number,
        coordinator_epoch=2,
        outcome=Outcome.COMMIT,
        csn=1,
    )
    ordinal = parts.core.catalog.resolve("t", b"", partition).ordinal
    await server.parts.core.runtime.write(PartitionMarkers(parts.core.catalog).partition_marker(ordinal, marker))


async def state_of(busy: BusyServer, name: str) -> str | int:
    """Its name, or the number of the error."""
    request = transaction_pb2.DescribeTransactionsRequest(transactional_ids=[name])
    (found,) = (await busy.transactions.DescribeTransactions(request, timeout=DEADLINE_SECONDS)).transactions
    return found.error_code or found.state


async def test_a_fenced_shard_is_let_go_and_can_be_taken_back() -> None:
    async with in_process_server(two_phase="split", shard_count=SHARD_COUNT) as server:
        busy = BusyServer(server, Seen())
        await busy.topic("t")
        identity = await busy.opened("billing")
        await add_without_a_record(busy, "billing", identity, 1)
        await marker_of_a_later_coordinator(server, identity, 1)
        assert await busy.end("billing", identity, committed=True) == 0
        await busy.until(lambda readings: bool(readings["txn_coordinator_marker_alarms_total"]))
        await busy.until(lambda readings: readings["txn_coordinator_markers_pending"][()] == 0)
        while (state := await state_of(busy, "billing")) == "PrepareCommit":
            pass
        assert state == ErrorCode.NOT_COORDINATOR
        others = (name for name in map(str, range(99)) if SHARD_OF(name) != SHARD_OF("billing"))
        await busy.opened(next(others))

        await server.parts.core.loader.load(SHARD_OF("billing"))
        await busy.until_state("CompleteCommit")
        assert await state_of(busy, "billing") == "CompleteCommit"
        assert busy.note()["txn_coordinator_marker_alarms_total"] == {("TRANSACTION_COORDINATOR_FENCED",): 1}
