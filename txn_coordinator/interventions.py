"""Decisions of a shard on a transaction at the request of an administrator, and not of its producer.

Like all decisions of a shard, each changes nothing and returns a Decision. An abort goes through `Outcomes.decide`, as
the end of every transaction does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_runtime.decision import Decision, Record, ShardKey, Turn
from txn_coordinator.counters import CountersShard
from txn_coordinator.outcomes import Outcomes
from txn_coordinator.records import TransactionChanged, TransactionStepped
from txn_coordinator.rules import administering, ending, initialising
from txn_coordinator.rules.administering import Acted, Asked, FenceBegun
from txn_coordinator.rules.ending import by_server
from txn_coordinator.state import Transaction, TransactionState

ADMIN_CAUSE: Final = "admin"
"""Cause of an abort that an administrator requested."""


class Interventions:
    """Decisions on the ids of one shard, at the request of administrators."""

    def __init__(
        self,
        key: ShardKey,
        readable: Callable[[str], Transaction | None],
        outcomes: Outcomes,
        counters: CountersShard,
        limits: Limits,
    ) -> None:
        self._key = key
        self._readable = readable
        """Returns the transaction of an id in live state; None if there is none. Raises Refused if only a newer program
        can read it."""
        self._outcomes = outcomes
        self._counters = counters
        self._limits = limits

    def decide_abort(self, transactional_id: str, asked: Asked, turn: Turn) -> Decision:
        """Abort the open transaction; also one that awaits an outside decision, if `asked` allows that. The reply is
        Acted."""
        current = self._meant(transactional_id, asked, turn)
        administering.check_open(current)
        if asked.dry_run:
            return Decision(reply=Acted.to(current))
        return self._outcomes.decide(current, by_server(ADMIN_CAUSE), turn, reply=Acted.to(current))

    def decide_fence(
        self, transactional_id: str, asked: Asked, turn: Turn, *, may_abort_and_fence: bool, begun: Acted | None = None
    ) -> Decision:
        """Raise the epoch of an id without giving it to a client: its holder is fenced, and the stored timeout stays.

        An open transaction is aborted first, as for InitProducerId. The reply is Acted, or FenceBegun if only the abort
        was done.
        """
        current = self._meant(transactional_id, asked, turn)
        acted = Acted.to(current) if begun is None else begun
        if asked.dry_run:
            return Decision(reply=acted)
        ending.check_not_decided(current)
        if current.state is TransactionState.ONGOING:
            again = administering.fence_operation(
                self._key, transactional_id, replace(asked, older_than_ms=None), begun=acted
            )
            then = (again,) if may_abort_and_fence else ()
            return self._outcomes.decide(current, by_server(ADMIN_CAUSE), turn, reply=FenceBegun(acted), then=then)
        given: list[Record] = []
        fenced = initialising.fence(
            current, now_ms=turn.now_ms, limits=self._limits, allocate=partial(self._counters.next_producer_id, given)
        )
        return Decision(
            reply=acted,
            records=(*given, Record(self._key, TransactionChanged(fenced), cause=fenced.cause)),
            events=(TransactionStepped(current, fenced),),
        )

    def _meant(self, transactional_id: str, asked: Asked, turn: Turn) -> Transaction:
        current = self._readable(transactional_id)
        if current is None:
            raise Refused(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!a:.300} is not known"
            )
        administering.check_promise(current, may_break=asked.may_break_promise)
        if asked.older_than_ms is not None:
            administering.check_open_longer(current, asked.older_than_ms, now_ms=turn.now_ms)
        return current
