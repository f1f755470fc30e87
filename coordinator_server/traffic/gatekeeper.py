"""The way of every request through the server, from any front.

    turn (FairReads, FairMessages) -> cancelled? -> gate -> admission -> limit of answers -> Call.begin ...
    ... the reply -> counts given back -> audit -> Call.encode -> work of reads noted -> observer

The order is fixed: a refusal costs as little as it can, and only calls that have begun count. `Metering` puts the rates
of principals around it. A front knows a wire and no limits; the gatekeeper knows the limits and no wire.

Every call gets its own answer. A defect fails only the call that met it, and is logged here once, with its traceback.
The caller gets INTERNAL, and nothing of our inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import structlog

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused, UnknownOutcome
from coordinator_protocol.methods import Method
from coordinator_runtime.clock import Clock
from coordinator_runtime.pending import Pending, failed, settled
from coordinator_runtime.ports import NO_ANSWER_LIMIT, AnswerLimit, Connection
from coordinator_server.calls import CallStatus, Unanswered
from coordinator_server.traffic.admission import Admission, CallLimit
from coordinator_server.traffic.call import Auditor, Call, EncodedAnswer, FastPathEnd, NoObserver, Observer, ReplyT
from coordinator_server.traffic.fair_messages import FairMessages, is_enough
from coordinator_server.traffic.fair_reads import FairReads

_log = structlog.get_logger("transport")


_NO_FAST_PATHS: Final[Mapping[Method, FastPathEnd]] = MappingProxyType({})


class Gate(Enum):
    """State of the server. The value is the refusal; None means that it takes work."""

    LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the server is loading its state; try again shortly")
    SERVING = None
    DRAINING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, "the server is shutting down; try again when it is back")


_SERVING: Final = Gate.SERVING
"""A name of its own, because the lookup of a member costs ten times as much."""


@dataclass(slots=True)
class _Rest:
    """Calls of a message that wait for their turn, and their replies."""

    calls: Sequence[Call[Any]]
    replies: Sequence[Pending[Any]]
    begun: int = 0


Taken = list[tuple[Pending[Any], Call[Any], Any]]
"""Calls of the fast path, each with its reply and answer."""


class Gatekeeper:
    """Begins calls, and answers them. One per server: its counts are over all fronts. On the loop only."""

    def __init__(
        self,
        admission: Admission,
        clock: Clock,
        *,
        answer_limit: AnswerLimit = NO_ANSWER_LIMIT,
        reads: FairReads | None = None,
        messages: FairMessages | None = None,
    ) -> None:
        self._admission = admission
        self._places: Final = admission.places
        self._clock = clock
        self._answer_limit = answer_limit
        self._reads = reads or FairReads()
        self._messages = messages or FairMessages(clock)
        self.observer: Observer = NoObserver()
        self.auditor: Auditor | None = None
        self.is_owner: Callable[[], bool] | None = None
        """Asked before every answer, for a server whose time as the owner of its store may end; None otherwise."""
        self._unanswered: dict[Pending[Any], tuple[Method, CallLimit, int]] = {}
        """Calls in flight: the limit that each counts towards, and its count. That is one, or the number of calls that
        the fast path took together."""
        self._fast_paths: Mapping[Method, FastPathEnd] = {}
        self._gate = Gate.LOADING

    def open(self, fast_paths: Mapping[Method, FastPathEnd] = _NO_FAST_PATHS) -> None:
        """Take work from now on. Calls of the methods that have a fast path are offered to it first."""
        self._fast_paths = fast_paths
        self._gate = Gate.SERVING

    def close(self) -> None:
        """Take no new work. Calls under way go on."""
        self._gate = Gate.DRAINING

    @property
    def unanswered_calls(self) -> int:
        return self.calls_in_flight().total()

    def calls_in_flight(self) -> Counter[Method]:
        """Return the number of calls in flight by method."""
        in_flight: Counter[Method] = Counter()
        for method, _limit, calls in self._unanswered.values():
            in_flight[method] += calls
        return in_flight

    def answer_unanswered(self, error: CoordinatorError | None = None) -> None:
        """Answer and drop every call that still waits (parked, long polls). The answer is the error, or the refusal of
        the closed gate, which says that nothing was done.

        For a server that stops, once everything staged is answered.
        """
        if error is None:
            assert self._gate.value is not None, "only a closed gate has something to say"
            error = Refused(*self._gate.value)
        # Their gate is closed.
        self._messages.begin_all()
        self._reads.begin_all()
        for pending in list(self._unanswered):
            pending.drop(error)

    def begin(self, call: Call[ReplyT]) -> Pending[ReplyT]:
        """Begin one call. The reply fails with `Unanswered` only; cancelling it means that the caller is gone."""
        reply: Pending[ReplyT] = Pending()
        if call.rule.method in self._fast_paths:
            self._begin_some([call], [reply])
        else:
            self._begin_alone(call, reply)
        return reply

    def begin_all(self, calls: Sequence[Call[ReplyT]]) -> Sequence[Pending[ReplyT]]:
        """Begin all calls of one message of one connection, in order, in this turn of the loop or in later ones. Calls
        that the fast path leaves begin before it goes on."""
        replies: list[Pending[ReplyT]] = [Pending() for _ in calls]
        if calls:
            connection = calls[0].context.connection
            begun = self._begin_some(calls, replies) if self._messages.may_begin(connection) else 0
            if begun < len(calls):
                rest = _Rest([*calls[begun:]], replies[begun:])
                self._messages.wait(connection, partial(self._begin_rest, rest))
        return replies

    def refuse(self, call: Call[ReplyT], refusal: Refused) -> Pending[ReplyT]:
        """Answer a call with a refusal. The call is not begun or decoded."""
        reply: Pending[ReplyT] = Pending()
        self._reply(call, reply, self._clock.monotonic_us(), failed(refusal))
        return reply

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        """Return True if calls of this connection's messages still wait for their turn. `then` is called once all have
        begun."""
        return self._messages.is_behind(connection, then)

    def _begin_rest(self, rest: _Rest) -> bool:
        """Begin as many calls as there is time for. Return True if more are left."""
        rest.begun += self._begin_some(rest.calls, rest.replies, rest.begun)
        return rest.begun < len(rest.calls)

    def _begin_some(self, calls: Sequence[Call[Any]], replies: Sequence[Pending[Any]], first: int = 0) -> int:
        """Begin calls from `first` on, until the time of this turn is used up. Return their number."""
        place, messages, now_us = first, self._messages, self._clock.monotonic_us
        while place < len(calls):
            if calls[place].rule.method not in self._fast_paths:
                self._begin_alone(calls[place], replies[place])
                place += 1
                if calls[place - 1].rule.is_list and messages.rest(calls[place - 1].context.connection):
                    break
            else:
                taken, left = self._take(calls, replies, place)
                if not taken:
                    for number in range(place, place + left):
                        self._begin(calls[number], replies[number], now_us())
                place += taken or left
            if place < len(calls) and now_us() >= messages.until_us and is_enough(calls, first, place):
                break
        return place - first

    def _begin_alone(self, call: Call[Any], reply: Pending[Any]) -> None:
        """Begin a call that is not for the fast path."""
        began_us = self._clock.monotonic_us()
        if not call.rule.is_large_answer:
            self._begin(call, reply, began_us)
            return
        try:
            self._reads.begin(call.context.connection, call.size_bytes, partial(self._begin, call, reply, began_us))
        except Refused as refusal:
            self._reply(call, reply, began_us, failed(refusal))

    def _take(self, calls: Sequence[Call[Any]], replies: Sequence[Pending[Any]], first: int) -> tuple[int, int]:
        """Offer calls of one method to the fast path. It ends at the first call that is not for it, or with the time of
        this turn.

        Return the number of calls that it took, and the number of next calls for the general path. The latter is 0 if
        some were taken, and 1 if none was. After a defect it is the number of calls that were taken back. Those are not
        offered again, so the cost of a message stays proportional to its calls, even if the fast path is faulty.
        """
        now_us = self._clock.monotonic_us
        began_us, until_us = now_us(), self._messages.until_us
        rule = calls[first].rule
        method = rule.method
        fast_path = self._fast_paths[method]
        limit, calls_max = self._places[method]
        taken: Taken = []
        last = len(calls) - 1
        try:
            for number in range(first, len(calls)):
                call, reply = calls[number], replies[number]
                is_below = limit.calls + len(taken) < calls_max and self._gate is _SERVING
                if call.rule is not rule or not is_below or reply.is_cancelled:
                    break
                answer = call.take()
                if answer is None:
                    break
                taken.append((reply, call, answer))
                if number < last and now_us() >= until_us and is_enough(calls, first, number + 1):
                    break
            if not taken:
                return 0, 1
            ended = fast_path.end()
        except Exception as defect:  # noqa: BLE001  our bug: it costs these calls their place in the fast path
            self._met_defect(method, defect)
            fast_path.take_back()
            return 0, len(taken) or 1
        limit.calls += len(taken)
        self._unanswered[ended] = method, limit, len(taken)
        ended.on_settled(partial(self._answer_taken, method, taken, began_us))
        return len(taken), 0

    def _answer_taken(self, method: Method, taken: Taken, began_us: int, ended: Pending[None]) -> None:
        _method, limit, calls = self._unanswered.pop(ended)
        limit.calls -= calls
        error = ended.error or (None if self.is_owner is None else _lost_ownership(self.is_owner))
        if error is not None:
            for reply, call, answer in taken:
                value = settled(answer).map(partial(call.taken_failed, error=error))
                self._reply(call, reply, began_us, value)
            return
        elapsed_us = self._clock.monotonic_us() - began_us
        answered = 0
        for reply, call, answer in taken:
            if reply.is_cancelled:
                self._end_unanswered(call, reply, _gave_up(), began_us)
            else:
                answered += 1
                reply.succeed(answer)
        if answered:
            self.observer.answered(method, elapsed_us, calls=answered)

    def _begin(self, call: Call[Any], reply: Pending[Any], began_us: int) -> None:
        if reply.is_cancelled:
            self._end_unanswered(call, reply, _gave_up(), began_us)
            return
        rule = call.rule
        try:
            if self._gate is not _SERVING:
                raise Refused(*self._gate.value)
            limit, calls_max = self._places[rule.method]
            if limit.calls >= calls_max:
                self._admission.check(rule.method)
            if rule.is_large_answer:
                self._answer_limit.check(call.context.connection)
            pending = call.begin()
        except Exception as error:  # noqa: BLE001  `_reply` distinguishes refusals and defects
            self._reply(call, reply, began_us, failed(error))
            return
        if pending.is_settled:
            self._reply(call, reply, began_us, pending)
            return
        reply.on_cancel = pending.cancel
        limit.calls += 1
        self._unanswered[pending] = rule.method, limit, 1
        pending.on_settled(partial(self._reply, call, reply, began_us))

    def _reply(self, call: Call[Any], reply: Pending[Any], began_us: int, done: Pending[Any]) -> None:
        """Give the caller the answer to a finished use case, or the reason for which it gets none."""
        waited = self._unanswered.pop(done, None)
        if waited is not None:
            waited[1].calls -= waited[2]
        rule = call.rule
        if rule.is_administrative:
            self._audit(call, done)
        try:
            error = done.error or (None if self.is_owner is None else _lost_ownership(self.is_owner))
            if error is not None and not isinstance(error, CoordinatorError):
                raise error
            if reply.is_cancelled:
                raise _gave_up()
            answer = call.encode(done.result()) if error is None else call.refused(error)
            if rule.is_large_answer:
                answer = self._large(call, answer)
            if len(answer.reply) > call.answer_bytes_max:
                raise _too_large(rule.method, len(answer.reply), call.answer_bytes_max)
            self.observer.answered(rule.method, self._clock.monotonic_us() - began_us, answer.codes)
        except Unanswered as failure:
            self._end_unanswered(call, reply, failure.with_traceback(None), began_us)
        except Exception as defect:  # noqa: BLE001  our bug: it fails this call alone
            self._met_defect(rule.method, defect)
            text = f"{rule.method} met a defect of the server; the server's log has the details"
            self._end_unanswered(call, reply, Unanswered(CallStatus.INTERNAL, text), began_us)
        else:
            reply.succeed(answer.reply)

    def _audit(self, call: Call[Any], done: Pending[Any]) -> None:
        if self.auditor is not None and call.is_understood:
            error = done.error
            self.auditor.acted(call, call.codes_in(done.result()) if error is None else error)

    def _large(self, call: Call[Any], answer: EncodedAnswer[Any]) -> EncodedAnswer[Any]:
        """Count the work of a read. Return its answer, or a refusal if it is larger than the capacity left for
        answers."""
        self._reads.spent(len(answer.reply))
        # A Fetch has checked the size before it made its answer.
        if not call.rule.answers_records:
            try:
                self._answer_limit.check_answer(len(answer.reply))
            except Refused as refusal:
                return call.refused(refusal)
        return answer

    def _met_defect(self, method: Method, defect: Exception) -> None:
        _log.error("defect", method=method, exc_info=defect)
        self.observer.defect(defect)

    def _end_unanswered(self, call: Call[Any], reply: Pending[Any], error: Unanswered, began_us: int) -> None:
        self.observer.unanswered(call.rule.method, self._clock.monotonic_us() - began_us, error.status)
        reply.fail(error)


def _gave_up() -> Unanswered:
    return Unanswered(CallStatus.CANCELLED, "the caller gave up")


def _too_large(method: Method, size_bytes: int, bytes_max: int) -> Unanswered:
    return Unanswered(
        CallStatus.RESOURCE_EXHAUSTED,
        f"the answer of {method} takes {size_bytes} bytes and at most {bytes_max} are allowed: ask for less at a time",
    )


def _lost_ownership(is_owner: Callable[[], bool]) -> Exception | None:
    """Return the answer in place of one that may be over: the server was the owner before it, and is not now."""
    if is_owner():
        return None
    return UnknownOutcome("the time of this server as the owner of its store is over: ask the new owner")
