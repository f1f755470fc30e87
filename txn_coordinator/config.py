"""How transactions are coordinated."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from coordinator_protocol.limits import Limits

EXPIRATION_MS: Final = 7 * 24 * 3_600_000
"""Kafka's `transactional.id.expiration.ms`."""


class TwoPhase(StrEnum):
    """How an outcome travels from PREPARE to COMPLETE."""

    FUSED = "fused"
    """In one batch where all participants are local and few enough: one flush per commit."""
    SPLIT = "split"
    """In three: needed for participants elsewhere, and to watch the phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """What is promised to callers, and what is kept for how long."""

    limits: Limits
    two_phase: TwoPhase = TwoPhase.FUSED
    two_phase_commit_enable: bool = False
    """Whether callers may take part in somebody else's two-phase commit (KIP-939)."""
    shard_count: int = 64
    transactional_id_expiration_ms: int = EXPIRATION_MS
    """After how long an idle id is forgotten."""
