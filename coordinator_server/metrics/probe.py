"""Metrics of `txnctl probe`. It runs in its own process, so it has its own registry."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from coordinator_server.metrics.families import Kind, MetricFamily
from coordinator_server.metrics.instruments import SECONDS, US

PROBE_FAMILIES: Final = (
    MetricFamily(
        "txn_probe_rounds_total",
        Kind.COUNTER,
        ("result",),
        "Rounds, by whether every step went well (ok) or one failed (failed).",
    ),
    MetricFamily(
        "txn_probe_failures_total",
        Kind.COUNTER,
        ("step",),
        "Steps that failed, each of which ended its round: init, commit, read, abort, hide.",
    ),
    MetricFamily(
        "txn_probe_step_seconds",
        Kind.HISTOGRAM,
        ("step",),
        "How long a step took that went well, as the client saw it.",
    ),
    MetricFamily(
        "txn_probe_last_success_timestamp_seconds",
        Kind.GAUGE,
        (),
        "When the last round ended in which every step went well, in Unix seconds; 0 = none did yet.",
    ),
)
"""Metric families of the probe, like `FAMILIES` for the server; `docs/reference/metrics.md` has both."""


class ProbeMetrics:
    """Counters of rounds and steps."""

    def __init__(self, steps: Collection[str]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no type for it
        self.registry = CollectorRegistry()
        rounds, failures, seconds, last = PROBE_FAMILIES
        self._rounds = Counter(*_names(rounds), registry=self.registry)
        self._failures = Counter(*_names(failures), registry=self.registry)
        self._seconds = Histogram(*_names(seconds), buckets=SECONDS, registry=self.registry)
        self._last = Gauge(*_names(last), registry=self.registry)
        for result in ("ok", "failed"):
            self._rounds.labels(result)
        for step in steps:
            self._failures.labels(step)
            self._seconds.labels(step)

    def step(self, step: str, elapsed_us: int) -> None:
        """Count a step that succeeded."""
        self._seconds.labels(step).observe(elapsed_us / US)

    def ended(self, failed_step: str | None, now_ms: int) -> None:
        """Count a round that ended."""
        self._rounds.labels("failed" if failed_step else "ok").inc()
        if failed_step:
            self._failures.labels(failed_step).inc()
        else:
            self._last.set(now_ms / 1_000)


def _names(family: MetricFamily) -> tuple[str, str, tuple[str, ...]]:
    return family.name, family.meaning, family.labels
