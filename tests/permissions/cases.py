"""Every procedure with all the questions that it asks: a request for each way to call it."""

from __future__ import annotations

from typing import Any, Final

from coordinator_api.v1 import common_pb2, group_pb2, log_pb2, share_pb2, transaction_pb2
from coordinator_protocol.acls import Permission, ResourceType
from tests.permissions.administration_cases import ADMINISTRATION
from tests.permissions.case import (
    DECIDE_ID,
    HOLD_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    SEE_TOPIC,
    WRITE_ID,
    WRITE_TOPIC,
    Case,
    one,
)
from tests.permissions.guarded_front import GuardedFront, Names, batch, joining, joining_streams, offsets

_P = Permission
_T, _G, _I, _C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.CLUSTER


def _topics(named: Names) -> list[common_pb2.TopicPartitions]:
    return [common_pb2.TopicPartitions(topic=named.topic, partitions=[0])]


def _transact(front: GuardedFront, named: Names, **more: Any) -> transaction_pb2.TransactRequest:
    header = common_pb2.RequestHeader(request_id=b"0123456789abcdef")
    return transaction_pb2.TransactRequest(header=header, committed=True, **front.identity(named.id), **more)


def _sequences(named: Names, *, by_id: bool = False) -> list[transaction_pb2.LastSequence]:
    where = {"topic_id": named.topic_id} if by_id else {"topic": named.topic}
    return [transaction_pb2.LastSequence(sequence=0, **where)]


def _marker(front: GuardedFront, named: Names) -> log_pb2.WriteTxnMarkersRequest:
    control = log_pb2.ControlMarker(committed=True, txn_epoch=0, next_epoch=1, coordinator_epoch=1, csn=1)
    return log_pb2.WriteTxnMarkersRequest(
        markers=[log_pb2.TxnMarker(producer_id=7, marker=control, topics=_topics(named))]
    )


def _shared(named: Names, *, by_id: bool = False) -> share_pb2.SharePartition:
    where = {"topic_id": named.topic_id} if by_id else {"topic": named.topic}
    return share_pb2.SharePartition(**where)


def _fetch(named: Names, *, by_id: bool = False) -> log_pb2.FetchRequest:
    where = {"topic_id": named.topic_id} if by_id else {"topic": named.topic}
    return log_pb2.FetchRequest(max_bytes=1_000, partitions=[log_pb2.FetchPartition(**where)])


_txn, _log, _group, _share = transaction_pb2, log_pb2, group_pb2, share_pb2

