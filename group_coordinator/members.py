"""Values and checks of members with epochs: those of consumer, share and streams groups.

The *group epoch* grows when the basis of the assignment changes. The *assignment epoch* is the group epoch that the
current target was computed for. A *member epoch* is the assignment epoch that the member has reached.

Source: spec groups 3.1, 3.2, 3.6, 6.1, 6.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.names import ID_BYTES_MAX, check_group_id, check_topic_name
from group_coordinator.state import OfGroup
from group_coordinator.topics import TopicShare

JOIN_EPOCH: Final = 0
"""Member epoch of a member that joins, or joins again."""
LEAVE_EPOCH: Final = -1


class MemberState(IntEnum):
    """Progress of a member towards its target. The numbers are stored."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127
    """Any other stored number. The member must give up everything and join again, as in Kafka. Until it has done so or
    is gone, no other member gets what it holds."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class Epochs(Struct, frozen=True):
    """Epochs of a group."""

    group_epoch: int = 0
    metadata_hash: int = 0
    """Hash of the subscribed topics, as of the group epoch."""
    assignment_epoch: int = 0
    computed_ms: int | None = None
    """Wall time of the target's computation; None if there was none."""
    assignor_name: str = ""


class Beat(OfGroup, frozen=True, kw_only=True):
    """Fields that the heartbeats of all these kinds of groups have."""

    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: frozenset[str] | None = None
    max_wait_ms: int = 0
    """Longest time that the answer may wait for news (ms)."""
    crosses: bool = False
    """True if an older heartbeat of the member was decided but not answered when this one came. The member cannot know
    that decision, so the answer repeats the whole assignment."""

    @property
    def is_join(self) -> bool:
        return self.member_epoch == JOIN_EPOCH


class HeartbeatReply(Struct, frozen=True, kw_only=True):
    """Reply of the group, with topic ids only."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Mapping[bytes, Iterable[int]] | None = None
    """None if unchanged."""

    def is_news(self, request: Beat) -> bool:
        """Return True if it has something new for the member, so that the heartbeat need not wait any longer."""
        return self.assigned is not None or self.member_epoch != request.member_epoch


class HeartbeatAnswer(Struct, frozen=True):
    """Answer to a member, with topic names."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assigned: tuple[TopicShare, ...] | None
    """None if unchanged."""


def invalid_heartbeat(why: str) -> Refused:
    """Return the refusal of a heartbeat that cannot be meant."""
    return Refused(ErrorCode.INVALID_REQUEST, why)


def check_beat(request: Beat, texts: Iterable[tuple[str, str | None]] = ()) -> None:
    """Raise Refused for names that cannot be meant, be stored, or be part of a key: INVALID_GROUP_ID, INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION. `texts` are those of this kind of group alone, each with what it is; None if not sent."""
    if not request.group_id.strip():
        raise invalid_heartbeat("the group id is empty; give the group a name")
    check_group_id(request.group_id)
    for what, text in (("member id", request.member_id), ("rack_id", request.rack_id), *texts):
        if text is not None and ("\0" in text or len(text.encode()) > ID_BYTES_MAX):
            raise invalid_heartbeat(f"the {what} contains NUL or is longer than {ID_BYTES_MAX} bytes; shorten it")
    for topic in request.subscribed_topic_names or ():
        check_topic_name(topic, reserved_allowed=True)
    check_not_blank("rack_id", request.rack_id)
    if not request.is_join and not request.member_id:
        raise invalid_heartbeat("member_id is empty: only who joins, with epoch 0, may leave it out")


def check_not_blank(what: str, text: str | None) -> None:
    """Raise Refused INVALID_REQUEST for a text that was sent and is blank."""
    if text is not None and not text.strip():
        raise invalid_heartbeat(f"{what} is blank; leave it out or give it a name")


def unknown_member(group_id: str, member_id: str) -> Refused:
    """Return the refusal for a caller that is no member."""
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"{member_id!a:.80} is no member of the group {group_id!a:.80}: it left, or was silent for too long; join "
        "again with epoch 0",
    )


def check_size(group_id: str, size: int, size_max: int) -> None:
    """Raise Refused GROUP_MAX_SIZE_REACHED if a group of this size may not have another member."""
    if size >= size_max:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the group {group_id!a:.80} has {size} members, as many as it may have; stop one, or raise the limit",
        )
