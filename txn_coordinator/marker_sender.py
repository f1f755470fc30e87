"""Carries decided outcomes to their participants, for as long as it takes.

Nothing but a durable PREPARE starts a job here, and nothing ends it but a marker in every participant: no error changes
the outcome or gives up (spec transactions 4). What is known of the markers already written is memory only; after a
crash every marker is sent again, and participants recognise a repetition by its csn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final, TypeAlias

from coordinator_protocol.errors import CoordinatorError
from coordinator_runtime.decision import Operation
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import MarkerPort
from coordinator_runtime.runtime import Runtime
from txn_coordinator.shard import SendMarkers, complete_operation

RETRY_MS_FIRST: Final = 10
RETRY_MS_MAX: Final = 1_000

_Participant: TypeAlias = int | str
"""A partition by its ordinal, or a group by its name."""

Participant = int | str
"""A partition ordinal, or the id of a group."""


class _Job:
    """One decided transaction: the participants whose marker is not durable yet."""

    __slots__ = ("in_flight", "is_retry_armed", "missing", "order", "retry_ms")

    def __init__(self, order: SendMarkers) -> None:
        self.order = order
        self.missing: set[_Participant] = {*order.partitions, *order.groups}
        self.in_flight: set[_Participant] = set()
        self.is_retry_armed = False
        self.retry_ms = RETRY_MS_FIRST

    @property
    def key(self) -> tuple[str, int]:
        return (self.order.transactional_id, self.order.marker.csn)


class MarkerSender:
    """Sends markers for every SendMarkers effect, each transaction by itself: one that is stuck holds up no other."""

    def __init__(self, runtime: Runtime, markers: MarkerPort) -> None:
        self._runtime = runtime
        self._markers = markers
        self._jobs: dict[tuple[str, int], _Job] = {}
        self.failed_markers: Counter[str] = Counter()
        """Markers that a participant refused, and that were sent again, by the name of the refusal."""
        runtime.handle_effect(SendMarkers, self._start)

    def waiting_partitions(self, transactional_id: str, csn: int) -> frozenset[int] | None:
        """Ordinals without a durable marker yet; None when no such transaction is being finished here."""
        job = self._jobs.get((transactional_id, csn))
        if job is None:
            return None
        return frozenset(participant for participant in job.missing if isinstance(participant, int))

    @property
    def waiting_markers(self) -> int:
        return sum(len(job.missing) for job in self._jobs.values())

    def unfinished_ids(self) -> Iterator[str]:
        """Transactional ids with markers that are not durable yet."""
        return (job.order.transactional_id for job in self._jobs.values() if job.missing)

    def _start(self, order: SendMarkers) -> None:
        job = _Job(order)
        self._jobs[job.key] = job
        self._send(job)

    def _send(self, job: _Job) -> None:
        """Write every marker that is missing and not under way; a job without participants is complete at once."""
        if not job.missing:
            self._complete(job)
            return
        for participant in sorted(job.missing - job.in_flight, key=_by_kind):
            job.in_flight.add(participant)
            self._runtime.write(self._marker_operation(job, participant), is_urgent=True).on_settled(
                partial(self._on_written, job, participant)
            )

    def _marker_operation(self, job: _Job, participant: _Participant) -> Operation:
        marker = job.order.marker
        if isinstance(participant, int):
            return self._markers.partition_marker(participant, marker)
        return self._markers.group_marker(participant, marker)

    def _on_written(self, job: _Job, participant: _Participant, written: Pending[object]) -> None:
        job.in_flight.discard(participant)
        try:
            written.result()
        except Exception as error:  # noqa: BLE001  whatever it was, the outcome stands and the marker is owed
            self.failed_markers[error.code.name if isinstance(error, CoordinatorError) else "DEFECT"] += 1
            self._retry_later(job)
            return
        job.missing.discard(participant)
        if not job.missing:
            self._complete(job)

    def _retry_later(self, job: _Job) -> None:
        if job.is_retry_armed:
            return
        job.is_retry_armed = True

        def send_again() -> None:
            job.is_retry_armed = False
            self._send(job)

        self._runtime.arm(("markers", *job.key), job.retry_ms, send_again)
        job.retry_ms = min(2 * job.retry_ms, RETRY_MS_MAX)

    def _complete(self, job: _Job) -> None:
        order = job.order
        operation = complete_operation(order.shard, order.transactional_id, order.marker.csn)

        def on_completed(completed: Pending[object]) -> None:
            try:
                completed.result()
            except Exception:  # noqa: BLE001  COMPLETE is owed as the markers are
                self._retry_later(job)
                return
            del self._jobs[job.key]

        self._runtime.write(operation, is_urgent=True).on_settled(on_completed)


def _by_kind(participant: _Participant) -> tuple[bool, _Participant]:
    """Partitions first, each kind in its order."""
    return (isinstance(participant, str), participant)