TRANSACTIONS: Final = (
    Case(
        "FindCoordinator of a transactional id",
        lambda _front, n: _txn.FindCoordinatorRequest(key_type=1, keys=[n.id]),  # type: ignore[arg-type]
        (one(_P.DESCRIBE, _I),),
    ),
    Case(
        "FindCoordinator of a group",
        lambda _front, n: _txn.FindCoordinatorRequest(key_type=3, keys=[n.group]),  # type: ignore[arg-type]
        (one(_P.DESCRIBE, _G),),
    ),
    Case(
        "InitProducerId",
        lambda _front, n: _txn.InitProducerIdRequest(transactional_id=n.id, transaction_timeout_ms=1_000),
        (WRITE_ID,),
    ),
    Case(
        "InitProducerId with enable_2pc",
        lambda _front, n: _txn.InitProducerIdRequest(transactional_id=n.id, enable_2pc=True),
        (WRITE_ID, one(_P.TWO_PHASE_COMMIT, _I)),
    ),
    Case(
        "InitProducerId without an id",
        lambda _front, _n: _txn.InitProducerIdRequest(),
        (((_P.WRITE, _T), (_P.IDEMPOTENT_WRITE, _C)),),
    ),
    Case(
        "AddPartitionsToTxn",
        lambda front, n: _txn.AddPartitionsToTxnRequest(**front.identity(n.id), topics=_topics(n)),
        (WRITE_ID, WRITE_TOPIC),
    ),
    Case(
        "AddPartitionsToTxn by a topic's id",
        lambda front, n: _txn.AddPartitionsToTxnRequest(
            **front.identity(n.id), topics=[common_pb2.TopicPartitions(topic_id=n.topic_id, partitions=[0])]
        ),
        (WRITE_ID, WRITE_TOPIC),
        by_id=True,
    ),
    Case(
        "AddPartitionsToTxn that verifies",
        lambda front, n: _txn.AddPartitionsToTxnRequest(**front.identity(n.id), topics=_topics(n), verify_only=True),
        (WRITE_ID, WRITE_TOPIC),
    ),
    Case(
        "AddPartitionsToTxn of a batch",
        lambda front, n: _txn.AddPartitionsToTxnRequest(
            transactions=[_txn.AddPartitionsToTxnTransaction(**front.identity(n.id), topics=_topics(n))]
        ),
        (one(_P.CLUSTER_ACTION, _C),),
    ),
    Case(
        "AddOffsetsToTxn",
        lambda front, n: _txn.AddOffsetsToTxnRequest(**front.identity(n.id), group_id=n.group),
        (WRITE_ID, READ_GROUP),
    ),
    Case("EndTxn", lambda front, n: _txn.EndTxnRequest(**front.identity(n.id), committed=True), (WRITE_ID,)),
    Case(
        "EndTxn of a member of a batch",
        lambda front, n: _txn.EndTxnRequest(**front.sink_member(n.id), committed=False),
        (WRITE_ID,),
    ),
    Case(
        "EndTxn with last_sequences",
        lambda front, n: _txn.EndTxnRequest(**front.identity(n.id), committed=True, last_sequences=_sequences(n)),
        (WRITE_ID, SEE_TOPIC),
    ),
    Case(
        "EndTxn with last_sequences by a topic's id",
        lambda front, n: _txn.EndTxnRequest(
            **front.identity(n.id), committed=True, last_sequences=_sequences(n, by_id=True)
        ),
        (WRITE_ID, SEE_TOPIC),
        by_id=True,
    ),
    Case(
        "PrepareTransaction",
        lambda front, n: _txn.PrepareTransactionRequest(**front.identity(n.prepared)),
        (WRITE_ID, one(_P.TWO_PHASE_COMMIT, _I)),
    ),
    Case(
        "PrepareTransaction with last_sequences",
        lambda front, n: _txn.PrepareTransactionRequest(**front.identity(n.prepared), last_sequences=_sequences(n)),
        (WRITE_ID, one(_P.TWO_PHASE_COMMIT, _I), SEE_TOPIC),
    ),
    Case(
        "Transact", lambda front, n: _transact(front, n, batches=[batch(n, base_sequence=1)]), (WRITE_ID, WRITE_TOPIC)
    ),
    Case(
        "Transact by a topic's id",
        lambda front, n: _transact(front, n, batches=[batch(n, by_id=True, base_sequence=1)]),
        (WRITE_ID, WRITE_TOPIC),
        by_id=True,
    ),
    Case(
        "Transact with offsets",
        lambda front, n: _transact(
            front,
            n,
            batches=[batch(n, base_sequence=1)],
            groups=[_txn.TransactOffsets(group_id=n.group, topics=[offsets(n)])],
        ),
        (WRITE_ID, WRITE_TOPIC, READ_GROUP, READ_TOPIC),
    ),
    Case(
        "Transact with acknowledgements",
        lambda front, n: _transact(
            front,
            n,
            batches=[batch(n, base_sequence=1)],
            shares=[_txn.TransactShares(group_id=n.shares, member_id="m1", member_epoch=1, partitions=[_shared(n)])],
        ),
        (WRITE_ID, WRITE_TOPIC, READ_GROUP, READ_TOPIC),
    ),
    Case(
        "DescribeTransactions",
        lambda _front, n: _txn.DescribeTransactionsRequest(transactional_ids=[n.id], history_limit=10),
        (one(_P.DESCRIBE, _I),),
        ((_P.DESCRIBE, _T), (_P.DESCRIBE, _G)),
    ),
    Case(
        "JoinBatch",
        lambda _front, n: _txn.JoinBatchRequest(
            header=common_pb2.RequestHeader(request_id=b"0123456789abcdef"),
            sink=n.id,
            run_id="run",
            transaction_timeout_ms=60_000,
        ),
        (WRITE_ID,),
    ),
    Case("SealMember", lambda front, n: _txn.SealMemberRequest(**front.sink_member(n.id)), (WRITE_ID,)),
    Case(
        "SealMember with last_sequences",
        lambda front, n: _txn.SealMemberRequest(**front.sink_member(n.id), last_sequences=_sequences(n)),
        (WRITE_ID, SEE_TOPIC),
    ),
    Case("CommitBatch", lambda _front, n: _txn.CommitBatchRequest(sink=n.id, run_id="run"), (DECIDE_ID,)),
    Case("AbortBatch", lambda _front, n: _txn.AbortBatchRequest(sink=n.id, every_run=True), (DECIDE_ID,)),
    Case("DescribeSinks", lambda _front, n: _txn.DescribeSinksRequest(sinks=[n.id]), (one(_P.DESCRIBE, _I),)),
    Case("ListTransactions", lambda _front, _n: _txn.ListTransactionsRequest(), hidden=one(_P.DESCRIBE, _I)),
)

