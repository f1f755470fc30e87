"""The methods on the wire, and one table of their properties.

The table is used for error classes, admission, quotas, fairness of reads, unknown outcomes and the audit log. So a new
method is one row. Permissions of callers are elsewhere: `coordinator_core.permissions`.

Source: design 6; decision 44; docs/security.md (audit); KIP-219 (serve first, pause afterwards).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum, auto
from types import MappingProxyType
from typing import Final

from msgspec import Struct


class Method(StrEnum):
    """Every remote procedure, named as on the wire."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS_TO_TXN = "AddPartitionsToTxn"
    ADD_OFFSETS_TO_TXN = "AddOffsetsToTxn"
    END_TXN = "EndTxn"
    TRANSACT = "Transact"
    PREPARE_TRANSACTION = "PrepareTransaction"
    DESCRIBE_TRANSACTIONS = "DescribeTransactions"
    LIST_TRANSACTIONS = "ListTransactions"
    JOIN_BATCH = "JoinBatch"
    SEAL_MEMBER = "SealMember"
    COMMIT_BATCH = "CommitBatch"
    ABORT_BATCH = "AbortBatch"
    DESCRIBE_SINKS = "DescribeSinks"

    JOIN_GROUP = "JoinGroup"
    SYNC_GROUP = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    LEAVE_GROUP = "LeaveGroup"
    CONSUMER_GROUP_HEARTBEAT = "ConsumerGroupHeartbeat"
    CONSUMER_GROUP_DESCRIBE = "ConsumerGroupDescribe"
    SHARE_GROUP_HEARTBEAT = "ShareGroupHeartbeat"
    SHARE_GROUP_DESCRIBE = "ShareGroupDescribe"
    STREAMS_GROUP_HEARTBEAT = "StreamsGroupHeartbeat"
    STREAMS_GROUP_DESCRIBE = "StreamsGroupDescribe"
    SHARE_FETCH = "ShareFetch"
    SHARE_ACKNOWLEDGE = "ShareAcknowledge"
    TXN_SHARE_ACKNOWLEDGE = "TxnShareAcknowledge"
    DESCRIBE_SHARE_GROUP_OFFSETS = "DescribeShareGroupOffsets"
    ALTER_SHARE_GROUP_OFFSETS = "AlterShareGroupOffsets"
    DELETE_SHARE_GROUP_OFFSETS = "DeleteShareGroupOffsets"
    DESCRIBE_GROUPS = "DescribeGroups"
    LIST_GROUPS = "ListGroups"
    DELETE_GROUPS = "DeleteGroups"
    OFFSET_COMMIT = "OffsetCommit"
    OFFSET_FETCH = "OffsetFetch"
    OFFSET_DELETE = "OffsetDelete"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    DESCRIBE_GROUP_CONFIGS = "DescribeGroupConfigs"
    ALTER_GROUP_CONFIGS = "AlterGroupConfigs"

    CREATE_TOPICS = "CreateTopics"
    DELETE_TOPICS = "DeleteTopics"
    DESCRIBE_TOPICS = "DescribeTopics"
    CREATE_PARTITIONS = "CreatePartitions"
    ALTER_TOPIC_CONFIGS = "AlterTopicConfigs"
    DESCRIBE_TOPIC_CONFIGS = "DescribeTopicConfigs"
    PRODUCE = "Produce"
    FETCH = "Fetch"
    LIST_OFFSETS = "ListOffsets"
    COUNT_RECORDS = "CountRecords"
    MEASURE_RECORDS = "MeasureRecords"
    LIST_COMMITTED_TRANSACTIONS = "ListCommittedTransactions"
    DELETE_RECORDS = "DeleteRecords"
    WRITE_TXN_MARKERS = "WriteTxnMarkers"
    DESCRIBE_PRODUCERS = "DescribeProducers"
    TAKE_SNAPSHOT = "TakeSnapshot"
    RENEW_SNAPSHOT = "RenewSnapshot"
    RELEASE_SNAPSHOT = "ReleaseSnapshot"

    DESCRIBE_LIMITS = "DescribeLimits"
    ABORT_TRANSACTIONS = "AbortTransactions"
    FENCE_PRODUCERS = "FenceProducers"
    EXPLAIN_PARTITION = "ExplainPartition"
    LIST_HANGING_TRANSACTIONS = "ListHangingTransactions"
    ABORT_HANGING_TRANSACTIONS = "AbortHangingTransactions"
    LIST_SHARDS = "ListShards"
    LOAD_SHARD = "LoadShard"
    UNLOAD_SHARD = "UnloadShard"
    CREATE_BACKUP = "CreateBackup"
    LIST_BACKUPS = "ListBackups"
    CREATE_ACLS = "CreateAcls"
    DELETE_ACLS = "DeleteAcls"
    DESCRIBE_ACLS = "DescribeAcls"
    CHECK_PERMISSION = "CheckPermission"
    LIST_PARTITIONS = "ListPartitions"
    DESCRIBE_RATES = "DescribeRates"
    LIST_EVENTS = "ListEvents"
    DESCRIBE_SERVER_CONFIG = "DescribeServerConfig"
    DESCRIBE_QUOTAS = "DescribeQuotas"
    LIST_SNAPSHOTS = "ListSnapshots"

    SESSION = "Session"


