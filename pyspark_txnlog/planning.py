"""Asks the server once where everything is, and fixes the ranges of a read."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.admin import Admin, TopicDescription
from coordinator_client.batch_reader import BatchReader, FetchOptions, PartitionRange
from coordinator_client.calls import FETCH, LIST_OFFSETS, Deadlines
from coordinator_client.connection import Connection
from coordinator_client.settings import EARLIEST_MS, LATEST_MS, isolation_level
from coordinator_client.tls import Tls
from coordinator_protocol.errors import ErrorCode
from pyspark_txnlog.options import Position, ReadOptions, TlsNames, Topics
from pyspark_txnlog.ranges import OffsetRange, Positions, plan_ranges

CLIENT_ID = "pyspark-txnlog"

_CONNECTIONS: dict[tuple[int, str, TlsNames | None], Connection] = {}


class UnknownTopic(LookupError):
    """A topic or partition that a read names does not exist, or is not the one that it was."""


def tls_of(options: ReadOptions) -> Tls | None:
    """Return what the options say of TLS. Raises: Misconfigured where a file is not on this machine, or is wrong."""
    names = options.tls_files
    return None if names is None else Tls(**names._asdict())


def shared_connection(options: ReadOptions) -> Connection:
    """Return the one connection of this process to the server; its channel opens with the first request.

    It waits for a server that is not there yet: a job may start beside it, and Spark would take the failure of a task
    for a reason to begin again. It is never closed: Spark keeps a worker process for task after task, and a fork must
    not inherit it, which the process id in the key sees to.
    """
    key = (os.getpid(), options.endpoint, options.tls_files)
    if key not in _CONNECTIONS:
        _CONNECTIONS[key] = Connection(options.endpoint, client_id=CLIENT_ID, wait_ms=None, tls=tls_of(options))
    return _CONNECTIONS[key]


def plan_read(connection: Connection, options: ReadOptions) -> list[OffsetRange]:
    """Return the range of each partition to read, empty ones included; all ends are those of one moment.

    Raises: UnknownTopic, InvalidOption, DataLoss; TransactionError where the server refuses or stays out of reach.
    """
    return plan_ranges(options, _compared(connection, options, read_positions(connection, options)))


def read_positions(connection: Connection, options: ReadOptions) -> list[Positions]:
    """Return where each partition to read begins and ends, all taken by the server at the same moment.

    Raises: UnknownTopic; TransactionError where the server refuses or stays out of reach.
    """
    chosen = _chosen_partitions(connection, options)
    request = log.ListOffsetsRequest(header=connection.header(), isolation_level=isolation_level(options.isolation))
    for time_ms in (EARLIEST_MS, LATEST_MS):
        for topic, partition in chosen:
            request.partitions.add(topic=topic.name, topic_id=topic.topic_id, partition=partition, timestamp_ms=time_ms)
    if not chosen:
        return []
    reply = connection.ask(
        LIST_OFFSETS,
        request,
        deadlines=Deadlines(total_ms=options.rpc_timeout_ms),
        items=lambda reply: reply.results,
    )
    earliest, latest = reply.results[: len(chosen)], reply.results[len(chosen) :]
    return [
        Positions(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=partition,
            earliest=first.offset,
            end=end.offset,
            leader_epoch=end.leader_epoch if end.HasField("leader_epoch") else None,
        )
        for (topic, partition), first, end in zip(chosen, earliest, latest, strict=True)
    ]


def _compared(connection: Connection, options: ReadOptions, positions: list[Positions]) -> list[Positions]:
    """Return the positions with what the server says of the offsets that the options name with a leader epoch.

    It is asked after the ends were taken. Where the log changes only then, the tasks notice it by the ends.
    """
    asked = [
        (found, position)
        for found in positions
        for offsets in (options.starting, options.ending)
        if offsets
        and (position := offsets.get(found.topic, {}).get(found.partition))
        and position.leader_epoch is not None
    ]
    if not asked:
        return positions
    request = log.FetchRequest(header=connection.header(), isolation_level=isolation_level(options.isolation))
    for found, position in asked:
        # Up to where it begins: nothing is read, and all of the log before it is looked at.
        request.partitions.add(
            topic=found.topic,
            topic_id=found.topic_id,
            partition=found.partition,
            fetch_offset=position.offset,
            end_offset=position.offset,
            last_read_epoch=position.leader_epoch,
        )
    reply = connection.ask(
        FETCH,
        request,
        deadlines=Deadlines(total_ms=options.rpc_timeout_ms),
        items=lambda reply: [
            result.fields for result in reply.results if result.fields.error_code != ErrorCode.OFFSET_OUT_OF_RANGE.value
        ],
    )
    parted: dict[tuple[str, int], dict[Position, int]] = {}
    for (found, position), result in zip(asked, reply.results, strict=True):
        if result.fields.HasField("diverging"):
            parted.setdefault((found.topic, found.partition), {})[position] = result.fields.diverging.end_offset
    return [replace(found, parted_at=parted.get((found.topic, found.partition), {})) for found in positions]


def _chosen_partitions(connection: Connection, options: ReadOptions) -> list[tuple[TopicDescription, int]]:
    chosen: list[tuple[TopicDescription, int]] = []
    for topic in _described(connection, options):
        wanted_id = options.topic_ids.get(topic.name, topic.topic_id)
        if wanted_id != topic.topic_id:
            raise UnknownTopic(
                f"the topic {topic.name} with the id {wanted_id.hex()} is gone; another one of that name was created"
            )
        numbers: Sequence[int] = [found.partition for found in topic.partitions]
        if options.topics.assigned is not None:
            wanted = options.topics.assigned[topic.name]
            unknown = sorted(set(wanted) - set(numbers))
            if unknown:
                raise UnknownTopic(f"{topic.name} has {len(numbers)} partitions, counted from 0, and no {unknown[0]}")
            numbers = wanted
        chosen += [(topic, number) for number in numbers]
    return chosen


def _described(connection: Connection, options: ReadOptions) -> list[TopicDescription]:
    admin = Admin(connection, deadline_ms=options.rpc_timeout_ms)
    topics: Topics = options.topics
    if not topics.pattern:
        return admin.describe_topics(topics.names or tuple(topics.assigned or ()))
    pattern = re.compile(topics.pattern)
    found = [topic for topic in admin.describe_topics() if pattern.fullmatch(topic.name)]
    if not found:
        # As in the Kafka source: the first topic may be created later. But a typing error looks the same.
        warnings.warn(
            f"subscribePattern {topics.pattern!r} matches no topic of the server", RuntimeWarning, stacklevel=2
        )
    return found


def open_range(connection: Connection, options: ReadOptions, scanned: OffsetRange) -> BatchReader:
    """Return a reader of exactly this range; nothing is fetched yet."""
    asked = PartitionRange(
        topic=scanned.topic,
        topic_id=scanned.topic_id,
        partition=scanned.partition,
        start_offset=scanned.start_offset,
        end_offset=scanned.end_offset,
        end_epoch=scanned.leader_epoch,
    )
    fetching = FetchOptions(
        isolation=options.isolation, on_corrupt_batch=options.on_corrupt_batch, patience_ms=options.rpc_timeout_ms
    )
    return BatchReader(connection, [asked], fetching)