GROUPS: Final = (
    Case("JoinGroup", lambda _front, n: joining(n.classic), (READ_GROUP,)),
    Case("SyncGroup", lambda front, n: _group.SyncGroupRequest(**front.as_member(n)), (READ_GROUP,)),
    Case("Heartbeat", lambda front, n: _group.HeartbeatRequest(**front.as_member(n)), (READ_GROUP,)),
    Case(
        "LeaveGroup",
        lambda front, n: _group.LeaveGroupRequest(
            group_id=n.classic, members=[_group.LeavingMember(member_id=front.member["member_id"])]
        ),
        (READ_GROUP,),
    ),
    Case(
        "ConsumerGroupHeartbeat",
        lambda _front, n: _group.ConsumerGroupHeartbeatRequest(
            group_id=n.consumers,
            member_id="m2",
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=_group.TopicNames(names=[n.topic]),
            topic_partitions=_group.PartitionSet(),
        ),
        (READ_GROUP, SEE_TOPIC),
    ),
    Case(
        "ConsumerGroupDescribe",
        lambda _front, n: _group.ConsumerGroupDescribeRequest(group_ids=[n.consumers]),
        (one(_P.DESCRIBE, _G), SEE_TOPIC),
    ),
    Case(
        "ShareGroupHeartbeat",
        lambda front, n: _group.ShareGroupHeartbeatRequest(
            group_id=n.shares,
            member_id="m1",
            member_epoch=front.share_epoch,
            subscribed_topic_names=_group.TopicNames(names=[n.topic]),
        ),
        (READ_GROUP, SEE_TOPIC),
    ),
    Case(
        "ShareGroupDescribe",
        lambda _front, n: _group.ShareGroupDescribeRequest(group_ids=[n.shares]),
        (one(_P.DESCRIBE, _G), SEE_TOPIC),
    ),
    Case(
        "StreamsGroupHeartbeat",
        lambda _front, n: joining_streams(n),
        (READ_GROUP, SEE_TOPIC),
    ),
    Case(
        "StreamsGroupDescribe",
        lambda _front, n: _group.StreamsGroupDescribeRequest(group_ids=[n.streams]),
        (one(_P.DESCRIBE, _G), SEE_TOPIC),
    ),
    Case(
        "ShareFetch",
        lambda _front, n: _share.ShareFetchRequest(group_id=n.shares, member_id="m1", partitions=[_shared(n)]),
        (READ_GROUP, READ_TOPIC),
    ),
    Case(
        "ShareFetch by a topic's id",
        lambda _front, n: _share.ShareFetchRequest(
            group_id=n.shares, member_id="m1", partitions=[_shared(n, by_id=True)]
        ),
        (READ_GROUP, READ_TOPIC),
        by_id=True,
    ),
    Case(
        "ShareAcknowledge",
        lambda _front, n: _share.ShareAcknowledgeRequest(
            group_id=n.shares, member_id="m1", session_epoch=1, partitions=[_shared(n)]
        ),
        (READ_GROUP, READ_TOPIC),
    ),
    Case(
        "TxnShareAcknowledge",
        lambda front, n: _share.TxnShareAcknowledgeRequest(
            group_id=n.shares, member_id="m1", member_epoch=1, partitions=[_shared(n)], **front.identity(n.id)
        ),
        (WRITE_ID, READ_GROUP, READ_TOPIC),
    ),
    Case(
        "DescribeShareGroupOffsets",
        lambda _front, n: _group.DescribeShareGroupOffsetsRequest(
            group_id=n.shares, topics=_group.PartitionSet(topics=_topics(n))
        ),
        (one(_P.DESCRIBE, _G), SEE_TOPIC),
    ),
    Case(
        "DescribeShareGroupOffsets of all",
        lambda _front, n: _group.DescribeShareGroupOffsetsRequest(group_id=n.shares),
        (one(_P.DESCRIBE, _G),),
        hidden=((_P.DESCRIBE, _T),),
    ),
    Case(
        "AlterShareGroupOffsets",
        lambda _front, n: _group.AlterShareGroupOffsetsRequest(
            group_id=n.idle_shares, offsets=[_group.ShareStartOffset(topic=n.topic)]
        ),
        (READ_GROUP, READ_TOPIC),
    ),
    Case(
        "DeleteShareGroupOffsets",
        lambda _front, n: _group.DeleteShareGroupOffsetsRequest(group_id=n.idle_shares, topics=[n.topic]),
        (one(_P.DELETE, _G), READ_TOPIC),
    ),
    Case(
        "DescribeGroups",
        lambda _front, n: _group.DescribeGroupsRequest(group_ids=[n.classic]),
        (one(_P.DESCRIBE, _G),),
    ),
    Case(
        "ListGroups",
        lambda _front, _n: _group.ListGroupsRequest(),
        hidden=((_P.DESCRIBE, _C), (_P.DESCRIBE, _G)),
    ),
    Case("DeleteGroups", lambda _front, n: _group.DeleteGroupsRequest(group_ids=[n.group]), (one(_P.DELETE, _G),)),
    Case(
        "OffsetCommit",
        lambda _front, n: _group.OffsetCommitRequest(group_id=n.group, topics=[offsets(n)]),
        (READ_GROUP, READ_TOPIC),
    ),
    Case(
        "OffsetFetch",
        lambda _front, n: _group.OffsetFetchRequest(
            groups=[_group.OffsetFetchGroup(group_id=n.group, topics=_group.PartitionSet(topics=_topics(n)))],
            require_stable=True,
        ),
        (one(_P.DESCRIBE, _G), SEE_TOPIC),
        one(_P.DESCRIBE, _I),
    ),
    Case(
        "OffsetFetch of all",
        lambda _front, n: _group.OffsetFetchRequest(
            groups=[_group.OffsetFetchGroup(group_id=n.group)], require_stable=True
        ),
        (one(_P.DESCRIBE, _G),),
        ((_P.DESCRIBE, _T), (_P.DESCRIBE, _I)),
    ),
    Case(
        "OffsetDelete",
        lambda _front, n: _group.OffsetDeleteRequest(group_id=n.group, topics=_topics(n)),
        (one(_P.DELETE, _G), READ_TOPIC),
    ),
    Case(
        "TxnOffsetCommit",
        lambda front, n: _group.TxnOffsetCommitRequest(group_id=n.group, topics=[offsets(n)], **front.identity(n.id)),
        (WRITE_ID, READ_GROUP, READ_TOPIC),
    ),
    Case(
        "DescribeGroupConfigs",
        lambda _front, n: _group.DescribeGroupConfigsRequest(group_id=n.group),
        (one(_P.DESCRIBE_CONFIGS, _G),),
    ),
    Case(
        "AlterGroupConfigs",
        lambda _front, n: _group.AlterGroupConfigsRequest(
            group_id=n.group, set=[_group.GroupConfig(name="consumer_session_timeout_ms", value=45_000)]
        ),
        (one(_P.ALTER_CONFIGS, _G),),
    ),
    Case(
        "AlterGroupConfigs of dead letters",
        lambda _front, n: _group.AlterGroupConfigsRequest(
            group_id=n.group, set=[_group.GroupConfig(name="share_dead_letter_topic", text=n.topic)]
        ),
        (one(_P.ALTER_CONFIGS, _G), one(_P.WRITE, _T)),
    ),
)

