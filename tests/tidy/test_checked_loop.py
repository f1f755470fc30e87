"""The loop of asynchronous tests (`tests/harness/checked_loop.py`) knows its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "call",
    [lambda loop: loop.call_soon(print), lambda loop: loop.call_later(0, print), lambda loop: loop.call_at(0, print)],
)
async def test_another_thread_is_refused(call: Callable[[asyncio.AbstractEventLoop], object]) -> None:
    with pytest.raises(RuntimeError, match="Non-thread-safe operation"):
        await asyncio.to_thread(call, asyncio.get_running_loop())
