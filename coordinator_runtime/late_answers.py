"""Deferred replies: calls whose answer comes from a later operation.

A member that joins a group is answered when the join phase is over, by the operation that ends it. So the operation of
the call replies `AnswerLater(ticket)`, and the shard remembers the ticket. A later operation has the effect
`Answer(ticket, ...)`, which like every effect starts once it is durable. Tickets are in memory only: after a restart,
or when the shard leaves, no call waits any more.

The number of waiting calls is limited. Beyond the limit, a call that would only wait is refused, retriably and before
it changed anything. A call that is answered at once, or ends the wait of another, is still performed, because it lowers
the number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Answer, AnswerLater, Decision, Operation, ShardKey, Turn
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import Runtime

WAITING_MAX: Final = 100_000
"""Default limit: one call for each member of very many groups, some hundred bytes each."""


class LateAnswers:
    """The waiting calls, at most `waiting_max` of them. One for a runtime."""

    def __init__(self, runtime: Runtime, *, waiting_max: int = WAITING_MAX) -> None:
        self._runtime = runtime
        self._waiting_max = waiting_max
        self._tickets = count(1)
        self._waiting: dict[int, tuple[ShardKey, Pending[Any]]] = {}
        runtime.handle_effect(Answer, self._answer)

    def __len__(self) -> int:
        """Number of calls without an answer."""
        return len(self._waiting)

    def write(
        self,
        shard: ShardKey,
        decide: Callable[..., Decision],
        context: CallContext,
        *,
        abandon: Callable[..., Decision],
    ) -> Pending[Any]:
        """Ask the shard with a new ticket: `decide(shard, turn, ticket=...)`. Its reply is the answer, unless it is
        AnswerLater.

        `abandon` is called in the same way if the caller gives up while it waits. Errors: as `Runtime.write`; Refused
        THROTTLING_QUOTA_EXCEEDED if too many calls wait."""
        ticket = next(self._tickets)
        answer: Pending[Any] = Pending()
        self._waiting[ticket] = (shard, answer)
        give_up = partial(self._abandon, ticket, Operation(shard, partial(abandon, ticket=ticket)))

        def written(reply: Pending[Any]) -> None:
            if reply.error is None and isinstance(reply.result(), AnswerLater):
                answer.on_cancel = give_up
                if answer.is_cancelled:
                    give_up()
            else:
                # Missing if the shard left before this was durable: then it was refused already.
                self._waiting.pop(ticket, None)
                answer.settle_as(reply)

        pending = self._runtime.write(Operation(shard, partial(self._decide, decide, ticket)), context)
        answer.on_cancel = pending.cancel
        pending.on_settled(written)
        return answer

    def _decide(self, decide: Callable[..., Decision], ticket: int, shard: object, turn: Turn) -> Decision:
        decision = decide(shard, turn, ticket=ticket)
        # The call itself is among those without an answer.
        others = len(self._waiting) - 1
        if others >= self._waiting_max and _only_waits(decision):
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{others} calls wait for other members of their groups, which is all this server takes; try again "
                "shortly",
            )
        return decision

    def refuse_all(self, shard: ShardKey) -> None:
        """Refuse all calls that wait for a shard that leaves this server: they must find its new coordinator."""
        for ticket in [ticket for ticket, (key, _answer) in self._waiting.items() if key == shard]:
            refusal = Refused(
                ErrorCode.NOT_COORDINATOR, "the group moves to another server; find its coordinator again"
            )
            self._answer(Answer(ticket, refusal=refusal))

    def _answer(self, given: Answer) -> None:
        waiting = self._waiting.pop(given.ticket, None)
        if waiting is None:
            return
        _shard, answer = waiting
        if given.refusal is not None:
            answer.fail(given.refusal)
        else:
            answer.succeed(given.reply)

    def _abandon(self, ticket: int, operation: Operation) -> None:
        waiting = self._waiting.pop(ticket, None)
        if waiting is not None:
            self._runtime.write(operation)
            waiting[1].give_up()


def _only_waits(decision: Decision) -> bool:
    """Return True if the call would wait, and would end no wait, not even its own."""
    return isinstance(decision.reply, AnswerLater) and not any(isinstance(each, Answer) for each in decision.effects)
