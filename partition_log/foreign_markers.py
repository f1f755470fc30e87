"""WriteTxnMarkers: markers from other coordinators, and from administrators.

Markers of this server's own coordinator do not arrive this way. So the guard checks each one that does. It must not
decide an undecided transaction of this server, nor poison a partition with numbers from the future (promise 3).

Source: spec transactions 2.7, with the acceptance by csn of design 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from coordinator_protocol.acls import CLUSTER_NAME
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.limits import EPOCH_MAX, SHARD_COUNT_MAX
from coordinator_protocol.marker import Marker
from coordinator_protocol.names import check_partitions
from coordinator_runtime.decision import CATALOG_KEY, Operation, once_durable
from coordinator_runtime.pending import Pending, all_of
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    MarkerGuard,
    PartitionName,
    Permission,
    ResourceType,
    require,
)
from coordinator_runtime.runtime import Runtime
from partition_log.catalog.shard import CatalogShard

WRITES_MAX = 10_000
"""Largest number of markers times partitions in one request. One transaction has as many."""


class DecidedMarker(Struct, frozen=True):
    """One marker for several partitions."""

    marker: Marker
    names: Sequence[PartitionName]


class WriteTxnMarkers(Struct, frozen=True):
    """Markers to be written."""

    markers: Sequence[DecidedMarker]


class MarkerResult(Struct, frozen=True):
    """Result for one marker in one partition."""

    name: PartitionName
    error: CoordinatorError | None = None


class ForeignMarkers:
    """Use case of WriteTxnMarkers."""

    def __init__(self, runtime: Runtime, catalog: CatalogShard, *, guard: MarkerGuard, authorizer: Authorizer) -> None:
        self._runtime = runtime
        self._catalog = catalog
        self._guard = guard
        self._authorizer = authorizer

    def write(self, command: WriteTxnMarkers, context: CallContext) -> Pending[list[tuple[int, list[MarkerResult]]]]:
        """Write every marker to every partition that it names, each by itself. Results are by producer id, in the order
        in which the ids were first named; durable when answered.

        Raises Refused: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST."""
        if not self._authorizer.is_allowed(context, Permission.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
            require(self._authorizer, context, Permission.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        markers = command.markers
        count = sum(len(each.names) for each in markers)
        if count > WRITES_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"the request writes {count} markers and at most {WRITES_MAX} are allowed; split it",
            )
        for each in markers:
            _check(each.marker)
            check_partitions(each.names)
        written = [
            (each.marker.producer_id, self._write(name, each.marker, context))
            for each in markers
            for name in each.names
        ]

        def merge(results: list[MarkerResult]) -> list[tuple[int, list[MarkerResult]]]:
            merged: dict[int, list[MarkerResult]] = {each.marker.producer_id: [] for each in markers}
            for (producer_id, _pending), result in zip(written, results, strict=True):
                merged[producer_id].append(result)
            return list(merged.items())

        return all_of([pending for _producer_id, pending in written]).map(merge)

    def _write(self, name: PartitionName, marker: Marker, context: CallContext) -> Pending[MarkerResult]:
        written = self._written(name, marker, context).map(lambda _done: MarkerResult(name))
        return written.answer_error(lambda error: MarkerResult(name, error))

    def _written(self, name: PartitionName, marker: Marker, context: CallContext) -> Pending[None]:
        try:
            placed = self._catalog.place(*name)
        except Refused as refusal:
            return self._runtime.write(once_durable(CATALOG_KEY, refusal), is_urgent=True)
        ordinal = placed.ref.ordinal
        check = self._guard.check(ordinal, marker)
        return self._runtime.write(
            Operation(placed.shard, lambda log, turn: log.decide_marker_from_outside(ordinal, marker, check, turn)),
            context,
            is_urgent=True,
        )


def _check(marker: Marker) -> None:
    """Return only if the marker's numbers are possible. Raises Refused INVALID_REQUEST."""
    epochs = (marker.txn_epoch, marker.next_epoch)
    if marker.producer_id < 0 or not all(0 <= epoch <= EPOCH_MAX for epoch in epochs) or marker.coordinator_epoch < 0:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"a marker of producer id {marker.producer_id} with epochs {marker.txn_epoch} and {marker.next_epoch}, "
            f"from coordinator epoch {marker.coordinator_epoch}, cannot be: send the decided one unchanged",
        )
    if not 0 <= marker.coordinator_shard < SHARD_COUNT_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"coordinator shard {marker.coordinator_shard} cannot be: send the one that decided, 0 to "
            f"{SHARD_COUNT_MAX - 1}",
        )
    if marker.next_epoch < marker.txn_epoch:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"next_epoch {marker.next_epoch} is smaller than txn_epoch {marker.txn_epoch}: epochs never go back",
        )
    if marker.csn <= 0:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "a marker has the csn that its outcome was given when it was decided, 1 or more"
        )
