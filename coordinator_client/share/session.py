"""Share session of one consumer: its fetches and acknowledgements. It sends one request at a time.

A poll sends one ShareFetch, with the acknowledgements that wait. Without a poll they go by ShareAcknowledge. Nothing is
fetched ahead, because a record is held from the answer on.

A session is replaced by a new one if the server does not know it, or its epoch is unknown after a lost answer. If
acknowledgements wait, the new one begins without partitions, and acquires nothing before they are done. Otherwise the
server could take an old acknowledgement for one of a new delivery. Records of a lost answer are released by ending the
session, as soon as the application holds none itself.

Source: spec groups 6.2; KIP-932.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from coordinator_api.v1 import share_pb2 as share
from coordinator_client.calls import SHARE_ACKNOWLEDGE, SHARE_FETCH, Deadlines, ReplyT, RequestT, RetryingCall, Rpc
from coordinator_client.encodings import ENCODINGS_READ
from coordinator_client.errors import PASSING, TOPIC_GONE, ReplyFields, TransactionError, class_of, failure
from coordinator_client.fetch_reply import SharePartitionReply, ShareRecordsReply
from coordinator_client.groups.backoff import BACKOFF_MS_MAX, Backoff
from coordinator_client.share.acknowledgements import AckGroup, Acknowledgements, fill
from coordinator_client.share.acquired import AcquiredOffsets, HeldRecords
from coordinator_client.share.config import RECORD_LIMIT
from coordinator_client.share.context import ShareContext
from coordinator_client.share.membership import ShareGroupMembership
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFF_FFFF

Partitions: TypeAlias = RepeatedCompositeFieldContainer[share.SharePartition]

SESSION_LOST: Final = frozenset({ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH})


@dataclass(frozen=True, slots=True)
class OpenPoll:
    """A poll that waits for records."""

    until_ms: int
    records_max: int


class Held(Protocol):
    """The part of a core that its session needs."""

    @property
    def poll(self) -> OpenPoll | None:
        """The poll that waits for records; None if there is none."""

    @property
    def holds_records(self) -> bool:
        """True if the application may hold records."""

    def arrived(self, acquisitions: Iterable[HeldRecords]) -> None:
        """Take records that were acquired."""

    def problem(self, error: TransactionError) -> None:
        """Let the next poll raise this error."""


class MemberSession:
    """The session of one member."""

    def __init__(
        self, context: ShareContext, membership: ShareGroupMembership, acknowledgements: Acknowledgements, core: Held
    ) -> None:
        self.epoch = INITIAL_EPOCH
        """Epoch of the next request; 0 = there is no session, or none that is known."""
        self.lock_duration_ms = 0
        """Time for which records are held, as the server said last (ms)."""
        self._context = context
        self._membership = membership
        self._acks = acknowledgements
        self._core = core
        self._partitions: dict[TopicPartition, bytes] = {}
        """Partitions of the session, with their topic ids."""
        self._retry_at_ms: dict[TopicPartition, int] = {}
        """Time before which a partition that was refused is not named again."""
        self._flight: int | None = None
        self._is_fetching_only = False
        """True if the request in flight carries no acknowledgements."""
        self._is_unclear = False
        """True if the member may hold records of an answer that was lost."""
        self._due_ms = 0
        self._backoff = Backoff(context.random_source)
        self._acquired = 0
        self._ended: Callable[[int], None] | None = None

    def reset(self) -> None:
        """Forget the session, because it ended with the membership."""
        self._context.flights.cancel(self._flight)
        self._flight = None
        self._acks.put_back()
        self._forget()
        self._is_unclear = False

    def end(self, then: Callable[[int], None], now_ms: int) -> None:
        """Send the acknowledgements that wait, end the session, and call `then`."""
        self._ended = then
        if self._flight is not None and self._is_fetching_only:
            # Its answer could only bring records to release.
            self._context.flights.cancel(self._flight)
            self._flight = None
            self.epoch = _after(self.epoch)
            self._due_ms = now_ms
        self.advance(now_ms)

    def advance(self, now_ms: int) -> None:
        """Send the next request, if one is due."""
        wake_ms = self.wake_ms()
        if wake_ms is None or now_ms < wake_ms:
            return
        if self._ended is not None and not (self._acks.is_waiting and self._membership.is_member):
            self._end(now_ms)
        elif self._acks.is_waiting and self.epoch == INITIAL_EPOCH:
            self._fetch({}, {}, None, now_ms)
        elif self._is_unclear and not self._core.holds_records and self._acks.is_empty:
            self._acknowledge({}, FINAL_EPOCH, now_ms)
        else:
            self._go_on(now_ms)

    def wake_ms(self) -> int | None:
        """Return the time of the next request; None = not before something changes."""
        if self._flight is not None:
            return None
        if self._ended is not None:
            return self._due_ms
        if not self._membership.is_member:
            return None
        if self._acks.is_waiting:
            return self._due_ms
        if self._core.poll is None or not self._membership.assignment:
            return None
        return max(self._due_ms, self._paused_ms)

    @property
    def _paused_ms(self) -> int:
        """End of the server's pause for ShareFetch (ms)."""
        return self._context.flights.throttle.until_ms(Method.SHARE_FETCH)

    def _go_on(self, now_ms: int) -> None:
        poll = self._core.poll
        if poll is not None and self._ended is None and now_ms >= self._paused_ms:
            wanted = self._wanted(now_ms)
            if wanted:
                self._fetch(wanted, self._acks.take(), poll, now_ms)
                return
            self._due_ms = min(self._retry_at_ms[name] for name in self._membership.assignment)
        if self._acks.is_waiting:
            acks = self._acks.take()
            # A group that is refused because of another goes on alone, which needs the session.
            is_last = self._acks.is_all_sent and all(len(groups) == 1 for groups in acks.values())
            epoch = FINAL_EPOCH if self._ended is not None and is_last else self.epoch
            self._acknowledge(acks, epoch, now_ms)

    def _wanted(self, now_ms: int) -> dict[TopicPartition, bytes]:
        """Return the partitions to fetch from now."""
        return {
            name: topic_id
            for name, topic_id in self._membership.assignment.items()
            if self._retry_at_ms.get(name, 0) <= now_ms
        }

    def _fetch(
        self,
        wanted: Mapping[TopicPartition, bytes],
        acks: Mapping[TopicPartition, list[AckGroup]],
        poll: OpenPoll | None,
        now_ms: int,
    ) -> None:
        """Acknowledge, then acquire records of `wanted` for a poll. Without one only begin a session."""
        config = self._context.config
        wait_ms = 0 if poll is None else min(config.fetch_wait_ms, max(0, poll.until_ms - now_ms))
        request = share.ShareFetchRequest(
            header=self._context.header(),
            group_id=self._context.group_id,
            member_id=self._membership.member_id,
            session_epoch=self.epoch,
            max_wait_ms=wait_ms,
            max_bytes=config.fetch_bytes,
            max_records=config.max_poll_records if poll is None else poll.records_max,
            strict_max_records=config.share_acquire_mode == RECORD_LIMIT,
            accepted_encodings=ENCODINGS_READ,
        )
        gone = {name: topic_id for name, topic_id in self._partitions.items() if wanted.get(name) != topic_id}
        new = {name: topic_id for name, topic_id in wanted.items() if self._partitions.get(name) != topic_id}
        _name(request.partitions, new, acks)
        self._partitions = dict(wanted)
        for name, groups in acks.items():
            topic_id = groups[0].acquisition.topic_id
            if wanted.get(name) != topic_id:
                # It joins the session with its acknowledgements, unless it is forgotten. A topic of the same name waits
                # for the next request, because a request names a partition once.
                gone.setdefault(name, topic_id)
                self._partitions.pop(name, None)
        for (topic, number), topic_id in gone.items():
            request.forgotten.add(topic=topic, topic_id=topic_id, partitions=[number])

        def ended(end: ShareRecordsReply | TransactionError, at_ms: int) -> None:
            if isinstance(end, TransactionError):
                self._failed(end, at_ms)
            else:
                self._fetched(end, at_ms)

        self._start(SHARE_FETCH, request, ended, wait_ms=wait_ms, has_acks=bool(acks), now_ms=now_ms)

    def _acknowledge(self, acks: Mapping[TopicPartition, list[AckGroup]], epoch: int, now_ms: int) -> None:
        request = share.ShareAcknowledgeRequest(
            header=self._context.header(),
            group_id=self._context.group_id,
            member_id=self._membership.member_id,
            session_epoch=epoch,
        )
        _name(request.partitions, {}, acks)

        def ended(end: share.ShareAcknowledgeResponse | TransactionError, at_ms: int) -> None:
            if epoch == FINAL_EPOCH:
                self._closed(end, at_ms)
            elif isinstance(end, TransactionError):
                self._failed(end, at_ms)
            else:
                self.lock_duration_ms = end.lock_duration_ms
                self._next_epoch()
                self._settle(_errors(end), at_ms)

        self._start(SHARE_ACKNOWLEDGE, request, ended, wait_ms=0, has_acks=True, now_ms=now_ms)

    def _start(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        on_end: Callable[[ReplyT | TransactionError, int], None],
        *,
        wait_ms: int,
        has_acks: bool,
        now_ms: int,
    ) -> None:
        attempt_ms = self._context.config.request_timeout_ms + wait_ms
        # One attempt: a request is made anew after a failure, since its epoch may be used up.
        deadlines = Deadlines(total_ms=attempt_ms, attempt_ms=attempt_ms, attempts_max=1)
        call = RetryingCall(rpc, request, deadlines=deadlines, now_ms=now_ms)

        def ended(end: ReplyT | TransactionError, at_ms: int) -> None:
            self._flight = None
            on_end(end, at_ms)

        self._is_fetching_only = not has_acks
        self._flight = self._context.flights.start(call, ended)

    # Answers.

    def _fetched(self, reply: ShareRecordsReply, now_ms: int) -> None:
        self._next_epoch()
        self.lock_duration_ms = reply.lock_duration_ms or self.lock_duration_ms
        errors: dict[TopicPartition, TransactionError | None] = {}
        acquired: list[HeldRecords] = []
        has_problem = False
        for result in reply.results:
            name = _place(result.fields)
            errors[name] = errors.get(name) or _acknowledge_error(result.fields, name)
            if result.fields.acquired:
                acquired.append(self._acquisition(name, result, now_ms))
            error = _error(Method.SHARE_FETCH, result.fields, name)
            if error is not None:
                has_problem = True
                self._refused(name, error, now_ms)
        self._core.arrived(acquired)
        if has_problem and not acquired:
            self._due_ms = now_ms + self._backoff.next_ms()
        self._settle(errors, now_ms)

    def _acquisition(self, name: TopicPartition, result: SharePartitionReply, now_ms: int) -> HeldRecords:
        self._acquired += 1
        ranges = [AcquiredOffsets(*_range(each)) for each in result.fields.acquired]
        expires_ms = now_ms + self.lock_duration_ms
        topic_id = result.fields.topic_id or self._partitions.get(name, b"")
        return HeldRecords(self._acquired, name, topic_id, ranges, result.batches, expires_ms=expires_ms)

    def _refused(self, name: TopicPartition, error: TransactionError, now_ms: int) -> None:
        if error.error_class in PASSING:
            return
        self._retry_at_ms[name] = now_ms + BACKOFF_MS_MAX
        if error.code in TOPIC_GONE:
            # The group takes the partition away as soon as it knows.
            self._partitions.pop(name, None)
        else:
            self._core.problem(error)

    def _settle(self, errors: Mapping[TopicPartition, TransactionError | None], now_ms: int) -> None:
        if self._acks.answered(errors):
            self._due_ms = now_ms + self._backoff.next_ms()
        elif not any(errors.values()):
            self._backoff.reset()

    def _failed(self, error: TransactionError, now_ms: int) -> None:
        """React to a request without an answer, or refused as a whole: nothing is known to be done."""
        is_lost = error.error_class is ErrorClass.UNKNOWN_OUTCOME
        self._acks.put_back(is_unsure=is_lost)
        had_session = self.epoch != INITIAL_EPOCH
        self._due_ms = now_ms + self._backoff.next_ms()
        if error.code in SESSION_LOST:
            self._forget()
            if had_session:
                self._due_ms = now_ms
            return
        if error.error_class in PASSING:
            if is_lost:
                self._forget()
                self._is_unclear = True
            else:
                # The request named partitions that did not join the session.
                self._partitions = {}
            return
        self._forget()
        if error.error_class is ErrorClass.REJOIN or error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            self._membership.check(now_ms)
            return
        self._acks.fail(error)
        self._core.problem(error)

    def _closed(self, end: share.ShareAcknowledgeResponse | TransactionError, now_ms: int) -> None:
        """React to the answer that ends the session."""
        self._forget()
        if not isinstance(end, TransactionError):
            self._is_unclear = False
            self._settle(_errors(end), now_ms)
        elif end.error_class in PASSING:
            self._acks.put_back(is_unsure=end.error_class is ErrorClass.UNKNOWN_OUTCOME)
            self._due_ms = now_ms + self._backoff.next_ms()
            return
        else:
            # A session that is gone holds nothing back: what the member still holds waits for its locks.
            self._is_unclear = False
            self._acks.put_back()
            self._due_ms = now_ms
            if end.code not in SESSION_LOST:
                self._acks.fail(end)
        if self._ended is not None and not self._acks.is_waiting:
            self._over(now_ms)

    def _end(self, now_ms: int) -> None:
        """End the session, whose acknowledgements are done."""
        if self._membership.is_member and (self.epoch != INITIAL_EPOCH or self._is_unclear):
            self._acknowledge({}, FINAL_EPOCH, now_ms)
        else:
            self._over(now_ms)

    def _over(self, now_ms: int) -> None:
        then, self._ended = self._ended, None
        self._forget()
        assert then is not None, "an end is waited for"
        then(now_ms)

    def _next_epoch(self) -> None:
        self.epoch = _after(self.epoch)

    def _forget(self) -> None:
        self.epoch, self._partitions = INITIAL_EPOCH, {}


