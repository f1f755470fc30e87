"""The only access to the engine for patterns that callers send: RE2, whose time is linear in the text.

Python's own engine backtracks: a pattern of a few characters can keep it busy for years, and every other caller on the
loop with it. Features that RE2 lacks for that reason (back references, lookaround) are refused.

Source: spec groups 3.11.
"""

from __future__ import annotations

from typing import Final

import re2

from coordinator_protocol.errors import ErrorCode, Refused

PATTERN_LENGTH_MAX: Final = 1_000
"""Longest pattern, in characters. Longer ones are lists of names, and lists of names have a field of their own."""

_MEMORY_BYTES_MAX: Final = 1 << 20
"""Memory for one compiled pattern and its cache of matches. The engine keeps up to 128 patterns."""

_SHOWN_MAX: Final = 80


class Pattern:
    """A compiled pattern. It stands for the set of texts that it matches from their first to their last character."""

    __slots__ = ("_compiled",)

    def __init__(self, pattern: str) -> None:
        """Compile a pattern. Raises Refused INVALID_REGULAR_EXPRESSION."""
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
        """Return True if the pattern matches the whole text."""
        return self._compiled.fullmatch(text.encode()) is not None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "it cannot be read"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
