"""The longest pause that an answer asks for. Which calls are never put off, `methods` says.

Source: spec security 7.4 and 7.5; KIP-219 (serve first, pause afterwards).
"""

from __future__ import annotations

from typing import Final

PAUSE_MS_MAX: Final = 30_000
"""The longest pause that is asked for at once; who owes more is asked again."""
