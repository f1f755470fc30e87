"""Runs the runtime on an event loop, with a commit thread.

While nothing is being written, a group is sealed at the end of the loop turn that staged something. While one is being
written, the next one collects what further turns stage. It is sealed when the write is reported, or when it is large
(`RuntimeLimits.group_bytes_max`). So a single caller never waits for others, and the flush under way is the only linger
(design 5).

Sealing at each turn would make a group of nearly every unary call, because gRPC hands them over one at a time. A group
costs more processor time than the operation in it: two thread switches, a write and a flush.

Durable versions come back from the commit thread through the loop, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator_runtime.runtime import Runtime


class LoopDriver:
    """Schedules sealing and timers of a runtime on the running loop.

    `on_failure` is called once, on the loop, when the store failed, or when a defect broke the runtime between two
    operations. It must end the process, and the next start recovers."""

    def __init__(
        self,
        runtime: Runtime,
        on_failure: Callable[[Exception], None],
        let_begin: Callable[[], None] = lambda: None,
    ) -> None:
        """`let_begin` returns when the commit thread has begun with the group that was handed over."""
        self._runtime = runtime
        self._on_failure = on_failure
        self._let_begin = let_begin
        self._loop = asyncio.get_running_loop()
        self._is_turn_scheduled = False
        self._has_failed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline_ms: int | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        runtime.on_work = self._schedule_turn
        self._schedule_turn()

    def durable_from_thread(self, version: int) -> None:
        """Report to the runtime that a version became durable. Called on the commit thread."""
        self._call_on_loop(self._guarded, self._on_durable, version)

    def failed_from_thread(self, failure: Exception) -> None:
        """Report to the runtime that the store failed, and that nothing further will be written. Called on the commit
        thread."""
        self._call_on_loop(self._fail, failure)

    def step_from_thread(self, step: Callable[[], None]) -> None:
        """Take a step of the runtime on the loop. Called on any thread, with what was read there for instance."""
        self._call_on_loop(self._guarded, step)

    async def drain(self) -> None:
        """Return once everything staged is durable and answered."""
        while not self._runtime.groups.is_idle:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def _schedule_turn(self) -> None:
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self._loop.call_soon(self._guarded, self._end_turn)

    def _end_turn(self) -> None:
        self._is_turn_scheduled = False
        runtime, loop = self._runtime, self._loop
        deadline_ms = runtime.timers.next_deadline_ms()
        if deadline_ms != self._timer_deadline_ms:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._timer_deadline_ms = deadline_ms
            if deadline_ms is not None:
                delay_ms = max(0, deadline_ms - runtime.clock.monotonic_ms())
                self._timer = loop.call_later(delay_ms / 1000, self._guarded, self._run_timers)
        # Last, because the commit thread wakes and needs the interpreter. While one group is being written, the next
        # one is sealed when that write is reported.
        if not runtime.groups.sealed:
            runtime.groups.seal()

    def _on_durable(self, version: int) -> None:
        groups = self._runtime.groups
        is_nothing_else_written = version - groups.durable_version == len(groups.sealed)
        if is_nothing_else_written and groups.seal():
            # The next group is handed over first, so that the disk works while the loop answers.
            self._let_begin()
        self._runtime.on_durable(version)
        if self._idle_waiters and groups.is_idle:
            waiters, self._idle_waiters = self._idle_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _guarded(self, step: Callable[..., None], *arguments: object) -> None:
        """Take a step of the runtime, and fail the process on a defect.

        The loop would only log the defect, and the answers, markers and timers that the rest of the step owed would be
        missing for ever. A restart delivers them."""
        try:
            step(*arguments)
        except Exception as defect:  # noqa: BLE001  any defect must reach the process
            self._fail(defect)

    def _fail(self, failure: Exception) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._runtime.fail(failure)
            self._on_failure(failure)

    def _run_timers(self) -> None:
        self._timer = None
        self._timer_deadline_ms = None
        self._runtime.run_due_timers()
        self._schedule_turn()

    def _call_on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        # After the loop closed, no caller waits any more. The commit thread must still be able to end.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)
