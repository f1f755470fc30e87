"""Search for the newest record: the one with the largest timestamp, the first of those in the order of offsets.

Visible records count, as in a search by time (`time_search`). Headers lead to the batch, and that batch alone is
opened. A header that promises more than its records have is believed, and the answer is the newest record of its batch.
Otherwise a search could have to open every batch of a log.

A running maximum in each index entry bounds the timestamps before its end. The search therefore looks at three parts of
the log, and ends as soon as the bound excludes anything newer:

1. The last index entry before the bound. It has the newest record if timestamps ascend.
2. The first index entry that reaches the maximum before the last one. It has the newest record, unless that is hidden.
3. All headers. The newest timestamps are then those of aborted or deleted records.

Source: KIP-734.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from coordinator_protocol.batch import NO_TIMESTAMP_MS, BatchHeader
from partition_log.batches import batches
from partition_log.reading import ReadBudget
from partition_log.record_times import newest_since
from partition_log.state import Isolation, PartitionHead
from partition_log.stretches import first_that, stretches
from partition_log.time_search import (
    HALVING_COST_BATCHES,
    NOWHERE,
    Opening,
    Pause,
    Place,
    Search,
    is_for_worker,
    is_shown,
)

_Part: TypeAlias = tuple[int, int]
"""First and last offset of a part of the log, the last one exclusive."""


class _Step(Enum):
    """Part of the log that the search looks at."""

    LAST_ENTRY = 1
    FIRST_TO_REACH = 2
    WHOLE_LOG = 3
    FOUND = 4


class NewestSearch(Search):
    """A search for the newest record."""

    __slots__ = ("_end", "_enough_ms", "_newest", "_next_offset", "_step")

    def __init__(self, ordinal: int, *, bound: int, isolation: Isolation) -> None:
        super().__init__(ordinal, 0, bound=bound, isolation=isolation, look=newest_since)
        self.restart()

    def restart(self) -> None:
        self._step = _Step.LAST_ENTRY
        self._newest: BatchHeader | None = None
        """Newest batch of this step so far."""
        self._next_offset: int | None = None
        """Offset to continue at; None before the first step."""
        self._end = self._bound
        """End of the part of this step."""
        self._enough_ms = -1
        """Timestamp that ends the step, because nothing is newer."""

    def _advance(self, head: PartitionHead, budget: ReadBudget, *, is_worker_free: bool) -> Place | Opening | Pause:
        if head.log_start_offset >= self._bound:
            return NOWHERE
        while self._step is not _Step.FOUND:
            if self._next_offset is None:
                self._next_offset = self._last_entry(head)
            if not self._look_at_headers(head, budget):
                return Pause.SPENT
            self._next_step(head, budget)
        newest = self._newest
        if newest is None:
            return NOWHERE
        if newest.last_offset < head.log_start_offset:
            # It was deleted meanwhile.
            self.restart()
            return Pause.SPENT
        for header, encoded in batches(self._store, self._ordinal, newest.base_offset, self._bound, headers_only=True):
            if not is_worker_free and is_for_worker(header, encoded):
                return Pause.WAITS
            return self._opened(header, encoded, head, budget) or NOWHERE
        raise AssertionError("a batch is there until the log start has passed it")

    def resume(self, opening: Opening, found: Place | None, head: PartitionHead) -> Place | None:
        if found is not None and found[0] < head.log_start_offset:
            self.restart()
            return None
        return found or NOWHERE

    def put_back(self, opening: Opening) -> None:
        """Nothing to do: the search stands at its newest batch until it has an answer."""

    def _look_at_headers(self, head: PartitionHead, budget: ReadBudget) -> bool:
        """Return True once the step has seen all headers that it needs."""
        assert self._next_offset is not None, "the step has begun"
        start = max(self._next_offset, head.log_start_offset)
        if start >= self._end:
            return True
        aborted = self._aborted(head, start, budget)
        for header, encoded in batches(self._store, self._ordinal, start, self._end, headers_only=True):
            self._next_offset = header.last_offset + 1
            budget.batches -= 1
            budget.read_bytes -= len(encoded)
            if header.max_timestamp_ms > self._newest_ms and header.record_count and is_shown(header, aborted):
                self._newest = header
                if header.max_timestamp_ms >= self._enough_ms >= 0:
                    return True
            if budget.is_spent:
                return False
        return True

    def _next_step(self, head: PartitionHead, budget: ReadBudget) -> None:
        match self._step:
            case _Step.LAST_ENTRY:
                self._after_last_entry(head, budget)
            case _Step.FIRST_TO_REACH if self._newest_ms < self._enough_ms:
                self._begin(_Step.WHOLE_LOG, (head.log_start_offset, self._bound), self._enough_ms)
            case _:
                self._step = _Step.FOUND

    def _after_last_entry(self, head: PartitionHead, budget: ReadBudget) -> None:
        start, entry_start = head.log_start_offset, self._last_entry(head)
        budget.batches -= HALVING_COST_BATCHES
        before = next(stretches(self._store, self._ordinal, entry_start - 1), None) if entry_start > start else None
        before_ms = NO_TIMESTAMP_MS if before is None else before.max_timestamp_ms
        if before_ms == NO_TIMESTAMP_MS or self._newest_ms > before_ms:
            self._step = _Step.FOUND
            return
        first = first_that(
            self._store, self._ordinal, (start, entry_start), lambda entry: entry.max_timestamp_ms >= before_ms
        )
        assert first is not None, "the entry before the last one reaches its own maximum"
        self._begin(_Step.FIRST_TO_REACH, (first.first_offset, first.last_offset + 1), before_ms)

    def _last_entry(self, head: PartitionHead) -> int:
        """Return the first offset of the index entry that holds the last record before the bound."""
        entry = next(stretches(self._store, self._ordinal, self._bound - 1), None)
        return head.index.first_offset if entry is None else entry.first_offset

    def _begin(self, step: _Step, part: _Part, enough_ms: int) -> None:
        self._step, self._newest, self._enough_ms = step, None, enough_ms
        self._next_offset, self._end = part

    @property
    def _newest_ms(self) -> int:
        return NO_TIMESTAMP_MS if self._newest is None else self._newest.max_timestamp_ms