def _after(epoch: int) -> int:
    return 1 if epoch == _EPOCH_MAX else epoch + 1


def _name(
    partitions: Partitions, new: Mapping[TopicPartition, bytes], acks: Mapping[TopicPartition, list[AckGroup]]
) -> None:
    """Name partitions that join the session, and partitions with acknowledgements."""
    for name in sorted(new.keys() | acks.keys()):
        groups = acks.get(name, [])
        topic_id = groups[0].acquisition.topic_id if groups else new[name]
        types = {offset: how for group in groups for offset, how in group.types.items()}
        fill(partitions.add(topic=name.topic, topic_id=topic_id, partition=name.partition), types)


class _Verdict(NamedTuple):
    error_code: int
    error_class: int
    error_message: str


def _error(method: Method, verdict: ReplyFields, name: TopicPartition) -> TransactionError | None:
    """Return the error of one partition; None if there is none."""
    what = class_of(method, verdict)
    if what is ErrorClass.NONE:
        return None
    reason = f"{method} {name.topic}-{name.partition}: {verdict.error_message or 'the server gave no reason'}"
    return failure(verdict.error_code, what, reason)


def _errors(reply: share.ShareAcknowledgeResponse) -> dict[TopicPartition, TransactionError | None]:
    return {_place(result): _error(Method.SHARE_ACKNOWLEDGE, result, _place(result)) for result in reply.results}


def _acknowledge_error(result: share.ShareFetchResult, name: TopicPartition) -> TransactionError | None:
    code, what, text = (
        result.acknowledge_error_code,
        result.acknowledge_error_class,
        result.acknowledge_error_message,
    )
    return _error(Method.SHARE_FETCH, _Verdict(code, what, text), name)


def _place(result: share.ShareFetchResult | share.ShareAcknowledgeResult) -> TopicPartition:
    return TopicPartition(result.topic, result.partition)


def _range(acquired: share.AcquiredRecords) -> tuple[int, int, int]:
    return acquired.first_offset, acquired.last_offset, acquired.delivery_count
