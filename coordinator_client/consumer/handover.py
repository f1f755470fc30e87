"""Handover of partitions, in an order that the application can rely on, and the callbacks that report it.

Revoked: first the processed records are committed (if commits are automatic), then the listener is called. Only then
the partitions are gone, and afterwards the group is informed. All of this happens while the application is in `poll`
(or `unsubscribe`, or `close`): between two polls its partitions are its own. So the offsets that it commits between
polls never belong to a partition that another member already reads.

Lost: the group has already taken the partitions. They are gone at once, and the listener is called with the next poll.

Assigned: the partitions are added, then the listener is called, and after that poll returns their records.

For callbacks, derive from `RebalanceListener` or `AsyncRebalanceListener` and override the methods you need. Every call
is made in the application's thread (or task), inside `poll`, `unsubscribe` or `close`. An exception stops nothing: the
assignment is applied, the other calls are made, then the first exception is raised.

Source: spec groups 7.3, 7.4 and 7.7; Kafka's `ConsumerRebalanceListener`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from coordinator_client.consumer.commits import CommitJob, CommitQueue
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.errors import TransactionError
from coordinator_client.groups.user_calls import NAMES, UserCall
from coordinator_client.values import TopicPartition


class RebalanceListener:
    """Callbacks for a `Consumer`."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """React to added partitions, which may be none. Their records come after this call, so a `seek` here decides
        where reading starts."""

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """React to partitions that are about to be revoked. They still belong to this member: commit processed records
        now."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """React to partitions that are already lost: nothing can be committed for them. By default it calls
        `on_partitions_revoked`."""
        self.on_partitions_revoked(partitions)


class AsyncRebalanceListener:
    """Callbacks for an `AsyncConsumer`."""

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """React to added partitions, which may be none. Their records come after this call, so a `seek` here decides
        where reading starts."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """React to partitions that are about to be revoked. They still belong to this member: commit processed records
        now."""

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """React to partitions that are already lost: nothing can be committed for them. By default it calls
        `on_partitions_revoked`."""
        await self.on_partitions_revoked(partitions)


Then: TypeAlias = Callable[[int], None]
"""Called with the time once a step is done."""


class AnyListener(Protocol):
    """The callbacks of the application; each may return an awaitable."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None: ...
    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None: ...
    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None: ...


@dataclass(slots=True, eq=False)
class _Revocation:
    """Partitions that are being revoked."""

    partitions: frozenset[TopicPartition]
    then: Then
    is_told_if_none: bool
    is_begun: bool = False
    is_committed: bool = False
    is_told: bool = False
    is_over: bool = False


class Handover:
    """Hands the partitions of one consumer over."""

    def __init__(self, context: ConsumerContext, commits: CommitQueue) -> None:
        self.listener: AnyListener | None = None
        self.is_user_here = False
        """True while the application's thread is in poll, unsubscribe or close."""
        self.commits_on_revocation = context.config.enable_auto_commit
        self._context = context
        self._commits = commits
        self._revocation: _Revocation | None = None
        self._calls: deque[UserCall] = deque()
        self._is_calling = False
        self._failure: Exception | None = None

    @property
    def is_busy(self) -> bool:
        """True if a revocation is under way, or calls of the listener are still to be made."""
        return self._revocation is not None or bool(self._calls) or self._is_calling

    def take_failure(self) -> Exception | None:
        """Return the first exception of the listener, once all of its calls were made."""
        if self.is_busy:
            return None
        failure, self._failure = self._failure, None
        return failure

    def revoke(self, partitions: Collection[TopicPartition], then: Then, *, is_told_if_none: bool = False) -> None:
        """Revoke these partitions, then call `then`. With `is_told_if_none` the listener is called even if there are
        none."""
        assert self._revocation is None, "one revocation at a time"
        self._revocation = _Revocation(frozenset(partitions), then, is_told_if_none)

    def revoke_all(self, then: Then) -> None:
        """Revoke all partitions, replacing a revocation that is under way, then call `then`."""
        self._abandon()
        self._drop_void_calls()
        self.revoke(self._context.assignment.names(), then)

    def lose(self, then: Then, now_ms: int) -> None:
        """Drop all partitions at once; `then` is called after the listener."""
        self._abandon()
        # A partition that was never announced to the listener need not be reported as lost.
        told = {partition.name for partition in self._context.assignment if partition.is_announced or self._is_calling}
        self._drop_void_calls()
        self._context.assignment.drop(self._context.assignment.names())
        if told and self.listener is not None:
            self._tell(self.listener.on_partitions_lost, frozenset(told), then, is_void_after_loss=False)
        else:
            then(now_ms)

    def assign(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Add these partitions and call the listener, even if there are none."""
        listener = self.listener
        self._context.assignment.add(topic_ids, is_announced=listener is None)
        if listener is not None:
            names = frozenset(topic_ids)
            self._tell(listener.on_partitions_assigned, names, lambda _: self._context.assignment.announce(names))

    def advance(self, now_ms: int) -> None:
        """Advance the revocation as far as possible."""
        while (revocation := self._revocation) is not None and self._step(revocation, now_ms):
            pass

    def take_call(self) -> UserCall | None:
        """Return the next call to make; None until the previous one is done."""
        if self._is_calling or not self._calls:
            return None
        self._is_calling = True
        return self._calls.popleft()

    def _step(self, revocation: _Revocation, now_ms: int) -> bool:
        """Take one step of the revocation; return True if one was possible."""
        if not revocation.is_begun:
            if not self.is_user_here or self._calls or self._is_calling:
                return False
            revocation.is_begun = True
            self._context.assignment.leave(revocation.partitions)
            self._commit(revocation, now_ms)
            return True
        if not revocation.is_committed or not self.is_user_here:
            return False
        names = self._context.assignment.announced(revocation.partitions)
        if not revocation.is_told and self.listener is not None and (names or revocation.is_told_if_none):
            revocation.is_told = True
            self._tell(self.listener.on_partitions_revoked, names, lambda at_ms: self._end(revocation, at_ms))
            return False
        if self._is_calling or self._calls:
            return False
        self._end(revocation, now_ms)
        return True

    def _commit(self, revocation: _Revocation, now_ms: int) -> None:
        def committed(_: TransactionError | None, __: int) -> None:
            # Offsets that could not be committed are read again by the next owner, who must not be kept waiting.
            revocation.is_committed = True

        offsets = self._context.assignment.positions() if self.commits_on_revocation else {}
        if not offsets:
            revocation.is_committed = True
            return
        self._commits.add(CommitJob(offsets, committed, now_ms + self._context.config.max_poll_interval_ms))

    def _end(self, revocation: _Revocation, now_ms: int) -> None:
        if revocation.is_over:
            return
        self._abandon()
        self._context.assignment.drop(revocation.partitions)
        revocation.then(now_ms)

    def _abandon(self) -> None:
        if self._revocation is not None:
            self._revocation.is_over = True
            self._revocation = None

    def _tell(
        self,
        how: Callable[[Collection[TopicPartition]], Awaitable[None] | None],
        names: Collection[TopicPartition],
        then: Then,
        *,
        is_void_after_loss: bool = True,
    ) -> None:
        def done(error: Exception | None, now_ms: int) -> None:
            self._is_calling = False
            if error is not None and self._failure is None:
                self._failure = error
            then(now_ms)

        self._calls.append(UserCall(lambda entered: how(entered.setdefault(NAMES, names)), done, is_void_after_loss))

    def _drop_void_calls(self) -> None:
        self._calls = deque(call for call in self._calls if not call.is_void_after_loss)
