"""Answers of the product as the plain values of a history, and the way back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator_protocol.errors import CoordinatorError
from coordinator_protocol.marker import Marker
from coordinator_runtime.pending import Pending
from partition_log.requests import ProduceResult
from tests.harness.world import LogEntry, TransactContents
from tests.simulation import history as plain
from tests.simulation.history import Answer, Entry, Op
from txn_coordinator.outcomes import Ended
from txn_coordinator.service import TransactResult
from txn_coordinator.shard import Initialised
from txn_coordinator.state import Identity


def answer_of(op: Op, settled: Pending[Any], now: int) -> Answer | str:
    """What leaves the server: a success, or the name of an error code."""
    try:
        answer = settled.result()
    except CoordinatorError as error:
        return error.code.name
    if isinstance(answer, Identity):
        return Answer(now, plain_identity(answer))
    if isinstance(answer, TransactResult):
        first_offsets = tuple(offset for _target, offset in answer.first_offsets)
        ended = answer.ended
        return Answer(now, plain_identity(ended.next_identity), csn=ended.csn, first_offsets=first_offsets)
    if isinstance(answer, Initialised):
        ongoing = None if answer.ongoing is None else plain_identity(answer.ongoing)
        return Answer(now, plain_identity(answer.identity), ongoing=ongoing)
    if isinstance(answer, Ended):
        granted = plain_identity(answer.next_identity) if op.version == 2 else None
        return Answer(now, granted, csn=answer.csn)
    if isinstance(answer, ProduceResult):
        if answer.error is not None and not answer.is_duplicate:
            return answer.error.code.name
        op.is_duplicate = op.is_duplicate or answer.is_duplicate
        return Answer(now, base_offset=answer.base_offset)
    return Answer(now)


def is_repetition(op: Op, ops: Iterable[Op]) -> bool:
    """Whether a zombie of Kafka's protocol used a sequence again: its answer is that of the batch that had it."""
    place = (op.identity, op.partition, op.sequence)
    return op.is_by_zombie and any(
        other is not op and other.kind == "produce" and (other.identity, other.partition, other.sequence) == place
        for other in ops
    )


def contents_of(op: Op) -> TransactContents:
    batches = [(part.partition, part.values, part.sequence) for part in op.parts if part.kind == "produce"]
    offsets = [(part.group, "t-0", part.offset) for part in op.parts if part.kind == "offset"]
    return TransactContents(batches, offsets)


def plain_identity(identity: Identity) -> plain.Identity:
    return (identity.producer_id, identity.producer_epoch)


def receive(op: Op, answer: Answer | str) -> None:
    """The client's side: what it now knows."""
    if isinstance(answer, str):
        op.result = answer
    else:
        op.result, op.granted, op.ongoing = "ok", answer.granted, answer.ongoing
        op.base_offset, op.first_offsets, op.csn = answer.base_offset, answer.first_offsets, answer.csn


def plain_entry(entry: LogEntry) -> Entry:
    if entry.marker is None:
        return Entry(entry.offset, entry.value, entry.producer_id, entry.producer_epoch)
    marker = entry.marker
    return Entry(
        entry.offset,
        "",
        entry.producer_id,
        marker.txn_epoch,
        outcome=marker.outcome.name.lower(),
        csn=marker.csn,
        coordinator_shard=marker.coordinator_shard,
    )


def marker_of(entry: LogEntry) -> Marker:
    assert entry.marker is not None
    return Marker(
        producer_id=entry.producer_id,
        txn_epoch=entry.marker.txn_epoch,
        next_epoch=entry.marker.next_epoch,
        coordinator_shard=entry.marker.coordinator_shard,
        coordinator_epoch=entry.marker.coordinator_epoch,
        outcome=entry.marker.outcome,
        csn=entry.marker.csn,
    )
