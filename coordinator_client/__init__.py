"""Client SDK: producers, consumers, readers and administration.

Most programs need these names:

- `Producer`, `AsyncProducer`: send records, in transactions or without;
- `Consumer`, `AsyncConsumer`: read as a member of a group;
- `ShareConsumer`, `AsyncShareConsumer`: take records one by one, as a member of a share group;
- `read`: iterate over the records of a topic;
- `Admin`, `AsyncAdmin`: topics, groups, transactions, access control lists, shards and backups;
- `stable_id`: the transactional id of this instance;
- `Tls`: certificates and tokens;
- `TransactionError`: base of all errors; `errors` has the reaction to each.

```python
from coordinator_client import Producer, read

with Producer("127.0.0.1:7070", transactional_id="billing-0") as producer:
    with producer.transaction() as txn:
        txn.send("invoices", b"42 EUR", key=b"alice")

for record in read("invoices", "127.0.0.1:7070"):
    print(record.offset, record.value)
```

A loop that reads, transforms and writes each record exactly once:

```python
from coordinator_client import Abortable, Consumer, Producer, Recoverable, Retriable

with (
    Consumer("127.0.0.1:7070", group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
    Producer("127.0.0.1:7070", transactional_id="billing-1") as producer,
):
    producer.init()
    consumer.subscribe(["orders"])
    for batch in consumer.batches():
        try:
            with producer.transaction() as txn:
                for order in batch:
                    txn.send("invoices", order.value, key=order.key)
                txn.commit_offsets(consumer, batch)
        except (Abortable, Recoverable, Retriable):
            consumer.rewind(batch)
```

An OutcomeUnknown ends this loop. That is safe, because the next start goes on at the committed offsets.

docs/tour.md has the loop that goes on, and a table of all exceptions.

Look at:

- `Producer` and `Transaction`: init, transaction, send, commit_offsets, resolve_outcome;
- `ProducerConfig`: the settings of a producer;
- `Consumer`: subscribe, poll, batches, rewind, commit;
- `ConsumerConfig`: the settings of a consumer;
- `ShareConsumer`: poll, accept, release, reject, renew, commit; with `Transaction.acknowledge` each record counts once;
- `ShareConsumerConfig`: the settings of a share consumer;
- `streams`: members of streams groups, and the topologies that they describe;
- `errors`: the exceptions, and the reaction to each.
docs/sdk.md has recipes. `ProducerConfig` and `ConsumerConfig` document all settings.

For maintainers: each kind of client is a core without clock, socket and thread, in two shells, blocking and asyncio. A
shell drives its core. It sets a goal, starts the attempts that `transmissions` returns, and waits for an answer or for
`wake_ms`. It hands each answer to `on_answer`, and repeats that until the goal is reached. For a consumer an engine
does this, on the loop of the application or on one beside it.

- `producer`, `consumer`, `share` and `streams` have a core, their shells and pure rules. `groups` has the parts that
  all members of groups need. `reading` reads without a group; `admin` has the questions of administrators.
- `transport` has connections, and the session that all clients of a process share. `calls` has a request with all its
  attempts.
- `errors` has one exception for each action that helps, chosen by the error class of the reply.

Reading order: `calls`, `transport/transport`, `transport/connection`, `errors`, `producer/core`, `producer/shell`,
`producer/producer`, `consumer/core`, `groups/engine`, `groups/shells`, `consumer/consumers`. Then `share/core`,
`share/session` and `reading/batch_reader`.
"""

