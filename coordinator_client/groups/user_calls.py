"""Calls of the application's code that a core asks for, and a shell makes in the application's thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Entered: TypeAlias = dict[str, Any]
NAMES: Final = "names"


@dataclass(slots=True, eq=False)
class UserCall:
    """A call that must be made in the application's thread. The shell makes it and reports its end."""

    call: Callable[[Entered], Awaitable[None] | None]
    """Enters the application's code, and notes that in the same expression, so that no interruption can come
    between."""
    on_done: Callable[[Exception | None, int], None]
    is_void_after_loss: bool = False
    """True if the call is dropped once the partitions are lost, because it would report a change that never
    happened."""
    entered: Entered = field(default_factory=dict)
    """Filled by `call`, once the code is entered."""
    is_done: bool = False
    """True if the core knows the end of the call."""

    @property
    def is_begun(self) -> bool:
        """True if the application's code was entered."""
        return bool(self.entered)


class MadeCalls:
    """Calls handed to the shell whose end it has not reported."""

    def __init__(self) -> None:
        self._calls: list[UserCall] = []

    def add(self, call: UserCall) -> None:
        """Note that the shell makes this call."""
        self._calls.append(call)

    def end(self, call: UserCall, error: Exception | None, now_ms: int) -> None:
        """Note that a call was made, and its exception. A repetition does nothing."""
        if not call.is_done:
            call.is_done = True
            self._calls.remove(call)
            call.on_done(error, now_ms)

    def end_interrupted(self, now_ms: int) -> list[UserCall]:
        """Process calls whose caller was interrupted. One that was begun counts as made; return the others, which must
        be made again."""
        lost, self._calls = self._calls, []
        for call in lost:
            if call.is_begun:
                call.is_done = True
                call.on_done(None, now_ms)
        return [call for call in lost if not call.is_begun]
