"""The loop of `txnctl top`: a frame, then a key or the next frame."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from coordinator_client.clock import Clock
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.live_screen import LiveScreen
from txnctl.top.facts import TopFacts
from txnctl.top.view import top_lines

LEAVE = "q"


class KeySource(Protocol):
    """Keys of the user."""

    def wait(self, wait_ms: int) -> str:
        """Return the next key, or an empty text if none is pressed in this time."""


class Keyboard:
    """Keys of the terminal on stdin, each at once and without its letter on the screen. Gives the terminal back as it
    was."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_there = sys.stdin is not None and sys.stdin.isatty()

    def __enter__(self) -> Keyboard:
        if self._is_there:
            self._descriptor = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_there:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def wait(self, wait_ms: int) -> str:
        """Return the next key, or an empty text if none is pressed in this time."""
        if not self._is_there:
            self._clock.pause(wait_ms)
            return ""
        ready, _, _ = select.select([self._descriptor], [], [], wait_ms / 1_000)
        return os.read(self._descriptor, 1).decode("latin-1") if ready else ""


def show_live(
    look: Callable[[], TopFacts],
    screen: LiveScreen,
    keys: KeySource,
    *,
    server: str,
    every_ms: int,
    is_coloured: bool,
) -> None:
    """Show frames until the user presses q. Raises CommandFailed, but not for a server that goes away: its last known
    state stays, and it is asked again."""
    facts: TopFacts | None = None
    while True:
        away = ""
        try:
            facts = look()
        except CommandFailed as failure:
            if failure.status is not ExitStatus.UNREACHABLE or facts is None:
                raise
            away = failure.message.splitlines()[0]
        # The size is asked once for each frame, because it may change between two questions.
        size = screen.size()
        screen.draw(top_lines(facts, size, server=server, away=away, is_coloured=is_coloured), size)
        if keys.wait(every_ms) == LEAVE:
            return
