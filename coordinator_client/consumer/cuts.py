"""Requests for the next cut of a consumer: offsets at which it has every transaction whole or not at all.

The generators here yield calls to the server, one after the other; their driver waits for the answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from google.protobuf.message import Message

from coordinator_api.v1 import common_pb2 as common
from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import LIST_COMMITTED_TRANSACTIONS, TAKE_SNAPSHOT, Rpc
from coordinator_client.errors import ReplyFields
from coordinator_client.values import TopicPartition
from coordinator_protocol.cuts import Committed, UnreadStretch, greatest_cut

_AT_ONCE_MAX: Final = 100
"""Maximum partitions per call, since the server limits the work of one call."""

BegunT = TypeVar("BegunT")
Ask: TypeAlias = Callable[[Rpc[Any, Any], Message, Callable[[Any], Iterable[ReplyFields]]], BegunT]
"""Begins a call; the last argument returns the parts of a reply that may fail individually."""


def cut_since(
    ask: Ask[BegunT],
    header: Callable[[], common.RequestHeader],
    positions: Mapping[TopicPartition, int],
    topic_ids: Mapping[TopicPartition, bytes],
) -> Generator[BegunT, Any, dict[TopicPartition, int]]:
    """Yield calls, receive their replies, and return the greatest cut of these partitions from the positions on."""
    topics: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
    for name in positions:
        topics[name.topic, topic_ids[name]].append(name.partition)
    places = [common.TopicPartitions(topic=each[0], topic_id=each[1], partitions=topics[each]) for each in topics]
    request = log.TakeSnapshotRequest(header=header(), topics=places)
    taken: log.TakeSnapshotResponse = yield ask(TAKE_SNAPSHOT, request, lambda _reply: ())
    views = {TopicPartition(each.topic, each.partition): each for each in taken.partitions}
    committed = yield from _committed(ask, header, positions, views)
    return greatest_cut(
        {
            name: UnreadStretch(
                positions[name],
                view.last_stable_offset,
                dict(zip(view.shown.producer_ids, view.shown.first_offsets, strict=True)),
                committed[name],
            )
            for name, view in views.items()
        }
    )


def _committed(
    ask: Ask[BegunT],
    header: Callable[[], common.RequestHeader],
    positions: Mapping[TopicPartition, int],
    views: Mapping[TopicPartition, log.SnapshotPartition],
) -> Generator[BegunT, Any, dict[TopicPartition, list[Committed]]]:
    """Return the transactions committed in each partition between its position and the end of the snapshot."""
    committed: dict[TopicPartition, list[Committed]] = {name: [] for name in views}
    missing = {name: positions[name] for name, view in views.items() if positions[name] < view.end_offset}
    while missing:
        asked = list(islice(missing, _AT_ONCE_MAX))
        request = log.ListCommittedTransactionsRequest(header=header())
        for name in asked:
            request.partitions.add(
                topic=name.topic,
                topic_id=views[name].topic_id,
                partition=name.partition,
                start_offset=missing[name],
                end_offset=views[name].end_offset,
            )
        reply: log.ListCommittedTransactionsResponse = yield ask(
            LIST_COMMITTED_TRANSACTIONS, request, lambda reply: reply.results
        )
        for name, result in zip(asked, reply.results, strict=True):
            committed[name] += [
                Committed(each.producer_id, each.first_offset, each.marker_offset, each.coordinator_shard, each.csn)
                for each in result.transactions
            ]
            # The result ends before the range if the log has lost that part: fetching will report it.
            is_lost = name == asked[0] and result.next_offset <= missing[name]
            if is_lost or result.next_offset >= views[name].end_offset:
                del missing[name]
            else:
                missing[name] = result.next_offset
    return committed
