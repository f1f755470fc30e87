"""Answers to ShareFetch: the partitions of the request and of the session, each once."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from coordinator_protocol.errors import Refused
from coordinator_runtime.ports import PartitionName, PartitionRef
from group_coordinator.share_partitions.fetching import FetchOutcome
from group_coordinator.share_partitions.naming import Named
from group_coordinator.share_partitions.requests import AcknowledgeResult, ShareFetchReply, ShareFetchResult


def fetch_reply(named: Iterable[Named], acks: Iterable[AcknowledgeResult], found: FetchOutcome) -> ShareFetchReply:
    """Return the results: the partitions that `named` has, in its order, then the others with errors or records."""
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
