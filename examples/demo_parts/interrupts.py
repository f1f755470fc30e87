"""Handling of Ctrl-C and similar signals: the first one ends the demo in an orderly way, later ones are ignored."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Raises KeyboardInterrupt for the first signal, at once or at the end of a `held` block."""

    def __init__(self) -> None:
        self._is_held = False
        self._has_come = False
        self._listen()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay the interrupt to the end of the block. Code inside may have installed its own handlers."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            if not self._has_come:
                self._listen()
        if self._has_come:
            raise KeyboardInterrupt

    def _listen(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._has_come = True
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if not self._is_held:
            raise KeyboardInterrupt
