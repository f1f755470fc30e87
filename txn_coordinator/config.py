"""Configuration of the transaction coordinator."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

EXPIRATION_MS: Final = 7 * 24 * 3_600_000
"""Kafka's `transactional.id.expiration.ms`."""


class TwoPhase(StrEnum):
    """Path of an outcome from PREPARE to COMPLETE."""

    FUSED = "fused"
    """One batch, if all participants are local and few enough: one flush per commit."""
    SPLIT = "split"
    """Three batches, for PREPARE, the markers and COMPLETE: needed for participants elsewhere, and to watch the
    phases."""
