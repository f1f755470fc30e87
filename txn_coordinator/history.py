"""What happened to a transactional id, from HISTORY.

The rows of a shard lie in one order, those of all its ids among each other. So the newest rows are searched backwards,
up to a bound, a part at a time, and the caller is told when the search ended early. An index by id would cost a row
more with every step of every transaction, for a question that people ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import dropwhile
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, ShardKey, once_durable
from coordinator_runtime.pending import Pending
from coordinator_runtime.rows import HistoryRow, StateRows
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store, StoreUnreadable
from txn_coordinator.records import TransactionChanged, TransactionUnreadable
from txn_coordinator.requests import History, Step
from txn_coordinator.state import NO_EPOCH, Identity, Transaction

STEPS_MAX: Final = 100
"""Steps that one question may ask for."""

ROWS_PER_PART: Final = 1_000
"""Rows that are searched at a time: a few milliseconds of the loop."""

ROWS_MAX: Final = 50_000
"""Rows that are searched for one question."""


def check_history_limit(limit: int) -> None:
    """Raises Refused INVALID_REQUEST for a number of steps that nobody could mean, or that are too many."""
    if not 0 <= limit <= STEPS_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"history_limit is {limit}; it must be 0 to {STEPS_MAX}")


class TransactionHistory:
    """Answers what happened, from durable rows."""

    def __init__(self, runtime: Runtime, store: Store, shard_of_id: Callable[[str], ShardKey]) -> None:
        self._runtime = runtime
        self._store = store
        self._shard_of_id = shard_of_id

    def last_steps(self, transactional_id: str, limit: int, *, until: Transaction | None = None) -> Pending[History]:
        """Return the last steps of an id, at most `limit`, up to the one that led to this durable state of it, if one
        is given."""
        shard = self._shard_of_id(transactional_id)
        rows = self._runtime.rows(Coordinator.TRANSACTIONS)
        assert isinstance(rows, StateRows), "transactional ids have a history"
        search = _Search(self._runtime, self._store, rows, shard, transactional_id.encode(), limit)
        if until is not None:
            return search.start(until)
        # What is staged by now is searched, and only once it is durable.
        durable: Pending[None] = self._runtime.write(once_durable(shard), is_urgent=True)
        return durable.then(lambda _nothing: search.start())


class _Search:
    """One search under way."""

    def __init__(
        self, runtime: Runtime, store: Store, rows: StateRows, shard: ShardKey, key: bytes, limit: int
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._rows = rows
        self._shard = shard
        self._key = key
        self._limit = limit
        self._until: Transaction | None = None
        """Steps are left out until the one that led to this state is met."""
        self._end_offset = rows.history_end(shard)
        self._stop_offset = max(0, self._end_offset - ROWS_MAX)
        self._found: list[Snapshot] = []
        self._reply: Pending[History] = Pending()

    def start(self, until: Transaction | None = None) -> Pending[History]:
        self._until = until
        self._search_part()
        return self._reply

    def _search_part(self) -> None:
        start_offset = max(self._stop_offset, self._end_offset - ROWS_PER_PART)
        try:
            self._search_between(start_offset, self._end_offset)
        except StoreUnreadable:
            # What is older cannot be told. It is never needed to go on, so this is nobody's failure.
            self._reply.succeed(History(steps_of(self._found, self._limit), is_complete=False))
            return
        self._end_offset = start_offset
        if len(self._found) > self._limit or start_offset == self._stop_offset or self._reply.is_cancelled:
            is_complete = len(self._found) <= self._limit and self._end_offset == 0 and self._until is None
            self._reply.succeed(History(steps_of(self._found, self._limit), is_complete))
        else:
            self._runtime.arm(("history", self), 0, self._search_part)

    def _search_between(self, start_offset: int, end_offset: int) -> None:
        for row in self._rows.history_backwards(
            self._store, self._shard, self._key, start_offset=start_offset, end_offset=end_offset
        ):
            snapshots = snapshots_in(row)
            if self._until is not None:
                snapshots = list(dropwhile(lambda snapshot: snapshot[1] != self._until, snapshots))
                if snapshots:
                    self._until = None
            self._found.extend(snapshots)
            # One more than wanted: who was fenced by the oldest step can only be said beside the one before.
            if len(self._found) > self._limit:
                return


Snapshot = tuple[HistoryRow, Transaction | None]
"""One state of an id, and the row that tells it. None: the id was forgotten."""


def snapshots_in(row: HistoryRow) -> list[Snapshot]:
    """The states that a row tells, the newest first: one, or two where the decision has no row of its own."""
    if row.value is None:
        return [(row, None)]
    if isinstance(row.value, TransactionUnreadable):
        # A newer program took this step, and only it can say which one it was.
        return []
    assert isinstance(row.value, TransactionChanged), "the history of an id holds its snapshots and tombstones"
    found: list[Snapshot] = [(row, row.value.transaction)]
    if row.value.decided is not None:
        found.append((row, row.value.decided))
    return found


def steps_of(newest_first: Sequence[Snapshot], limit: int) -> list[Step]:
    """States as steps; one more than the limit says what came before the last of them."""
    steps: list[Step] = []
    for at, (row, after) in enumerate(newest_first[:limit]):
        before = newest_first[at + 1][1] if at + 1 < len(newest_first) else None
        steps.append(Step(after, row.wall_ms, row.client_id, row.host, row.cause, _fenced(before, after, row.cause)))
    return steps


_ON_ITS_OWN_BEHALF: Final = frozenset({"client", "add"})
"""Causes of steps whose new epoch goes to the very client that had the old one."""

_TAKING_THE_ID: Final = frozenset({"init", "keep"})
"""Causes of steps that may be those of the client that had the id before. Then its old epoch is remembered."""


def _fenced(before: Transaction | None, after: Transaction | None, cause: str) -> Identity | None:
    if before is None or after is None or cause in _ON_ITS_OWN_BEHALF:
        return None
    is_own = cause in _TAKING_THE_ID and after.last_producer_epoch != NO_EPOCH
    return None if is_own or before.client_identity == after.client_identity else before.client_identity
