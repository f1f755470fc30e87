"""A classic group while one operation works on it."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Answer, CancelTimer, Decision, Effect, Record, Turn
from group_coordinator.classic.requests import JoinRefused
from group_coordinator.classic.state import ClassicGroup, ClassicGroupChanged, session_key, without_members
from group_coordinator.config import GroupConfig
from group_coordinator.effects import GroupNews
from group_coordinator.events import LeaveReason, MemberLeft


class GroupDraft:
    """What the group will be, and what must happen with it. Lives for one decision; nothing is changed outside."""

    def __init__(self, group: ClassicGroup, turn: Turn, config: GroupConfig) -> None:
        self.group = group
        self.now_ms = turn.now_ms
        self.turn = turn
        self.config = config
        self.is_stored = False
        """The group must survive a restart as it is now; otherwise what is stored still stands."""
        self.records: list[Record] = []
        """Those that come before the group's own."""
        self.effects: list[Effect] = []
        self.events: list[object] = []
        self._before = group

    def decision(self, reply: object = None, *, cause: str) -> Decision:
        """All of it."""
        records = [*self.records]
        if self.is_stored or self.group is not self._before or records:
            changed = ClassicGroupChanged(self.group, is_stored=self.is_stored)
            records.append(Record(self.group.shard, changed, cause))
        return Decision(reply, tuple(records), effects=tuple(self.effects), events=tuple(self.events))

    def answer(self, ticket: int, reply: object) -> None:
        self.effects.append(Answer(ticket, reply))

    def refuse(self, ticket: int, refusal: Refused) -> None:
        self.effects.append(Answer(ticket, refusal=refusal))

    def tell_members(self) -> None:
        """Heartbeats that wait look again."""
        self.effects.append(GroupNews(self.group.group_id))

    def remove(self, member_ids: list[str], reason: LeaveReason) -> None:
        """They are members no more, or cannot become it any more; calls of theirs that wait are told so.
        Heartbeats that wait hear of the rebalance that follows."""
        group = self.group
        for member_id in member_ids:
            self.effects.append(CancelTimer(session_key(group.group_id, member_id)))
            gone = JoinRefused(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"member {member_id!a:.120} of group {group.group_id!a} was removed ({reason}); join again with an "
                "empty member id",
            )
            for parked in (group.parked_joins, group.parked_syncs):
                if member_id in parked:
                    self.refuse(parked[member_id], gone)
            if member_id in group.members:
                self.events.append(MemberLeft(group.group_id, group.kind, member_id, reason))
        if member_ids:
            self.group = without_members(group, member_ids)
