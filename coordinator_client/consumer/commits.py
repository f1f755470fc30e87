"""Commits of one consumer, strictly one after the other: none can overtake a later one and set an offset back.

A *patient* commit (`commit`, before a revocation, in `close`) is tried until its time is over. An impatient one
(`commit_async`, every `auto_commit_interval_ms`) is tried once: repeating it would only delay newer ones.

Source: spec groups 2.11, 4.2, 7.2 (last column), 7.6.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from coordinator_api.v1 import group_pb2 as group
from coordinator_client.calls import OFFSET_COMMIT, RetryingCall
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.consumer.owned import OwnedPartition
from coordinator_client.errors import (
    PASSING,
    TOPIC_GONE,
    CommitFailed,
    RebalanceInProgress,
    ReplyFields,
    TransactionError,
    failure,
    known_code,
    rejected,
)
from coordinator_client.groups.backoff import Backoff
from coordinator_client.values import NO_GENERATION, GroupMetadata, OffsetAndMetadata, TopicPartition
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method

COMMIT_AGAIN: Final = "Commit again: it does no harm twice."


class CommittingMember(Protocol):
    """The part of a membership that commits need."""

    def metadata(self) -> GroupMetadata:
        """Return the identity of the committing member. Raises: CommitFailed, RebalanceInProgress if there is none
        now."""

    def on_commit_refused(self, error: TransactionError, sent: GroupMetadata, now_ms: int) -> TransactionError | None:
        """Note that a commit was refused because of the member that sent it. Return the error for the caller. None = it
        is still a member, under a newer epoch, and may try again."""


@dataclass(slots=True, eq=False)
class CommitJob:
    """A requested commit."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    on_end: Callable[[TransactionError | None, int], None]
    patient_until_ms: int | None = None
    """End of patience (ms); None = impatient: one attempt."""
    failure: TransactionError | None = None
    """Failure of the last attempt."""
    topic_ids: Mapping[TopicPartition, bytes] = field(default_factory=dict)
    """Topic ids of the offsets, stored as the commit is added: another topic may have the name by the time that it is
    sent."""
    gone: list[TopicPartition] = field(default_factory=list)
    """Partitions that the last answer refused, because their topic no longer exists."""


