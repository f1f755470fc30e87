"""Workers for tests: they compute in this process, at once or when the test says so."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from coordinator_runtime.pending import Pending


class HeldWorker:
    """Implements `coordinator_runtime.worker.Worker`. What is held is computed by `release`; without a hold at once.

    Everything goes through pickle, as it does between processes."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.is_held = is_held
        self.tasks: list[tuple[bytes, Pending[Any]]] = []
        self.done_count = 0

    def run(self, function: Callable[[Any], Any], argument: Any) -> Pending[Any]:
        answer: Pending[Any] = Pending()
        self.tasks.append((pickle.dumps((function, argument)), answer))
        if not self.is_held:
            self.release()
        return answer

    def release(self) -> None:
        """Compute what is held."""
        tasks, self.tasks = self.tasks, []
        for task, answer in tasks:
            function, argument = pickle.loads(task)
            self.done_count += 1
            try:
                result = function(argument)
            except Exception as error:  # noqa: BLE001  the error is the answer
                answer.fail(pickle.loads(pickle.dumps(error)))
            else:
                answer.succeed(pickle.loads(pickle.dumps(result)))

    def die(self, error: Exception) -> None:
        """Lose what is held."""
        tasks, self.tasks = self.tasks, []
        for _task, answer in tasks:
            answer.fail(error)
