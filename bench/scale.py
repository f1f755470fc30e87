"""Sizes and times of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes and times that all cases share. The quick ones show that a case works; their figures say little."""

    is_quick: bool
    broker_warm_up_s: float
    """Duration of the load before the first measurement. A broker compiles itself while it runs, and is several times
    slower before that."""
    warm_up_s: float
    """Duration of the load before each measurement of ours."""
    java_warm_up_s: float
    """Duration of the load before each measurement of Kafka's. Its client is a new Java program each time, and compiles
    itself, too."""
    measured_s: float
    producers: Sequence[int]
    payload_bytes: Sequence[int]
    back_to_back_transactions: int
    back_to_back_s_max: float
    records_1k: int
    records_100: int
    recovery_ids: int
    recovery_open: int
    connections: int
    """Number of connections that wait, or are idle."""


FULL: Final = Scale(
    is_quick=False,
    broker_warm_up_s=25,
    warm_up_s=1,
    java_warm_up_s=3,
    measured_s=3,
    producers=(1, 16, 64, 256),
    payload_bytes=(1_024, 100),
    back_to_back_transactions=100_000,
    back_to_back_s_max=30,
    records_1k=1_000_000,
    records_100=4_000_000,
    recovery_ids=10_000,
    recovery_open=1_000,
    connections=1_000,
)
QUICK: Final = Scale(
    is_quick=True,
    broker_warm_up_s=1,
    warm_up_s=0.2,
    java_warm_up_s=0.2,
    measured_s=0.5,
    producers=(1, 64),
    payload_bytes=(1_024,),
    back_to_back_transactions=300,
    back_to_back_s_max=1,
    records_1k=15_000,
    records_100=45_000,
    recovery_ids=100,
    recovery_open=10,
    connections=100,
)
