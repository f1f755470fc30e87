"""Messages of the SDK in the logger `coordinator_client`: every cause once, and once more when it is over.

Errors are raised. Problems that no call returns or raises are logged. Examples: the server does not answer while
requests are repeated, it refuses a request for long, a topic does not exist. WARNING: an awaited event does not happen.
INFO: it happens again. The SDK adds no output handler and sets no level; an application that configures `logging` sees
the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final

from coordinator_client.errors import PASSING, Loss, ReplyFields, TransactionError, class_of, known_code
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method

LOGGER: Final = logging.getLogger("coordinator_client")
LOGGER.addHandler(logging.NullHandler())

REFUSED_MS: Final = 5_000
"""Time for which a request is refused before that is logged (ms). Shorter refusals are normal."""

_LOST: Final = "lost"


class Told:
    """Causes that were logged and are not over."""

    __slots__ = ("_causes",)

    def __init__(self) -> None:
        self._causes: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._causes)

    def warn(self, cause: Hashable, text: str) -> None:
        """Log a warning, unless this cause was logged and is not over."""
        if cause not in self._causes:
            self._causes.add(cause)
            LOGGER.warning("%s", text)

    def over(self, cause: Hashable, text: str) -> None:
        """Log that the cause is over, if it was logged."""
        if cause in self._causes:
            self._causes.discard(cause)
            LOGGER.info("%s", text)


class Answers:
    """Follows the answers of one connection's server, and logs problems that last."""

    __slots__ = ("_endpoint", "_refused", "_told", "is_lost", "is_troubled")

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._told = Told()
        self._refused: dict[str, int] = {}
        """Time since which a method, or a method for one partition, has been refused (ms)."""
        self.is_lost = False
        """True if the last reported attempt got no answer."""
        self.is_troubled = False
        """True if a good answer must be noted. Stored, because it is read for every answer."""

    def waits(self, problem: str) -> None:
        """Log that a client that was never connected waits for the server."""
        self._told.warn(_LOST, f"{problem}; waiting for it")

    def note(self, method: Method, answer: ReplyFields | Loss, now_ms: int) -> None:
        """Note an answer, or a loss. Good answers need not be noted unless `is_troubled`."""
        if isinstance(answer, Loss):
            if answer.status != "CANCELLED":
                self.is_lost = self.is_troubled = True
                if not answer.is_never_connected:
                    self._told.warn(_LOST, f"the server at {self._endpoint} does not answer ({answer}); asking again")
            return
        self.reached()
        self._judge(method, class_of(method, answer), answer.error_code, answer.error_message, now_ms)

    def reached(self) -> None:
        """Note that the server answers."""
        self.is_lost = False
        self.is_troubled = bool(self._refused)
        self._told.over(_LOST, f"the server at {self._endpoint} answers now")

    def refused(self, subject: str, error: TransactionError, now_ms: int) -> None:
        """Note that a part of an answer was refused. A permanent refusal ends the cause, because it is raised to a
        caller."""
        self._judge(subject, error.error_class, error.code, error.reason, now_ms)

    def accepted(self, subject: str) -> None:
        """Note that a part of an answer is good; needed only if `is_troubled`."""
        if self._refused.pop(subject, None) is not None:
            self.is_troubled = self.is_lost or bool(self._refused)
            self._told.over(subject, f"{subject} is not refused any more by the server at {self._endpoint}")

    def _judge(self, subject: str, what: ErrorClass, code: int, reason: str, now_ms: int) -> None:
        if what not in PASSING:
            self.accepted(subject)
            return
        since_ms = self._refused.setdefault(subject, now_ms)
        self.is_troubled = True
        if now_ms - since_ms >= REFUSED_MS:
            self._told.warn(
                subject,
                f"{subject} has been refused for {(now_ms - since_ms) // 1_000} s by the server at {self._endpoint}: "
                f"{reason or 'it gave no reason'} [{_name(code)}]; asking again",
            )


def _name(code: int) -> str:
    known = known_code(code)
    return known.name if isinstance(known, ErrorCode) else f"code {code}"
