"""Rebalance of a classic group, from one generation to the next, and its timers.

A rebalance begins (`begin`); members join and are parked (`park_join`). When all have joined, or time is up, the join
phase ends (`end_join_phase`): a generation is formed, and its leader computes the assignment. `decisions.decide_sync`
hands it out.

| timer | armed | ends |
| --- | --- | --- |
| session, member | with each request that counts as a heartbeat, and with its answer | its membership |
| session, new id | with MEMBER_ID_REQUIRED | the id |
| join, group | when a rebalance begins | the join phase |
| sync, group | when the join phase ends | the membership of those that did not ask for their part |

Once a decision that arms or cancels a timer is staged, the timer armed before it under the same key is void
(`ArmTimer`). Members have the whole delay from the answer on. The operation of a timer also checks that its reason
still holds. A generation number never belongs to two rebalances, so it is the reason for the timers of a group.

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

# Draft of a group during one operation


class GroupDraft:
    """New value of the group, with the effects and events of the change. Lives for one decision; nothing outside is
    changed."""

    def __init__(self, group: ClassicGroup, turn: Turn, config: GroupConfig) -> None:
        self.group = group
        self.now_ms = turn.now_ms
        self.turn = turn
        self.config = config
        self.is_stored = False
        """True if the new value must survive a restart. Otherwise the stored value still applies."""
        self.records: list[Record] = []
        """Records that precede the group's own."""
        self.effects: list[Effect] = []
        self.events: list[object] = []
        self._before = group

    def decision(self, reply: object = None, *, cause: str) -> Decision:
        """Return everything gathered so far as a decision."""
        records = [*self.records]
        if self.is_stored or self.group is not self._before or records:
            changed = ClassicGroupChanged(self.group, is_stored=self.is_stored)
            records.append(Record(self.group.shard, changed, cause))
        return Decision(reply, tuple(records), effects=tuple(self.effects), events=tuple(self.events))

    def refuse(self, ticket: int, refusal: Refused) -> None:
        self.effects.append(Answer(ticket, refusal=refusal))

    def tell_members(self) -> None:
        """Let the waiting heartbeats of the group look again."""
        self.effects.append(GroupNews(self.group.group_id))

    def remove(self, member_ids: list[str], reason: LeaveReason) -> None:
        """Remove these members or handed-out ids, and refuse their parked calls.

        Waiting heartbeats learn of it from the rebalance that follows.
        """
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
    """Begin a rebalance: every member must join again.

    A group that was Empty waits for more members to come. Any other ends the join phase as soon as all have joined.
    """
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
        # While its call waited, the end of its session was ignored, and its timer may be gone.
        draft.effects.append(session_timer(group, group.members[member_id]))
    members = {member_id: replace(member, assignment=b"") for member_id, member in group.members.items()}
    draft.group = replace(group, members=members, parked_syncs={})
    draft.events.append(RebalanceFailed(group.group_id, group.kind))


def begin_or_go_on(draft: GroupDraft, why: str) -> None:
    """Begin a rebalance, or go on with the current one, after a member joined or changed."""
    if draft.group.state is not ClassicState.PREPARING_REBALANCE:
        begin(draft, why)
    else:
        end_join_phase_if_all_joined(draft)


def end_join_phase_if_all_joined(draft: GroupDraft) -> None:
    """End the join phase if all have joined, but never in an initial rebalance: joins and leaves must not cut its wait
    short."""
    group = draft.group
    is_joining = group.state is ClassicState.PREPARING_REBALANCE
    if is_joining and group.initial is None and group.have_all_joined:
        end_join_phase(draft)


def end_join_phase(draft: GroupDraft) -> None:
    """Form the next generation. Its members are all that joined, and absent static members, which keep their place."""
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
        # All remaining members are static and absent, so none can lead until they come back or their sessions end.
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
    """Park the member's JoinGroup until the join phase ends. An older parked one of the same member is refused, because
    its caller has moved on."""
    group = draft.group
    if member_id in group.parked_joins:
        again = rebalancing(group)
        draft.refuse(group.parked_joins[member_id], JoinRefused(again.code, again.message, member_id))
    draft.group = replace(group, parked_joins={**group.parked_joins, member_id: ticket})


def after_leaving(draft: GroupDraft, why: str) -> None:
    """Rebalance after members left or were removed."""
    if draft.group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        begin(draft, why)
    else:
        end_join_phase_if_all_joined(draft)


# Answers


def joined(group: ClassicGroup, member_id: str, *, has_members: bool) -> Joined:
    """Return the generation, as reported to one member."""
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
    """Return all members, as reported to the leader."""
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    )


def rebalancing(group: ClassicGroup) -> Refused:
    """Return the refusal for a member that must join again."""
    return Refused(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id!a} is rebalancing; join again")


def rebalance_completed(before: ClassicGroup, draft: GroupDraft) -> RebalanceCompleted:
    """Return the event of a completed rebalance. `before` is the group during the rebalance."""
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
    """Return the session timer of a member, to be armed again.

    A member that waits for its first answer cannot send heartbeats, so we cannot tell if it is gone. It gets a long
    fixed time; after that we expect it to try again.
    """
    delay_ms = NEW_MEMBER_JOIN_TIMEOUT_MS if member.is_new else member.session_timeout_ms
    return id_timer(group, member.member_id, delay_ms)


def id_timer(group: ClassicGroup, member_id: str, delay_ms: int) -> ArmTimer:
    """Return the session timer of a member, or of an id that was handed out and may become one."""
    end = Operation(group.shard, partial(decide_session_end, group_id=group.group_id, member_id=member_id))
    return ArmTimer(session_key(group.group_id, member_id), delay_ms, end, since_answer=True)


def join_timer(group: ClassicGroup, delay_ms: int) -> ArmTimer:
    """Return the timer that ends the join phase even if members are missing.

    Members have the whole time from the answer on. An initial rebalance has no earlier members, so its timer starts at
    once.
    """
    end = Operation(
        group.shard, partial(decide_join_phase_end, group_id=group.group_id, generation_id=group.generation_id)
    )
    return ArmTimer(("join", group.group_id), delay_ms, end, since_answer=group.initial is None)


def _join_timer_cancelled(group: ClassicGroup) -> CancelTimer:
    """Return the effect that cancels the timer of the join phase."""
    return CancelTimer(("join", group.group_id))


def _sync_timer(group: ClassicGroup) -> ArmTimer:
    end = partial(decide_sync_phase_end, group_id=group.group_id, generation_id=group.generation_id)
    return ArmTimer(
        ("sync", group.group_id), group.rebalance_timeout_ms, Operation(group.shard, end), since_answer=True
    )


def sync_timer_cancelled(group: ClassicGroup) -> CancelTimer:
    """Return the effect that cancels the timer of the sync phase."""
    return CancelTimer(("sync", group.group_id))


def phase_timers_cancelled(group: ClassicGroup) -> tuple[CancelTimer, ...]:
    """Return the effects that cancel both timers, for a rebalance that an upgrade of the group ends."""
    return _join_timer_cancelled(group), sync_timer_cancelled(group)


# Decisions of timers


def decide_session_end(shard: GroupShard, turn: Turn, *, group_id: str, member_id: str) -> Decision:
    """End the session of a silent member, or drop an id that no client joined with.

    A parked call proves that its member lives, except for its first call, which proves nothing. Unlike a leave, the end
    of a session may end the wait of an initial rebalance.
    """
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
    """End the join phase, although members may be missing. An initial rebalance waits again if a member came during the
    wait, as far as the rebalance timeout allows."""
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
    """Remove the members that have not asked for their part of the assignment by now, static ones too."""
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
