"""The one door to the engine that matches patterns which callers send: RE2, whose time is linear in the text.

Python's own engine goes back and tries again: a pattern of a few characters can keep it busy for years, and with it
everybody else on the loop. What RE2 leaves out for that (back references, looking around) is refused.

Source: spec groups 3.11.
"""

from __future__ import annotations

from typing import Final

import re2

from coordinator_protocol.errors import ErrorCode, Refused

PATTERN_LENGTH_MAX: Final = 1_000
"""Characters of a pattern at most. Longer ones are lists of names, and lists of names have a field of their own."""

_MEMORY_BYTES_MAX: Final = 1 << 20
"""Memory for one compiled pattern and what it remembers of its matches; the engine keeps up to 128 of them."""

_SHOWN_MAX: Final = 80


class Pattern:
    """A compiled pattern. It stands for a set of texts: those that it matches from their first to their last
    character."""

    __slots__ = ("_compiled",)

    def __init__(self, pattern: str) -> None:
        """Raises Refused INVALID_REGULAR_EXPRESSION."""
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise Refused(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"the pattern has {len(pattern)} characters and at most {PATTERN_LENGTH_MAX} are allowed; shorten it",
            )
        options = re2.Options()
        options.log_errors = False
        options.max_mem = _MEMORY_BYTES_MAX
        try:
            self._compiled = re2.compile(pattern.encode(), options)
        except re2.error as error:
            why = _reason(error)
            raise Refused(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"{pattern[:_SHOWN_MAX]!a} is no pattern in RE2 syntax: {why}; see the RE2 syntax page",
            ) from None

    def matches(self, text: str) -> bool:
        """True if the whole text is matched."""
        return self._compiled.fullmatch(text.encode()) is not None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "it cannot be read"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
