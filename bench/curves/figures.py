"""Figures of a point: what is measured at it, and whether more of it is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity, with its unit."""

    title: str
    unit: str
    is_rate: bool = False
    """True if more is better. The cost is the reciprocal then: the time of one operation."""

    def cost(self, value: float) -> float:
        """Return what grows if the server gets worse."""
        return 1 / value if self.is_rate else value


FIGURES: Final[Mapping[str, Figure]] = MappingProxyType(
    {
        "commits_per_s": Figure("commits beside it", "per s", is_rate=True),
        "p99_ms": Figure("99th percentile of those commits", "ms"),
        "server_us": Figure("processor time of the server for each of them", "us"),
        "idle_percent": Figure("processor time of the server without a load", "% of a processor"),
        "memory_mib": Figure("resident memory", "MiB"),
        "started_mib": Figure("resident memory after a start", "MiB"),
        "start_ms": Figure("start after a stop", "ms"),
        "start_processor_ms": Figure("processor time of that start", "ms"),
        "recovery_ms": Figure("first commit after kill -9", "ms"),
        "takeover_ms": Figure("other server takes work after kill -9", "ms"),
        "growing_s": Figure("time to get there, all in all", "s"),
    }
)
BESIDE: Final = ("commits_per_s", "p99_ms", "server_us", "idle_percent", "memory_mib")
"""Figures of a server that goes on."""
STARTS: Final = ("start_ms", "start_processor_ms", "started_mib", "recovery_ms")
"""Figures of a server that is stopped, started, killed and started again."""
GROWING: Final = ("growing_s",)