from coordinator_client.admin.acl_admin import PermissionCheck
from coordinator_client.admin.admin import Admin, AsyncAdmin
from coordinator_client.admin.observing import (
    HeldSnapshot,
    PartitionBlocker,
    PartitionListing,
    PartitionPage,
    QuotaReport,
    QuotaStanding,
    RateHistory,
    RecentEvent,
    ServerSetting,
    TransactionPage,
)
from coordinator_client.admin.offset_reset import OffsetReset, ResetTo
from coordinator_client.admin.server_admin import BackupDescription, DiskDescription, ServerLimits, ShardDescription
from coordinator_client.admin.topic_admin import TopicDescription, TopicSetting
from coordinator_client.admin.transaction_admin import (
    EndedTransaction,
    HangingListing,
    SinkListing,
    SinkMemberListing,
    TransactionListing,
)
from coordinator_client.consumer.async_consumer import AsyncConsumer
from coordinator_client.consumer.config import ConsumerConfig, ConsumerOptions
from coordinator_client.consumer.consumers import Consumer
from coordinator_client.consumer.handover import AsyncRebalanceListener, RebalanceListener
from coordinator_client.consumer.polled import ConsumerRecords
from coordinator_client.descriptions.group_offsets import (
    GroupLag,
    GroupOffset,
    PendingOffset,
    PlannedOffset,
    RecordCount,
    ShareGroupOffset,
)
from coordinator_client.descriptions.groups import (
    GroupDescription,
    GroupListing,
    GroupMember,
    MemberTasks,
)
from coordinator_client.descriptions.transactions import (
    BlockingTransaction,
    DeletedRecords,
    PartitionDescription,
    PartitionExplanation,
    TransactionDescription,
    TransactionStep,
)
from coordinator_client.encodings import FetchedBatch
from coordinator_client.errors import (
    Abortable,
    AcknowledgementFailed,
    CommitFailed,
    CorruptBatch,
    Fenced,
    Misconfigured,
    OutcomeUnknown,
    RebalanceInProgress,
    Recoverable,
    Rejected,
    Retriable,
    TransactionError,
    Unreachable,
)
from coordinator_client.producer.async_producer import AsyncPreparedTransaction, AsyncProducer, AsyncTransaction
from coordinator_client.producer.batching import SentRecord
from coordinator_client.producer.config import ProducerConfig, ProducerOptions
from coordinator_client.producer.producer import PreparedTransaction, Producer, Transaction
from coordinator_client.reading.batch_reader import BatchReader, FetchOptions, PartitionRange
from coordinator_client.reading.reader import ReadOptions, ReadPlan, ReadRecord, RecordReader, plan_ranges, read
from coordinator_client.reading.snapshots import Snapshot
from coordinator_client.settings import Skipped
from coordinator_client.share.acquired import AcknowledgeType, ShareRecord, ShareRecords
from coordinator_client.share.async_share_consumer import AsyncShareConsumer
from coordinator_client.share.config import ShareConsumerConfig, ShareConsumerOptions
from coordinator_client.share.share_consumer import ShareConsumer
from coordinator_client.stable_id import stable_id
from coordinator_client.tls import Tls
from coordinator_client.transport.connection import Connection
from coordinator_client.values import GroupMetadata, Identity, OffsetAndMetadata, TopicPartition
from coordinator_protocol.acls import Acl, AclFilter, PatternType, Permission, PermissionType, ResourceType
from coordinator_protocol.next_event import NextEvent

__all__ = [
    "Abortable",
    "AcknowledgeType",
    "AcknowledgementFailed",
    "Acl",
    "AclFilter",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncPreparedTransaction",
    "AsyncProducer",
    "AsyncRebalanceListener",
    "AsyncShareConsumer",
    "AsyncTransaction",
    "BackupDescription",
    "BatchReader",
    "BlockingTransaction",
    "CommitFailed",
    "Connection",
    "Consumer",
    "ConsumerConfig",
    "ConsumerOptions",
    "ConsumerRecords",
    "CorruptBatch",
    "DeletedRecords",
    "DiskDescription",
    "EndedTransaction",
    "Fenced",
    "FetchOptions",
    "FetchedBatch",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "GroupOffset",
    "HangingListing",
    "HeldSnapshot",
    "Identity",
    "MemberTasks",
    "Misconfigured",
    "NextEvent",
    "OffsetAndMetadata",
    "OffsetReset",
    "OutcomeUnknown",
    "PartitionBlocker",
    "PartitionDescription",
    "PartitionExplanation",
    "PartitionListing",
    "PartitionPage",
    "PartitionRange",
    "PatternType",
    "PendingOffset",
    "Permission",
    "PermissionCheck",
    "PermissionType",
    "PlannedOffset",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "ProducerOptions",
    "QuotaReport",
    "QuotaStanding",
    "RateHistory",
    "ReadOptions",
    "ReadPlan",
    "ReadRecord",
    "RebalanceInProgress",
    "RebalanceListener",
    "RecentEvent",
    "RecordCount",
    "RecordReader",
    "Recoverable",
    "Rejected",
    "ResetTo",
    "ResourceType",
    "Retriable",
    "SentRecord",
    "ServerLimits",
    "ServerSetting",
    "ShardDescription",
    "ShareConsumer",
    "ShareConsumerConfig",
    "ShareConsumerOptions",
    "ShareGroupOffset",
    "ShareRecord",
    "ShareRecords",
    "SinkListing",
    "SinkMemberListing",
    "Skipped",
    "Snapshot",
    "Tls",
    "TopicDescription",
    "TopicPartition",
    "TopicSetting",
    "Transaction",
    "TransactionDescription",
    "TransactionError",
    "TransactionListing",
    "TransactionPage",
    "TransactionStep",
    "Unreachable",
    "plan_ranges",
    "read",
    "stable_id",
]
