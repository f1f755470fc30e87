"""Acknowledgements of one share consumer: waiting to be sent, in flight, and ended.

The acknowledgements of one acquisition that are sent together are a group. Renewals, and records that were renewed
before, have groups of their own. The server does all acknowledgements of a partition in a request, or none. So after a
refusal that one record can cause, the groups of that request go on alone. One lost lock then fails only the records of
its own group.

A group whose answer was lost is sent again. If it was done, the records are not acquired any more, as after a lost
lock. The outcome is then unknown.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator_api.v1 import share_pb2 as share
from coordinator_client.errors import PASSING, AcknowledgementFailed, TransactionError, misconfigured
from coordinator_client.groups.futures import Future
from coordinator_client.share.acquired import AcknowledgeType, HeldRecords
from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorClass, ErrorCode

_OF_ONE_RECORD: Final = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
"""Codes that one record of a partition causes: it is not held, or may not be renewed."""

_UNANSWERED: Final = misconfigured(
    ErrorCode.UNSUPPORTED_VERSION, "the server did not say how the acknowledgements of this partition ended"
)

Results = dict[TopicPartition, TransactionError | None]
"""Errors by partition; None for success."""


@dataclass(slots=True, eq=False)
class AckCommit:
    """A commit that waits for its groups."""

    future: Future[Results]
    left: int
    """Number of groups without an outcome."""
    results: Results = field(default_factory=dict)

    def note(self, name: TopicPartition, error: TransactionError | None) -> None:
        """Note the outcome of one of the groups."""
        self.results[name] = self.results.get(name) or error
        self.left -= 1
        if not self.left:
            self.future.succeed(self.results)


@dataclass(slots=True, eq=False)
class AckGroup:
    """Acknowledgements of one acquisition that are sent together."""

    acquisition: HeldRecords
    types: Mapping[int, int]
    """Outcomes of the records by offset."""
    is_own: bool = False
    """True if the SDK chose the outcome itself; the application gets no report of it."""
    is_alone: bool = False
    """True if no other group of its partition may go with it."""
    is_unsure: bool = False
    """True if an attempt may have been carried out without an answer reaching this client."""
    jobs: list[AckCommit] = field(default_factory=list)

    @property
    def is_renewal(self) -> bool:
        """True if the records stay with the application. A group has renewals only, or none."""
        return AcknowledgeType.RENEW in self.types.values()

    @property
    def name(self) -> TopicPartition:
        """Partition of the records."""
        return self.acquisition.name


@dataclass(slots=True, eq=False)
class AckOutcome:
    """End of a group: success, or an error."""

    group: AckGroup
    error: TransactionError | None


class Acknowledgements:
    """All groups of one consumer without an outcome."""

    def __init__(self, on_end: Callable[[list[AckOutcome]], None]) -> None:
        """Start empty. `on_end` is called with the groups of the application that have ended, together."""
        self._waiting: deque[AckGroup] = deque()
        self._sent: dict[TopicPartition, list[AckGroup]] = {}
        self._on_end = on_end

    @property
    def is_waiting(self) -> bool:
        """True if there is something to send."""
        return bool(self._waiting)

    @property
    def is_all_sent(self) -> bool:
        """True if there is nothing to send besides what is in flight."""
        return not self._waiting

    @property
    def is_empty(self) -> bool:
        """True if every group has ended."""
        return not (self._waiting or self._sent)

    def add(self, group: AckGroup) -> None:
        """Send a group with the next request."""
        self._waiting.append(group)

    def job(self) -> Future[Results]:
        """Return the future results of all groups that the application has chosen and that have not ended."""
        groups = [each for each in self._all() if not each.is_own]
        job = AckCommit(Future(), len(groups))
        for each in groups:
            each.jobs.append(job)
        if not groups:
            job.future.succeed({})
        return job.future

    def take(self) -> dict[TopicPartition, list[AckGroup]]:
        """Return the groups of the next request by partition, which count as sent."""
        kept: deque[AckGroup] = deque()
        for each in self._waiting:
            others = self._sent.get(each.name, [])
            if all(_fit(each, other) for other in others):
                self._sent.setdefault(each.name, others).append(each)
            else:
                kept.append(each)
        self._waiting = kept
        return self._sent

    def put_back(self, *, is_unsure: bool = False) -> None:
        """Send again what was sent. `is_unsure`: it may have been carried out."""
        for groups in reversed(self._sent.values()):
            for each in groups:
                each.is_unsure = each.is_unsure or is_unsure
            self._waiting.extendleft(reversed(groups))
        self._sent = {}

    def answered(self, errors: Mapping[TopicPartition, TransactionError | None]) -> bool:
        """Process the answer to what was sent: None or the error of each partition. Return True if some must be tried
        again after a pause."""
        sent, self._sent = self._sent, {}
        ended: list[AckOutcome] = []
        again: list[AckGroup] = []
        for name, groups in sent.items():
            error = errors.get(name, _UNANSWERED)
            if error is not None and error.error_class in PASSING:
                for each in groups:
                    each.is_unsure = each.is_unsure or error.error_class is ErrorClass.UNKNOWN_OUTCOME
                again += groups
            elif error is not None and error.code in _OF_ONE_RECORD and len(groups) > 1:
                for each in groups:
                    each.is_alone = True
                # They need no pause.
                self._waiting.extend(groups)
            else:
                ended += [AckOutcome(each, error) for each in groups]
        self._waiting.extendleft(reversed(again))
        self.end(ended)
        return bool(again)

    def fail(self, error: TransactionError) -> None:
        """End all groups that are not in flight with an error."""
        failed, self._waiting = self._waiting, deque()
        self.end([AckOutcome(each, error) for each in failed])

    def end(self, ended: Iterable[AckOutcome]) -> None:
        """Pass on how groups have ended."""
        told: list[AckOutcome] = []
        for outcome in ended:
            group, error = outcome.group, outcome.error
            if group.is_renewal and error is not None and error.code == ErrorCode.INVALID_RECORD_STATE:
                group.acquisition.open.difference_update(group.types)
            if group.is_own:
                continue
            outcome.error = None if error is None else ack_failure(error, {group.name: sorted(group.types)})
            if isinstance(outcome.error, AcknowledgementFailed) and group.is_unsure:
                outcome.error = _unsure(outcome.error)
            for job in group.jobs:
                job.note(group.name, outcome.error)
            if not group.jobs:
                told.append(outcome)
        if told:
            self._on_end(told)

    def _all(self) -> list[AckGroup]:
        return [*(each for groups in self._sent.values() for each in groups), *self._waiting]


def _fit(group: AckGroup, other: AckGroup) -> bool:
    """Return True if both may go in one request: none must go alone, and no offset comes twice."""
    is_same_topic = group.acquisition.topic_id == other.acquisition.topic_id
    return is_same_topic and not (group.is_alone or other.is_alone) and group.types.keys().isdisjoint(other.types)


def ack_failure(error: TransactionError, offsets: Mapping[TopicPartition, list[int]]) -> AcknowledgementFailed:
    """Return the error of records that were not acknowledged because of `error`."""
    places = ", ".join(f"{topic}-{number} {_ranges(found)}" for (topic, number), found in sorted(offsets.items()))
    failed = AcknowledgementFailed(error.code, error.error_class, f"not acknowledged: {places} ({error.reason})")
    failed.offsets = {name: tuple(found) for name, found in offsets.items()}
    failed.__cause__ = error
    return failed


def _unsure(error: AcknowledgementFailed) -> AcknowledgementFailed:
    """Return the error of records that may have been acknowledged by an attempt without an answer."""
    unsure = AcknowledgementFailed(
        error.code, ErrorClass.UNKNOWN_OUTCOME, f"{error.reason}; an earlier attempt got no answer and may have done it"
    )
    unsure.offsets, unsure.__cause__ = error.offsets, error.__cause__
    unsure.action = "Go on with poll(): these records are acknowledged, or come again, here or elsewhere."
    return unsure


def _ranges(offsets: Iterable[int]) -> str:
    """Return offsets as text, in which consecutive ones are shortened."""
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in runs(offsets))


def runs(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return the consecutive runs of ascending offsets, first and last."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and offset == found[-1][1] + 1:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found


def fill(partition: share.SharePartition, types: Mapping[int, int]) -> None:
    """Fill in the acknowledgements of a partition, outcomes by offset. A batch whose offsets have the same type names
    it once."""
    for first, last in runs(sorted(types)):
        chosen = [types[offset] for offset in range(first, last + 1)]
        is_same = chosen.count(chosen[0]) == len(chosen)
        partition.acknowledgements.add(
            first_offset=first,
            last_offset=last,
            types=[share.AcknowledgeType.ValueType(each) for each in (chosen[:1] if is_same else chosen)],
        )


def by_partition(outcomes: Iterable[AckOutcome]) -> dict[TopicPartition, list[int]]:
    """Return the offsets of groups by partition, ascending."""
    found: defaultdict[TopicPartition, set[int]] = defaultdict(set)
    for each in outcomes:
        found[each.group.name].update(each.group.types)
    return {name: sorted(offsets) for name, offsets in found.items()}
