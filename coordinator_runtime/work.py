"""The work of one operation: its decision, and those of its joins and attempts, performed on the live state."""

from __future__ import annotations

from itertools import repeat

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Effect, Operation, Record, ShardKey, Turn
from coordinator_runtime.shard_table import ShardTable
from coordinator_runtime.timeline import Journal


class Work(Struct, eq=False):
    """Records, effects and events of an operation with all its joins and attempts, in the order in which they were
    decided.

    If `perform` is refused, the caller that began the work rolls the journal back."""

    table: ShardTable
    journal: Journal
    turn: Turn
    can_park: bool = False
    """True if the caller may be made to wait."""
    # msgspec gives every instance its own copy of these empty lists.
    records: list[Record] = []
    events: list[object] = []
    effects: list[tuple[Effect, ShardKey]] = []
    """Effects, each with the shard that wants it."""
    asked: list[ShardKey] = []
    """Shards asked so far, in order: the last one is deciding, or is the one that refused. Shards changed by a refused
    attempt are added."""

    def perform(self, operation: Operation, *, is_joined: bool = False) -> object:
        """Decide, replay, join and try; return the reply. Raises Refused. `is_joined`: part of an operation on another
        shard."""
        key, served = operation.shard, self.table.served
        shard = served.get(key)
        if shard is None:
            raise self.table.refusal(key, is_joined=is_joined)
        self.asked.append(key)
        decision = operation.decide(shard, self.turn)
        if decision.records:
            for record in decision.records:
                served[record.shard].replay(record.value)
            self.records += decision.records
        if decision.events:
            self.events += decision.events
        if decision.effects:
            self.effects += zip(decision.effects, repeat(key))
        if not decision.joins and not decision.attempts and decision.combine is None:
            return decision.reply
        replies = []
        for join in decision.joins:
            replies.append(self.perform(join, is_joined=True))  # noqa: PERF401  a comprehension costs a function call
        if decision.attempts:
            replies += map(self._try, decision.attempts)
        if decision.combine is not None:
            return decision.combine(replies)
        for reply in reversed(replies):
            if reply is not None:
                return reply
        return decision.reply

    @property
    def shards(self) -> set[ShardKey]:
        """Shards whose state was read or changed."""
        return {*self.asked, *[record.shard for record in self.records]}

    def must_wait(self, refusal: Refused) -> bool:
        """Return True if the call met a transaction that is being completed, and may wait for its end."""
        return self.can_park and refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS

    def _try(self, attempt: Operation) -> object:
        """Return the reply, or the refusal. A refused attempt leaves no change behind."""
        position = self.journal.position()
        records, events, effects = len(self.records), len(self.events), len(self.effects)
        try:
            return self.perform(attempt)
        except Refused as refusal:
            if self.must_wait(refusal):
                raise
            self.journal.roll_back(position)
            self.asked += [record.shard for record in self.records[records:]]
            del self.records[records:], self.events[events:], self.effects[effects:]
            return refusal
