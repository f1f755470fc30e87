"""Values of a streams group: its members, their tasks in three roles, their targets. `topology` has its topology, and
`group_coordinator.members` its epochs.

Source: KIP-1071, spec groups 6.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from group_coordinator.consumer.state import AWAY_EPOCH as AWAY_EPOCH
from group_coordinator.members import JOIN_EPOCH, Epochs, MemberState
from group_coordinator.streams.topology import Configured

PROTOCOL_TYPE: Final = "streams"


class StreamsGroupState(StrEnum):
    """States of a group, as shown to users and used in their filters. Never stored: derived from the members."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    """Topics of the topology are missing or do not fit."""
    ASSIGNING = "Assigning"
    """The group epoch has no target yet."""
    RECONCILING = "Reconciling"
    """A member does not hold its part of the target yet."""
    STABLE = "Stable"


class TaskId(NamedTuple):
    """One task: it processes this partition of every source of the subtopology."""

    subtopology_id: str
    partition: int


TaskSet = frozenset[TaskId]
NO_TASKS: Final[TaskSet] = frozenset()


class Roles(Struct, frozen=True):
    """Tasks of one member by role; a task is in one role at most."""

    active: TaskSet = NO_TASKS
    standby: TaskSet = NO_TASKS
    warmup: TaskSet = NO_TASKS

    def sets(self) -> tuple[TaskSet, TaskSet, TaskSet]:
        return self.active, self.standby, self.warmup

    def all(self) -> TaskSet:
        return self.active | self.standby | self.warmup

    def meets(self, other: Roles) -> bool:
        """Return True if both have a task in the same role."""
        return any(not mine.isdisjoint(theirs) for mine, theirs in zip(self.sets(), other.sets(), strict=True))

    def is_within(self, other: Roles) -> bool:
        """Return True if the other has all these tasks in these roles."""
        return all(mine <= theirs for mine, theirs in zip(self.sets(), other.sets(), strict=True))

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


NO_ROLES: Final = Roles()


class UserEndpoint(NamedTuple):
    """Address at which a process answers queries of its state."""

    host: str
    port: int


class StreamsMember(Struct, frozen=True, kw_only=True):
    """Metadata of a member, as the member sent it."""

    member_id: str
    process_id: str
    topology_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    """Time that the member has to give up revoked tasks."""
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] = {}
    reports_offsets: bool = False
    """True if it reports offsets of its tasks: only such a member can be warmed up."""


class StreamsAssignment(Struct, frozen=True):
    """Tasks that a member holds, and its progress."""

    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = JOIN_EPOCH
    """Epoch before the last change of any field here. A member that still sends it has missed one reply."""
    state: MemberState = MemberState.STABLE
    assigned: Roles = NO_ROLES
    pending_revocation: Roles = NO_ROLES
    """Tasks that it must give up. They are not free until it confirms that."""
    active_since: Mapping[TaskId, int] = {}
    """Epoch in which the member was given each of its active tasks, those to be given up included."""

    def held(self) -> TaskSet:
        """Return its tasks of all roles, those that it must give up included."""
        return self.assigned.all() | self.pending_revocation.all()


NOT_YET: Final = StreamsAssignment()
"""Assignment of a member that was never given anything."""


class StreamsEpochs(Epochs, frozen=True):
    """Epochs of a group. Its hash is that of the topics, the topology and the settings."""

    validated_topology_epoch: int = -1
    """Epoch of the topology if its topics were there and fit, as of the group epoch; -1 otherwise."""


class Wishes(NamedTuple):
    """Settings of a group for its assignor."""

    standbys: int = 0
    """Number of standby tasks for each stateful task, as far as there are processes."""
    warmups: int = 0
    """Maximum number of warm-up tasks at a time; 0 = tasks move at once."""
    acceptable_lag: int = 10_000
    """Lag at which a copy counts as caught up."""


class TopologyLook(Struct, frozen=True):
    """Last comparison of the group with the topics of its topology."""

    looked_ms: int
    """Wall time of it."""
    configured: Configured
    wishes: Wishes
    """Settings for the assignor at that time."""


Lags = Mapping[TaskId, int]
"""Number of changelog records that a member lacks, by task."""


def by_subtopology(tasks: Iterable[TaskId]) -> Iterator[tuple[str, list[int]]]:
    """Return the tasks in order, as partitions by subtopology."""
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in sorted(tasks):
        found.setdefault(subtopology_id, []).append(partition)
    return iter(found.items())
