"""Heartbeats that wait on the server for news.

A Kafka member learns of a rebalance with its next heartbeat, seconds later. Here a heartbeat may wait: it is answered
at once when something changes for its group, and otherwise after the wait that it allows (spec groups: none; issue:
fast rebalances). While it waits the session timer runs from its arrival, so the wait must be shorter than the session.
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
"""Pause between two looks of the waiting members of a group, so that many changes at once cost one look each."""

LOOKS_PER_STEP: Final = 100
"""Members that look in one go: of a large group that are some milliseconds of the loop, and the others are served in
between."""


class News:
    """The heartbeats that wait, by group."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._numbers = count()
        self._waiters: dict[str, dict[int, Callable[[], None]]] = {}
        """How each waiting heartbeat looks again, by group and number of the heartbeat."""
        self._looking: dict[str, bool] = {}
        """Groups whose members will look, or are looking; and whether they must once more after that."""
        runtime.handle_effect(GroupNews, lambda news: self.tell(news.group_id))

    def __len__(self) -> int:
        return sum(map(len, self._waiters.values()))

    def tell(self, group_id: str) -> None:
        """Let the members that wait look again, soon."""
        if group_id in self._looking:
            self._looking[group_id] = True
        elif group_id in self._waiters:
            self._looking[group_id] = False
            self._runtime.arm(("news", group_id), PAUSE_MS, partial(self._begin_to_look, group_id))

    def waiting_group_ids(self) -> list[str]:
        """Groups with members that wait."""
        return list(self._waiters)

    def ask(
        self,
        group_id: str,
        ask: Callable[[], Pending[ReplyT]],
        *,
        is_news: Callable[[ReplyT], bool],
        max_wait_ms: int,
    ) -> Pending[ReplyT]:
        """The answer of `ask`: at once if it is news or an error, else when it becomes news, else the newest one after
        the wait. `ask` is repeated, and never while a reply of it is outstanding (`questions`): on a slow disk the wait
        may end later, with that reply."""
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

        # It waits before it asks, so that what changes between its question and the answer is not missed.
        self._waiters.setdefault(group_id, {})[number] = question.ask
        self._runtime.arm(timer, max_wait_ms, end_wait)
        answer.on_cancel = give_up
        question.ask()
        return answer

    def _begin_to_look(self, group_id: str) -> None:
        # What was told while they waited for this, they see now.
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