class CommitQueue:
    """The waiting commits; the first of them is in flight."""

    def __init__(self, context: ConsumerContext, standing: CommittingMember) -> None:
        self._context = context
        self._standing = standing
        self._jobs: deque[CommitJob] = deque()
        self._backoff = Backoff(context.random_source)
        self._due_ms = 0
        self._flight: int | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: CommitJob) -> None:
        """Add a commit; it is sent after the earlier ones."""
        assigned = self._context.assignment
        job.topic_ids = {name: assigned.get(name).topic_id for name in job.offsets if name in assigned}
        self._jobs.append(job)

    def advance(self, now_ms: int) -> None:
        """Send the next commit, if none is in flight."""
        while self._jobs:
            job = self._jobs[0]
            if job.patient_until_ms is not None and now_ms >= job.patient_until_ms:
                self._cancel()
                self._finish(job, job.failure or _late(), now_ms)
            elif self._flight is not None:
                return
            elif not job.offsets:
                self._finish(job, None, now_ms)
            elif self._due_ms > now_ms:
                return
            else:
                self._send(job, now_ms)

    def wake_ms(self) -> int | None:
        """Return the time of the next attempt or the end of patience."""
        if not self._jobs:
            return None
        until_ms = self._jobs[0].patient_until_ms
        if self._flight is not None:
            return until_ms
        return self._due_ms if until_ms is None else min(self._due_ms, until_ms)

    def give_up(self, error: TransactionError, now_ms: int) -> None:
        """Fail all waiting commits, because the consumer closes."""
        self._cancel()
        while self._jobs:
            self._finish(self._jobs[0], error, now_ms)

    def _cancel(self) -> None:
        self._context.flights.cancel(self._flight)
        self._flight = None

    def _send(self, job: CommitJob, now_ms: int) -> None:
        try:
            sender = self._standing.metadata()
        except TransactionError as error:
            self._finish(job, error, now_ms)
            return
        request = self._request(sender, job)

        def results(reply: group.OffsetCommitResponse) -> Iterable[ReplyFields]:
            named = zip(sorted(job.offsets), reply.results, strict=False)
            job.gone = [name for name, result in named if known_code(result.error_code) in TOPIC_GONE]
            return reply.results

        call = RetryingCall(OFFSET_COMMIT, request, deadlines=self._context.once(), now_ms=now_ms, items=results)
        self._flight = self._context.flights.start(call, lambda end, at_ms: self._ended(sender, end, at_ms))

    def _request(self, sender: GroupMetadata, job: CommitJob) -> group.OffsetCommitRequest:
        request = group.OffsetCommitRequest(
            header=self._context.header(),
            group_id=sender.group_id,
            generation_id_or_member_epoch=sender.generation if sender.generation != NO_GENERATION else None,
            member_id=sender.member_id,
            group_instance_id=sender.group_instance_id,
        )
        fill_topics(request.topics, job.offsets, job.topic_ids)
        return request

    def _ended(self, sender: GroupMetadata, end: group.OffsetCommitResponse | TransactionError, now_ms: int) -> None:
        self._flight = None
        job = self._jobs[0]
        error = end if isinstance(end, TransactionError) else None
        self._note_gone(job)
        if error is None:
            self._backoff.reset()
            self._note_committed(job)
        elif error.error_class in (ErrorClass.REJOIN, ErrorClass.FENCED):
            advice = self._standing.on_commit_refused(error, sender, now_ms)
            error = advice or _moved_on()
            if advice is None and self._is_tried_again(job, error, now_ms):
                return
        elif error.error_class in PASSING:
            error.action = COMMIT_AGAIN
            if self._is_tried_again(job, error, now_ms):
                return
        elif error.code in TOPIC_GONE:
            error.action = (
                "Go on with poll(): nothing can be committed in a topic that is gone. The offsets of the same commit "
                "that were not refused are committed."
            )
        self._finish(job, error, now_ms)

    def _is_tried_again(self, job: CommitJob, error: TransactionError, now_ms: int) -> bool:
        job.failure = error
        if job.patient_until_ms is None:
            return False
        self._due_ms = now_ms + self._backoff.next_ms()
        return True

    def _note_gone(self, job: CommitJob) -> None:
        for name in job.gone:
            for partition in self._of(job, name):
                partition.is_gone = True

    def _note_committed(self, job: CommitJob) -> None:
        for name, offset in job.offsets.items():
            for partition in self._of(job, name):
                partition.committed = offset

    def _of(self, job: CommitJob, name: TopicPartition) -> list[OwnedPartition]:
        """Return the partition of a committed offset, if it is still assigned and its topic was not recreated."""
        assigned = self._context.assignment
        if name not in assigned or assigned.get(name).topic_id != job.topic_ids.get(name):
            return []
        return [assigned.get(name)]

    def _finish(self, job: CommitJob, error: TransactionError | None, now_ms: int) -> None:
        assert self._jobs[0] is job, "commits end in the order in which they were asked for"
        self._jobs.popleft()
        self._due_ms = 0
        job.on_end(error, now_ms)


class _TopicOffsetsList(Protocol):
    def add(self, *, topic: str, topic_id: bytes) -> group.TopicOffsets: ...


def fill_topics(
    topics: _TopicOffsetsList,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: Mapping[TopicPartition, bytes],
) -> None:
    """Write offsets into a request, topic by topic."""
    last: group.TopicOffsets | None = None
    for name in sorted(offsets):
        topic, partition = name
        if last is None or last.topic != topic:
            last = topics.add(topic=topic, topic_id=topic_ids.get(name, b""))
        offset, metadata, leader_epoch = offsets[name]
        last.partitions.add(
            partition=partition, committed_offset=offset, metadata=metadata, committed_leader_epoch=leader_epoch
        )


def not_a_member(group_id: str) -> CommitFailed:
    """Return the failure of a commit by a consumer that is not a member."""
    return CommitFailed(
        ErrorCode.UNKNOWN_MEMBER_ID, ErrorClass.REJOIN, f"this consumer is no member of the group {group_id!r} now"
    )


def rebalancing(group_id: str) -> RebalanceInProgress:
    """Return the failure of a commit during a rebalance."""
    return RebalanceInProgress(
        ErrorCode.REBALANCE_IN_PROGRESS, ErrorClass.REJOIN, f"the group {group_id!r} is being rebalanced"
    )


def no_group() -> TransactionError:
    """Return the failure of a commit, or a question about one, without a group."""
    return rejected(
        ErrorCode.INVALID_GROUP_ID, "offsets are committed under the name of a group: give the consumer one"
    )


def _moved_on() -> TransactionError:
    return CommitFailed(
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorClass.REJOIN,
        f"{Method.OFFSET_COMMIT}: the group has moved on since the epoch that this commit named",
    )


def _late() -> TransactionError:
    error = failure(
        ErrorCode.REQUEST_TIMED_OUT, ErrorClass.UNKNOWN_OUTCOME, f"{Method.OFFSET_COMMIT}: no definite answer in time"
    )
    error.action = COMMIT_AGAIN
    return error
