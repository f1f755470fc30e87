"""The names users may import: an addition is a decision, a removal breaks somebody."""

from __future__ import annotations

import inspect
from dataclasses import fields

import coordinator_client
from coordinator_client import (
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
    ReadOptions,
    ReadPlan,
    TransactionError,
)

PUBLIC = [
    "Abortable",
    "Acl",
    "AclFilter",
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
    "DeletedRecords",
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
    "ResourceType",
    "Retriable",
    "Skipped",
    "Snapshot",
    "Tls",
    "TopicDescription",
    "TopicSetting",
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


def test_the_public_names_are_these() -> None:
    assert sorted(coordinator_client.__all__) == sorted(PUBLIC)


def test_every_public_name_says_what_it_promises() -> None:
    silent = []
    for name in PUBLIC:
        thing = getattr(coordinator_client, name)
        members = vars(thing).items() if inspect.isclass(thing) else ()
        callables = [(f"{name}.{member}", value) for member, value in members if inspect.isfunction(value)]
        silent += [
            label
            for label, value in [(name, thing), *callables]
            if not label.rpartition(".")[2].startswith("_") and not inspect.getdoc(value)
        ]
    assert silent == []


def test_what_can_be_passed_by_name_is_what_is_documented() -> None:
    assert set(ProducerOptions.__annotations__) == {field.name for field in fields(ProducerConfig)}
    assert set(ConsumerOptions.__annotations__) == {field.name for field in fields(ConsumerConfig)}
    assert set(ReadOptions.__annotations__) == {field.name for field in fields(ReadPlan)}


def test_every_error_is_a_transaction_error_with_an_action_of_its_own() -> None:
    kinds = [
        thing
        for name in PUBLIC
        if inspect.isclass(thing := getattr(coordinator_client, name)) and issubclass(thing, Exception)
    ]
    assert all(issubclass(kind, TransactionError) for kind in kinds)
    assert len({kind.action for kind in kinds}) == len(kinds) == 12
