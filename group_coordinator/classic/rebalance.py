"""How a classic group gets from one generation to the next, and the timers that keep it going.

A rebalance begins (`begin`), members join and are parked (`park_join`), and when all have, or time is up, the join
phase ends (`end_join_phase`): a generation is formed, its leader computes the assignment, and `decisions.decide_sync`
hands it out.

| timer | armed | ends |
| --- | --- | --- |
| session, member | whenever something is heard of it, and when it is answered | its membership |
| session, new id | with MEMBER_ID_REQUIRED | the id |
| join, group | when a rebalance begins | the join phase |
| sync, group | when the join phase ends | the membership of those that did not ask for their part |

A staged decision makes void what was armed before it (`ArmTimer`), and members have the whole delay from the answer on.
Every timer's operation checks besides whether its reason still stands. A generation number never names two rebalances,
so it is the reason of the timers of a group.

Source: spec groups 2.3, 2.4.7, 2.5, 2.6.3, 2.10.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Answer, ArmTimer, CancelTimer, Decision, Effect, Operation, Record, Turn
from group_coordinator.classic.requests import Joined, JoinedMember, JoinRefused
from group_coordinator.classic.state import (
    ClassicGroup,
    ClassicGroupChanged,
    ClassicMember,
    ClassicState,
    InitialRebalance,
    generation_subscriptions,
    session_key,
    step,
    without_members,
)
from group_coordinator.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from group_coordinator.events import (
    GroupNews,
    LeaveReason,
    MemberLeft,
    RebalanceCompleted,
    RebalanceFailed,
    RebalanceStarted,
)
from group_coordinator.shard import GroupShard

# The group while one operation works on it


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
        """Records that come before the group's own."""
        self.effects: list[Effect] = []
        self.events: list[object] = []
        self._before = group

    def decision(self, reply: object = None, *, cause: str) -> Decision:
        """Return the decision: all that the draft has gathered."""
        records = [*self.records]
        if self.is_stored or self.group is not self._before or records:
            changed = ClassicGroupChanged(self.group, is_stored=self.is_stored)
            records.append(Record(self.group.shard, changed, cause))
        return Decision(reply, tuple(records), effects=tuple(self.effects), events=tuple(self.events))

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
        self.group = without_members(group, member_ids)


# Phases