class Waits(Enum):
    """Events that a call may wait for without doing work. Each has a limit of its own."""

    NOTHING = auto()
    """The call is in work until it is answered."""
    RECORDS = auto()
    """A long poll waits for records."""
    NEWS = auto()
    """A heartbeat waits for news of its group."""
    MEMBERS = auto()
    """A member waits for the other members of its group."""


class MethodRule(Struct, frozen=True):
    """One row of the table."""

    method: Method
    waits: Waits = Waits.NOTHING
    brings_records: bool = False
    """True if the request counts as bytes produced."""
    answers_records: bool = False
    """True if the answer counts as bytes fetched."""
    may_be_refused: bool = True
    """True if quotas may refuse or delay the call. Delaying a call that ends or settles something would hold others up.
    An open transaction holds back every committed reader of its partitions, and a silent member makes its group
    rebalance. Such calls are counted, and the calls after them wait."""
    has_reserve: bool = False
    """True if more calls of this method are admitted than of others, because it frees resources."""
    is_large_answer: bool = False
    """True if the method only reads and its answer may be large. It waits for its turn, and until the limit of answer
    bytes allows it."""
    is_list: bool = False
    """True if the method tells of many transactions, partitions or groups, which takes milliseconds where there are
    many. Calls of the same message begin in later turns of the loop."""
    is_repeatable: bool = False
    """True if a lost answer needs no question: the method reads, or states all that its caller wants. A join or
    heartbeat changes state, but each states all the member wants. So does a change of a topic's settings, or a load or
    unload of a shard. A second snapshot only costs a lease, and a second backup disk space. After every other method a
    lost answer is an unknown outcome."""
    is_administrative: bool = False
    """True if each call leaves a line in the audit log: it changes what is there for all callers, or ends what belongs
    to another."""
    is_within_transaction: bool = False
    """True if the method adds to an open transaction, so that the advice to abort and go on can be followed. A method
    that ends transactions must never answer ABORT, or a client that obeys loops for ever (KAFKA-19250). The single
    exception is 120: a commit, or the promise of one, that names sequences the log does not hold (design 6). An abort
    never sends 120."""
    is_for_members: bool = False
    """True if members of groups call it: if their group is gone, they join again."""


