"""Rules of consumer groups: pure checks, and the steps of a member towards its target.

A partition is given to a member only if no other member holds it. A member that must revoke a partition holds it until
it confirms the revocation, or is gone. So a partition never has two owners (spec groups 3.6).

Source: KIP-848, KIP-1251, spec groups 3.2, 3.6, 3.7, 4.2 to 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.assignors.values import Share
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import Committer
from group_coordinator.consumer.requests import HeartbeatRequest
from group_coordinator.consumer.state import (
    AWAY_EPOCH,
    NONE_OF_TOPIC,
    ConsumerMember,
    CurrentAssignment,
    GroupState,
    Held,
    Owned,
)
from group_coordinator.epoch_group import is_settled
from group_coordinator.members import JOIN_EPOCH, Epochs, MemberState, check_beat, check_not_blank, invalid_heartbeat
from group_coordinator.state import PartitionKey

_GONE_FOR_A_MOMENT: Final = "the static member said that it goes for a moment"


def group_state(epochs: Epochs, assignments: Iterable[CurrentAssignment]) -> GroupState:
    """Return the state of a group. Source: spec groups 3.1."""
    members = list(assignments)
    return counted_group_state(epochs, len(members), sum(is_settled(each, epochs) for each in members))


def counted_group_state(epochs: Epochs, members: int, settled: int) -> GroupState:
    """Return the state of a group from the number of its members, and of those that are settled."""
    if not members:
        return GroupState.EMPTY
    if epochs.group_epoch > epochs.assignment_epoch:
        return GroupState.ASSIGNING
    return GroupState.STABLE if settled == members else GroupState.RECONCILING


# Checks of callers


def check_heartbeat(request: HeartbeatRequest, assignors: Collection[str]) -> None:
    """Raise Refused unless this is a valid heartbeat: INVALID_GROUP_ID, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION,
    UNSUPPORTED_ASSIGNOR (spec groups 3.2)."""
    check_beat(
        request,
        (
            ("instance_id", request.instance_id),
            ("subscribed_topic_regex", request.subscribed_topic_regex),
            ("server_assignor", request.server_assignor),
        ),
    )
    check_not_blank("instance_id", request.instance_id)
    if request.member_epoch < AWAY_EPOCH:
        raise invalid_heartbeat(
            f"member_epoch is {request.member_epoch}: 0 joins, -1 leaves, -2 is a static member's leave"
        )
    if request.member_epoch == AWAY_EPOCH and request.instance_id is None:
        raise invalid_heartbeat("member_epoch -2 is for static members: send the instance_id, or -1 to leave")
    if request.rebalance_timeout_ms is not None and request.rebalance_timeout_ms < 0:
        raise invalid_heartbeat(f"rebalance_timeout_ms is {request.rebalance_timeout_ms}; it must not be negative")
    if request.is_join:
        _check_join(request)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {request.server_assignor!a:.80}; choose one of {', '.join(assignors)}",
        )


def _check_join(request: HeartbeatRequest) -> None:
    if request.rebalance_timeout_ms is None:
        raise invalid_heartbeat("who joins must say its rebalance_timeout_ms")
    if not request.names_subscription:
        raise invalid_heartbeat(
            "who joins must subscribe: send subscribed_topic_names, which may be empty, or a pattern"
        )
    if request.owned is None or request.owned:
        raise invalid_heartbeat(
            "who joins owns nothing: send topic_partitions without any; give up what there is first"
        )


def fenced_instance(instance_id: str) -> Refused:
    """Return the refusal for a caller whose instance id now belongs to another member."""
    return Refused(
        ErrorCode.FENCED_INSTANCE_ID,
        f"the static member {instance_id!a:.80} was taken over by another process; stop this one",
    )


def check_epoch(current: CurrentAssignment, member_epoch: int, owned: Owned | None, *, crosses: bool = False) -> None:
    """Raise Refused FENCED_MEMBER_EPOCH unless the member may go on with this epoch (spec groups 3.6, 3.7).

    The previous epoch is accepted from a member that missed one reply, if it owns only partitions assigned to it. With
    `crosses` the member cannot know its epoch yet, so it need not send its owned partitions. A member in a state that
    only a newer server knows must show that it owns nothing.
    """
    stored = current.member_epoch
    if current.state is MemberState.UNKNOWN and (owned is None or owned):
        # As in Kafka's CurrentAssignmentBuilder: the next step of such a member is not known here.
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "the member is stored in a state that only a newer server knows, and does not show that it owns nothing: "
            "give up all partitions and join again with epoch 0",
        )
    if member_epoch in {stored, JOIN_EPOCH}:
        return
    if stored == AWAY_EPOCH:
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH, f"{_GONE_FOR_A_MOMENT}: give up all partitions and join again with epoch 0"
        )
    if member_epoch == current.previous_member_epoch and member_epoch < stored and (crosses or owned is not None):
        if owned is None or _is_within(owned, current.assigned):
            return
        why = "and owns partitions that are not assigned to it"
    else:
        why = "which is ahead of that" if member_epoch > stored else "which is too long ago"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"the member is at epoch {stored} and says it is at {member_epoch}, {why}: give up all partitions and join "
        "again with epoch 0",
    )


def is_repetition(current: CurrentAssignment, member_epoch: int) -> bool:
    """Return True for a heartbeat with the previous epoch that `check_epoch` accepted (spec groups 3.7).

    It was sent before its member learned of the newest decision, so the partitions that it owns are out of date too. It
    is answered with that decision and causes no new one. In an unknown state there is no such decision.
    """
    return member_epoch not in {current.member_epoch, JOIN_EPOCH} and current.state is not MemberState.UNKNOWN


def _is_within(owned: Owned, held: Held) -> bool:
    return all(partitions <= held.get(topic_id, NONE_OF_TOPIC).keys() for topic_id, partitions in owned.items())


def check_commit(
    member: ConsumerMember | None,
    assignment: CurrentAssignment,
    committer: Committer,
    partitions: Sequence[PartitionKey],
    *,
    is_transactional: bool,
) -> None:
    """Raise Refused unless the member may commit these offsets.

    An older epoch is accepted for partitions that the member has held since then (KIP-1251).

    Raises Refused: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION (spec groups 4.2, 4.4).
    """
    if member is None:
        raise unknown_committer(committer)
    epoch = committer.generation_or_epoch
    if epoch == assignment.member_epoch:
        return
    is_classic = member.classic is not None
    if epoch < assignment.member_epoch and not is_classic:
        since = (assignment.assignment_epoch(topic_id, partition) for topic_id, partition in partitions)
        if all(given is not None and given <= epoch for given in since):
            return
    raise stale_committer(assignment.member_epoch, committer, is_generation=is_classic or is_transactional)


def check_fetch(member: ConsumerMember | None, assignment: CurrentAssignment, committer: Committer) -> None:
    """Raise Refused unless the member may read offsets, with the errors of `check_commit` (spec groups 4.3)."""
    if member is None:
        raise unknown_committer(committer)
    if committer.generation_or_epoch != assignment.member_epoch:
        raise stale_committer(assignment.member_epoch, committer, is_generation=member.classic is not None)


def unknown_committer(committer: Committer) -> Refused:
    """Return the refusal for a committer that is no member."""
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"{committer.member_id!a:.80} is no member of the group: it left, or was silent for too long; join again",
    )


def stale_committer(member_epoch: int, committer: Committer, *, is_generation: bool) -> Refused:
    """Return the refusal for a member that asks with another epoch than its own."""
    code = ErrorCode.ILLEGAL_GENERATION if is_generation else ErrorCode.STALE_MEMBER_EPOCH
    if member_epoch == AWAY_EPOCH:
        return Refused(code, f"{_GONE_FOR_A_MOMENT}: join again with epoch 0 first")
    return Refused(
        code,
        f"the member is at epoch {member_epoch} and asks with {committer.generation_or_epoch}: take up the newest "
        "heartbeat's answer first, and ask for partitions that are still assigned",
    )


# Steps of a member towards its target


class Destination(Struct, frozen=True, kw_only=True):
    """Target that a member moves to."""

    epoch: int
    """Assignment epoch of the target."""
    share: Share[bytes]
    """Part of the target in topics that the member subscribes to."""
    is_free: Callable[[bytes, int], bool]
    """True for a partition that no other member holds."""
    is_subscribed: Callable[[bytes], bool]
    """True for a topic that the member subscribes to."""


def reconcile(
    current: CurrentAssignment, destination: Destination, owned: Owned | None, *, is_subscription_new: bool = False
) -> CurrentAssignment:
    """Return the assignment after the member's next step; the same object if there is none.

    `owned` is None if the client did not send its owned partitions. Source: spec groups 3.6, with its decisions.
    """
    match current.state:
        case MemberState.STABLE:
            if current.member_epoch == destination.epoch and not is_subscription_new:
                return current
        case MemberState.UNREVOKED:
            if owned is None or _meets(owned, current.pending_revocation):
                return _drop_unsubscribed(current, destination) if is_subscription_new else current
        case MemberState.UNRELEASED:
            pass
        case MemberState.UNKNOWN:
            # The member joins again, or shows that it owns nothing. Until it confirms a revocation, it may still own
            # everything that it held.
            current = replace(current, assigned=_all_held(current), pending_revocation={})
    return _step(current, destination, owned)


def _all_held(current: CurrentAssignment) -> Held:
    held = dict(current.assigned)
    for topic_id, partitions in current.pending_revocation.items():
        held[topic_id] = {**held.get(topic_id, NONE_OF_TOPIC), **partitions}
    return held


def _step(current: CurrentAssignment, destination: Destination, owned: Owned | None) -> CurrentAssignment:
    keep, revoke = _split(current.assigned, destination.share)
    before = current.member_epoch
    if revoke and (owned is None or _meets(owned, revoke)):
        return _changed(
            current,
            CurrentAssignment(
                member_epoch=before,
                previous_member_epoch=before,
                state=MemberState.UNREVOKED,
                assigned=keep,
                pending_revocation=revoke,
            ),
        )
    assigned, is_waiting = _take_free(keep, destination)
    state = MemberState.UNRELEASED if is_waiting else MemberState.STABLE
    return _changed(current, CurrentAssignment(destination.epoch, before, state, assigned))


def _changed(before: CurrentAssignment, after: CurrentAssignment) -> CurrentAssignment:
    return before if after == before else after


def _split(assigned: Held, share: Share[bytes]) -> tuple[Held, Held]:
    """Return the assigned partitions that are in the share, and those that are not."""
    keep: dict[bytes, Mapping[int, int]] = {}
    revoke: dict[bytes, Mapping[int, int]] = {}
    for topic_id, epochs in assigned.items():
        wanted = frozenset(share.get(topic_id, ()))
        if epochs.keys() <= wanted:
            keep[topic_id] = epochs
            continue
        for held, is_kept in ((keep, True), (revoke, False)):
            part = {number: epoch for number, epoch in epochs.items() if (number in wanted) is is_kept}
            if part:
                held[topic_id] = part
    return keep, revoke


def _take_free(keep: Held, destination: Destination) -> tuple[Held, bool]:
    """Return the kept partitions together with the free ones of the share. Also returns True if another member still
    holds a partition of the share."""
    assigned = dict(keep)
    is_waiting = False
    for topic_id, wanted in destination.share.items():
        held = keep.get(topic_id, NONE_OF_TOPIC)
        if len(held) == len(wanted):
            continue
        free = []
        for partition in wanted:
            if partition in held:
                continue
            if destination.is_free(topic_id, partition):
                free.append(partition)
            else:
                is_waiting = True
        if free:
            assigned[topic_id] = {**held, **dict.fromkeys(free, destination.epoch)}
    return assigned, is_waiting


def _drop_unsubscribed(current: CurrentAssignment, destination: Destination) -> CurrentAssignment:
    """Add partitions of topics that the member no longer subscribes to, to those that it must already revoke."""
    unwanted = {
        topic_id: held for topic_id, held in current.assigned.items() if not destination.is_subscribed(topic_id)
    }
    if not unwanted:
        return current
    keep = {topic_id: held for topic_id, held in current.assigned.items() if topic_id not in unwanted}
    revoke = dict(current.pending_revocation)
    for topic_id, held in unwanted.items():
        revoke[topic_id] = {**revoke.get(topic_id, {}), **held}
    epoch = current.member_epoch
    return CurrentAssignment(
        member_epoch=epoch,
        previous_member_epoch=epoch,
        state=MemberState.UNREVOKED,
        assigned=keep,
        pending_revocation=revoke,
    )


def _meets(owned: Owned, held: Held) -> bool:
    return any(not partitions.isdisjoint(held.get(topic_id, ())) for topic_id, partitions in owned.items())


def away(current: CurrentAssignment) -> CurrentAssignment:
    """Return the assignment of a static member that leaves for a moment. It keeps its assigned partitions and releases
    those that it had to revoke."""
    return replace(
        current,
        member_epoch=AWAY_EPOCH,
        previous_member_epoch=current.member_epoch,
        state=MemberState.STABLE,
        pending_revocation={},
    )


def back(left: CurrentAssignment) -> CurrentAssignment:
    """Return the first assignment of a static member's next process: the partitions assigned to the last one."""
    return CurrentAssignment(JOIN_EPOCH, JOIN_EPOCH, MemberState.STABLE, left.assigned)


def same_partitions(one: Held, other: Held) -> bool:
    """Return True if both hold the same partitions, regardless of the epochs in which they were given."""
    return one is other or (
        one.keys() == other.keys()
        and all(partitions.keys() == other[topic].keys() for topic, partitions in one.items())
    )
