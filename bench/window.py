"""A measured window of time: its length, its cost on both sides, and the latencies of its operations."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace

from bench.processes import (
    processor_seconds,
    processor_seconds_of_family,
    processor_seconds_of_machine,
    resident_mib,
)
from bench.results import Run


class Window:
    """A window that begins when it is made and ends with `close`. The client is this process and its children."""

    def __init__(self, server_process_id: int) -> None:
        self._server = server_process_id
        self._began = self._now()

    @property
    def elapsed_s(self) -> float:
        """Seconds since it was opened."""
        return time.perf_counter() - self._began[0]

    def close(self, operations: int) -> Run:
        """Return the costs since then. The figure is operations per second."""
        ended = self._now()
        elapsed_s, server_s, client_s, machine_s = (
            None if end is None or begin is None else end - begin for begin, end in zip(self._began, ended, strict=True)
        )
        assert elapsed_s is not None, "a clock is always there"
        others_s = None
        if server_s is not None and client_s is not None and machine_s is not None:
            others_s = max(0.0, machine_s - server_s - client_s)
        return Run(
            figure=operations / elapsed_s,
            operations=operations,
            elapsed_s=elapsed_s,
            server_us=_per_operation_us(server_s, operations),
            client_us=_per_operation_us(client_s, operations),
            server_cores=_cores(server_s, elapsed_s),
            client_cores=_cores(client_s, elapsed_s),
            other_cores=_cores(others_s, elapsed_s),
            server_mib=resident_mib(self._server),
        )

    def _now(self) -> tuple[float, float | None, float | None, float | None]:
        return (
            time.perf_counter(),
            processor_seconds(self._server),
            processor_seconds_of_family(os.getpid()),
            processor_seconds_of_machine(),
        )


def with_latencies(run: Run, latencies_us: Sequence[int]) -> Run:
    """Return the run with the quantiles of these latencies."""
    if not latencies_us:
        return run
    ordered = sorted(latencies_us)
    return replace(
        run,
        p50_ms=_quantile_ms(ordered, 0.5),
        p90_ms=_quantile_ms(ordered, 0.9),
        p99_ms=_quantile_ms(ordered, 0.99),
        p999_ms=_quantile_ms(ordered, 0.999),
        max_ms=ordered[-1] / 1_000,
    )


def _quantile_ms(ordered_us: Sequence[int], quantile: float) -> float:
    return ordered_us[int(len(ordered_us) * quantile)] / 1_000


def _per_operation_us(spent_s: float | None, operations: int) -> float | None:
    return None if spent_s is None or not operations else spent_s * 1e6 / operations


def _cores(spent_s: float | None, elapsed_s: float) -> float | None:
    return None if spent_s is None else spent_s / elapsed_s
