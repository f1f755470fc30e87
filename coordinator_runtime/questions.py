"""Questions that are asked again while their caller waits, but never while a decision on them is not durable.

A call may wait on the server and be performed again whenever something has changed. Its request stays the same: it says
what was true when it was sent. A staged decision has changed that, and the caller learns of it only once it is durable.
If the same request were performed again before, the operation would take the first decision for something that the
caller knows already. On a slow disk that time is long.

So a call that is performed more than once goes through a `Question`. The other ways to perform an operation again begin
only where no decision is pending. A parked call is tried again after its refusal was rolled back (`parking`), and a
timer comes again after its operation was refused (`Runtime`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from coordinator_runtime.pending import Pending

T = TypeVar("T")


class Question(Generic[T]):
    """One call that is performed until its answer is good enough for its caller."""

    __slots__ = ("_is_due", "_is_standing", "_perform", "_take")

    def __init__(self, perform: Callable[[], Pending[T]], take: Callable[[Pending[T]], bool]) -> None:
        """`perform` asks once. `take` gets every settled reply, and returns True if it was the last: the caller has
        been answered, or is gone."""
        self._perform = perform
        self._take = take
        self._is_standing = False
        self._is_due = False

    def ask(self) -> None:
        """Ask now. If a decision is not durable yet, ask again once it is, unless it was the answer."""
        if self._is_standing:
            self._is_due = True
            return
        self._is_standing = True
        self._perform().on_settled(self._settled)

    def _settled(self, reply: Pending[T]) -> None:
        self._is_standing = False
        is_due, self._is_due = self._is_due, False
        if not self._take(reply) and is_due:
            self.ask()
