"""Rates and levels of principals, around the gatekeeper.

For each rate a message is admitted or not as a whole. A principal below its rate is served, however large the message,
and the answer asks it to pause. If it comes back before the pause is over, it is refused in band
(THROTTLING_QUOTA_EXCEEDED, class RETRY, nothing done). Some fronts want it served instead, with another pause. A caller
that ignores its pauses gets its refusals late and one after the other. So it retries no more often than its calls in
flight allow, and not with all of them at once.

Without identities of callers and without a quotas file, a front calls the gatekeeper itself.

Source: KIP-219 (serve first, pause afterwards).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_protocol.methods import MethodRule
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import Connection
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.traffic.call import Call, ReplyT
from coordinator_server.traffic.quotas.budgets import Buckets, Budget, Budgets, QuotaExceeded
from coordinator_server.traffic.quotas.costs import level_of, rate_of, requests_in
from coordinator_server.traffic.quotas.rules import Rate

LATE_MAX: Final = 8_192
"""Maximum number of delayed refusals, a kilobyte or two each. Beyond, refusals are sent at once."""
LATE_AT_ONCE: Final = 32
"""Maximum number of delayed refusals sent in one turn of the loop. They take a millisecond or two, and others have
their turn in between."""
LATE_LOOK_MS: Final = 10
"""Interval of the checks for due refusals, while some are delayed."""


class Keeper(Protocol):
    """The gatekeeper as fronts call it, with rates around it or without (`Gatekeeper`)."""

    def begin(self, call: Call[ReplyT]) -> Pending[ReplyT]: ...

    def begin_all(self, calls: Sequence[Call[ReplyT]]) -> Sequence[Pending[ReplyT]]: ...

    def refuse(self, call: Call[ReplyT], refusal: Refused) -> Pending[ReplyT]: ...

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool: ...

    def answer_unanswered(self, error: CoordinatorError | None = None) -> None: ...


class Metering:
    """Implements `Keeper`. On the loop only."""

    def __init__(
        self,
        keeper: Keeper,
        budgets: Budgets,
        clock: Clock,
        later: Callable[[int, Callable[[], None]], None],
    ) -> None:
        """Wrap the keeper. `later` calls a function after so many milliseconds, in a turn of its own; at most one call
        waits at a time."""
        self._keeper = keeper
        self._budgets = budgets
        self._clock = clock
        self._later = later
        self._late: list[tuple[int, int, Pending[Any], Call[Any], QuotaExceeded]] = []
        """Heap of the delayed refusals: due time, number, reply, call and reason."""
        self._numbers = count()

    def begin(self, call: Call[ReplyT]) -> Pending[ReplyT]:
        """See `Gatekeeper.begin`."""
        (reply,) = self._meter([call], self._begin_one)
        return reply

    def begin_all(self, calls: Sequence[Call[ReplyT]]) -> Sequence[Pending[ReplyT]]:
        """See `Gatekeeper.begin_all`."""
        return self._meter(calls, self._keeper.begin_all)

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        """See `Gatekeeper.is_behind`."""
        return self._keeper.is_behind(connection, then)

    def refuse(self, call: Call[ReplyT], refusal: Refused) -> Pending[ReplyT]:
        """See `Gatekeeper.refuse`."""
        return self._keeper.refuse(call, refusal)

    def answer_unanswered(self, error: CoordinatorError | None = None) -> None:
        """Answer every waiting call, including delayed refusals."""
        late, self._late = self._late, []
        for _due_ms, _number, reply, call, refusal in late:
            self._tell(reply, call, refusal)
        self._keeper.answer_unanswered(error)

    def _begin_one(self, calls: Sequence[Call[ReplyT]]) -> Sequence[Pending[ReplyT]]:
        return [self._keeper.begin(calls[0])]

    def _meter(
        self,
        calls: Sequence[Call[ReplyT]],
        begin_all: Callable[[Sequence[Call[ReplyT]]], Sequence[Pending[ReplyT]]],
    ) -> Sequence[Pending[ReplyT]]:
        if not calls:
            return begin_all(calls)
        budgets = self._budgets
        budget = budgets.of(calls[0].context.principal)
        buckets = budgets.buckets(budget, calls[0].client_id() if budget.has_clients else None)
        pauses_ms = budgets.pauses_ms(buckets)
        replies: list[Pending[ReplyT]] = []
        run: list[Call[ReplyT]] = []

        def hand_over() -> None:
            for call, reply in zip(run, begin_all(run) if run else (), strict=True):
                replies.append(self._followed(budget, buckets, call, reply))
            run.clear()

        for call in calls:
            refusal = self._refusal(budget, call, pauses_ms)
            if refusal is None:
                budget.held[level_of(call.rule)] += 1
                run.append(call)
            else:
                hand_over()
                replies.append(self._refuse(budget, call, refusal))
        hand_over()
        return replies

    def _refusal(self, budget: Budget, call: Call[Any], pauses_ms: Mapping[Rate, int]) -> QuotaExceeded | None:
        if not call.rule.may_be_refused:
            return None
        mine = _of_call(pauses_ms, call.rule) if call.refuses_over_rate else {}
        for rate, pause_ms in mine.items():
            return QuotaExceeded(
                rate,
                f"{budget.principal} has taken more than its {rate} allows: come again in {pause_ms} ms",
                pause_ms,
            )
        return self._budgets.over(level_of(call.rule), budget)

    def _refuse(self, budget: Budget, call: Call[ReplyT], refusal: QuotaExceeded) -> Pending[ReplyT]:
        self._budgets.count_refusal(refusal, budget)
        late_ms = self._budgets.patience_ms(budget)
        if not late_ms or len(self._late) >= LATE_MAX:
            return self._keeper.refuse(call, refusal)
        reply: Pending[ReplyT] = Pending()
        if not self._late:
            self._later(LATE_LOOK_MS, self._tell_late)
        due_ms = self._clock.monotonic_ms() + late_ms
        heappush(self._late, (due_ms, next(self._numbers), reply, call, refusal))
        return reply

    def _tell_late(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for _ in range(LATE_AT_ONCE):
            if not self._late or self._late[0][0] > now_ms:
                break
            _due_ms, _number, reply, call, refusal = heappop(self._late)
            self._tell(reply, call, refusal)
        if self._late:
            self._later(LATE_LOOK_MS if self._late[0][0] > now_ms else 0, self._tell_late)

    def _tell(self, reply: Pending[Any], call: Call[Any], refusal: QuotaExceeded) -> None:
        if reply.is_cancelled:
            reply.fail(Unanswered(CallStatus.CANCELLED, "the caller gave up"))
        else:
            self._keeper.refuse(call, refusal).on_settled(reply.settle_as)

    def _followed(
        self, budget: Budget, buckets: tuple[Buckets, ...], call: Call[ReplyT], reply: Pending[ReplyT]
    ) -> Pending[ReplyT]:
        """Return the reply to a call that was begun. It asks for a pause if too much was taken."""
        rule, size_bytes, level = call.rule, call.size_bytes, level_of(call.rule)
        reply.on_settled(lambda _reply: budget.give_back(level))
        if not any(buckets):
            return reply
        take = self._budgets.take
        take(buckets, Rate.REQUESTS, requests_in(rule, size_bytes))
        if rule.brings_records:
            take(buckets, Rate.PRODUCE_BYTES, size_bytes)

        def answered(answer: ReplyT) -> ReplyT:
            if rule.answers_records:
                take(buckets, Rate.FETCH_BYTES, len(answer))
            mine = _of_call(self._budgets.pauses_ms(buckets), rule)
            if not mine:
                return answer
            self._budgets.throttled.update(mine.keys())
            return call.paused(answer, max(mine.values()))

        return reply.map(answered)


def _of_call(pauses_ms: Mapping[Rate, int], rule: MethodRule) -> dict[Rate, int]:
    """Return the pauses of the rates that calls of this method take from."""
    rates = {Rate.REQUESTS, rate_of(rule)}
    return {rate: pause_ms for rate, pause_ms in pauses_ms.items() if rate in rates}
