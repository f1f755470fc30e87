"""The longest pause that an answer asks for. `methods` has the calls that are never delayed.

Source: spec security 7.4 and 7.5; KIP-219 (serve first, pause afterwards).
"""

from __future__ import annotations

from typing import Final

PAUSE_MS_MAX: Final = 30_000
"""Longest pause that is asked for at once (ms). A caller that owes more is asked again."""
