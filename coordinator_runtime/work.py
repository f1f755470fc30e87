"""One operation being performed: what it and everything that it joins and tries has gathered so far."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Effect, LeanJoin, Operation, Record, ShardKey, Turn
from coordinator_runtime.shard_table import ShardTable
from coordinator_runtime.timeline import Journal


class Work(Struct, eq=False):
    """Records, effects and events in the order in which they were decided. Whoever began the work takes it back in the
    journal when `perform` is refused."""

    table: ShardTable
    journal: Journal
    turn: Turn
    can_park: bool = False
    """The caller may be made to wait."""
    records: list[Record] = []
    events: list[object] = []
    effects: list[tuple[Effect, ShardKey]] = []
    """Each with the shard that wants it."""
    asked: list[ShardKey] = []
    """Every shard that decided, in order: the last one decides at the moment, and refused if somebody did."""

    def perform(self, operation: Operation, *, is_joined: bool = False) -> object:
        """Decide, replay, join and try. Gives the reply. Raises Refused. `is_joined`: for somebody on another shard."""
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
            assert not decision.lean_joins, "their replies are combined"
            return decision.reply
        replies = self._join_lean(decision.lean_joins) if decision.lean_joins else []
        for join in decision.joins:
            replies.append(self.perform(join, is_joined=True))
        if decision.attempts:
            replies += map(self._try, decision.attempts)
        if decision.combine is not None:
            return decision.combine(replies)
        for reply in reversed(replies):
            if reply is not None:
                return reply
        return decision.reply

    def _join_lean(self, joins: Sequence[LeanJoin]) -> list[object]:
        """Decide and replay one after the other. Gives their replies. Raises Refused."""
        served, turn, records = self.table.served, self.turn, self.records
        replies, events = [], []
        try:
            for join in joins:
                key = join.shard
                shard = served.get(key)
                if shard is None:
                    raise self.table.refusal(key, is_joined=True)
                reply, value, event = join.decide(shard, turn)
                shard.replay(value)
                records.append(Record(key, value))
                events.append(event)
                replies.append(reply)
        except Refused:
            # Those that went well tell by their records who was asked.
            self.asked += [join.shard for join in joins[: len(replies) + 1]]
            raise
        self.events.append(events)
        return replies

    @property
    def shards(self) -> set[ShardKey]:
        """The shards whose state was looked at or changed."""
        return {*self.asked, *[record.shard for record in self.records]}

    def must_wait(self, refusal: Refused) -> bool:
        """True when the call met a transaction being completed, and waits for its end."""
        return self.can_park and refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS

    def _try(self, attempt: Operation) -> object:
        """The reply, or the refusal; then the attempt has left nothing behind."""
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
