"""Use case of positions: the offsets at the ends of logs and of leader epochs, and those that a time stands for.

Source: spec log-and-runtime 2.1; KIP-79, KIP-320.
"""

from __future__ import annotations

from functools import partial

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import CallContext, PartitionName, Permission
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from coordinator_runtime.worker import Worker, WorkerLost
from partition_log.batches import LogDamaged
from partition_log.catalog.shard import unresolved
from partition_log.catalog.state import PlacedPartition
from partition_log.leadership import check_leader_epochs, epoch_at, epoch_end
from partition_log.newest_search import NewestSearch
from partition_log.reading import ReadBudget, bound_of
from partition_log.requests import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NEWEST_TIMESTAMP,
    EpochEndResult,
    EpochQuery,
    ListOffsets,
    OffsetForLeaderEpoch,
    OffsetQuery,
    OffsetResult,
)
from partition_log.service import LogService
from partition_log.state import NO_OFFSET, Isolation, PartitionHead
from partition_log.time_search import Place, Search, TimeSearch, TimeSearches

_Asker = tuple[CallContext, Permission]
"""A caller, and the permission that it needs."""


class PositionService:
    """Finds positions in logs."""

    def __init__(self, runtime: Runtime, reader: StoreReader, log: LogService, worker: Worker) -> None:
        self._log = log
        self.searches = TimeSearches(runtime, reader, worker)

    def list_offsets(
        self, command: ListOffsets, context: CallContext, permission: Permission = Permission.DESCRIBE
    ) -> Pending[list[OffsetResult]]:
        """Return positions by end or time, in the order asked, all of the same moment. Ends are in memory. Records that
        are appended afterwards do not count, however long a search takes. A time stands for the first visible record of
        the isolation level with a timestamp of at least that time (`time_search`). NEWEST_TIMESTAMP stands for the one
        with the largest timestamp (`newest_search`). The result is -1 if there is no such record.

        Raises Refused INVALID_REQUEST for an invalid partition name."""
        budget = ReadBudget(visible_bytes=0)
        parts = [self._find(query, command.isolation, (context, permission), budget) for query in command.queries]
        self._log.fetcher.on_work(budget.work_bytes)
        return all_of(parts).then(self._log.when_catalog_durable)

    def offset_for_leader_epoch(
        self, command: OffsetForLeaderEpoch, context: CallContext
    ) -> Pending[list[EpochEndResult]]:
        """Return the durable end of each leader epoch, in the order asked (`leadership.epoch_end`). A reader that names
        the epoch of the last record that it read thus learns the offset from which on it read another log.

        Errors of a partition: FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH for a wrong current epoch. Raises Refused
        INVALID_REQUEST for an invalid partition name."""
        results = [self._epoch_end(query, context) for query in command.queries]
        return self._log.when_catalog_durable(results)

    def _epoch_end(self, query: EpochQuery, context: CallContext) -> EpochEndResult:
        found = self._log.find_readable(Permission.DESCRIBE, context, query.name)
        if isinstance(found, Refused):
            return EpochEndResult(query.name, error=found)
        placed, head = found
        try:
            check_leader_epochs(head, 0, current_leader_epoch=query.current_leader_epoch, last_read_epoch=None)
        except Refused as refusal:
            return EpochEndResult(query.name, error=refusal)
        return EpochEndResult(placed.name, *epoch_end(head, query.epoch))

    def _find(
        self, query: OffsetQuery, isolation: Isolation, asker: _Asker, budget: ReadBudget
    ) -> Pending[OffsetResult]:
        context, permission = asker
        found = self._log.find_readable(permission, context, query.name)
        if isinstance(found, Refused):
            return settled(OffsetResult(query.name, error=found))
        placed, head = found

        def result(place: Place) -> OffsetResult:
            offset, timestamp_ms = place
            epoch = None if offset == NO_OFFSET else epoch_at(head.leadership, offset)
            return OffsetResult(placed.name, offset, timestamp_ms, leader_epoch=epoch)

        try:
            check_leader_epochs(head, 0, current_leader_epoch=query.current_leader_epoch, last_read_epoch=None)
            place = self._position(query, placed, head, isolation, asker, budget)
        except Refused as refusal:
            return settled(OffsetResult(query.name, error=refusal))
        return place.map(result, partial(self._result_of_error, query.name, placed))

    def _position(
        self,
        query: OffsetQuery,
        placed: PlacedPartition,
        head: PartitionHead,
        isolation: Isolation,
        asker: _Asker,
        budget: ReadBudget,
    ) -> Pending[Place]:
        timestamp_ms, bound, ordinal = query.timestamp_ms, bound_of(head, isolation), placed.ref.ordinal
        if timestamp_ms == LATEST_TIMESTAMP:
            return settled((bound, -1))
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return settled((head.log_start_offset, -1))
        if timestamp_ms < 0 and timestamp_ms != NEWEST_TIMESTAMP:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{timestamp_ms} is no position: use -1 (latest), -2 (earliest), -3 (newest record) or Unix "
                "milliseconds",
            )

        context, permission = asker

        def look() -> PartitionHead:
            found = self._log.find_readable(permission, context, query.name)
            if isinstance(found, Refused):
                raise found
            if found[0].ref.ordinal != ordinal:
                raise unresolved(placed.ref.topic)
            return found[1]

        search: Search
        if timestamp_ms == NEWEST_TIMESTAMP:
            search = NewestSearch(ordinal, bound=bound, isolation=isolation)
        else:
            search = TimeSearch(ordinal, timestamp_ms, bound=bound, isolation=isolation)
        return self.searches.find(search, head, look, budget)

    def _result_of_error(self, name: PartitionName, placed: PlacedPartition, error: Exception) -> OffsetResult:
        """Return the result for a failed search. Raises errors that are not meant for callers."""
        if isinstance(error, LogDamaged | StoreUnreadable):
            error = self._log.fetcher.damage.met(placed.ref, error)
        elif isinstance(error, WorkerLost):
            error = Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the batch with the record was not opened ({error}); ask again"
            )
        if not isinstance(error, CoordinatorError):
            raise error
        return OffsetResult(name, error=error)