def begin(draft: GroupDraft, why: str) -> None:
    """Every member must join again. The group of one that was Empty waits for more to come; any other ends the join
    phase as soon as all have joined."""
    group, config = draft.group, draft.config
    if group.state is ClassicState.EMPTY:
        delay_ms = config.initial_rebalance_delay_ms
        initial = InitialRebalance(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        draft.group = step(
            group, ClassicState.PREPARING_REBALANCE, draft.now_ms, initial=initial, rebalance_started_ms=draft.now_ms
        )
        draft.effects.append(join_timer(draft.group, delay_ms))
        draft.events.append(RebalanceStarted(group.group_id, group.kind, why))
        return
    if group.state is ClassicState.COMPLETING_REBALANCE:
        _give_up_assignment(draft)
    draft.effects.append(sync_timer_cancelled(group))
    draft.group = step(
        draft.group,
        ClassicState.PREPARING_REBALANCE,
        draft.now_ms,
        unsynced=frozenset(),
        rebalance_started_ms=draft.now_ms,
    )
    draft.events.append(RebalanceStarted(group.group_id, group.kind, why))
    draft.tell_members()
    if draft.group.have_all_joined:
        end_join_phase(draft)
    else:
        draft.effects.append(join_timer(draft.group, draft.group.rebalance_timeout_ms))


def _give_up_assignment(draft: GroupDraft) -> None:
    group = draft.group
    refusal = rebalancing(group)
    for member_id, ticket in group.parked_syncs.items():
        draft.refuse(ticket, refusal)
        # While its call waited, the member's silence was not held against it, and its timer may be gone.
        draft.effects.append(session_timer(group, group.members[member_id]))
    members = {member_id: replace(member, assignment=b"") for member_id, member in group.members.items()}
    draft.group = replace(group, members=members, parked_syncs={})
    draft.events.append(RebalanceFailed(group.group_id, group.kind))


def begin_or_go_on(draft: GroupDraft, why: str) -> None:
    """A member joined, or changed in a way that concerns the others."""
    if draft.group.state is not ClassicState.PREPARING_REBALANCE:
        begin(draft, why)
    else:
        end_join_phase_if_all_joined(draft)


def end_join_phase_if_all_joined(draft: GroupDraft) -> None:
    """Nobody who joins or leaves cuts the wait of an initial rebalance short."""
    group = draft.group
    is_joining = group.state is ClassicState.PREPARING_REBALANCE
    if is_joining and group.initial is None and group.have_all_joined:
        end_join_phase(draft)


def end_join_phase(draft: GroupDraft) -> None:
    """Form the next generation of those who joined, and of static members, who keep their place while they are away."""
    draft.effects.append(_join_timer_cancelled(draft.group))
    absent = [
        member_id
        for member_id, member in draft.group.members.items()
        if member.instance_id is None and member_id not in draft.group.parked_joins
    ]
    if absent:
        draft.remove(absent, LeaveReason.REBALANCE)
    group = draft.group
    if not group.members:
        _become_empty(draft)
        return
    leader = group.leader
    if leader not in group.parked_joins:
        leader = next((member_id for member_id in group.members if member_id in group.parked_joins), None)
    if leader is None:
        # All that are left are static and away. They come back, or their sessions end; until then nobody could lead.
        draft.group = replace(group, initial=None)
        draft.effects.append(join_timer(group, group.rebalance_timeout_ms))
        return
    _form_generation(draft, leader)


def _become_empty(draft: GroupDraft) -> None:
    group = draft.group
    completed = step(
        group,
        ClassicState.EMPTY,
        draft.now_ms,
        generation_id=group.generation_id + 1,
        protocol_name=None,
        leader=None,
        initial=None,
        rebalance_started_ms=None,
    )
    draft.group = replace(completed, subscriptions=generation_subscriptions(completed))
    draft.is_stored = True
    draft.events.append(rebalance_completed(group, draft))


def _form_generation(draft: GroupDraft, leader: str) -> None:
    tickets = draft.group.parked_joins
    elected = replace(draft.group, leader=leader)
    formed = step(
        elected,
        ClassicState.COMPLETING_REBALANCE,
        draft.now_ms,
        generation_id=elected.generation_id + 1,
        protocol_name=elected.elect_protocol(),
        members={
            member_id: replace(member, is_new=False) if member.is_new else member
            for member_id, member in elected.members.items()
        },
        parked_joins={},
        unsynced=frozenset(elected.members),
        initial=None,
    )
    group = draft.group = replace(formed, subscriptions=generation_subscriptions(formed))
    for member_id, ticket in tickets.items():
        draft.effects.append(Answer(ticket, joined(group, member_id, has_members=member_id == leader)))
    for member in group.members.values():
        draft.effects.append(session_timer(group, member))
    draft.effects.append(_sync_timer(group))


def park_join(draft: GroupDraft, member_id: str, ticket: int) -> None:
    """The member's JoinGroup waits for the end of the join phase. An older one of the same member is answered: its
    caller has moved on."""
    group = draft.group
    if member_id in group.parked_joins:
        again = rebalancing(group)
        draft.refuse(group.parked_joins[member_id], JoinRefused(again.code, again.message, member_id))
    draft.group = replace(group, parked_joins={**group.parked_joins, member_id: ticket})


def after_leaving(draft: GroupDraft, why: str) -> None:
    """Somebody left by itself or was taken out: the others share what it had."""
    if draft.group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        begin(draft, why)
    else:
        end_join_phase_if_all_joined(draft)


# Answers


def joined(group: ClassicGroup, member_id: str, *, has_members: bool) -> Joined:
    """The generation, as one member is told of it."""
    assert group.protocol_name is not None, "a generation with members agreed on a protocol"
    return Joined(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member_id,
        members=joined_members(group) if has_members else (),
    )


def joined_members(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """All members, as the leader must know them."""
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    )


def rebalancing(group: ClassicGroup) -> Refused:
    """What a member is told that must join again."""
    return Refused(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!a} is rebalancing; join again")


def rebalance_completed(before: ClassicGroup, draft: GroupDraft) -> RebalanceCompleted:
    """`before`: the group while the rebalance was under way."""
    started_ms = draft.now_ms if before.rebalance_started_ms is None else before.rebalance_started_ms
    return RebalanceCompleted(
        before.group_id,
        before.kind,
        draft.group.generation_id,
        len(draft.group.members),
        max(0, draft.now_ms - started_ms),
    )


# Timers


def session_timer(group: ClassicGroup, member: ClassicMember) -> ArmTimer:
    """Something was heard of the member. One that waits for its first answer cannot send heartbeats, and we cannot see
    whether it is gone: it gets a long fixed time, after which we expect it to try again."""
    delay_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
    return id_timer(group, member.member_id, delay_ms)


def id_timer(group: ClassicGroup, member_id: str, delay_ms: int) -> ArmTimer:
    """Session timer of a member, or of an id that was given away and may become one."""
    end = Operation(group.shard, partial(decide_session_end, group_id=group.group_id, member_id=member_id))
    return ArmTimer(session_key(group.group_id, member_id), delay_ms, end, since_answer=True)


def join_timer(group: ClassicGroup, delay_ms: int) -> ArmTimer:
    """The join phase ends, also for members that have not joined. Members that must hear of it first have the whole
    time from then on; in an initial rebalance there are none."""
    end = Operation(
        group.shard, partial(decide_join_phase_end, group_id=group.group_id, generation_id=group.generation_id)
    )
    return ArmTimer(("join", group.group_id), delay_ms, end, since_answer=group.initial is None)


def _join_timer_cancelled(group: ClassicGroup) -> CancelTimer:
    """The join phase is over."""
    return CancelTimer(("join", group.group_id))


def _sync_timer(group: ClassicGroup) -> ArmTimer:
    end = partial(decide_sync_phase_end, group_id=group.group_id, generation_id=group.generation_id)
    return ArmTimer(
        ("sync", group.group_id), group.rebalance_timeout_ms, Operation(group.shard, end), since_answer=True
    )


def sync_timer_cancelled(group: ClassicGroup) -> CancelTimer:
    """Everybody has asked for its part."""
    return CancelTimer(("sync", group.group_id))


def phase_timers_cancelled(group: ClassicGroup) -> tuple[CancelTimer, ...]:
    """No rebalance of the group is under way any more, for a reason that lies outside."""
    return _join_timer_cancelled(group), sync_timer_cancelled(group)


# What timers do


def decide_session_end(shard: GroupShard, turn: Turn, *, group_id: str, member_id: str) -> Decision:
    """Nothing was heard of a member for too long, or nobody joined with an id that was given away. A call that waits
    proves that its member lives, unless it is its first: then we do not know.

    Unlike somebody who leaves, one who is missed may end the wait of an initial rebalance."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        return Decision()
    member = group.members.get(member_id)
    if member is None and member_id not in group.given_ids:
        return Decision()
    if member is not None and not member.is_new and group.is_parked(member_id):
        return Decision()
    draft = GroupDraft(group, turn, shard.config)
    draft.remove([member_id], LeaveReason.SESSION)
    if group.state is ClassicState.PREPARING_REBALANCE:
        if draft.group.have_all_joined:
            end_join_phase(draft)
    elif member is not None:
        begin(draft, "the session of a member ended")
    return draft.decision(cause="session ended")


def decide_join_phase_end(shard: GroupShard, turn: Turn, *, group_id: str, generation_id: int) -> Decision:
    """Time is up for those who have not joined. An initial rebalance waits once more if somebody came while it waited,
    as long as the rebalance timeout allows."""
    group = shard.groups.get(group_id)
    if (
        not isinstance(group, ClassicGroup)
        or group.generation_id != generation_id
        or group.state is not ClassicState.PREPARING_REBALANCE
    ):
        return Decision()
    draft = GroupDraft(group, turn, shard.config)
    initial = group.initial
    if initial is not None and initial.has_newcomers and initial.remaining_ms > 0:
        window_ms = min(shard.config.initial_rebalance_delay_ms, initial.remaining_ms)
        remaining_ms = max(initial.remaining_ms - initial.window_ms, 0)
        draft.group = replace(group, initial=InitialRebalance(window_ms, remaining_ms))
        draft.effects.append(join_timer(draft.group, window_ms))
    else:
        end_join_phase(draft)
    return draft.decision(cause="join phase ended")


def decide_sync_phase_end(shard: GroupShard, turn: Turn, *, group_id: str, generation_id: int) -> Decision:
    """Members that have not asked for their part of the assignment by now are taken for lost, static ones too."""
    group = shard.groups.get(group_id)
    if (
        not isinstance(group, ClassicGroup)
        or group.generation_id != generation_id
        or group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
        or not group.unsynced
    ):
        return Decision()
    draft = GroupDraft(group, turn, shard.config)
    draft.remove(sorted(group.unsynced), LeaveReason.SYNC)
    begin(draft, "members did not ask for their assignment")
    return draft.decision(cause="sync phase ended")
