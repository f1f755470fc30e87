"""The names users may import: an addition is a decision, a removal breaks users."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields

import coordinator_client
from coordinator_client import (
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
    ReadOptions,
    ReadPlan,
    ShareConsumerConfig,
    ShareConsumerOptions,
    TransactionError,
)

PUBLIC = [
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
    "Identity",
    "MemberTasks",
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
    "SentRecord",
    "ServerLimits",
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
    "TransactionStep",
    "Unreachable",
    "HeldSnapshot",
    "PartitionBlocker",
    "PartitionListing",
    "PartitionPage",
    "QuotaReport",
    "QuotaStanding",
    "RateHistory",
    "RecentEvent",
    "ServerSetting",
    "TransactionPage",
    "plan_ranges",
    "read",
    "stable_id",
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
    assert set(ShareConsumerOptions.__annotations__) == {field.name for field in fields(ShareConsumerConfig)}
    assert set(ReadOptions.__annotations__) == {field.name for field in fields(ReadPlan)}


VALUES = {
    "classic",
    "compact",
    "compact,delete",
    "consumer",
    "delete",
    "full",
    "grpc_session",
    "header",
    "read_committed",
    "session",
    "unary",
}
"""Values of options and of topics' settings that docstrings mention."""
ELSEWHERE = {
    "batch_bytes_max",
    "cleanup_policy",
    "coordinator_client",
    "delete_retention_ms",
    "error",
    "max_compaction_lag_ms",
    "min_compaction_lag_ms",
    "min_dirty_ratio",
    "producer_id_expiration_ms",
    "retention_bytes",
    "retention_ms",
    "share_auto_offset_reset",
    "share_isolation_level",
    "timestamp_after_max_ms",
    "validate_payload",
    "with",
}
"""A logger, an argument of a callback, settings of topics, groups and the server, and a word of Python."""
QUOTED = re.compile(r"`([a-z_][a-z0-9_]*)(?:=[^`]*)?`")


def documented() -> Iterator[tuple[str, str, set[str]]]:
    """Every public class and function, and their methods: name, docstring, and the names of its own parameters."""
    for name in PUBLIC:
        thing = getattr(coordinator_client, name)
        methods = inspect.getmembers(thing, inspect.isfunction) if inspect.isclass(thing) else []
        yield name, inspect.getdoc(thing) or "", parameters(thing)
        for method, function in methods:
            if method == "__init__" or not method.startswith("_"):
                yield f"{name}.{method}", inspect.getdoc(function) or "", parameters(function)


def parameters(function: Callable[..., object]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except ValueError:  # Options as a dict have none.
        return set()


def test_a_docstring_names_options_and_methods_that_are_there() -> None:
    classes = [thing for name in PUBLIC if inspect.isclass(thing := getattr(coordinator_client, name))]
    members = {member for thing in classes for member in dir(thing)}
    members |= {field for thing in classes for base in thing.__mro__ for field in vars(base).get("__annotations__", {})}
    known = members | set(PUBLIC) | VALUES | ELSEWHERE
    unknown = {
        (name, quoted)
        for name, text, own in documented()
        for quoted in QUOTED.findall(text)
        if quoted not in known | own
    }
    assert not unknown


def test_a_docstring_that_lists_options_lists_those_that_are_there() -> None:
    lists = {"read": ReadOptions}
    found = {
        name: set(QUOTED.findall(text.partition("Options by name: ")[2].partition("(see")[0]))
        for name, text, _own in documented()
        if re.search(r"Options by name: `", text)
    }
    assert found == {name: set(options.__annotations__) for name, options in lists.items()}


def test_every_error_is_a_transaction_error_with_an_action_of_its_own() -> None:
    kinds = [
        thing
        for name in PUBLIC
        if inspect.isclass(thing := getattr(coordinator_client, name)) and issubclass(thing, Exception)
    ]
    assert all(issubclass(kind, TransactionError) for kind in kinds)
    assert len({kind.action for kind in kinds}) == len(kinds) == 13
