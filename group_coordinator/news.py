"""Heartbeats that wait on the server for news.

A Kafka member learns of a rebalance with its next heartbeat, seconds later. Here a heartbeat may wait on the server. It
is answered at once when something changes for its group, and otherwise after the wait that it allows (spec groups:
none; issue: fast rebalances). The session timer runs from the arrival of the heartbeat, so the wait must be shorter
than the session timeout.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final, TypeVar

from coordinator_runtime.pending import Pending
from coordinator_runtime.questions import Question
from coordinator_runtime.runtime import Runtime
from group_coordinator.events import GroupNews

ReplyT = TypeVar("ReplyT")

PAUSE_MS: Final = 5
"""Pause before the waiting members of a group look again, so that many changes within it cost one look each (ms)."""

LOOKS_PER_STEP: Final = 100
"""Number of members that look in one turn. In a large group that takes some milliseconds; other calls are served
between two such turns."""


class News:
    """Waiting heartbeats, by group."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._numbers = count()
        self._waiters: dict[str, dict[int, Callable[[], None]]] = {}
        """Callback that lets a waiting heartbeat look again, by group and number of the heartbeat."""
        self._looking: dict[str, bool] = {}
        """Groups with a look scheduled or under way. True = another look must follow it."""
        runtime.handle_effect(GroupNews, lambda news: self.tell(news.group_id))

    def __len__(self) -> int:
        return sum(map(len, self._waiters.values()))

    def tell(self, group_id: str) -> None:
        """Let the waiting members of the group look again soon."""
        if group_id in self._looking:
            self._looking[group_id] = True
        elif group_id in self._waiters:
            self._looking[group_id] = False
            self._runtime.arm(("news", group_id), PAUSE_MS, partial(self._begin_to_look, group_id))

    def waiting_group_ids(self) -> list[str]:
        """Return the groups that have waiting members."""
        return list(self._waiters)

    def ask(
        self,
        group_id: str,
        ask: Callable[[], Pending[ReplyT]],
        *,
        is_news: Callable[[ReplyT], bool],
        max_wait_ms: int,
    ) -> Pending[ReplyT]:
        """Return the answer of `ask` once it is news or an error, or the newest answer when the wait ends.

        `ask` is repeated, but never while a reply to it is outstanding (`questions`). On a slow disk the wait may
        therefore end later, with that reply.
        """
        if max_wait_ms <= 0:
            return ask()
        answer: Pending[ReplyT] = Pending()
        number = next(self._numbers)
        timer = ("heartbeat_wait", number)
        is_over = False

        def leave() -> None:
            self._runtime.timers.cancel(timer)
            waiters = self._waiters.get(group_id)
            if waiters is not None and waiters.pop(number, None) is not None and not waiters:
                del self._waiters[group_id]

        def give_up() -> None:
            leave()
            answer.give_up()

        def take(reply: Pending[ReplyT]) -> bool:
            if not answer.is_settled and (is_over or reply.error is not None or is_news(reply.result())):
                leave()
                answer.settle_as(reply)
            return answer.is_settled

        question = Question(ask, take)

        def end_wait() -> None:
            nonlocal is_over
            is_over = True
            question.ask()

        # The heartbeat is registered before it asks, so that no change between its question and the answer is missed.
        self._waiters.setdefault(group_id, {})[number] = question.ask
        self._runtime.arm(timer, max_wait_ms, end_wait)
        answer.on_cancel = give_up
        question.ask()
        return answer

    def _begin_to_look(self, group_id: str) -> None:
        # This look sees every change announced during the pause.
        self._looking[group_id] = False
        self._look(group_id, deque(self._waiters.get(group_id, ())))

    def _look(self, group_id: str, numbers: deque[int]) -> None:
        for _step in range(min(LOOKS_PER_STEP, len(numbers))):
            look = self._waiters.get(group_id, {}).get(numbers.popleft())
            if look is not None:
                look()
        if numbers:
            self._runtime.arm(("news", group_id), 0, partial(self._look, group_id, numbers))
        elif self._looking.pop(group_id):
            self.tell(group_id)
