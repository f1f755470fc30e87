"""Questions about ranges, all three alike: one budget for a call, and no refusal before it is durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import PartitionName
from partition_log.catalog.state import NewTopic
from partition_log.measuring import Commits, Measured
from partition_log.reading import BATCHES_READ_MAX, SEEK_COST_BATCHES
from partition_log.requests import (
    AskedRange,
    CountQuery,
    CountRecords,
    CreateTopics,
    ListCommitted,
    MeasureQuery,
    MeasureRecords,
)
from tests.log.driven_log import COMMIT, CONTEXT, TOPIC, Batch, DrivenLog, transactional

ORDERS_0 = PartitionName(TOPIC, b"", 0)
END = 3

Asked = Pending[list[tuple[int, CoordinatorError | None]]]
"""For each range, where its answer ends, and its error."""


def count(driven: DrivenLog, names: Sequence[PartitionName]) -> Asked:
    asked = driven.ranges.count_records(CountRecords([CountQuery(name, 0) for name in names]), CONTEXT)
    return asked.map(lambda results: [(each.counted.next_offset, each.error) for each in results])


def measure(driven: DrivenLog, names: Sequence[PartitionName]) -> Asked:
    asked = driven.ranges.measure_records(MeasureRecords([MeasureQuery(name, 0, END) for name in names], 1), CONTEXT)
    return asked.map(lambda results: [(each.measured.next_offset, each.error) for each in results])


def list_committed(driven: DrivenLog, names: Sequence[PartitionName]) -> Asked:
    asked = driven.ranges.list_committed(ListCommitted([AskedRange(name, 0, END) for name in names]), CONTEXT)
    return asked.map(lambda results: [(each.commits.next_offset, each.error) for each in results])


Ask = Callable[[DrivenLog, Sequence[PartitionName]], Asked]
EACH_QUESTION = pytest.mark.parametrize("ask", [count, measure, list_committed])


@EACH_QUESTION
def test_the_ranges_of_a_call_share_what_it_may_read(driven: DrivenLog, ask: Ask) -> None:
    producer = transactional()
    driven.append(Batch(producer, 0, count=END - 1))
    driven.end(producer, COMMIT)
    ends = [end for end, _error in ask(driven, [ORDERS_0] * (BATCHES_READ_MAX // SEEK_COST_BATCHES)).result()]
    assert (ends[0], ends[-1]) == (END, 0)


@EACH_QUESTION
def test_what_a_call_has_read_is_told_to_those_who_divide_the_time(driven: DrivenLog, ask: Ask) -> None:
    driven.append(Batch(count=END))
    told: list[int] = []
    driven.log.fetcher.on_work = told.append
    ask(driven, [ORDERS_0])
    ask(driven, [ORDERS_0] * 3)
    once, thrice = told
    assert 0 < once < thrice == 3 * once


@EACH_QUESTION
def test_a_refusal_that_rests_on_a_staged_topic_waits_until_that_is_durable(driven: DrivenLog, ask: Ask) -> None:
    driven.topics.create_topics(CreateTopics([NewTopic("new", 1, {})]), CONTEXT)
    asked = ask(driven, [PartitionName("new", b"", 9)])
    assert not asked.is_settled
    driven.flush()
    ((_end, error),) = asked.result()
    assert isinstance(error, Refused)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_range_without_offsets_is_one_in_which_nothing_lies(driven: DrivenLog) -> None:
    driven.append(Batch(count=END))
    command = MeasureRecords([MeasureQuery(ORDERS_0, 1, 1)], 1)
    (measured,) = driven.ranges.measure_records(command, CONTEXT).result()
    assert (measured.error, measured.measured) == (None, Measured((), 1))
    (listed,) = driven.ranges.list_committed(ListCommitted([AskedRange(ORDERS_0, 1, 1)]), CONTEXT).result()
    assert (listed.error, listed.commits) == (None, Commits((), 1))


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_a_range_that_is_none_has_no_commits(driven: DrivenLog, start: int, end: int) -> None:
    with pytest.raises(Refused, match=f"start_offset is {start} and end_offset {end}"):
        driven.ranges.list_committed(ListCommitted([AskedRange(ORDERS_0, start, end)]), CONTEXT)
