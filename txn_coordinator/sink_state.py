"""State of a sink: a name under which an engine such as Spark writes numbered batches, each exactly once.

Many tasks write a batch at the same time. Each attempt of a task is a *member*: a transaction with an id of its own,
which the attempt seals when it has written everything. Then one decision commits the members that the engine chose, and
gives up all others. All chosen members become visible, or none.

    join       seal                 commit the batch
    Ongoing -> Ongoing, prepared -> PrepareCommit -> CompleteCommit -> forgotten
        \\            \\----------> PrepareAbort  -> CompleteAbort  -> forgotten
         \\---- given up: by the decision, a newer run or batch, AbortBatch, or because of long inactivity

A sink's record decides for all its members, which are in the same shard (`coordinator_key`). From then on each of them
has a certain outcome, which is carried out member by member, however often the server crashes. Only `Sink.outcome_of`
determines that outcome.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from coordinator_protocol.hashing import coordinator_key
from coordinator_protocol.marker import Outcome
from coordinator_runtime.timeline import Journal, TimelineMap
from txn_coordinator.state import Transaction, TransactionState

NO_BATCH: Final = -1
_NONE: Final[frozenset[str]] = frozenset()


class Sink(Struct, frozen=True, kw_only=True, gc=False):
    """Everything known about one sink, except its members. A complete snapshot."""

    name: str
    run_id: str
    """Run that writes batches now: each start of an engine's query is a run."""
    fenced_run_ids: tuple[str, ...] = ()
    """Earlier runs, the newest last; only a limited number is remembered."""
    batch_id: int
    """Batch that members join, or joined last."""
    last_batch_id: int = NO_BATCH
    """Newest committed batch; it and all earlier ones are never written again."""
    last_csn: int = 0
    """Commit sequence number of that outcome, which all its members share."""
    given_up_below: int = 0
    """Undecided members with a smaller producer id are given up. Producer ids ascend, so later members are not
    affected."""
    txn_timeout_ms: int
    """Time that members wait without any activity of the sink."""
    last_update_ms: int
    committing: frozenset[int] = frozenset()
    """Producer ids of the members that commit, while the decision on `last_batch_id` is being carried out."""

    def outcome_of(self, member: Transaction) -> Outcome | None:
        """Return the outcome that is certain for a member that is not decided itself yet; None if it is still open."""
        if member.producer_id in self.committing:
            return Outcome.COMMIT
        return Outcome.ABORT if member.producer_id < self.given_up_below else None


class Sinks:
    """Sinks of one shard, and their members. Changes in `replay` only."""

    def __init__(self, journal: Journal) -> None:
        self._sinks: TimelineMap[str, Sink] = TimelineMap(journal)
        self._members: TimelineMap[str, frozenset[str]] = TimelineMap(journal)
        """Transactional ids of the members that are not complete, by sink."""
        self.get = self._sinks.get
        """Returns the sink of a name in live state, or None."""
        self.durable = self._sinks.durable

    def all_live(self) -> Iterator[Sink]:
        return self._sinks.values()

    def all_durable(self) -> Iterator[Sink]:
        return (sink for _name, sink in self._sinks.durable_items())

    def member_ids(self, name: str) -> frozenset[str]:
        """Return the transactional ids of the members that are not complete, in live state."""
        return self._members.get(name) or _NONE

    def durable_member_ids(self, name: str) -> frozenset[str]:
        return self._members.durable(name) or _NONE

    def is_settled(self, transaction: Transaction) -> bool:
        """Return True if an open transaction is a member whose sink has decided on it, so that no other decision is
        allowed."""
        if transaction.member is None or transaction.state is not TransactionState.ONGOING:
            return False
        sink = self._sinks.get(coordinator_key(transaction.transactional_id))
        return sink is not None and sink.outcome_of(transaction) is not None

    def put(self, sink: Sink) -> None:
        """Set the newest snapshot of a sink. Only `replay` calls this."""
        self._sinks.put(sink.name, sink)

    def remove(self, name: str) -> None:
        """Remove a sink. Only `replay` calls this."""
        self._sinks.remove(name)

    def add_member(self, transactional_id: str) -> None:
        """Note a member of a sink. Only `replay` calls this."""
        name = coordinator_key(transactional_id)
        if transactional_id not in (members := self.member_ids(name)):
            self._members.put(name, members | {transactional_id})

    def remove_member(self, transactional_id: str) -> None:
        """Remove a member of a sink. Only `replay` calls this."""
        name = coordinator_key(transactional_id)
        left = self.member_ids(name) - {transactional_id}
        if left:
            self._members.put(name, left)
        else:
            self._members.remove(name)
