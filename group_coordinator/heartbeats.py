"""Heartbeats of members with epochs. One that waits for news of its group is decided again when there may be news.

The owned partitions of a member are those of its newest heartbeat. So a decision is of use only once the member has
learned of it. Two things could come before that. The same heartbeat could be decided again: `Question` prevents that.
Or a newer one comes, from a client that gave up the older: then both get one answer, with the whole assignment
(decision 17).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from coordinator_runtime.decision import Decision, Operation, ShardKey, ShardRouter
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext, TopicMetadata
from coordinator_runtime.runtime import Runtime
from group_coordinator.members import Beat, HeartbeatAnswer, HeartbeatReply
from group_coordinator.news import News
from group_coordinator.shard import GroupShard
from group_coordinator.topics import topic_shares

_DEADLINE_MARGIN_MS: Final = 100
"""Time before its caller's deadline at which an answer leaves (ms)."""


class Settled(NamedTuple):
    """Assignment and target of a member when it had reached its target. While both are the same objects, nothing is
    new."""

    assignment: object
    target: object


BeatT = TypeVar("BeatT", bound=Beat)


class WaitingRules(Struct, Generic[BeatT], frozen=True, kw_only=True):
    """Rules of one kind of group for heartbeats that wait."""

    decide: Callable[..., Decision]
    """Decides on a heartbeat: `decide(shard, turn, request=request)`. The reply is a HeartbeatReply."""
    session_timeout_ms: Callable[[GroupShard, str], int]
    """Returns the session timeout of the members of a group."""
    settled_on: Callable[[GroupShard, BeatT], Settled | None]
    """Returns assignment and target of the member if it has reached its target, else None."""
    may_have_news: Callable[[GroupShard, BeatT, HeartbeatReply, Settled | None], bool]
    """Returns False if the group certainly has nothing new for the member since its last reply.

    It is called for every waiting member at each change, so it must be cheap. Most members have reached their
    target, which the identity of the two values shows."""


