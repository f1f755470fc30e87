"""Questions that are asked again while their caller waits, and never while a decision on them stands.

A call may wait on the server and be performed again whenever something has changed. Its request stays the same: it says
what was true when it was sent. A decision that was staged has changed that, and the caller hears of it only once it is
durable. Performed again before, with the same request, the operation would take the first decision for something that
the caller knows already. On a slow disk that is a long time.

So what is performed more than once for one caller goes through a `Question`. The other ways to perform an operation
again begin only where no decision stands: a parked call is tried again after its refusal was rolled back (`parking`),
and a timer comes again after its operation was refused (`Runtime`).
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
        """`perform` asks once. `take` is shown every settled reply, and says whether it was the last: True where the
        caller has been answered, or is gone."""
        self._perform = perform
        self._take = take
        self._is_standing = False
        self._is_due = False

    def ask(self) -> None:
        """Ask now. While a decision stands that is not durable yet: once it is, unless it was the answer."""
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
