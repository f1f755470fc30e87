"""History of a transactional id, read from HISTORY.

The steps of a shard are in one order, with those of all its ids mixed. So the newest rows are searched backwards, up to
a limit, a part at a time. The answer says if the search ended early. An index by id would cost another row with every
step of every transaction, for a question that only people ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, ShardKey, once_durable
from coordinator_runtime.pending import Pending
from coordinator_runtime.rows import HistoryRow, StateRows, steps_backwards
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from txn_coordinator.codec import TRANSACTION_TYPE, is_known_cause, step_of
from txn_coordinator.records import TransactionChanged
from txn_coordinator.requests import History, StepDescription
from txn_coordinator.state import NO_EPOCH, Identity, Transaction
from txn_coordinator.steps import StoredStep, decode_step

STEPS_MAX: Final = 100
"""Largest number of steps that one question may ask for."""

STEPS_PER_PART: Final = 1_000
"""Number of steps that are searched at a time: a few milliseconds of the loop."""

STEPS_SEARCHED_MAX: Final = 50_000
"""Number of steps, of all ids, that are searched for one question."""


def check_history_limit(limit: int) -> None:
    """Raise Refused INVALID_REQUEST for an impossible or too large number of steps."""
    if not 0 <= limit <= STEPS_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"history_limit is {limit}; it must be 0 to {STEPS_MAX}")


class TransactionHistory:
    """Reader of the history of ids, from durable rows."""

    def __init__(self, runtime: Runtime, reader: StoreReader, shard_of_id: Callable[[str], ShardKey]) -> None:
        self._runtime = runtime
        self._reader = reader
        self._shard_of_id = shard_of_id

    def last_steps(self, transactional_id: str, limit: int, *, until: Transaction | None = None) -> Pending[History]:
        """Return the last steps of an id, newest first, at most `limit`. With `until`, start at the step that led to
        this durable state."""
        shard = self._shard_of_id(transactional_id)
        rows = self._runtime.rows(Coordinator.TRANSACTIONS)
        assert isinstance(rows, StateRows), "transactional ids have a history"
        search = _Search(self._runtime, self._reader, rows, shard, transactional_id.encode(), limit)
        if until is not None:
            return search.start(until)
        # Everything staged by now is searched, once it is durable.
        durable: Pending[None] = self._runtime.write(once_durable(shard), is_urgent=True)
        return durable.then(lambda _nothing: search.start())


class _HistoryPart(NamedTuple):
    """Steps of one id in a part of a shard's history, newest first."""

    steps: Sequence[HistoryRow]
    first: int
    """Number of the first step of the part."""
    is_last: bool = False
    """True if there are no older rows."""
    is_unreadable: bool = False
    """True if the next older row cannot be read."""


def _part(shard: ShardKey, key: bytes, end: int, part_end: int, rows: StoreReads) -> _HistoryPart:
    """Read a part, on any thread: from the step before `end` back to `part_end`, and to the begin of a row."""
    found: list[HistoryRow] = []
    first = end
    try:
        for first, steps in steps_backwards(rows, shard, TRANSACTION_TYPE, key, end=end):
            found += steps
            if first <= part_end:
                return _HistoryPart(found, first)
    except StoreUnreadable:
        return _HistoryPart(found, first, is_unreadable=True)
    return _HistoryPart(found, first, is_last=True)


class _Search:
    """One search under way."""

    def __init__(
        self, runtime: Runtime, reader: StoreReader, rows: StateRows, shard: ShardKey, key: bytes, limit: int
    ) -> None:
        self._runtime = runtime
        self._reader = reader
        self._shard = shard
        self._key = key
        self._limit = limit
        self._until: Transaction | None = None
        """State to start at: newer steps than the one that led to it are skipped. None once found."""
        self._end = rows.history_end(shard, runtime.groups.open.rows)
        self._stop = max(0, self._end - STEPS_SEARCHED_MAX)
        self._found: list[Snapshot] = []
        self._reply: Pending[History] = Pending()

    def start(self, until: Transaction | None = None) -> Pending[History]:
        self._until = until
        self._search_part()
        return self._reply

    def _search_part(self) -> None:
        """Search a part. Reply if the search is over or enough was found; else continue in the next turn."""
        part_end = max(self._end - STEPS_PER_PART, self._stop)
        self._reader.read(partial(_part, self._shard, self._key, self._end, part_end)).on_settled(self._on_part)

    def _on_part(self, read: Pending[_HistoryPart]) -> None:
        try:
            part = read.result()
            for stored in part.steps:
                self._take(stored)
        except Exception as defect:  # noqa: BLE001  it is the reply
            self._reply.fail(defect)
            return
        self._end = part.first
        if part.is_unreadable:
            # Older steps cannot be read. No operation needs them, so this is no failure of the server.
            self._tell(is_complete=False)
            return
        # One step more than the limit: the identity fenced by the oldest step is known only from the step before it.
        is_over = part.is_last or part.first <= self._stop
        if is_over or len(self._found) > self._limit or self._reply.is_cancelled:
            self._tell(is_complete=len(self._found) <= self._limit and self._end == 0 and self._until is None)
        else:
            self._runtime.arm(("history", self), 0, self._search_part)

    def _tell(self, *, is_complete: bool) -> None:
        self._reply.succeed(History(_told(self._found, self._limit), is_complete))

    def _take(self, stored: HistoryRow) -> None:
        after = decode_step(stored.told)
        if self._until is not None:
            if not _led_to(stored, after, self._until):
                return
            self._until = None
        self._found += [(stored, None)] if after is None else [(stored, each) for each in after.each]


Snapshot = tuple[HistoryRow, StoredStep | None]
"""Stored step, and one state that it led to; None if the id was forgotten."""


def _led_to(stored: HistoryRow, after: StoredStep | None, state: Transaction) -> bool:
    """Return True if this step led to a state of the id. A cause that only a newer program knows is a number in the
    state, and a word in the step."""
    is_of_its_time = stored.wall_ms == state.last_update_ms
    if after is None or not is_of_its_time or (stored.cause != state.cause and is_known_cause(state.cause)):
        return False
    return replace(after, decided=None) == replace(step_of(TransactionChanged(state)), decided=None)


def _told(newest_first: Sequence[Snapshot], limit: int) -> list[StepDescription]:
    """Return the states as steps. One state beyond the limit shows the identity before the last of them."""
    steps: list[StepDescription] = []
    for at, (stored, after) in enumerate(newest_first[:limit]):
        before = newest_first[at + 1][1] if at + 1 < len(newest_first) else None
        fenced = _fenced(before, after, stored.cause)
        steps.append(StepDescription(after, stored.wall_ms, stored.client_id, stored.host, stored.cause, fenced))
    return steps


_ON_ITS_OWN_BEHALF: Final = frozenset({"client", "add"})
"""Causes of steps that give the new epoch to the client that had the old one."""

_TAKING_THE_ID: Final = frozenset({"init", "keep"})
"""Causes of steps that the previous client of the id may have taken itself. Then its old epoch is kept."""


def _fenced(before: StoredStep | None, after: StoredStep | None, cause: str) -> Identity | None:
    if before is None or after is None or cause in _ON_ITS_OWN_BEHALF:
        return None
    is_own = cause in _TAKING_THE_ID and after.last_producer_epoch != NO_EPOCH
    return None if is_own or before.client_identity == after.client_identity else before.client_identity