class Heartbeats(Generic[BeatT]):
    """Heartbeats of one kind of group in one server, from their arrival to their answer."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        router: ShardRouter,
        topics: TopicMetadata,
        news: News,
        rules: WaitingRules[BeatT],
        on_written: Callable[[str, CallContext], None] = lambda _group_id, _context: None,
    ) -> None:
        """`on_written` is called with the group after each decision."""
        self._runtime = runtime
        self._router = router
        self._topics = topics
        self._news = news
        self._rules = rules
        self._on_written = on_written
        self._unanswered: dict[tuple[str, str], _Unanswered] = {}
        """Newest unanswered heartbeat of each member, waiting for news or for the disk, by group id and member id."""

    def answer(self, request: BeatT, context: CallContext, ask_again: Callable[[], None]) -> Pending[HeartbeatAnswer]:
        """Return the answer to a heartbeat as soon as there is something new for the member, and at the latest after
        the wait. `ask_again` raises Refused if a call that has waited lost its permission.

        If a newer heartbeat of the member overtakes it, it is answered no later than that one. Its answer is then that
        of the newer one, unless the member leaves with that.
        """

        wait_ms = self._wait_ms(request, context)

        def named(reply: HeartbeatReply) -> HeartbeatAnswer:
            if wait_ms > 0:
                ask_again()
            assigned = None if reply.assigned is None else topic_shares(reply.assigned, self._topics)
            return HeartbeatAnswer(reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms, assigned)

        return self._ask(request, context, wait_ms).map(named)

    def reply(self, request: BeatT, context: CallContext, ask_again: Callable[[], None]) -> Pending[HeartbeatReply]:
        """Return the reply of the group itself, when `answer` returns its answer."""
        wait_ms = self._wait_ms(request, context)

        def allowed(reply: HeartbeatReply) -> HeartbeatReply:
            if wait_ms > 0:
                ask_again()
            return reply

        return self._ask(request, context, wait_ms).map(allowed)

    def _wait_ms(self, request: BeatT, context: CallContext) -> int:
        """Return the time that a heartbeat may wait (ms). A leave does not wait, and the next heartbeat must come
        within the session."""
        if request.max_wait_ms <= 0 or request.member_epoch < 0:
            return 0
        shard: GroupShard | None = self._runtime.table.find(self._router.shard_key(request.group_id))
        if shard is None:
            return 0
        session_ms = self._rules.session_timeout_ms(shard, request.group_id)
        wait_ms = min(request.max_wait_ms, session_ms // 2)
        if context.deadline_ms is not None:
            wait_ms = min(wait_ms, context.deadline_ms - self._runtime.clock.monotonic_ms() - _DEADLINE_MARGIN_MS)
        return wait_ms

    def _ask(self, request: BeatT, context: CallContext, wait_ms: int) -> Pending[HeartbeatReply]:
        key = (request.group_id, request.member_id)
        older = self._unanswered.get(key)
        if older is None:
            return self._decide(request, context, wait_ms, key)
        if request.member_epoch < 0:
            # The epoch of a leave is no answer to the older one.
            older.conclude()
            return self._decide(request, context, wait_ms, key)
        # The owned partitions in an older heartbeat are out of date, so it must not be decided again.
        older.stop()
        replied = self._decide(replace(request, crosses=older.is_undurable), context, wait_ms, key)
        older.answer_beside(replied)
        return replied

    def _decide(
        self, request: BeatT, context: CallContext, wait_ms: int, key: tuple[str, str]
    ) -> Pending[HeartbeatReply]:
        """Decide a heartbeat, and again while it waits.

        Until it is answered and its last decision is durable, the member's next heartbeat finds it in `_unanswered`.
        """
        beat = _Unanswered(self._router.shard_key(request.group_id))
        operation = Operation(beat.shard, partial(self._rules.decide, request=request))

        def write() -> Pending[HeartbeatReply]:
            beat.decided = self._write(operation, request.group_id, context)
            beat.decided.on_settled(forget_when_over)
            return beat.decided

        def forget_when_over(_reply: object) -> None:
            if beat.is_over and self._unanswered.get(key) is beat:
                del self._unanswered[key]

        asked = write() if wait_ms <= 0 else self._wait(request, beat, write, wait_ms)
        if asked.is_settled:
            return asked
        self._unanswered[key] = beat
        beat.follow(asked)
        beat.answer.on_settled(forget_when_over)
        return beat.answer

    def _wait(
        self,
        request: BeatT,
        beat: _Unanswered,
        write: Callable[[], Pending[HeartbeatReply]],
        wait_ms: int,
    ) -> Pending[HeartbeatReply]:
        def ask() -> Pending[HeartbeatReply]:
            if beat.told is None or self._may_have_news(request, beat):
                return write()
            return settled(beat.told)

        def is_news(reply: HeartbeatReply) -> bool:
            if reply is not beat.told:
                beat.told = reply
                beat.settled_on = self._settled_on(request, beat)
            return reply.is_news(request)

        return self._news.ask(request.group_id, ask, is_news=is_news, max_wait_ms=wait_ms)

    def _may_have_news(self, request: BeatT, beat: _Unanswered) -> bool:
        assert beat.told is not None, "it was asked once"
        shard: GroupShard | None = self._runtime.table.find(beat.shard)
        return shard is None or self._rules.may_have_news(shard, request, beat.told, beat.settled_on)

    def _settled_on(self, request: BeatT, beat: _Unanswered) -> Settled | None:
        shard: GroupShard | None = self._runtime.table.find(beat.shard)
        return None if shard is None else self._rules.settled_on(shard, request)

    def _write(self, operation: Operation, group_id: str, context: CallContext) -> Pending[HeartbeatReply]:
        # Most heartbeats store nothing, and the records of the others let partitions move on.
        written: Pending[HeartbeatReply] = self._runtime.write(operation, context, is_urgent=True)
        written.on_settled(lambda _reply: self._on_written(group_id, context))
        return written


class _Unanswered:
    """Heartbeat that waits for news, or for its decision to be durable."""

    __slots__ = ("_asked", "_is_stopped", "answer", "decided", "settled_on", "shard", "told")

    def __init__(self, shard: ShardKey) -> None:
        self.shard = shard
        self.answer: Pending[HeartbeatReply] = Pending()
        self.decided: Pending[HeartbeatReply] | None = None
        """Reply to the last decision on it."""
        self.told: HeartbeatReply | None = None
        """Last reply of the group; None until the first."""
        self.settled_on: Settled | None = None
        self._asked: Pending[HeartbeatReply] | None = None
        self._is_stopped = False

    @property
    def is_undurable(self) -> bool:
        """True while a decision on it is not durable, so that its member cannot know it."""
        return self.decided is not None and not self.decided.is_settled

    @property
    def is_over(self) -> bool:
        """True once it is answered and no decision on it waits for the disk."""
        return self.answer.is_settled and not self.is_undurable

    def follow(self, asked: Pending[HeartbeatReply]) -> None:
        """Answer with the result of `asked`, unless stopped before."""
        self._asked = asked
        self.answer.on_cancel = asked.cancel
        asked.on_settled(self._settle)

    def _settle(self, asked: Pending[HeartbeatReply]) -> None:
        if not self._is_stopped:
            self.answer.settle_as(asked)

    def stop(self) -> None:
        """Stop asking, because a newer heartbeat has come. `answer_beside` gives the answer."""
        self._is_stopped = True
        if self._asked is not None:
            self._asked.cancel()

    def conclude(self) -> None:
        """Answer with the last decision, because the member leaves."""
        if not self.is_undurable:
            assert self.told is not None, "what was never told waits for the disk"
            self.stop()
            self.answer.succeed(self.told)
            return
        assert self.decided is not None, "it is not durable"
        self._is_stopped = True
        if self._asked is not self.decided and self._asked is not None:
            self._asked.cancel()
        self.decided.on_settled(self.answer.settle_as)

    def answer_beside(self, newer: Pending[HeartbeatReply]) -> None:
        """Answer with the last reply if no decision was made since. Otherwise answer as the newer heartbeat.

        That answer repeats the whole assignment, so the order of their arrival does not matter.
        """
        if self.told is not None and not self.is_undurable:
            self.answer.succeed(self.told)
        else:
            newer.on_settled(self.answer.settle_as)
