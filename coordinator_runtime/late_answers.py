"""Calls whose answer comes with a later operation than their own.

A member that joins a group is answered when the join phase is over, by whatever operation ends it. So the operation of
the call replies `AnswerLater(ticket)`, the shard remembers the ticket, and some later operation has the effect
`Answer(ticket, ...)`, which like every effect starts once it is durable. Tickets are memory only: after a restart, or
when the shard leaves, nobody waits any more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Answer, AnswerLater, Operation, ShardKey
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_runtime.runtime import Runtime


class LateAnswers:
    """The calls that wait. One for a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._tickets = count(1)
        self._waiting: dict[int, tuple[ShardKey, Pending[Any]]] = {}
        runtime.handle_effect(Answer, self._answer)

    def __len__(self) -> int:
        return len(self._waiting)

    def write(
        self,
        operation_for: Callable[[int], Operation],
        context: CallContext,
        *,
        abandon: Callable[[int], Operation],
    ) -> Pending[Any]:
        """Perform the operation made for a new ticket. Its reply is the answer, unless it is AnswerLater.

        `abandon` makes the operation that is performed when the caller gives up while it waits."""
        ticket = next(self._tickets)
        operation = operation_for(ticket)
        answer: Pending[Any] = Pending()
        self._waiting[ticket] = (operation.shard, answer)

        def written(reply: Pending[Any]) -> None:
            try:
                value = reply.result()
            except Exception as error:  # noqa: BLE001  the error is the answer; whoever waits for it sees it
                self._waiting.pop(ticket, None)
                answer.fail(error)
                return
            if isinstance(value, AnswerLater):
                answer.on_cancel(partial(self._abandon, ticket, abandon))
                if answer.is_cancelled:
                    self._abandon(ticket, abandon)
            else:
                # It is not there any more if the shard left before this was durable: then it was refused meanwhile.
                self._waiting.pop(ticket, None)
                answer.succeed(value)

        pending = self._runtime.write(operation, context)
        answer.on_cancel(pending.cancel)
        pending.on_settled(written)
        return answer

    def refuse_all(self, shard: ShardKey) -> None:
        """The shard leaves this server: whoever waits for it must look for it elsewhere."""
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

    def _abandon(self, ticket: int, abandon: Callable[[int], Operation]) -> None:
        if self._waiting.pop(ticket, None) is not None:
            self._runtime.write(abandon(ticket))
