"""Ids of topics and directories as messages carry them."""

from __future__ import annotations

from typing import Final

ZERO_UUID: Final = bytes(16)
"""No id."""
