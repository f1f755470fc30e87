"""One operation being performed: what it and everything that it joins and tries has gathered so far."""

from __future__ import annotations

from typing import Any

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Effect, Operation, Record, ShardKey, Turn
from coordinator_runtime.shard_table import ShardTable
from coordinator_runtime.timeline import Journal


class Work:
    """Records, effects and events in the order in which they were decided. Whoever began the work takes it back in the
    journal when `perform` is refused."""

    __slots__ = ("_can_park", "_journal", "_table", "asked", "effects", "events", "records", "reply", "shards", "turn")

    def __init__(
        self, table: ShardTable, journal: Journal, turn: Turn, asked: ShardKey, *, can_park: bool = False
    ) -> None:
        self._table = table
        self._journal = journal
        self.turn = turn
        self._can_park = can_park
        self.asked = asked
        """The shard that decides at the moment, and that refused if somebody did."""
        self.records: list[Record] = []
        self.events: list[object] = []
        self.effects: list[tuple[Effect, ShardKey]] = []
        """Each with the shard that wants it."""
        self.shards: set[ShardKey] = set()
        """Whose state was looked at or changed."""
        self.reply: Any = None

    def perform(self, operation: Operation, *, is_joined: bool = False) -> object:
        """Decide, replay, join and try. Gives the reply. Raises Refused. `is_joined`: for somebody on another shard."""
        key, served = operation.shard, self._table.served
        shard = served.get(key)
        if shard is None:
            raise self._table.refusal(key, is_joined=is_joined)
        self.asked = key
        self.shards.add(key)
        decision = operation.decide(shard, self.turn)
        for record in decision.records:
            served[record.shard].replay(record.value)
            self.shards.add(record.shard)
        self.records += decision.records
        self.events += decision.events
        for effect in decision.effects:
            self.effects.append((effect, key))
        if not decision.joins and not decision.attempts and decision.combine is None:
            return decision.reply
        replies = [self.perform(join, is_joined=True) for join in decision.joins]
        if decision.attempts:
            replies += [self._try(attempt) for attempt in decision.attempts]
        if decision.combine is not None:
            return decision.combine(replies)
        for reply in reversed(replies):
            if reply is not None:
                return reply
        return decision.reply

    def must_wait(self, refusal: Refused) -> bool:
        """True when the call met a transaction being completed, and waits for its end."""
        return self._can_park and refusal.code is ErrorCode.CONCURRENT_TRANSACTIONS

    def _try(self, attempt: Operation) -> object:
        """The reply, or the refusal; then the attempt has left nothing behind."""
        position = self._journal.position()
        records, events, effects = len(self.records), len(self.events), len(self.effects)
        try:
            return self.perform(attempt)
        except Refused as refusal:
            if self.must_wait(refusal):
                raise
            self._journal.roll_back(position)
            del self.records[records:], self.events[events:], self.effects[effects:]
            return refusal
