"""Carries decided outcomes to their participants, for as long as it takes.

Nothing but a durable PREPARE starts a job here, and nothing ends it but a marker in every participant: no error changes
the outcome or gives up (spec transactions 4). What is known of the markers already written is memory only; after a
crash every marker is sent again, and participants recognise a repetition by its csn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coordinator_runtime.decision import Operation
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import MarkerPort
from coordinator_runtime.runtime import Runtime
from txn_coordinator.shard import SendMarkers, complete_operation

RETRY_MS_FIRST: Final = 10
RETRY_MS_MAX: Final = 1_000

Participant = int | str
"""A partition ordinal, or the id of a group."""


class _Job:
    """One decided transaction: the participants whose marker is not durable yet."""

    __slots__ = ("groups", "order", "partitions", "retry_ms")

    def __init__(self, order: SendMarkers) -> None:
        self.order = order
        self.partitions = set(order.partitions)
        self.groups = set(order.groups)
        self.retry_ms = RETRY_MS_FIRST

    @property
    def is_done(self) -> bool:
        return not self.partitions and not self.groups

    def forget(self, participant: Participant) -> None:
        """The participant has its marker."""
        if isinstance(participant, int):
            self.partitions.discard(participant)
        else:
            self.groups.discard(participant)


class MarkerSender:
    """Sends markers for every SendMarkers effect, each transaction by itself: one that is stuck holds up no other."""

    def __init__(self, runtime: Runtime, markers: MarkerPort) -> None:
        self._runtime = runtime
        self._markers = markers
        self._jobs: dict[tuple[str, int], _Job] = {}
        self.failed_markers = 0
        """Markers that a participant refused, and that were sent again."""
        runtime.handle_effect(SendMarkers, self._start)

    def waiting_partitions(self, transactional_id: str, csn: int) -> frozenset[int] | None:
        """Ordinals without a durable marker yet; None when no such transaction is being finished here."""
        job = self._jobs.get((transactional_id, csn))
        return None if job is None else frozenset(job.partitions)

    @property
    def waiting_markers(self) -> int:
        return sum(len(job.partitions) + len(job.groups) for job in self._jobs.values())

    def _start(self, order: SendMarkers) -> None:
        job = _Job(order)
        self._jobs[order.transactional_id, order.marker.csn] = job
        self._send(job)

    def _send(self, job: _Job) -> None:
        """Write every missing marker; a job without participants is complete at once."""
        if job.is_done:
            self._complete(job)
            return
        for participant, operation in list(self._missing(job)):
            self._write(job, participant, operation)

    def _missing(self, job: _Job) -> Iterator[tuple[Participant, Operation]]:
        marker = job.order.marker
        for ordinal in sorted(job.partitions):
            yield ordinal, self._markers.partition_marker(ordinal, marker)
        for group in sorted(job.groups):
            yield group, self._markers.group_marker(group, marker)

    def _write(self, job: _Job, participant: Participant, operation: Operation) -> None:
        def on_written(written: Pending[object]) -> None:
            try:
                written.result()
            except Exception:  # noqa: BLE001  whatever it was, the outcome stands and the marker is owed
                self.failed_markers += 1
                self._retry_later(job)
                return
            job.forget(participant)
            if job.is_done:
                self._complete(job)

        self._runtime.write(operation, is_urgent=True).on_settled(on_written)

    def _retry_later(self, job: _Job) -> None:
        key = ("markers", job.order.transactional_id, job.order.marker.csn)
        self._runtime.arm(key, job.retry_ms, lambda: self._send(job))
        job.retry_ms = min(2 * job.retry_ms, RETRY_MS_MAX)

    def _complete(self, job: _Job) -> None:
        order = job.order
        completed = self._runtime.write(
            complete_operation(order.shard, order.transactional_id, order.marker.csn), is_urgent=True
        )

        def on_completed(_result: Pending[object]) -> None:
            self._jobs.pop((order.transactional_id, order.marker.csn), None)

        completed.on_settled(on_completed)
