"""The event loop of asynchronous tests, with the one check of asyncio's debug mode whose findings fail a test.

The rest of that mode notes where each callback came from, which is a fifth of the processor time of such tests, and
logs slow callbacks, which nothing reads. `make test-long` has all of it.
"""

from __future__ import annotations

import asyncio
from asyncio import Handle, TimerHandle
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

_Given = TypeVarTuple("_Given")


class CheckedLoop(asyncio.SelectorEventLoop):
    """Raises RuntimeError in a thread that is not its own and calls what only that one may."""

    def call_soon(
        self, callback: Callable[[*_Given], object], *args: *_Given, context: Context | None = None
    ) -> Handle:
        self._check_thread()  # type: ignore[attr-defined]
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Given], object], *args: *_Given, context: Context | None = None
    ) -> TimerHandle:
        self._check_thread()  # type: ignore[attr-defined]
        return super().call_at(when, callback, *args, context=context)
