"""Metrics of the server itself: calls, counted as they end, and the runtime, with commit groups, disk, loop and
waits."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final

from coordinator_protocol.errors import ErrorCode, error_name
from coordinator_protocol.methods import Method
from coordinator_runtime.clock import Clock
from coordinator_runtime.commit_groups import StagedGroup
from coordinator_runtime.decision import Coordinator
from coordinator_runtime.parking import WaitEnded
from coordinator_server.calls import CallStatus
from coordinator_server.metrics.instruments import (
    SECONDS,
    SIZES,
    US,
    Distribution,
    Labels,
    Readings,
    Sample,
    copies,
    counts,
    single,
)

_REJECTIONS: Final = {
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "overload",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "loading",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "stopping",
}

_LAG_INTERVAL_MS: Final = 250
"""Interval of the measurements of the loop's lag: rare enough to cost nothing, frequent enough to meet a stall that
callers notice."""


class _MethodNumbers:
    """Counts and durations of one method."""

    __slots__ = ("answered", "errors", "seconds", "service", "unanswered")

    def __init__(self, service: str) -> None:
        self.service = service
        self.answered = 0
        self.unanswered: defaultdict[str, int] = counts()
        """Calls without an answer, by gRPC's name of the status."""
        self.errors: defaultdict[int, int] = counts()
        """Error codes answered, each at most once per call."""
        self.seconds = Distribution(SECONDS, US)


class CallNumbers:
    """Calls since the process started, and their results. On the loop thread only."""

    def __init__(self, services: Mapping[str, Collection[Method]]) -> None:
        """Set up the counts. `services` has the methods of each service, by its name in the label `service`."""
        self._methods = {method: _MethodNumbers(service) for service, methods in services.items() for method in methods}
        self.on_defect: Callable[[Exception], None] = lambda _defect: None
        """Callback for every bug of ours that failed a call."""

    def answered(self, method: Method, elapsed_us: int, codes: Collection[int] = (), *, calls: int = 1) -> None:
        """Count one or several calls with a response, which took this long and have these error codes."""
        numbers = self._methods[method]
        numbers.answered += calls
        numbers.seconds.observe(elapsed_us, calls)
        for code in codes:
            numbers.errors[code] += calls

    def unanswered(self, method: Method, elapsed_us: int, status: CallStatus) -> None:
        """Count a call that ended without a response. Calls of unknown methods are not counted."""
        numbers = self._methods.get(method)
        if numbers is None:
            return
        numbers.unanswered[status.name] += 1
        numbers.seconds.observe(elapsed_us)

    def defect(self, defect: Exception) -> None:
        """Report a bug of this server that failed a call."""
        self.on_defect(defect)

    def readings(self, in_flight: Mapping[Method, int]) -> Readings:
        """Return all counts, and the number of calls under way."""
        methods = self._methods.items()
        return {
            "txn_rpc_requests_total": {
                (numbers.service, str(method), status): number
                for method, numbers in methods
                for status, number in {"OK": numbers.answered, **numbers.unanswered}.items()
            },
            "txn_rpc_errors_total": {
                (str(method), error_name(code)): number
                for method, numbers in methods
                for code, number in numbers.errors.items()
            },
            "txn_rpc_seconds": {(str(method),): numbers.seconds.copy() for method, numbers in methods},
            "txn_rpc_in_flight": {(str(method),): in_flight.get(method, 0) for method in self._methods},
            "txn_rpc_rejected_total": {
                (reason,): sum(numbers.errors.get(code, 0) for numbers in self._methods.values())
                for code, reason in _REJECTIONS.items()
            },
        }

    def counters(self) -> dict[str, float]:
        """Return the numbers of calls of all methods together, and of those with an error code."""
        methods = self._methods.values()
        return {
            "calls": sum(numbers.answered + sum(numbers.unanswered.values()) for numbers in methods),
            "refused_calls": sum(sum(numbers.errors.values()) for numbers in methods),
        }

    def refused_inits(self) -> int:
        """Number of InitProducerId calls that gave no identity."""
        return sum(self._methods[Method.INIT_PRODUCER_ID].errors.values())

    def fenced(self) -> dict[tuple[str, ...], Sample]:
        """Return the calls of fenced producers, by the part that refused them: the coordinator, or a partition."""
        return {
            ("epoch",): sum(numbers.errors.get(ErrorCode.PRODUCER_FENCED, 0) for numbers in self._methods.values()),
            ("zombie_produce",): self._methods[Method.PRODUCE].errors.get(ErrorCode.INVALID_PRODUCER_EPOCH, 0),
        }