METHODS: Final[Mapping[Method, MethodRule]] = MappingProxyType(
    {
        rule.method: rule
        for rule in (
            MethodRule(Method.FIND_COORDINATOR, is_repeatable=True),
            MethodRule(Method.INIT_PRODUCER_ID),
            MethodRule(Method.ADD_PARTITIONS_TO_TXN, is_within_transaction=True),
            MethodRule(Method.ADD_OFFSETS_TO_TXN, is_within_transaction=True),
            MethodRule(Method.END_TXN, may_be_refused=False, has_reserve=True),
            MethodRule(Method.TRANSACT, brings_records=True, is_within_transaction=True),
            MethodRule(Method.PREPARE_TRANSACTION, may_be_refused=False),
            MethodRule(Method.DESCRIBE_TRANSACTIONS, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.LIST_TRANSACTIONS, is_list=True, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.JOIN_BATCH),
            MethodRule(Method.SEAL_MEMBER, may_be_refused=False),
            MethodRule(Method.COMMIT_BATCH, may_be_refused=False),
            MethodRule(Method.ABORT_BATCH, may_be_refused=False),
            MethodRule(Method.DESCRIBE_SINKS, is_list=True, is_repeatable=True),
            MethodRule(
                Method.JOIN_GROUP, waits=Waits.MEMBERS, may_be_refused=False, is_repeatable=True, is_for_members=True
            ),
            MethodRule(
                Method.SYNC_GROUP, waits=Waits.MEMBERS, may_be_refused=False, is_repeatable=True, is_for_members=True
            ),
            MethodRule(
                Method.HEARTBEAT, waits=Waits.NEWS, may_be_refused=False, is_repeatable=True, is_for_members=True
            ),
            MethodRule(Method.LEAVE_GROUP, may_be_refused=False, is_for_members=True),
            MethodRule(
                Method.CONSUMER_GROUP_HEARTBEAT,
                waits=Waits.NEWS,
                may_be_refused=False,
                is_repeatable=True,
                is_for_members=True,
            ),
            MethodRule(Method.CONSUMER_GROUP_DESCRIBE, is_large_answer=True, is_repeatable=True),
            MethodRule(
                Method.SHARE_GROUP_HEARTBEAT,
                waits=Waits.NEWS,
                may_be_refused=False,
                is_repeatable=True,
                is_for_members=True,
            ),
            MethodRule(Method.SHARE_GROUP_DESCRIBE, is_large_answer=True, is_repeatable=True),
            MethodRule(
                Method.STREAMS_GROUP_HEARTBEAT,
                waits=Waits.NEWS,
                may_be_refused=False,
                is_repeatable=True,
                is_for_members=True,
            ),
            MethodRule(Method.STREAMS_GROUP_DESCRIBE, is_large_answer=True, is_repeatable=True),
            MethodRule(
                Method.SHARE_FETCH,
                waits=Waits.RECORDS,
                answers_records=True,
                is_large_answer=True,
                is_for_members=True,
            ),
            MethodRule(Method.SHARE_ACKNOWLEDGE, may_be_refused=False, is_for_members=True),
            MethodRule(Method.TXN_SHARE_ACKNOWLEDGE, may_be_refused=False, is_within_transaction=True),
            MethodRule(Method.DESCRIBE_SHARE_GROUP_OFFSETS, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.ALTER_SHARE_GROUP_OFFSETS, is_administrative=True),
            MethodRule(Method.DELETE_SHARE_GROUP_OFFSETS, is_administrative=True),
            MethodRule(Method.DESCRIBE_GROUPS, is_list=True, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.LIST_GROUPS, is_list=True, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.DELETE_GROUPS, is_administrative=True),
            MethodRule(Method.OFFSET_COMMIT, may_be_refused=False, is_for_members=True),
            MethodRule(Method.OFFSET_FETCH, is_large_answer=True, is_repeatable=True, is_for_members=True),
            MethodRule(Method.OFFSET_DELETE, is_administrative=True),
            MethodRule(Method.TXN_OFFSET_COMMIT, may_be_refused=False, is_within_transaction=True),
            MethodRule(Method.DESCRIBE_GROUP_CONFIGS, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.ALTER_GROUP_CONFIGS, is_administrative=True),
            MethodRule(Method.CREATE_TOPICS, is_administrative=True),
            MethodRule(Method.DELETE_TOPICS, is_administrative=True),
            MethodRule(Method.DESCRIBE_TOPICS, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.CREATE_PARTITIONS, is_administrative=True),
            MethodRule(Method.ALTER_TOPIC_CONFIGS, is_repeatable=True, is_administrative=True),
            MethodRule(Method.DESCRIBE_TOPIC_CONFIGS, is_repeatable=True),
            MethodRule(Method.PRODUCE, brings_records=True, is_within_transaction=True),
            MethodRule(
                Method.FETCH, waits=Waits.RECORDS, answers_records=True, is_large_answer=True, is_repeatable=True
            ),
            MethodRule(Method.LIST_OFFSETS, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.COUNT_RECORDS, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.MEASURE_RECORDS, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.LIST_COMMITTED_TRANSACTIONS, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.DELETE_RECORDS, is_administrative=True),
            MethodRule(Method.WRITE_TXN_MARKERS, may_be_refused=False, has_reserve=True, is_administrative=True),
            MethodRule(Method.DESCRIBE_PRODUCERS, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.TAKE_SNAPSHOT, is_repeatable=True),
            MethodRule(Method.RENEW_SNAPSHOT, may_be_refused=False, is_repeatable=True),
            MethodRule(Method.RELEASE_SNAPSHOT, may_be_refused=False, is_repeatable=True),
            MethodRule(Method.DESCRIBE_LIMITS, is_repeatable=True),
            MethodRule(Method.ABORT_TRANSACTIONS, may_be_refused=False, is_administrative=True),
            MethodRule(Method.FENCE_PRODUCERS, may_be_refused=False, is_administrative=True),
            MethodRule(Method.EXPLAIN_PARTITION, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.LIST_HANGING_TRANSACTIONS, is_list=True, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.ABORT_HANGING_TRANSACTIONS, may_be_refused=False, is_administrative=True),
            MethodRule(Method.LIST_SHARDS, is_list=True, is_repeatable=True),
            MethodRule(Method.LOAD_SHARD, is_repeatable=True, is_administrative=True),
            MethodRule(Method.UNLOAD_SHARD, is_repeatable=True, is_administrative=True),
            MethodRule(Method.CREATE_BACKUP, is_repeatable=True, is_administrative=True),
            MethodRule(Method.LIST_BACKUPS, is_list=True, is_repeatable=True),
            MethodRule(Method.CREATE_ACLS, is_administrative=True),
            MethodRule(Method.DELETE_ACLS, is_administrative=True),
            MethodRule(Method.DESCRIBE_ACLS, is_repeatable=True),
            MethodRule(Method.CHECK_PERMISSION, is_repeatable=True),
            MethodRule(Method.LIST_PARTITIONS, is_list=True, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.DESCRIBE_RATES, is_list=True, is_repeatable=True),
            MethodRule(Method.LIST_EVENTS, is_list=True, is_large_answer=True, is_repeatable=True),
            MethodRule(Method.DESCRIBE_SERVER_CONFIG, is_repeatable=True),
            MethodRule(Method.DESCRIBE_QUOTAS, is_list=True, is_repeatable=True),
            MethodRule(Method.LIST_SNAPSHOTS, is_list=True, is_repeatable=True),
            MethodRule(Method.SESSION, is_repeatable=True),
        )
    }
)


def methods_with(applies: Callable[[MethodRule], bool]) -> frozenset[Method]:
    """Return the methods whose row fulfils a condition."""
    return frozenset(method for method, rule in METHODS.items() if applies(rule))