LOG: Final = (
    Case(
        "CreateTopics",
        lambda _front, n: _log.CreateTopicsRequest(topics=[_log.NewTopic(name=n.topic, partition_count=1)]),
        (((_P.CREATE, _C), (_P.CREATE, _T)),),
    ),
    Case(
        "DeleteTopics",
        lambda _front, n: _log.DeleteTopicsRequest(topics=[_log.TopicName(name=n.topic)]),
        (one(_P.DELETE, _T),),
    ),
    Case(
        "DeleteTopics by id",
        lambda _front, n: _log.DeleteTopicsRequest(topics=[_log.TopicName(topic_id=n.topic_id)]),
        (one(_P.DELETE, _T),),
        by_id=True,
    ),
    Case(
        "DescribeTopics",
        lambda _front, n: _log.DescribeTopicsRequest(topics=[_log.TopicName(name=n.topic)]),
        (SEE_TOPIC,),
    ),
    Case(
        "DescribeTopics by id",
        lambda _front, n: _log.DescribeTopicsRequest(topics=[_log.TopicName(topic_id=n.topic_id)]),
        (SEE_TOPIC,),
        by_id=True,
    ),
    Case("DescribeTopics of all", lambda _front, _n: _log.DescribeTopicsRequest(), hidden=SEE_TOPIC),
    Case("Produce", lambda front, n: front.produce(n), (WRITE_TOPIC,)),
    Case(
        "Produce by id",
        lambda _front, n: _log.ProduceRequest(batches=[batch(n, by_id=True)]),
        (WRITE_TOPIC,),
        by_id=True,
    ),
    Case(
        "Produce in a transaction",
        lambda front, n: _log.ProduceRequest(
            transactional_id=n.id,
            batches=[
                batch(n, is_transactional=True, base_sequence=1)
                if (known := front.identity(n.id)) is None
                else batch(
                    n,
                    is_transactional=True,
                    base_sequence=1,
                    producer_id=known["producer_id"],
                    producer_epoch=known["producer_epoch"],
                )
            ],
        ),
        (WRITE_ID, WRITE_TOPIC),
    ),
    Case("Fetch", lambda _front, n: _fetch(n), (READ_TOPIC,)),
    Case("Fetch by id", lambda _front, n: _fetch(n, by_id=True), (READ_TOPIC,), by_id=True),
    Case(
        "ListOffsets",
        lambda _front, n: _log.ListOffsetsRequest(partitions=[_log.OffsetQuery(topic=n.topic, timestamp_ms=-1)]),
        (SEE_TOPIC,),
    ),
    Case(
        "ListOffsets by id",
        lambda _front, n: _log.ListOffsetsRequest(partitions=[_log.OffsetQuery(topic_id=n.topic_id, timestamp_ms=-1)]),
        (SEE_TOPIC,),
        by_id=True,
    ),
    Case(
        "CountRecords",
        lambda _front, n: _log.CountRecordsRequest(partitions=[_log.CountQuery(topic=n.topic)]),
        (SEE_TOPIC,),
    ),
    Case(
        "TakeSnapshot",
        lambda _front, n: _log.TakeSnapshotRequest(
            topics=[common_pb2.TopicPartitions(topic=n.topic, partitions=[0])], lease_ms=1_000
        ),
        (READ_TOPIC, HOLD_TOPIC),
    ),
    Case(
        "RenewSnapshot",
        lambda front, _n: _log.RenewSnapshotRequest(snapshot_id=front.snapshot_id, lease_ms=1_000),
        (HOLD_TOPIC,),
    ),
    Case(
        "ReleaseSnapshot",
        lambda front, _n: _log.ReleaseSnapshotRequest(snapshot_id=front.snapshot_id),
        (HOLD_TOPIC,),
    ),
    Case(
        "MeasureRecords",
        lambda _front, n: _log.MeasureRecordsRequest(
            step_bytes=1, partitions=[_log.MeasureQuery(topic=n.topic, end_offset=1)]
        ),
        (SEE_TOPIC,),
    ),
    Case(
        "ListCommittedTransactions",
        lambda _front, n: _log.ListCommittedTransactionsRequest(
            partitions=[_log.OffsetRange(topic=n.topic, end_offset=1)]
        ),
        (READ_TOPIC,),
    ),
    Case(
        "CreatePartitions",
        lambda _front, n: _log.CreatePartitionsRequest(
            topics=[_log.PartitionsOfTopic(name=n.topic, partition_count=7)]
        ),
        (one(_P.ALTER, _T),),
    ),
    Case(
        "CreatePartitions by id",
        lambda _front, n: _log.CreatePartitionsRequest(
            topics=[_log.PartitionsOfTopic(topic_id=n.topic_id, partition_count=7)]
        ),
        (one(_P.ALTER, _T),),
        by_id=True,
    ),
    Case(
        "AlterTopicConfigs",
        lambda _front, n: _log.AlterTopicConfigsRequest(
            topics=[_log.TopicToAlter(name=n.topic, set={"retention_ms": "7"})]
        ),
        (one(_P.ALTER_CONFIGS, _T),),
    ),
    Case(
        "DescribeTopicConfigs",
        lambda _front, n: _log.DescribeTopicConfigsRequest(topics=[_log.TopicName(name=n.topic)]),
        (one(_P.DESCRIBE_CONFIGS, _T),),
    ),
    Case(
        "DescribeTopicConfigs of all",
        lambda _front, _n: _log.DescribeTopicConfigsRequest(),
        hidden=one(_P.DESCRIBE_CONFIGS, _T),
    ),
    Case(
        "DeleteRecords",
        lambda _front, n: _log.DeleteRecordsRequest(partitions=[_log.RecordsToDelete(topic=n.topic, offset=1)]),
        (one(_P.DELETE, _T),),
    ),
    Case("WriteTxnMarkers", _marker, (((_P.ALTER, _C), (_P.CLUSTER_ACTION, _C)),)),
    Case(
        "DescribeProducers",
        lambda _front, n: _log.DescribeProducersRequest(topics=_topics(n)),
        (READ_TOPIC,),
    ),
)

CASES: Final = (*TRANSACTIONS, *GROUPS, *LOG, *ADMINISTRATION)
