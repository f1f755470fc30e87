"""Ctrl-C and its kin: the first one ends the demo in good order, further ones do not disturb that."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Raises KeyboardInterrupt for the first signal, at once or after what must not be cut off."""

    def __init__(self) -> None:
        self._is_held = False
        self._has_come = False
        self._listen()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raise not inside, but at the end. What is done inside may have put its own handlers in place."""
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
