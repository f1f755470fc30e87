"""The longest pause that an answer asks for. `methods` has the calls that are never delayed.

Source: decision 44; docs/quotas.md; KIP-219 (serve first, pause afterwards).
"""

from __future__ import annotations

from typing import Final

PAUSE_MS_MAX: Final = 30_000
"""Longest pause that is asked for at once (ms). A caller that owes more is asked again."""
