"""Partitions that a request names: found, acknowledged, and taken into the session, some in each turn of the loop.

A request may name thousands. It has taken its epoch before, and later requests of the session wait until it is done.
Each partition is looked at once, as it is then. If the session ends meanwhile, no further one is looked at, and those
with acknowledgements are refused by name. A caller that gives up changes nothing: what it acknowledges counts.

Source: spec groups 6.2; KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Operation
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import CallContext, PartitionName, PartitionRef
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.stepping import AnswerSteps
from group_coordinator.administration.settings import ShareSettings
from group_coordinator.share_partitions.decisions import decide_acknowledge
from group_coordinator.share_partitions.fetching import PartitionErrors, ShareParts
from group_coordinator.share_partitions.members import ShareMembership, terms_of
from group_coordinator.share_partitions.places import share_shard
from group_coordinator.share_partitions.records import ShareKey
from group_coordinator.share_partitions.requests import Acknowledge, AcknowledgeResult, PartitionAcks
from group_coordinator.share_partitions.rules import AckBatch
from group_coordinator.share_partitions.sessions import ShareSession

NAMED_PER_STEP: Final = 100
"""Number of partitions of a request that are looked at in one turn of the loop."""

ACKNOWLEDGED_PER_STEP: Final = 8
"""Number of those whose records are acknowledged in one turn. Each is an operation."""


class NamingRequest(Struct, frozen=True, kw_only=True):
    """A request that has taken its epoch."""

    session: ShareSession
    partitions: tuple[PartitionAcks, ...]
    forgotten: tuple[PartitionName, ...] = ()
    """Partitions that leave the session in the end."""
    joins: bool = False
    """True if the partitions join the session, in order to be fetched from."""
    settings: ShareSettings
    context: CallContext


class Named(NamedTuple):
    """A partition of a request, and what was found under its name."""

    name: PartitionName
    batches: tuple[AckBatch, ...]
    ref: PartitionRef | Refused
    acknowledged: Pending[AcknowledgeResult]


class RequestedPartitions(NamedTuple):
    """The partitions of a request, in its order."""

    named: list[Named]
    """All of them. If they join the session, only those that are refused, or have acknowledgements."""
    errors: PartitionErrors
    """Errors of those that join the session and may not be fetched from yet."""

    def results(self) -> Pending[list[AcknowledgeResult]]:
        """Return one result for each, once all acknowledgements are durable."""
        return all_of([each.acknowledged for each in self.named])


class PartitionNaming:
    """Takes in the partitions of requests."""

    def __init__(self, runtime: Runtime, parts: ShareParts) -> None:
        self._runtime = runtime
        self._log = parts.log
        self._homes = parts.homes
        self._members = parts.members
        self._sessions = parts.sessions

    def steps(self, request: NamingRequest) -> AnswerSteps[RequestedPartitions]:
        """Find the partitions, acknowledge their records, and let them join or leave the session. Acknowledgements are
        staged in order, and each partition succeeds or is refused by itself."""
        session, found = request.session, RequestedPartitions([], {})
        before: Pending[AcknowledgeResult] | None = None
        for first, portion in _portions(request.partitions):
            if first:
                # Not more than two steps become durable together, because all that follows from it comes in one turn.
                yield before
                before = found.named[-1].acknowledged if found.named else None
            if not self._sessions.is_current(session):
                found.named.extend(_unreached(request.partitions[first:]))
                break
            membership = self._membership(request)
            for each in portion:
                self._take_in(each, request, membership, found)
        if request.joins:
            refused = [each.name for each in found.named if isinstance(each.ref, Refused)]
            for ordinal in session.ordinals_of((*request.forgotten, *refused)):
                self._sessions.remove(session, ordinal)
        return found

    def _take_in(
        self,
        each: PartitionAcks,
        request: NamingRequest,
        membership: ShareMembership | None,
        found: RequestedPartitions,
    ) -> None:
        ref = self._log.find(each.name, request.context)
        if isinstance(ref, Refused):
            found.named.append(Named(each.name, each.batches, ref, settled(AcknowledgeResult(each.name, ref))))
            return
        if request.joins:
            self._sessions.add(request.session, ref)
            if not each.has_batches:
                if membership is not None and not membership.has(ref):
                    found.errors[ref.ordinal] = ref, _unassigned(ref)
                return
        found.named.append(Named(each.name, each.batches, ref, self._acknowledge(each, ref, request)))

    def _membership(self, request: NamingRequest) -> ShareMembership | None:
        """Return the member as it is now. None if it is gone: the next request is refused as it deserves, once that is
        on disk."""
        if not request.joins:
            return None
        try:
            return self._members.membership(request.session.key)
        except Refused:
            return None

    def _acknowledge(
        self, each: PartitionAcks, ref: PartitionRef, request: NamingRequest
    ) -> Pending[AcknowledgeResult]:
        name, batches = each.name, each.batches
        if not batches:
            return settled(AcknowledgeResult(name, None))
        number = self._homes.shard_number(ref.ordinal)
        assert number is not None, "a partition that was found has a place"
        group_id, member_id = request.session.key
        settings = request.settings
        command = Acknowledge(member_id, batches, terms_of(settings), allows_renewal=settings.is_renew_enabled)
        decide = partial(decide_acknowledge, key=ShareKey(group_id, ref.ordinal), command=command)
        written: Pending[Any] = self._runtime.write(Operation(share_shard(number), decide), is_urgent=True)
        return written.map(lambda _done: AcknowledgeResult(name, None)).answer_error(
            lambda error: AcknowledgeResult(name, error)
        )


def _portions(partitions: Sequence[PartitionAcks]) -> Iterator[tuple[int, Sequence[PartitionAcks]]]:
    """Yield the partitions of each step, and the place of their first one."""
    first = acknowledged = 0
    for place, each in enumerate(partitions):
        if place - first == NAMED_PER_STEP or acknowledged == ACKNOWLEDGED_PER_STEP:
            yield first, partitions[first:place]
            first, acknowledged = place, 0
        acknowledged += each.has_batches
    if first < len(partitions):
        yield first, partitions[first:]


def _unassigned(ref: PartitionRef) -> Refused:
    return Refused(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"{ref.topic}-{ref.partition} is not assigned to the member: take the assignment of its heartbeat",
    )


def _unreached(partitions: Iterable[PartitionAcks]) -> Iterator[Named]:
    """Yield the refusals of acknowledgements that the end of the session came before."""
    for each in partitions:
        if each.batches:
            refusal = Refused(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                "the share session ended before these records were acknowledged: begin one with epoch 0, and "
                "acknowledge those that the member still holds",
            )
            yield Named(each.name, each.batches, refusal, settled(AcknowledgeResult(each.name, refusal)))
