"""Answers to ShareFetch: the partitions of the request and of the session, each once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from coordinator_protocol.errors import Refused
from coordinator_runtime.ports import PartitionName, PartitionRef
from group_coordinator.share_partitions.fetching import FetchOutcome
from group_coordinator.share_partitions.requests import AcknowledgeResult, ShareFetchReply, ShareFetchResult
from group_coordinator.share_partitions.rules import AckBatch


class Named(NamedTuple):
    """A partition of a request, and what was found under its name."""

    name: PartitionName
    batches: tuple[AckBatch, ...]
    ref: PartitionRef | Refused


def fetch_reply(named: Iterable[Named], acks: Iterable[AcknowledgeResult], found: FetchOutcome) -> ShareFetchReply:
    """Return the results: partitions with acknowledgements, errors or records, first those of the request."""
    fetched = {ordinal: ShareFetchResult(_name(ref), error) for ordinal, (ref, error) in found.errors.items()}
    for taken in found.taken:
        fetched[taken.ref.ordinal] = ShareFetchResult(_name(taken.ref), ranges=taken.ranges, batches=taken.batches)
    results: list[ShareFetchResult] = []
    for each, ack in zip(named, acks, strict=True):
        acknowledge_error = ack.error if each.batches else None
        if isinstance(each.ref, Refused):
            results.append(ShareFetchResult(each.name, each.ref, acknowledge_error))
            continue
        result = fetched.pop(each.ref.ordinal, None)
        if result is not None:
            results.append(replace(result, acknowledge_error=acknowledge_error))
        elif each.batches:
            results.append(ShareFetchResult(_name(each.ref), acknowledge_error=acknowledge_error))
    return ShareFetchReply(found.lock_duration_ms, (*results, *fetched.values()))


def _name(ref: PartitionRef) -> PartitionName:
    return PartitionName(ref.topic, ref.topic_id, ref.partition)
