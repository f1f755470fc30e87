"""Lookup of start positions: the committed offset of the group, else the offset chosen by `auto_offset_reset`.

Committed offsets are requested with `require_stable`: the consumer waits for the transaction of a pending offset.
Otherwise the records before it would be processed twice (KIP-447).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import LIST_OFFSETS, OFFSET_FETCH, RetryingCall
from coordinator_client.consumer.config import EARLIEST
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.consumer.fetching import NEVER
from coordinator_client.consumer.owned import OwnedPartition
from coordinator_client.descriptions.group_offsets import committed_in
from coordinator_client.errors import PASSING, TOPIC_GONE, ReplyFields, TransactionError, class_of, failure, rejected
from coordinator_client.groups.backoff import BACKOFF_MS_FIRST
from coordinator_client.groups.committed import Reader, offset_fetch_request
from coordinator_client.settings import EARLIEST_MS, LATEST_MS, isolation_level
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method

_PASSING: Final = PASSING | {ErrorClass.REJOIN}
_Placed: TypeAlias = Sequence[tuple[OwnedPartition, int]]
"""Partitions, each with its moves at the time of the request."""


class ConsumerPositions:
    """Looks up the positions of the partitions that have none."""

    def __init__(self, context: ConsumerContext, reader: Callable[[], Reader | None]) -> None:
        """Start without requests. `reader` returns the identity for requests of committed offsets; None if the consumer
        is between two memberships."""
        self._context = context
        self._reader = reader

    def advance(self, now_ms: int) -> None:
        """Look up the missing positions."""
        missing = [p for p in self._context.assignment if p.position is None and p.is_idle and p.retry_at_ms <= now_ms]
        committed = sorted((p for p in missing if p.reset is None), key=lambda partition: partition.name)
        if committed and self._context.config.group_id is None:
            for partition in committed:
                self._begin_at_reset(partition, now_ms)
        elif committed:
            self._ask_committed(committed, now_ms)
        resets = [partition for partition in missing if partition.reset is not None]
        if resets:
            self._ask_ends(resets, now_ms)

    def wake_ms(self) -> int | None:
        """Return the time of the next lookup after a failure."""
        return min((p.retry_at_ms for p in self._context.assignment if p.position is None and p.is_idle), default=None)

    def _ask_committed(self, partitions: Sequence[OwnedPartition], now_ms: int) -> None:
        reader = self._reader()
        if reader is None:
            for partition in partitions:
                partition.retry_at_ms = now_ms + BACKOFF_MS_FIRST
            return
        topics = ((partition.name, partition.topic_id) for partition in partitions)
        request = offset_fetch_request(self._context, reader, topics)
        placed = _begin(partitions)
        call = RetryingCall(
            OFFSET_FETCH, request, deadlines=self._context.once(), now_ms=now_ms, items=lambda reply: reply.groups
        )
        self._context.flights.start(call, lambda end, at_ms: self._committed(placed, end, at_ms))

    def _committed(self, placed: _Placed, end: group.OffsetFetchResponse | TransactionError, now_ms: int) -> None:
        if isinstance(end, TransactionError):
            self._failed(placed, end, now_ms)
            return
        for (partition, moves), found in zip(placed, end.groups[0].offsets, strict=True):
            if not self._is_answered(Method.OFFSET_FETCH, partition, moves, found, now_ms):
                continue
            if found.committed_offset >= 0:
                partition.committed = committed_in(found)
                partition.move_to(found.committed_offset, partition.committed.leader_epoch)
                partition.topic_id = partition.topic_id or found.topic_id
            else:
                self._begin_at_reset(partition, now_ms)

    def _begin_at_reset(self, partition: OwnedPartition, now_ms: int) -> None:
        if self._context.config.auto_offset_reset == NEVER:
            self._failed([(partition, partition.moves)], _no_offset(partition), now_ms)
        else:
            partition.reset = self._context.config.auto_offset_reset

    def _ask_ends(self, partitions: Sequence[OwnedPartition], now_ms: int) -> None:
        request = log.ListOffsetsRequest(
            header=self._context.header(), isolation_level=isolation_level(self._context.config.isolation)
        )
        for partition in partitions:
            request.partitions.add(
                topic=partition.name.topic,
                topic_id=partition.topic_id,
                partition=partition.name.partition,
                timestamp_ms=EARLIEST_MS if partition.reset == EARLIEST else LATEST_MS,
            )
        placed = _begin(partitions)
        call = RetryingCall(LIST_OFFSETS, request, deadlines=self._context.once(), now_ms=now_ms)
        self._context.flights.start(call, lambda end, at_ms: self._found_ends(placed, end, at_ms))

    def _found_ends(self, placed: _Placed, end: log.ListOffsetsResponse | TransactionError, now_ms: int) -> None:
        if isinstance(end, TransactionError):
            self._failed(placed, end, now_ms)
            return
        for (partition, moves), found in zip(placed, end.results, strict=True):
            if self._is_answered(Method.LIST_OFFSETS, partition, moves, found, now_ms):
                partition.move_to(found.offset, found.leader_epoch if found.HasField("leader_epoch") else None)
                partition.topic_id = partition.topic_id or found.topic_id

    def _is_answered(
        self, method: Method, partition: OwnedPartition, moves: int, found: ReplyFields, now_ms: int
    ) -> bool:
        """Return True if the answer for a partition is good and still wanted. A failure is noted."""
        if not _is_current(partition, moves):
            return False
        partition.is_asking = False
        what = class_of(method, found)
        if what is ErrorClass.NONE:
            self._context.found(partition)
            self._context.accepted(method, partition)
            return True
        why = failure(found.error_code, what, f"{method} {_name(partition)}: {found.error_message}")
        self._context.refused(method, partition, why, now_ms)
        self._failed([(partition, moves)], why, now_ms)
        return False

    def _failed(self, placed: _Placed, error: TransactionError, now_ms: int) -> None:
        for partition, moves in placed:
            if not _is_current(partition, moves):
                continue
            partition.is_asking = False
            if error.code in TOPIC_GONE:
                self._context.gone(partition, error, now_ms)
            else:
                partition.retry_at_ms = now_ms + BACKOFF_MS_FIRST
                partition.problem = None if error.error_class in _PASSING else error


def _begin(partitions: Sequence[OwnedPartition]) -> _Placed:
    for partition in partitions:
        partition.is_asking = True
    return [(partition, partition.moves) for partition in partitions]


def _is_current(partition: OwnedPartition, moves: int) -> bool:
    return partition.is_held and partition.moves == moves


def _name(partition: OwnedPartition) -> str:
    return f"{partition.name.topic}-{partition.name.partition}"


def _no_offset(partition: OwnedPartition) -> TransactionError:
    error = rejected(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"nothing is committed for {_name(partition)}, and auto_offset_reset is 'none'",
    )
    error.action = "seek() to where it should begin, or set auto_offset_reset to earliest or latest."
    return error
