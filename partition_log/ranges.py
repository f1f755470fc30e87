"""Use cases of ranges of a log: the number of their records, the positions of these, and the commits in them.

All are queries of readers: nothing is changed. The ranges of one call are looked at in the same moment, from durable
state, and within one budget. If an answer ends before its range, the caller asks again from there. Where reads may
wait, a thread looks. If a log start has moved meanwhile, or a compaction gone on, it looks again.

Source: docs/tour.md (lag); docs/spark.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, PartitionName, Permission
from coordinator_runtime.store import StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from partition_log.batches import LogDamaged
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
from partition_log.rules.compacting import check_as_taken
from partition_log.service import LogService
from partition_log.state import PartitionHead

ResultT = TypeVar("ResultT", CountResult, MeasureResult, CommittedResult)


class _Question(Struct, Generic[ResultT], frozen=True):
    """A question about one partition."""

    name: PartitionName
    look: Callable[[StoreReads, PlacedPartition, PartitionHead, ReadBudget], ResultT]
    """Reads the answer, on any thread. Raises LogDamaged, StoreUnreadable."""


_Place = tuple[PlacedPartition, PartitionHead]


class RangeService:
    """Answers queries about ranges of logs."""

    def __init__(self, reader: StoreReader, log: LogService) -> None:
        self._reader = reader
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
        questions = [_Question(query.name, partial(_count, query)) for query in command.queries]
        return self._ask(CountResult, questions, context, Permission.DESCRIBE)

    def measure_records(self, command: MeasureRecords, context: CallContext) -> Pending[list[MeasureResult]]:
        """Return the positions of the visible records of ranges, all measured at the same moment. If a measurement ends
        before its range because the budget is spent, the caller asks again from there.

        Raises Refused INVALID_REQUEST for an invalid step or range, and for an invalid partition name."""
        if command.step_bytes < 1:
            raise Refused(ErrorCode.INVALID_REQUEST, f"step_bytes is {command.step_bytes} and must be positive")
        _check_ranges(command.queries)
        questions = [_Question(query.name, partial(_measure, query, command)) for query in command.queries]
        return self._ask(MeasureResult, questions, context, Permission.DESCRIBE)

    def list_committed(self, command: ListCommitted, context: CallContext) -> Pending[list[CommittedResult]]:
        """Return the transactions committed in ranges, all looked at in the same moment. If a list ends before its
        range because the budget is spent, the caller asks again from there. The caller needs READ on each topic.

        Raises Refused INVALID_REQUEST for an invalid range, and for an invalid partition name."""
        _check_ranges(command.ranges)
        questions = [_Question(asked.name, partial(_list_committed, asked)) for asked in command.ranges]
        return self._ask(CommittedResult, questions, context, Permission.READ)

    def _ask(
        self,
        result_type: type[ResultT],
        questions: Sequence[_Question[ResultT]],
        context: CallContext,
        permission: Permission,
    ) -> Pending[list[ResultT]]:
        found = [self._log.find_readable(permission, context, question.name) for question in questions]
        budget = ReadBudget(visible_bytes=0)

        def results(answers: list[ResultT | Exception]) -> Pending[list[ResultT]]:
            self._log.fetcher.on_work(budget.work_bytes)
            if self._reader.is_apart:
                present = [self._log.find_readable(permission, context, question.name) for question in questions]
                if any(map(_has_changed, found, present)):
                    return self._ask(result_type, questions, context, permission)
            told = zip(questions, found, answers, strict=True)
            return self._log.when_catalog_durable([self._result(result_type, *each) for each in told])

        return self._reader.read(partial(_look_at_all, questions, found, budget)).then(results)

    def _result(
        self,
        result_type: type[ResultT],
        question: _Question[ResultT],
        found: _Place | Refused,
        answer: ResultT | Exception,
    ) -> ResultT:
        """Return a result for callers. Raises errors that are not meant for them."""
        if isinstance(answer, LogDamaged | StoreUnreadable) and not isinstance(found, Refused):
            answer = self._log.fetcher.damage.met(found[0].ref, answer)
        if isinstance(answer, CoordinatorError):
            return result_type(question.name, error=answer)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _look_at_all(
    questions: Sequence[_Question[ResultT]],
    found: Sequence[_Place | Refused],
    budget: ReadBudget,
    rows: StoreReads,
) -> list[ResultT | Exception]:
    """Return the answer to each question, or the error that it met."""
    answers: list[ResultT | Exception] = []
    for question, place in zip(questions, found, strict=True):
        if isinstance(place, Refused):
            answers.append(place)
            continue
        try:
            answers.append(question.look(rows, *place, budget))
        except (Refused, LogDamaged, StoreUnreadable) as error:
            answers.append(error)
    return answers


def _has_changed(before: _Place | Refused, after: _Place | Refused) -> bool:
    """Return True if rows may have been missing or changed that a look between these two moments has read."""
    if isinstance(before, Refused):
        return False
    if isinstance(after, Refused) or after[0].ref.ordinal != before[0].ref.ordinal:
        return True
    then, now = before[1], after[1]
    return (then.log_start_offset, then.compaction) != (now.log_start_offset, now.compaction)


def _count(
    query: CountQuery, rows: StoreReads, placed: PlacedPartition, head: PartitionHead, budget: ReadBudget
) -> CountResult:
    return CountResult(placed.name, count_records(rows, placed.ref.ordinal, head, query.start_offset, budget), head)


def _measure(
    query: MeasureQuery,
    command: MeasureRecords,
    rows: StoreReads,
    placed: PlacedPartition,
    head: PartitionHead,
    budget: ReadBudget,
) -> MeasureResult:
    if query.start_offset < query.end_offset:
        check_as_taken(head.compaction, query.shown, query.start_offset)
    asked = MeasuredRange(query.start_offset, query.end_offset, command.isolation, command.step_bytes, query.shown)
    return MeasureResult(placed.name, measure(rows, placed.ref.ordinal, head, asked, budget))


def _list_committed(
    asked: AskedRange, rows: StoreReads, placed: PlacedPartition, head: PartitionHead, budget: ReadBudget
) -> CommittedResult:
    found = committed_in(rows, placed.ref.ordinal, head, asked.start_offset, asked.end_offset, budget)
    return CommittedResult(placed.name, found)


def _check_ranges(ranges: Iterable[AskedRange]) -> None:
    """Return only if all ranges are valid. Raises Refused INVALID_REQUEST."""
    for each in ranges:
        if not 0 <= each.start_offset <= each.end_offset:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"start_offset is {each.start_offset} and end_offset {each.end_offset}: the first must not be "
                "negative, nor the second before it",
            )
