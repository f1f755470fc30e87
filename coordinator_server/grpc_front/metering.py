"""Meters what callers ask for, between the transport and the dispatcher.

A message is admitted or not as a whole for each rate: whoever owes nothing is served whatever the message costs, and is
asked to pause by `throttle_ms` in the answer. Who comes back before the pause is over is refused in band
(THROTTLING_QUOTA_EXCEEDED, class RETRY, nothing done). Who does not stop asking hears of that late, and of one refusal
after the other: so a client that takes no notice comes no more often than its calls in flight allow, and not with all
of them at once.

Where nobody is asked who they are and there is no quotas file, the transport calls the dispatcher itself.

Source: KIP-219 (serve first, pause afterwards).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from coordinator_api.v1 import admin_pb2
from coordinator_protocol.errors import CoordinatorError, Refused
from coordinator_protocol.names import ID_BYTES_MAX
from coordinator_protocol.wire import varint
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, Connection, Level
from coordinator_server.calls import CallStatus, TransportError
from coordinator_server.grpc_front.crowds import Crowds
from coordinator_server.grpc_front.handler import Call, Handler
from coordinator_server.traffic.quotas.budgets import Buckets, Budget, Budgets, QuotaExceeded
from coordinator_server.traffic.quotas.costs import COSTS, Cost, requests_in
from coordinator_server.traffic.quotas.rules import Rate

LATE_MAX: Final = 8_192
"""How many refusals wait at most, a kilobyte or two each; beyond, they are told at once."""
LATE_AT_ONCE: Final = 32
"""How many of them are told in one turn of the loop, in a millisecond or two: others have theirs in between."""
LATE_LOOK_MS: Final = 10
"""How often it is looked, while some wait, which are due."""

THROTTLE_FIELD: Final = 4
"""The number of `throttle_ms` in every response."""


class StoppableHandler(Handler, Protocol):
    """The dispatcher."""

    def answer_unanswered(self, error: CoordinatorError | None = None) -> None:
        """Answer every call that still waits."""


class Metering:
    """Implements `Handler`. On the loop only."""

    def __init__(
        self,
        handler: StoppableHandler,
        budgets: Budgets,
        clock: Clock,
        later: Callable[[int, Callable[[], None]], None],
    ) -> None:
        """`later` calls a function after so many milliseconds, in a turn of its own; two calls wait at most."""
        self._handler = handler
        self._budgets = budgets
        self._clock = clock
        self._later = later
        self._late: list[tuple[int, int, Pending[bytes], str, QuotaExceeded]] = []
        """A heap of the refusals that are told late: when, their number, the reply, method and reason."""
        self._numbers = count()
        self._crowds = Crowds(clock, later, self._begin)

    def __call__(self, method: str, body: bytes, call: CallContext) -> Pending[bytes]:
        called = method, body, call
        self._crowds.called(call.principal)
        held = self._crowds.held(self._budgets.of(call.principal), called)
        return self._begin(called) if held is None else held

    def _begin(self, called: Call) -> Pending[bytes]:
        (reply,) = self._meter([called], self._handle_one)
        return reply

    def message(self, calls: Sequence[Call]) -> Sequence[Pending[bytes]]:
        if calls:
            self._crowds.called(calls[0][2].principal)
        return self._meter(calls, self._handler.message)

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        return self._handler.is_behind(connection, then)

    def refuse(self, method: str, refusal: Refused) -> Pending[bytes]:
        return self._handler.refuse(method, refusal)

    def answer_unanswered(self, error: CoordinatorError | None = None) -> None:
        """Answer every call that still waits, also the refusals that are told late."""
        late, self._late = self._late, []
        for _due_ms, _number, reply, method, refusal in late:
            self._tell(reply, method, refusal)
        self._crowds.begin_all()
        self._handler.answer_unanswered(error)

    def _handle_one(self, calls: Sequence[Call]) -> Sequence[Pending[bytes]]:
        return [self._handler(*calls[0])]

    def _meter(
        self, calls: Sequence[Call], handle: Callable[[Sequence[Call]], Sequence[Pending[bytes]]]
    ) -> Sequence[Pending[bytes]]:
        if not calls:
            return handle(calls)
        budgets = self._budgets
        budget = budgets.of(calls[0][2].principal)
        client_id = _client_id(calls[0]) if budget.has_clients else None
        buckets = budgets.buckets(budget, client_id)
        pauses_ms = budgets.pauses_ms(buckets)
        replies: list[Pending[bytes]] = []
        run: list[Call] = []

        def hand_over() -> None:
            for (method, body, _call), reply in zip(run, handle(run) if run else (), strict=True):
                replies.append(self._followed(budget, buckets, _cost(method), len(body), reply))
            run.clear()

        for each in calls:
            cost = _cost(each[0])
            refusal = self._refusal(budget, cost, pauses_ms)
            if refusal is None:
                budget.held[cost.level] += 1
                run.append(each)
            else:
                hand_over()
                replies.append(self._refuse(budget, each[0], refusal))
        hand_over()
        return replies

    def _refusal(self, budget: Budget, cost: Cost, pauses_ms: Mapping[Rate, int]) -> QuotaExceeded | None:
        if not cost.may_be_refused:
            return None
        for rate, pause_ms in pauses_ms.items():
            if rate in {Rate.REQUESTS, cost.rate}:
                return QuotaExceeded(
                    rate,
                    f"{budget.principal} has taken more than its {rate} allows: come again in {pause_ms} ms",
                    pause_ms,
                )
        return self._budgets.over(cost.level, budget)

    def _refuse(self, budget: Budget, method: str, refusal: QuotaExceeded) -> Pending[bytes]:
        self._budgets.count_refusal(refusal, budget)
        late_ms = self._budgets.patience_ms(budget)
        if not late_ms or len(self._late) >= LATE_MAX:
            return self._handler.refuse(method, refusal)
        reply: Pending[bytes] = Pending()
        if not self._late:
            self._later(LATE_LOOK_MS, self._tell_late)
        due_ms = self._clock.monotonic_ms() + late_ms
        heappush(self._late, (due_ms, next(self._numbers), reply, method, refusal))
        return reply

    def _tell_late(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for _ in range(LATE_AT_ONCE):
            if not self._late or self._late[0][0] > now_ms:
                break
            _due_ms, _number, reply, method, refusal = heappop(self._late)
            self._tell(reply, method, refusal)
        if self._late:
            self._later(LATE_LOOK_MS if self._late[0][0] > now_ms else 0, self._tell_late)

    def _tell(self, reply: Pending[bytes], method: str, refusal: QuotaExceeded) -> None:
        if reply.is_cancelled:
            reply.fail(TransportError(CallStatus.CANCELLED, "the caller gave up"))
        else:
            self._handler.refuse(method, refusal).on_settled(reply.settle_as)

    def _followed(
        self, budget: Budget, buckets: tuple[Buckets, ...], cost: Cost, size_bytes: int, reply: Pending[bytes]
    ) -> Pending[bytes]:
        """The reply to a call that was begun, with a pause in it where too much was taken."""
        reply.on_settled(lambda _reply: budget.give_back(cost.level))
        if not any(buckets):
            return reply
        take = self._budgets.take
        take(buckets, Rate.REQUESTS, requests_in(cost, size_bytes))
        if cost.rate is Rate.PRODUCE_BYTES:
            take(buckets, cost.rate, size_bytes)

        def answered(body: bytes) -> bytes:
            if cost.rate is Rate.FETCH_BYTES:
                take(buckets, cost.rate, len(body))
            pauses_ms = self._budgets.pauses_ms(buckets)
            mine = {rate: pause for rate, pause in pauses_ms.items() if rate in {Rate.REQUESTS, cost.rate}}
            if not mine:
                return body
            self._budgets.throttled.update(mine.keys())
            return body + _THROTTLE_TAG + varint(max(mine.values()))

        return reply.map(answered)


_THROTTLE_TAG: Final = bytes([THROTTLE_FIELD << 3])
"""Where a field comes twice in a message, the last one counts: so a pause is added to an answer that is written."""
_SMALLEST: Final = Cost(Level.CALLS, None, may_be_refused=True)


def _cost(method: str) -> Cost:
    """The cost of a call, also of what is no method, which the dispatcher says."""
    return COSTS.get(method.rpartition("/")[2], _SMALLEST)


def _client_id(call: Call) -> str:
    """What the call says that its client is; nothing where it cannot be read, which the dispatcher answers."""
    _method, body, context = call
    client_id = context.client_id
    with suppress(DecodeError):
        # Every request begins with the same header.
        client_id = admin_pb2.DescribeLimitsRequest.FromString(body).header.client_id or client_id
    # It is kept as long as the server runs. One that is longer than any may be the dispatcher refuses.
    return client_id if len(client_id) <= ID_BYTES_MAX else ""
