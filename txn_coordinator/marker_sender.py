"""Delivery of decided outcomes to their participants, retried without limit.

Only a durable PREPARE starts a job here, and no error changes the outcome or drops it. A job ends when every
participant has its marker and COMPLETE is durable. It also ends when a later coordinator has the shard; that one
delivers the rest. The list of markers already written is in memory only. After a crash every marker is sent again, and
participants recognise a repetition by its csn.

Source: spec transactions 4, the table of marker results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from coordinator_protocol.errors import CoordinatorError, ErrorCode
from coordinator_runtime.decision import Decision, ShardKey
from coordinator_runtime.participants import MarkerPort, ShareKey
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import OpenInPartition, OpenTransactions, UnfinishedTransaction
from coordinator_runtime.runtime import Runtime
from txn_coordinator.outcomes import SendMarkers, complete_operation

RETRY_MS_FIRST: Final = 10
RETRY_MS_MAX: Final = 1_000

_Participant: TypeAlias = int | str | ShareKey
"""A partition by its ordinal, a group by its name, or a share partition."""


class _Answer(Enum):
    """Meaning of a participant's refusal of its marker."""

    LATER = auto()
    """The participant is unavailable, or in another process: send it again, to its owner at that time."""
    NEEDLESS = auto()
    """It can hold no markers, so it holds nothing of a transaction either: done."""
    ENDED = auto()
    """The epoch is over there: done if the transaction is not open any more."""
    ZOMBIE = auto()
    """A later coordinator sent it markers: this one must stop."""
    IMPOSSIBLE = auto()
    """No correct participant gives this answer to a correct coordinator: raise the alarm, but send the marker again."""


_ANSWERS: Final[Mapping[ErrorCode, _Answer]] = MappingProxyType(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _Answer.LATER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: _Answer.LATER,
        ErrorCode.REQUEST_TIMED_OUT: _Answer.LATER,
        ErrorCode.NETWORK_EXCEPTION: _Answer.LATER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _Answer.LATER,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _Answer.LATER,
        ErrorCode.NOT_COORDINATOR: _Answer.LATER,
        ErrorCode.NOT_ENOUGH_REPLICAS: _Answer.LATER,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _Answer.LATER,
        ErrorCode.KAFKA_STORAGE_ERROR: _Answer.LATER,
        ErrorCode.UNSUPPORTED_VERSION: _Answer.NEEDLESS,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _Answer.NEEDLESS,
        ErrorCode.INVALID_PRODUCER_EPOCH: _Answer.ENDED,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: _Answer.ZOMBIE,
    }
)

_SHARD_IS_ELSEWHERE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.KAFKA_STORAGE_ERROR}
)
"""Errors of COMPLETE that leave it to the next owner of the shard."""


class _Job:
    """One decided transaction, and the participants whose marker is not durable yet."""

    __slots__ = ("in_flight", "is_retry_armed", "missing", "order", "retry_ms")

    def __init__(self, order: SendMarkers) -> None:
        self.order = order
        self.missing: set[_Participant] = {*order.partitions, *order.groups, *order.shares}
        self.in_flight: set[_Participant] = set()
        self.is_retry_armed = False
        self.retry_ms = RETRY_MS_FIRST

    @property
    def key(self) -> tuple[str, int]:
        return (self.order.transactional_id, self.order.marker.csn)

    @property
    def timer_key(self) -> tuple[str, str, int]:
        return ("markers", *self.key)