class RuntimeNumbers:
    """Activity of the runtime since the process started. On the loop thread, except for `synced`."""

    def __init__(self) -> None:
        self.loop_lag = Distribution(SECONDS, US)
        self._load_us: dict[str, int] = {}
        """Duration of the newest load, by coordinator."""
        self._load_failures = {coordinator.name.lower(): 0 for coordinator in Coordinator}
        self._group_rows = Distribution(SIZES)
        self._flush = Distribution(SECONDS, US)
        self._sync = Distribution(SECONDS, US)
        self._written_bytes = 0
        self._waits: dict[Labels, Distribution] = {}
        self._defects = 0

    def group_durable(self, group: StagedGroup) -> None:
        """Count a durable commit group."""
        self._group_rows.observe(group.row_count)
        self._flush.observe(group.elapsed_us)
        self._written_bytes += group.size_bytes

    def synced(self, elapsed_us: int) -> None:
        """Record a sync of the store. Only the commit thread calls this and changes the value."""
        self._sync.observe(elapsed_us)

    def waited(self, wait: WaitEnded) -> None:
        """Record the end of a parked call's wait."""
        labels = (wait.method, wait.result)
        waits = self._waits.get(labels)
        if waits is None:
            waits = self._waits[labels] = Distribution(SECONDS, US)
        waits.observe(wait.elapsed_us)

    def shard_loaded(self, coordinator: Coordinator, elapsed_us: int) -> None:
        """Record the load of a shard."""
        self._load_us[coordinator.name.lower()] = elapsed_us

    def shard_load_failed(self, coordinator: Coordinator) -> None:
        """Count a shard that could not be read."""
        self._load_failures[coordinator.name.lower()] += 1

    def met_defect(self) -> None:
        """Count an operation that failed by a bug of ours."""
        self._defects += 1

    def readings(self) -> Readings:
        """Return all counts."""
        waits = copies(self._waits)
        return {
            "txn_coordinator_concurrent_waits_total": {labels: waited.count for labels, waited in waits.items()},
            "txn_coordinator_concurrent_wait_seconds": waits,
            "txn_runtime_load_seconds": {
                (coordinator,): elapsed_us / US for coordinator, elapsed_us in self._load_us.items()
            },
            "txn_runtime_load_failures_total": {
                (coordinator,): number for coordinator, number in self._load_failures.items()
            },
            "txn_runtime_batch_records": single(self._group_rows.copy()),
            "txn_runtime_flush_seconds": single(self._flush.copy()),
            "txn_runtime_event_loop_lag_seconds": single(self.loop_lag.copy()),
            "txn_runtime_defects_total": single(self._defects),
            "txn_store_sync_seconds": single(self._sync.copy()),
            "txn_store_write_bytes_total": single(self._written_bytes),
        }


class LoopLag:
    """Measures the lag of the loop, because a blocked loop delays every caller. A timer fires at regular intervals
    while the loop runs, and its delay is recorded."""

    def __init__(self, clock: Clock, lag: Distribution) -> None:
        self._clock = clock
        self._lag = lag
        self._due_us = 0

    def start(self) -> None:
        """Begin, on the running loop."""
        self._due_us = self._clock.monotonic_us() + _LAG_INTERVAL_MS * 1_000
        asyncio.get_running_loop().call_later(_LAG_INTERVAL_MS / 1_000, self._tick)

    def _tick(self) -> None:
        self._lag.observe(max(0, self._clock.monotonic_us() - self._due_us))
        self.start()
