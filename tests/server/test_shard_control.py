"""Shard control over real gRPC: one shard leaves and comes back while the others serve."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from coordinator_api.v1 import admin_pb2, admin_pb2_grpc, common_pb2, log_pb2, log_pb2_grpc, transaction_pb2
from coordinator_api.v1 import transaction_pb2_grpc as transaction_grpc
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_runtime.decision import Coordinator, ShardRouter
from coordinator_runtime.store import CommitGroup, Family
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.memory_store import MemoryStore
from tests.harness.patience import TRANSACTION_TIMEOUT_MS
from txn_coordinator.codec import TRANSACTION_TYPE

SHARD_COUNT = 4
SHARD_OF = ShardRouter(Coordinator.TRANSACTIONS, SHARD_COUNT).shard_key
ORDERS = SHARD_OF("orders").number
ELSEWHERE = next(name for name in "abcdefgh" if SHARD_OF(name).number != ORDERS)


class Api:
    """The stubs. They are not generic, so their answers are Any."""

    def __init__(self, server: InProcessServer) -> None:
        self.transactions: Any = transaction_grpc.TransactionServiceStub(server.channel)
        self.log: Any = log_pb2_grpc.LogServiceStub(server.channel)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(server.channel)

    async def init(self, transactional_id: str) -> Any:
        return await self.transactions.InitProducerId(
            transaction_pb2.InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
            )
        )

    async def load(self, coordinator: str, shard: int) -> Any:
        return await self.admin.LoadShard(admin_pb2.LoadShardRequest(coordinator=coordinator, shard=shard))

    async def unload(self, coordinator: str, shard: int) -> Any:
        return await self.admin.UnloadShard(admin_pb2.UnloadShardRequest(coordinator=coordinator, shard=shard))

    async def states(self, coordinator: str = "") -> dict[tuple[str, int], str]:
        reply = await self.admin.ListShards(admin_pb2.ListShardsRequest(coordinator=coordinator))
        return {(each.coordinator, each.shard): each.state for each in reply.shards}


async def test_a_shard_of_transactional_ids_leaves_and_comes_back() -> None:
    async with in_process_server() as server:
        api = Api(server)
        first = await api.init("orders")
        gone = (await api.unload("transactions", ORDERS)).shard
        assert (gone.state, gone.HasField("coordinator_epoch")) == ("unloaded", False)
        refused = await api.init("orders")
        assert (refused.error_code, refused.error_class) == (ErrorCode.NOT_COORDINATOR, ErrorClass.REFRESH)
        assert not (await api.init(ELSEWHERE)).error_code
        assert server.parts.readings()["txn_coordinator_transactional_ids"] == {(): 1}
        back = (await api.load("transactions", ORDERS)).shard
        assert (back.state, back.coordinator_epoch) == ("active", 2)
        again = await api.init("orders")
        assert (again.producer_id, again.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
        assert server.parts.readings()["txn_coordinator_transactional_ids"] == {(): 2}


async def test_a_shard_of_partitions_leaves_and_comes_back() -> None:
    async with in_process_server() as server:
        api = Api(server)
        await api.log.CreateTopics(log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=8)]))
        shard = server.parts.core.catalog.log_shard("t", 0).number
        waiting = api.log.Fetch(
            log_pb2.FetchRequest(max_wait_ms=600_000, partitions=[log_pb2.FetchPartition(topic="t", partition=0)])
        )
        await api.states()
        await api.unload("log", shard)
        (told,) = (await waiting).results
        assert (told.error_code, told.error_class) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorClass.REFRESH)
        assert "txn_partition_high_watermark" in server.parts.readings()
        (described,) = (await api.log.DescribeTopics(log_pb2.DescribeTopicsRequest())).topics
        assert described.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        deleted = await api.log.DeleteTopics(log_pb2.DeleteTopicsRequest(topics=[log_pb2.TopicName(name="t")]))
        assert deleted.results[0].error_code == ErrorCode.NOT_COORDINATOR
        await api.load("log", shard)
        (described,) = (await api.log.DescribeTopics(log_pb2.DescribeTopicsRequest())).topics
        assert (described.error_code, len(described.partitions)) == (0, 8)


async def test_a_damaged_shard_fails_alone_and_says_so() -> None:
    store = MemoryStore()
    key = struct.pack(">BHB", Coordinator.TRANSACTIONS, ORDERS, TRANSACTION_TYPE) + b"damaged"
    store.write([CommitGroup(1, [(Family.COORDINATOR_STATE, key, b"\xff\xff no transaction")])])
    store.sync()
    async with in_process_server(store) as server:
        api = Api(server)
        for _ in range(2):
            refused = await api.init("orders")
            assert (refused.error_code, refused.error_class) == (
                ErrorCode.KAFKA_STORAGE_ERROR,
                ErrorClass.MISCONFIGURED,
            )
            assert "cannot be read from the store" in refused.error_message
            assert "DecodeError" in refused.error_message, "the reason"
        assert not (await api.init(ELSEWHERE)).error_code
        states = await api.states()
        assert [found for found, state in states.items() if state != "active"] == [("transactions", ORDERS)]
        failed = await api.load("transactions", ORDERS)
        assert failed.error_code == ErrorCode.CORRUPT_MESSAGE
        assert "txnctl store verify" in failed.error_message
        numbers = server.parts.readings()
        assert numbers["txn_runtime_load_failures_total"]["transactions",] == 2
        assert numbers["txn_runtime_shard_state"]["transactions", "failed"] == 1
        assert numbers["txn_runtime_failed_shards"] == {("transactions", str(ORDERS)): 1}
        listed = (await api.admin.ListShards(admin_pb2.ListShardsRequest())).shards
        assert {each.shard: "DecodeError" in each.reason for each in listed if each.state == "failed"} == {ORDERS: True}
        assert not any(each.HasField("reason") for each in listed if each.state != "failed")


@pytest.mark.parametrize(
    ("coordinator", "shard", "said"),
    [
        ("transactions", SHARD_COUNT, "there is no transactions shard 4"),
        ("transactions", -1, "there is no transactions shard -1"),
        ("orders", 0, "there is no coordinator 'orders'; there are counters, catalog"),
        ("counters", 0, "every other shard needs counters shard 0"),
    ],
)
async def test_what_there_is_not_cannot_be_loaded_or_unloaded(coordinator: str, shard: int, said: str) -> None:
    async with in_process_server() as server:
        api = Api(server)
        for answer in (await api.load(coordinator, shard), await api.unload(coordinator, shard)):
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert said in answer.error_message


async def test_a_listing_names_every_shard() -> None:
    async with in_process_server() as server:
        api = Api(server)
        assert set((await api.states("transactions")).items()) == {
            (("transactions", number), "active") for number in range(SHARD_COUNT)
        }
        everybody = await api.states()
        assert {("counters", 0), ("catalog", 0), ("log", 3)} <= set(everybody)
        refused = await api.admin.ListShards(
            admin_pb2.ListShardsRequest(header=common_pb2.RequestHeader(), coordinator="nobody")
        )
        assert refused.error_code == ErrorCode.INVALID_REQUEST