class MarkerSender:
    """Sender of the markers of every SendMarkers effect. Each transaction is independent: a blocked one delays no
    other."""

    def __init__(self, runtime: Runtime, markers: MarkerPort, open_transactions: OpenTransactions) -> None:
        self._runtime = runtime
        self._markers = markers
        self._open_transactions = open_transactions
        self._jobs: dict[tuple[str, int], _Job] = {}
        self._stopped_epochs: dict[ShardKey, int] = {}
        """Last coordinator epoch for which nothing is sent any more, by shard."""
        self.failed_markers: Counter[str] = Counter()
        """Number of markers that a participant refused and that were sent again, by the name of the error."""
        self.alarms: Counter[str] = Counter()
        """Number of answers that no participant should ever give, by the name of the error."""
        self.on_fenced: Callable[[ShardKey, int], None] = lambda _shard, _coordinator_epoch: None
        """Called once, with the shard and the epoch of this coordinator, when a participant knows a later one of that
        shard."""
        runtime.handle_effect(SendMarkers, self._start)

    def waiting_partitions(self, transactional_id: str, csn: int) -> frozenset[int] | None:
        """Return the ordinals without a durable marker yet; None if no such transaction is being finished here."""
        job = self._jobs.get((transactional_id, csn))
        if job is None:
            return None
        return frozenset(participant for participant in job.missing if isinstance(participant, int))

    @property
    def waiting_markers(self) -> int:
        return sum(len(job.missing) for job in self._jobs.values())

    def unfinished_ids(self) -> Iterator[str]:
        """Return the transactional ids with markers that are not durable yet."""
        return (job.order.transactional_id for job in self._jobs.values() if job.missing)

    def unfinished(self) -> list[UnfinishedTransaction]:
        """Return the decided transactions whose COMPLETE is not known to be durable."""
        return [
            UnfinishedTransaction(
                producer_id=job.order.marker.producer_id,
                coordinator_shard=job.order.marker.coordinator_shard,
                csn=job.order.marker.csn,
                partitions=frozenset(job.order.partitions),
                writes_once=job.order.marker.is_last,
            )
            for job in self._jobs.values()
        ]

    def stop(self, shard: ShardKey, coordinator_epoch: int) -> None:
        """Stop sending for a shard as the coordinator with this epoch or an older one.

        A later coordinator has taken over, or will, and sends everything again. Answers that still arrive are ignored.
        """
        self._stopped_epochs[shard] = max(coordinator_epoch, self._stopped_epochs.get(shard, coordinator_epoch))
        for job in [job for job in self._jobs.values() if job.order.shard == shard and self._is_stopped(job.order)]:
            self._runtime.timers.cancel(job.timer_key)
            del self._jobs[job.key]

    def _is_stopped(self, order: SendMarkers) -> bool:
        return order.marker.coordinator_epoch <= self._stopped_epochs.get(order.shard, -1)

    def _is_current(self, job: _Job) -> bool:
        """Return False once the job was stopped, or replaced by that of a later coordinator epoch."""
        return self._jobs.get(job.key) is job

    def _start(self, order: SendMarkers) -> None:
        if self._is_stopped(order):
            return
        job = _Job(order)
        self._jobs[job.key] = job
        self._send(job)

    def _send(self, job: _Job) -> None:
        """Write every marker that is missing and not in flight; a job without participants is complete at once."""
        if not job.missing:
            self._complete(job)
            return
        markers, marker = self._markers, job.order.marker
        for participant in sorted(job.missing - job.in_flight, key=_kind_first):
            if not self._is_current(job):
                # An answer may come at once, and an earlier one in this loop may have stopped the job.
                return
            job.in_flight.add(participant)
            if isinstance(participant, int):
                operation = markers.partition_marker(participant, marker)
            elif isinstance(participant, str):
                operation = markers.group_marker(participant, marker)
            else:
                operation = markers.share_marker(participant, marker)
            written = self._runtime.write(operation, is_urgent=True)
            written.on_settled(partial(self._on_written, job, participant))

    def _on_written(self, job: _Job, participant: _Participant, written: Pending[object]) -> None:
        if not self._is_current(job):
            return
        if written.error is not None:
            # The outcome stands after any error, and the marker must still be written.
            self._on_refused(job, participant, written.error)
            return
        self._done(job, participant)

    def _done(self, job: _Job, participant: _Participant) -> None:
        job.in_flight.discard(participant)
        job.missing.discard(participant)
        if not job.missing:
            self._complete(job)

    def _on_refused(self, job: _Job, participant: _Participant, error: Exception) -> None:
        order = job.order
        match _answer_of(participant, error):
            case _Answer.NEEDLESS:
                self._done(job, participant)
            case _Answer.ENDED:
                assert isinstance(participant, int), "only partitions can be asked"
                self._ask_whether_open(job, participant, error)
            case _Answer.ZOMBIE:
                self.alarms[_name_of(error)] += 1
                self.stop(order.shard, order.marker.coordinator_epoch)
                self.on_fenced(order.shard, order.marker.coordinator_epoch)
            case _Answer.IMPOSSIBLE:
                self._send_again(job, participant, error, is_alarming=True)
            case _Answer.LATER:
                self._send_again(job, participant, error)

    def _ask_whether_open(self, job: _Job, ordinal: int, refusal: Exception) -> None:
        """Ask the partition, which knows a later epoch of the producer, if the transaction is still open.

        It should have the marker. An open transaction should be impossible, and raises the alarm.
        """
        marker = job.order.marker

        def look(opened: Sequence[OpenInPartition]) -> Decision:
            wanted = (marker.producer_id, marker.txn_epoch)
            return Decision(reply=any((each.producer_id, each.producer_epoch) == wanted for each in opened))

        def on_asked(asked: Pending[bool]) -> None:
            if not self._is_current(job):
                return
            if asked.error is not None:
                # The marker must be written until the partition confirms it.
                self._send_again(job, ordinal, asked.error)
            elif asked.result():
                self._send_again(job, ordinal, refusal, is_alarming=True)
            else:
                self._done(job, ordinal)

        self._runtime.write(self._open_transactions.ask_open(ordinal, look), is_urgent=True).on_settled(on_asked)

    def _send_again(self, job: _Job, participant: _Participant, error: Exception, *, is_alarming: bool = False) -> None:
        job.in_flight.discard(participant)
        self.failed_markers[_name_of(error)] += 1
        if is_alarming:
            self.alarms[_name_of(error)] += 1
        self._retry_later(job)

    def _retry_later(self, job: _Job) -> None:
        if job.is_retry_armed:
            return
        job.is_retry_armed = True

        def send_again() -> None:
            job.is_retry_armed = False
            self._send(job)

        self._runtime.arm(job.timer_key, job.retry_ms, send_again)
        job.retry_ms = min(2 * job.retry_ms, RETRY_MS_MAX)

    def _complete(self, job: _Job) -> None:
        order = job.order
        operation = complete_operation(order.shard, order.transactional_id, order.marker.csn)

        def on_completed(completed: Pending[object]) -> None:
            if not self._is_current(job):
                return
            if completed.error is not None:
                # COMPLETE is retried as markers are.
                self._on_not_completed(job, completed.error)
                return
            del self._jobs[job.key]

        self._runtime.write(operation, is_urgent=True).on_settled(on_completed)

    def _on_not_completed(self, job: _Job, error: Exception) -> None:
        if isinstance(error, CoordinatorError) and error.code in _SHARD_IS_ELSEWHERE:
            del self._jobs[job.key]
            return
        if not (isinstance(error, CoordinatorError) and error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self.alarms[_name_of(error)] += 1
        self._retry_later(job)


def _kind_first(participant: _Participant) -> tuple[bool, bool, _Participant]:
    """Return the key that sorts partitions before groups before share partitions, each kind in its order."""
    return not isinstance(participant, int), isinstance(participant, ShareKey), participant


def _answer_of(participant: _Participant, error: Exception) -> _Answer:
    if not isinstance(error, CoordinatorError):
        return _Answer.IMPOSSIBLE
    answer = _ANSWERS.get(error.code, _Answer.IMPOSSIBLE)
    if not isinstance(participant, int) and answer in (_Answer.NEEDLESS, _Answer.ENDED):
        # Groups and share partitions have no message format, and no producers with epochs.
        return _Answer.IMPOSSIBLE
    return answer


def _name_of(error: Exception) -> str:
    return error.code.name if isinstance(error, CoordinatorError) else "DEFECT"
