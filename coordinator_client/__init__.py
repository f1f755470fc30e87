"""The SDK: producers, consumers, readers and administration over one core that does no I/O.

```python
from coordinator_client import Producer, read

with Producer("127.0.0.1:7070", transactional_id="billing-0") as producer:
    with producer.transaction() as txn:
        txn.send("invoices", b"42 EUR", key=b"alice")

for record in read("invoices", "127.0.0.1:7070"):
    print(record.offset, record.value)
```
"""

from coordinator_client.admin import Admin as Admin
from coordinator_client.admin import TopicDescription as TopicDescription
from coordinator_client.admin import TransactionListing as TransactionListing
from coordinator_client.async_producer import AsyncPreparedTransaction as AsyncPreparedTransaction
from coordinator_client.async_producer import AsyncProducer as AsyncProducer
from coordinator_client.async_producer import AsyncTransaction as AsyncTransaction
from coordinator_client.batch_reader import BatchReader as BatchReader
from coordinator_client.batch_reader import FetchOptions as FetchOptions
from coordinator_client.batch_reader import PartitionRange as PartitionRange
from coordinator_client.connection import Connection as Connection
from coordinator_client.consumer.asynchronous import AsyncConsumer as AsyncConsumer
from coordinator_client.consumer.blocking import Consumer as Consumer
from coordinator_client.consumer.config import ConsumerConfig as ConsumerConfig
from coordinator_client.consumer.config import ConsumerOptions as ConsumerOptions
from coordinator_client.consumer.listener import AsyncRebalanceListener as AsyncRebalanceListener
from coordinator_client.consumer.listener import RebalanceListener as RebalanceListener
from coordinator_client.consumer.polled import ConsumerRecords as ConsumerRecords
from coordinator_client.consumer.state import GroupMetadata as GroupMetadata
from coordinator_client.consumer.state import OffsetAndMetadata as OffsetAndMetadata
from coordinator_client.consumer.state import TopicPartition as TopicPartition
from coordinator_client.corrupt import Skipped as Skipped
from coordinator_client.descriptions import BlockingTransaction as BlockingTransaction
from coordinator_client.descriptions import PartitionDescription as PartitionDescription
from coordinator_client.descriptions import PartitionExplanation as PartitionExplanation
from coordinator_client.descriptions import TransactionDescription as TransactionDescription
from coordinator_client.descriptions import TransactionStep as TransactionStep
from coordinator_client.errors import Abortable as Abortable
from coordinator_client.errors import CommitFailed as CommitFailed
from coordinator_client.errors import CorruptBatch as CorruptBatch
from coordinator_client.errors import Fenced as Fenced
from coordinator_client.errors import Misconfigured as Misconfigured
from coordinator_client.errors import OutcomeUnknown as OutcomeUnknown
from coordinator_client.errors import RebalanceInProgress as RebalanceInProgress
from coordinator_client.errors import Recoverable as Recoverable
from coordinator_client.errors import Rejected as Rejected
from coordinator_client.errors import Retriable as Retriable
from coordinator_client.errors import TransactionError as TransactionError
from coordinator_client.errors import Unreachable as Unreachable
from coordinator_client.fetched_batch import FetchedBatch as FetchedBatch
from coordinator_client.group_state import GroupDescription as GroupDescription
from coordinator_client.group_state import GroupLag as GroupLag
from coordinator_client.group_state import GroupListing as GroupListing
from coordinator_client.group_state import GroupMember as GroupMember
from coordinator_client.group_state import GroupOffset as GroupOffset
from coordinator_client.group_state import PendingOffset as PendingOffset
from coordinator_client.group_state import PlannedOffset as PlannedOffset
from coordinator_client.group_state import RecordCount as RecordCount
from coordinator_client.offset_reset import OffsetReset as OffsetReset
from coordinator_client.offset_reset import ResetTo as ResetTo
from coordinator_client.producer import PreparedTransaction as PreparedTransaction
from coordinator_client.producer import Producer as Producer
from coordinator_client.producer import Transaction as Transaction
from coordinator_client.producer_config import ProducerConfig as ProducerConfig
from coordinator_client.producer_config import ProducerOptions as ProducerOptions
from coordinator_client.reader import ReadOptions as ReadOptions
from coordinator_client.reader import ReadPlan as ReadPlan
from coordinator_client.reader import ReadRecord as ReadRecord
from coordinator_client.reader import RecordReader as RecordReader
from coordinator_client.reader import plan_ranges as plan_ranges
from coordinator_client.reader import read as read
from coordinator_client.state import Identity as Identity
from coordinator_protocol.next_event import NextEvent as NextEvent

__all__ = [
    "Abortable",
    "Admin",
    "AsyncConsumer",
    "AsyncPreparedTransaction",
    "AsyncProducer",
    "AsyncRebalanceListener",
    "AsyncTransaction",
    "BatchReader",
    "BlockingTransaction",
    "CommitFailed",
    "Connection",
    "Consumer",
    "ConsumerConfig",
    "ConsumerOptions",
    "ConsumerRecords",
    "CorruptBatch",
    "Fenced",
    "FetchOptions",
    "FetchedBatch",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupMember",
    "GroupMetadata",
    "GroupOffset",
    "Identity",
    "Misconfigured",
    "NextEvent",
    "OffsetAndMetadata",
    "OffsetReset",
    "OutcomeUnknown",
    "PartitionDescription",
    "PartitionExplanation",
    "PartitionRange",
    "PendingOffset",
    "PlannedOffset",
    "PreparedTransaction",
    "Producer",
    "ProducerConfig",
    "ProducerOptions",
    "ReadOptions",
    "ReadPlan",
    "ReadRecord",
    "RebalanceInProgress",
    "RebalanceListener",
    "RecordCount",
    "RecordReader",
    "Recoverable",
    "Rejected",
    "ResetTo",
    "Retriable",
    "Skipped",
    "TopicDescription",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransactionError",
    "TransactionListing",
    "TransactionStep",
    "Unreachable",
    "plan_ranges",
    "read",
]
