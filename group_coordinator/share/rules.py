"""Rules of share groups: pure checks of heartbeats and epochs.

Source: KIP-932, spec groups 6.1, 3.7.
"""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode, Refused
from group_coordinator.members import JOIN_EPOCH, LEAVE_EPOCH, check_beat, invalid_heartbeat
from group_coordinator.share.requests import ShareHeartbeat
from group_coordinator.share.state import ShareAssignment


def check_heartbeat(request: ShareHeartbeat) -> None:
    """Raise Refused unless this is a valid heartbeat: INVALID_GROUP_ID, INVALID_REQUEST, INVALID_TOPIC_EXCEPTION."""
    check_beat(request)
    if request.member_epoch < LEAVE_EPOCH:
        raise invalid_heartbeat(
            f"member_epoch is {request.member_epoch}: 0 joins, -1 leaves; there are no others below 0"
        )
    if request.is_join and not request.subscribed_topic_names:
        raise invalid_heartbeat("who joins must subscribe: send subscribed_topic_names, at least one")


def check_epoch(current: ShareAssignment, member_epoch: int) -> None:
    """Raise Refused FENCED_MEMBER_EPOCH unless the member may go on with this epoch (spec groups 3.7).

    It may with its own, with 0 to join again, and with the epoch before if it missed one reply."""
    stored = current.member_epoch
    if member_epoch in {stored, JOIN_EPOCH} or is_repetition(current, member_epoch):
        return
    why = "which is ahead of that" if member_epoch > stored else "which is too long ago"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"the member is at epoch {stored} and says it is at {member_epoch}, {why}: join again with epoch 0",
    )


def check_acknowledging(current: ShareAssignment, member_epoch: int) -> None:
    """Raise Refused ILLEGAL_GENERATION unless the member acknowledges in its epoch, or in the one before if it may have
    missed one reply (spec groups 4.4)."""
    if member_epoch != current.member_epoch and not is_repetition(current, member_epoch):
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"the member is at epoch {current.member_epoch} and acknowledges in {member_epoch}: use the epoch of the "
            "last heartbeat's answer",
        )


def is_repetition(current: ShareAssignment, member_epoch: int) -> bool:
    """Return True for a heartbeat of a member that missed the newest reply.

    It is answered with that decision and causes no new one. So the member still knows the epoch before."""
    return JOIN_EPOCH < member_epoch < current.member_epoch and member_epoch == current.previous_member_epoch
