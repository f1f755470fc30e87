"""The remote procedures as values: where each lives and what it answers, so that one function can call all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.fetch_reply import parse_fetch_reply
from coordinator_protocol.errors import REPEATABLE_METHODS, Method


class Request(Protocol):
    """A request message, with the header that all of them have."""

    @property
    def header(self) -> RequestHeader: ...
    def SerializeToString(self) -> bytes: ...


class Reply(Protocol):
    """A reply message, with the fields that all of them have."""

    @property
    def error_code(self) -> int: ...
    @property
    def error_class(self) -> int: ...
    @property
    def error_message(self) -> str: ...
    @property
    def throttle_ms(self) -> int: ...


RequestT = TypeVar("RequestT", bound=Request)
ReplyT = TypeVar("ReplyT", bound=Reply)


@dataclass(frozen=True, slots=True)
class Rpc(Generic[RequestT, ReplyT]):
    """One remote procedure, with the types of its request and reply."""

    method: Method
    service: str
    request_type: type[RequestT]
    parse: Callable[[bytes], ReplyT]
    is_bulk: bool = False
    """Whether its answers are large. It then is a call of its own beside the session, so that nothing small waits
    behind it."""

    @property
    def path(self) -> str:
        """The name under which gRPC finds it."""
        return f"/coordinator_api.v1.{self.service}/{self.method}"

    @property
    def is_mutating(self) -> bool:
        """Whether a lost answer leaves open what happened, so that only the same request under the same id may
        follow."""
        return self.method not in REPEATABLE_METHODS


_TXN: Final = "TransactionService"
_LOG: Final = "LogService"
_ADMIN: Final = "AdminService"
_GROUP: Final = "GroupService"

INIT_PRODUCER_ID: Final = Rpc(
    Method.INIT_PRODUCER_ID, _TXN, txn.InitProducerIdRequest, txn.InitProducerIdResponse.FromString
)
PREPARE_TRANSACTION: Final = Rpc(
    Method.PREPARE_TRANSACTION, _TXN, txn.PrepareTransactionRequest, txn.PrepareTransactionResponse.FromString
)
TRANSACT: Final = Rpc(Method.TRANSACT, _TXN, txn.TransactRequest, txn.TransactResponse.FromString)
END_TXN: Final = Rpc(Method.END_TXN, _TXN, txn.EndTxnRequest, txn.EndTxnResponse.FromString)
DESCRIBE_TRANSACTIONS: Final = Rpc(
    Method.DESCRIBE_TRANSACTIONS, _TXN, txn.DescribeTransactionsRequest, txn.DescribeTransactionsResponse.FromString
)
LIST_TRANSACTIONS: Final = Rpc(
    Method.LIST_TRANSACTIONS, _TXN, txn.ListTransactionsRequest, txn.ListTransactionsResponse.FromString
)
CREATE_TOPICS: Final = Rpc(Method.CREATE_TOPICS, _LOG, log.CreateTopicsRequest, log.CreateTopicsResponse.FromString)
DELETE_TOPICS: Final = Rpc(Method.DELETE_TOPICS, _LOG, log.DeleteTopicsRequest, log.DeleteTopicsResponse.FromString)
DESCRIBE_TOPICS: Final = Rpc(
    Method.DESCRIBE_TOPICS, _LOG, log.DescribeTopicsRequest, log.DescribeTopicsResponse.FromString
)
PRODUCE: Final = Rpc(Method.PRODUCE, _LOG, log.ProduceRequest, log.ProduceResponse.FromString)
FETCH: Final = Rpc(Method.FETCH, _LOG, log.FetchRequest, parse_fetch_reply, is_bulk=True)
LIST_OFFSETS: Final = Rpc(Method.LIST_OFFSETS, _LOG, log.ListOffsetsRequest, log.ListOffsetsResponse.FromString)
COUNT_RECORDS: Final = Rpc(Method.COUNT_RECORDS, _LOG, log.CountRecordsRequest, log.CountRecordsResponse.FromString)
DESCRIBE_PRODUCERS: Final = Rpc(
    Method.DESCRIBE_PRODUCERS, _LOG, log.DescribeProducersRequest, log.DescribeProducersResponse.FromString
)
ABORT_TRANSACTIONS: Final = Rpc(
    Method.ABORT_TRANSACTIONS, _ADMIN, admin.AbortTransactionsRequest, admin.AbortTransactionsResponse.FromString
)
FENCE_PRODUCERS: Final = Rpc(
    Method.FENCE_PRODUCERS, _ADMIN, admin.FenceProducersRequest, admin.FenceProducersResponse.FromString
)
EXPLAIN_PARTITION: Final = Rpc(
    Method.EXPLAIN_PARTITION, _ADMIN, admin.ExplainPartitionRequest, admin.ExplainPartitionResponse.FromString
)
LIST_HANGING_TRANSACTIONS: Final = Rpc(
    Method.LIST_HANGING_TRANSACTIONS,
    _ADMIN,
    admin.ListHangingTransactionsRequest,
    admin.ListHangingTransactionsResponse.FromString,
)
ABORT_HANGING_TRANSACTIONS: Final = Rpc(
    Method.ABORT_HANGING_TRANSACTIONS,
    _ADMIN,
    admin.AbortHangingTransactionsRequest,
    admin.AbortHangingTransactionsResponse.FromString,
)
LIMITS: Final = Rpc(Method.LIMITS, _ADMIN, admin.LimitsRequest, admin.LimitsResponse.FromString)
LIST_SHARDS: Final = Rpc(Method.LIST_SHARDS, _ADMIN, admin.ListShardsRequest, admin.ListShardsResponse.FromString)
LOAD_SHARD: Final = Rpc(Method.LOAD_SHARD, _ADMIN, admin.LoadShardRequest, admin.LoadShardResponse.FromString)
UNLOAD_SHARD: Final = Rpc(Method.UNLOAD_SHARD, _ADMIN, admin.UnloadShardRequest, admin.UnloadShardResponse.FromString)
JOIN_GROUP: Final = Rpc(Method.JOIN_GROUP, _GROUP, group.JoinGroupRequest, group.JoinGroupResponse.FromString)
SYNC_GROUP: Final = Rpc(Method.SYNC_GROUP, _GROUP, group.SyncGroupRequest, group.SyncGroupResponse.FromString)
HEARTBEAT: Final = Rpc(Method.HEARTBEAT, _GROUP, group.HeartbeatRequest, group.HeartbeatResponse.FromString)
LEAVE_GROUP: Final = Rpc(Method.LEAVE_GROUP, _GROUP, group.LeaveGroupRequest, group.LeaveGroupResponse.FromString)
CONSUMER_GROUP_HEARTBEAT: Final = Rpc(
    Method.CONSUMER_GROUP_HEARTBEAT,
    _GROUP,
    group.ConsumerGroupHeartbeatRequest,
    group.ConsumerGroupHeartbeatResponse.FromString,
)
CONSUMER_GROUP_DESCRIBE: Final = Rpc(
    Method.CONSUMER_GROUP_DESCRIBE,
    _GROUP,
    group.ConsumerGroupDescribeRequest,
    group.ConsumerGroupDescribeResponse.FromString,
)
DESCRIBE_GROUPS: Final = Rpc(
    Method.DESCRIBE_GROUPS, _GROUP, group.DescribeGroupsRequest, group.DescribeGroupsResponse.FromString
)
LIST_GROUPS: Final = Rpc(Method.LIST_GROUPS, _GROUP, group.ListGroupsRequest, group.ListGroupsResponse.FromString)
DELETE_GROUPS: Final = Rpc(
    Method.DELETE_GROUPS, _GROUP, group.DeleteGroupsRequest, group.DeleteGroupsResponse.FromString
)
OFFSET_COMMIT: Final = Rpc(
    Method.OFFSET_COMMIT, _GROUP, group.OffsetCommitRequest, group.OffsetCommitResponse.FromString
)
OFFSET_FETCH: Final = Rpc(Method.OFFSET_FETCH, _GROUP, group.OffsetFetchRequest, group.OffsetFetchResponse.FromString)
TXN_OFFSET_COMMIT: Final = Rpc(
    Method.TXN_OFFSET_COMMIT, _GROUP, group.TxnOffsetCommitRequest, group.TxnOffsetCommitResponse.FromString
)
OFFSET_DELETE: Final = Rpc(
    Method.OFFSET_DELETE, _GROUP, group.OffsetDeleteRequest, group.OffsetDeleteResponse.FromString
)
DESCRIBE_GROUP_CONFIGS: Final = Rpc(
    Method.DESCRIBE_GROUP_CONFIGS,
    _GROUP,
    group.DescribeGroupConfigsRequest,
    group.DescribeGroupConfigsResponse.FromString,
)
ALTER_GROUP_CONFIGS: Final = Rpc(
    Method.ALTER_GROUP_CONFIGS, _GROUP, group.AlterGroupConfigsRequest, group.AlterGroupConfigsResponse.FromString
)
