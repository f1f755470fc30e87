"""One request and its attempts, without a clock or a socket: time comes in, and what to do next comes out.

A call ends in one of three ways: with a reply, with a definite failure, or at its deadline. At the deadline it
distinguishes "the server said each time that it changed nothing" (Retriable) from "an attempt was lost"
(OutcomeUnknown). Every attempt sends the same message with the same request id, so the server recognises a request that
it has carried out already.

A server that answers is asked again after 5 to 100 ms. One that does not answer is asked less and less often, in the
end once a second. A client that was never connected is not retried at all (`first_contact`).

Source: design 6 ("retries name themselves"); spec ecosystem 1 (5 ms -> 100 ms, jittered); Kafka's
`reconnect.backoff.max.ms` (1,000); KAFKA-7763 (always a deadline).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic

from coordinator_client.errors import (
    Loss,
    TransactionError,
    Verdict,
    class_of,
    definite_failure,
    failure,
    failure_of,
    first_failed,
    unreachable,
)
from coordinator_client.methods import ReplyT, RequestT, Rpc
from coordinator_protocol.errors import ErrorClass, ErrorCode

PAUSE_MS_FIRST: Final = 5
PAUSE_MS_MAX: Final = 100
LOST_PAUSE_MS_MAX: Final = 1_000
_DOUBLINGS_MAX: Final = 10

_NO_ATTEMPT: Final = (ErrorCode.REQUEST_TIMED_OUT, "no attempt was made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long one call may take, and one attempt of it."""

    total_ms: int
    """Longest time from the first attempt to the last answer."""

    attempt_ms: int = 30_000
    """Longest time for one attempt, which is taken for lost after it without an answer. Smaller than the server's
    longest wait for a busy transaction (30 s by default) only costs attempts: each one waits anew."""

    attempts_max: int | None = None
    """Give up after this many attempts; 1 for requests that must be written anew after a lost answer. None = no limit
    but the time."""


class RetryingCall(Generic[RequestT, ReplyT]):
    """One logical request: its next attempt is due or in flight, or it is over."""

    __slots__ = (
        "_accepted",
        "_cause",
        "_deadlines",
        "_ends_ms",
        "_items",
        "_started_ms",
        "attempt_ends_ms",
        "attempts",
        "due_ms",
        "lost",
        "request",
        "rpc",
    )

    def __init__(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        deadlines: Deadlines,
        now_ms: int,
        items: Callable[[ReplyT], Iterable[Verdict]] | None = None,
        accepted: frozenset[ErrorCode] = frozenset(),
    ) -> None:
        """Make the first attempt due now.

        `items` returns the parts of a reply that succeed or fail on their own. The first failed one decides for the
        whole reply, which suits requests that are repeated as a whole. `accepted`: codes that are an answer to this
        caller, and no failure.
        """
        self.rpc = rpc
        self.request = request
        self.attempts = 0
        self.lost = 0
        """Attempts after which nobody knows whether the request was carried out."""
        self._items = items
        self._accepted = accepted
        self.due_ms: int | None = now_ms
        """When the next attempt may start; None while one is in flight."""
        self._started_ms = now_ms
        self._ends_ms = now_ms + deadlines.total_ms
        self._deadlines = deadlines
        self.attempt_ends_ms = 0
        """When the attempt in flight should have been answered, or reported lost."""
        self._cause: tuple[int, str] = _NO_ATTEMPT

    def begin_attempt(self, now_ms: int) -> int:
        """Start an attempt; return how many milliseconds it may take."""
        assert self.due_ms is not None, "one attempt at a time"
        timeout_ms = max(1, min(self._deadlines.attempt_ms, self._ends_ms - now_ms))
        self.attempts += 1
        self.due_ms = None
        self.attempt_ends_ms = now_ms + timeout_ms
        return timeout_ms

    def on_answer(self, answer: ReplyT | Loss, *, now_ms: int, jitter: float) -> ReplyT | TransactionError | None:
        """Return the reply or the failure that ends the call, or None: another attempt is due later."""
        if isinstance(answer, Loss):
            return self._after_loss(answer, now_ms, jitter)
        verdict = answer if self._items is None else self.verdict_of(answer)
        if not verdict.error_code or verdict.error_code in self._accepted:
            return answer
        match class_of(self.rpc.method, verdict):
            case ErrorClass.UNKNOWN_OUTCOME:
                self.lost += 1
            case ErrorClass.RETRY | ErrorClass.REFRESH:
                # One endpoint serves every key, so looking the coordinator up again would name the same one.
                pass
            case _:
                error = failure_of(self.rpc.method, verdict)
                if error is None:
                    return answer
                error.lost_attempts = self.lost
                return error
        self._cause = (verdict.error_code, verdict.error_message or "the server gave no reason")
        return self._again(now_ms, jitter, answer.throttle_ms)

    def verdict_of(self, reply: ReplyT) -> Verdict:
        """Return the part of the reply that says how the request went."""
        return reply if self._items is None else first_failed(reply, self._items(reply))

    def repeat(self, request: RequestT, cause: Verdict, *, now_ms: int, jitter: float) -> TransactionError | None:
        """Go on with `request`, the part of the last one that `cause` says must be sent again; return None, or the
        failure to give up with.

        It has a request id of its own; the deadline, the pauses and the count of lost attempts stay.
        """
        self.request = request
        if class_of(self.rpc.method, cause) is ErrorClass.UNKNOWN_OUTCOME:
            self.lost += 1
        self._cause = (cause.error_code, cause.error_message or "the server gave no reason")
        return self._again(now_ms, jitter, 0)

    def _after_loss(self, loss: Loss, now_ms: int, jitter: float) -> TransactionError | None:
        if loss.is_final:
            return unreachable(loss)
        definite = definite_failure(self.rpc.method, loss)
        if definite is not None:
            definite.lost_attempts = self.lost
            return definite
        if self.rpc.is_mutating and not loss.is_unsent:
            self.lost += 1
        timed_out = loss.status == "DEADLINE_EXCEEDED"
        self._cause = (ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.NETWORK_EXCEPTION, str(loss))
        end = self._again(now_ms, jitter, 0, pause_ms_max=LOST_PAUSE_MS_MAX)
        return unreachable(loss) if end is not None and loss.is_never_connected else end

    def _again(
        self, now_ms: int, jitter: float, throttle_ms: int, *, pause_ms_max: int = PAUSE_MS_MAX
    ) -> TransactionError | None:
        longest_ms = min(pause_ms_max, PAUSE_MS_FIRST << min(self.attempts - 1, _DOUBLINGS_MAX))
        due_ms = now_ms + max(1, throttle_ms, round(longest_ms * (1 + jitter) / 2))
        if due_ms >= self._ends_ms or self.attempts == self._deadlines.attempts_max:
            return self._given_up(now_ms)
        self.due_ms = due_ms
        return None

    def _given_up(self, now_ms: int) -> TransactionError:
        code, text = self._cause
        reason = (
            f"{self.rpc.method}: no definite answer within {now_ms - self._started_ms} ms "
            f"and {self.attempts} attempts; the last one ended with: {text}"
        )
        error = failure(code, ErrorClass.UNKNOWN_OUTCOME if self.lost else ErrorClass.RETRY, reason)
        error.lost_attempts = self.lost
        return error
