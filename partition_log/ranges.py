"""Use cases of ranges of a log: the number of their records, the positions of these, and the commits in them.

All are queries of readers: nothing is changed. The ranges of one call are looked at in the same moment, from durable
state, and within one budget. If an answer ends before its range, the caller asks again from there.

Source: docs/tour.md (lag); docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, Permission
from coordinator_runtime.store import Store
from partition_log.catalog.state import PlacedPartition
from partition_log.counting import count_records
from partition_log.measuring import MeasuredRange, committed_in, measure
from partition_log.reading import ReadBudget
from partition_log.requests import (
    AskedRange,
    CommittedResult,
    CountQuery,
    CountRecords,
    CountResult,
    ListCommitted,
    MeasureQuery,
    MeasureRecords,
    MeasureResult,
)
from partition_log.service import LogService
from partition_log.state import PartitionHead


class RangeService:
    """Answers queries about ranges of logs."""

    def __init__(self, store: Store, log: LogService) -> None:
        self._store = store
        self._log = log

    def count_records(self, command: CountRecords, context: CallContext) -> Pending[list[CountResult]]:
        """Return the number of records from each offset on, all counted at the same moment. If a count ends before the
        high watermark because the budget is spent, the caller asks again from there.

        Raises Refused INVALID_REQUEST for a negative offset, and for an invalid partition name."""
        for query in command.queries:
            if query.start_offset < 0:
                raise Refused(
                    ErrorCode.INVALID_REQUEST, f"start_offset is {query.start_offset} and must not be negative"
                )
        budget = ReadBudget(visible_bytes=0)
        results = [self._count(query, budget, context) for query in command.queries]
        self._log.fetcher.on_work(budget.work_bytes)
        return self._log.when_catalog_durable(results)

    def _count(self, query: CountQuery, budget: ReadBudget, context: CallContext) -> CountResult:
        def count(placed: PlacedPartition, head: PartitionHead) -> CountResult:
            counted = count_records(self._store, placed.ref.ordinal, head, query.start_offset, budget)
            return CountResult(placed.name, counted, head)

        return self._log.look(CountResult, query.name, context, count)

    def measure_records(self, command: MeasureRecords, context: CallContext) -> Pending[list[MeasureResult]]:
        """Return the positions of the visible records of ranges, all measured at the same moment. If a measurement ends
        before its range because the budget is spent, the caller asks again from there.

        Raises Refused INVALID_REQUEST for an invalid step or range, and for an invalid partition name."""
        if command.step_bytes < 1:
            raise Refused(ErrorCode.INVALID_REQUEST, f"step_bytes is {command.step_bytes} and must be positive")
        _check_ranges(command.queries)
        budget = ReadBudget(visible_bytes=0)
        results = [self._measure(query, command, budget, context) for query in command.queries]
        self._log.fetcher.on_work(budget.work_bytes)
        return self._log.when_catalog_durable(results)

    def _measure(
        self, query: MeasureQuery, command: MeasureRecords, budget: ReadBudget, context: CallContext
    ) -> MeasureResult:
        def take(placed: PlacedPartition, head: PartitionHead) -> MeasureResult:
            asked = MeasuredRange(
                query.start_offset, query.end_offset, command.isolation, command.step_bytes, query.shown
            )
            return MeasureResult(placed.name, measure(self._store, placed.ref.ordinal, head, asked, budget))

        return self._log.look(MeasureResult, query.name, context, take)

    def list_committed(self, command: ListCommitted, context: CallContext) -> Pending[list[CommittedResult]]:
        """Return the transactions committed in ranges, all looked at in the same moment. If a list ends before its
        range because the budget is spent, the caller asks again from there. The caller needs READ on each topic.

        Raises Refused INVALID_REQUEST for an invalid range, and for an invalid partition name."""
        _check_ranges(command.ranges)
        budget = ReadBudget(visible_bytes=0)
        results = [self._list_committed(each, budget, context) for each in command.ranges]
        self._log.fetcher.on_work(budget.work_bytes)
        return self._log.when_catalog_durable(results)

    def _list_committed(self, asked: AskedRange, budget: ReadBudget, context: CallContext) -> CommittedResult:
        def take(placed: PlacedPartition, head: PartitionHead) -> CommittedResult:
            start, end = asked.start_offset, asked.end_offset
            return CommittedResult(placed.name, committed_in(self._store, placed.ref.ordinal, head, start, end, budget))

        return self._log.look(CommittedResult, asked.name, context, take, Permission.READ)


def _check_ranges(ranges: Iterable[AskedRange]) -> None:
    """Return only if all ranges are valid. Raises Refused INVALID_REQUEST."""
    for each in ranges:
        if not 0 <= each.start_offset <= each.end_offset:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"start_offset is {each.start_offset} and end_offset {each.end_offset}: the first must not be "
                "negative, nor the second before it",
            )
