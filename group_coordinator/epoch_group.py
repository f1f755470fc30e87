"""Common parts of the groups whose members follow a target by epochs: consumer, share and streams groups.

A change of the basis of the assignment bumps the group epoch. The target of that epoch is computed, and each member
moves towards its part of it. Consumer and streams groups also have static members and rebalances.

Source: spec groups 3.1, 3.5, 6.1, 6.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from coordinator_runtime.decision import CancelTimer, Effect
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.members import Epochs, MemberState
from group_coordinator.shard import GroupShard, Replays, Tally

ONLY: Final = None
"""Key of a map that holds one value."""


class Settling(Protocol):
    """An assignment that moves towards a target."""

    @property
    def member_epoch(self) -> int: ...

    @property
    def state(self) -> MemberState: ...


class EpochMember(Protocol):
    """A member that may be static."""

    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...


EpochsT = TypeVar("EpochsT", bound=Epochs)
MemberT = TypeVar("MemberT")
AssignmentT = TypeVar("AssignmentT")
TargetT = TypeVar("TargetT")
EpochMemberT = TypeVar("EpochMemberT", bound=EpochMember)
SettlingT = TypeVar("SettlingT", bound=Settling)


class EpochGroup(Generic[EpochsT, MemberT, AssignmentT, TargetT]):
    """Members, targets, assignments and epochs of one group. Reads are live unless named durable; only replay writes.

    A subclass names the values of a group and a member that have nothing yet."""

    before_all: ClassVar[Any]
    not_yet: ClassVar[Any]
    no_target: ClassVar[Any]

    def __init__(self, group_id: str, journal: Journal) -> None:
        self._group_id = group_id
        self._epochs: TimelineMap[None, EpochsT] = TimelineMap(journal)
        self.members: TimelineMap[str, MemberT] = TimelineMap(journal)
        self.targets: TimelineMap[str, TargetT] = TimelineMap(journal)
        self.assignments: TimelineMap[str, AssignmentT] = TimelineMap(journal)

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def epochs(self) -> EpochsT:
        return self._epochs.get(ONLY) or self.before_all

    def durable_epochs(self) -> EpochsT:
        return self._epochs.durable(ONLY) or self.before_all

    @property
    def is_target_due(self) -> bool:
        """True while the target is that of an older epoch."""
        epochs = self.epochs
        return epochs.group_epoch > epochs.assignment_epoch

    def assignment(self, member_id: str) -> AssignmentT:
        return self.assignments.get(member_id) or self.not_yet

    def target(self, member_id: str) -> TargetT:
        return self.targets.get(member_id) or self.no_target

    def durable_assignment(self, member_id: str) -> AssignmentT:
        return self.assignments.durable(member_id) or self.not_yet

    def durable_target(self, member_id: str) -> TargetT:
        return self.targets.durable(member_id) or self.no_target

    def _remove_target(self, member_id: str) -> None:
        assert member_id not in self.assignments, "what a member holds goes before its target"
        self.targets.remove(member_id)


class RebalancedGroup(EpochGroup[EpochsT, EpochMemberT, SettlingT, TargetT], ABC):
    """A group whose members give up what they hold before others get it, so that a rebalance takes time."""

    outlives_members: ClassVar[bool] = False

    def __init__(self, group_id: str, journal: Journal) -> None:
        super().__init__(group_id, journal)
        self._rebalance_started_ms: TimelineMap[None, int | None] = TimelineMap(journal)
        self._instances: TimelineMap[str, str] = TimelineMap(journal)
        self._settled: Tally[int] = Tally(journal)
        """Number of members in the state STABLE, by member epoch."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """See `group_coordinator.state.Group`."""

    def retention_base_ms(self, topic: str, committed_ms: int) -> int | None:
        """Return the time of the commit, also for a group without members (spec groups 4.7)."""
        return None if self.is_subscribed_to(topic) else committed_ms

    def removal_effects(self) -> tuple[Effect, ...]:
        return (CancelTimer(timer_of_target(self.group_id)),)

    @property
    def rebalance_started_ms(self) -> int | None:
        """Wall time at which the current rebalance began; None if there is none, or if a restart interrupted it."""
        return self._rebalance_started_ms.get(ONLY)

    @property
    def settled_count(self) -> int:
        """Number of members that hold their part of the target."""
        return self._settled.live(self.epochs.assignment_epoch)

    def is_stable_with(self, member_id: str, after: SettlingT) -> bool:
        """Return True if every member has reached its target once this one has this assignment."""
        epochs = self.epochs
        settled = self.settled_count
        settled += is_settled(after, epochs) - is_settled(self.assignment(member_id), epochs)
        return len(self.members) > 0 and not self.is_target_due and settled == len(self.members)

    def target_wait_ms(self, now_ms: int, interval_ms: int) -> int:
        """Return the time until the next target may be computed; 0 or less if it may be now."""
        computed_ms = self.epochs.computed_ms
        return 0 if computed_ms is None or now_ms < computed_ms else computed_ms + interval_ms - now_ms

    def instance_holder(self, instance_id: str) -> str | None:
        """Return the member that has this instance id."""
        return self._instances.get(instance_id)

    def _put_instance(self, before: EpochMemberT | None, member: EpochMemberT) -> None:
        """Update the index of instance ids after a change of a member."""
        if before is not None and before.instance_id is not None and before.instance_id != member.instance_id:
            self._instances.remove(before.instance_id)
        if member.instance_id is not None:
            self._instances.put(member.instance_id, member.member_id)

    def _remove_instance(self, member: EpochMemberT) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self._instances.get(instance_id) == member.member_id:
            self._instances.remove(instance_id)

    def _count_settled(self, before: SettlingT | None, after: SettlingT | None) -> None:
        for assignment, change in ((before, -1), (after, 1)):
            if assignment is not None and assignment.state is MemberState.STABLE:
                self._settled.add(assignment.member_epoch, change)


def is_settled(assignment: Settling, epochs: Epochs) -> bool:
    """Return True if a member holds its part of the group's target."""
    return assignment.state is MemberState.STABLE and assignment.member_epoch == epochs.assignment_epoch


def timer_of_target(group_id: str) -> tuple[str, str]:
    """Return the name of the timer that computes a target once the interval since the last one has passed."""
    return "target", group_id


class GroupsOfKind:
    """Groups of one kind in a shard. Implements `group_coordinator.shard.PartState`. Each group is an object that its
    records change. A subclass names the class and the records."""

    group_class: ClassVar[type[Any]]
    makes: ClassVar[Sequence[type]]
    """Records that are the first of a group, whichever of its rows a load reads first."""
    moves: ClassVar[Sequence[type]]
    """Records that may bring the group into another state."""
    changes: ClassVar[Sequence[type]] = ()
    """Records that change something else in it."""
    forgets: ClassVar[type]
    """Tombstone of a group."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard

    def replays(self) -> Replays:
        return {
            **dict.fromkeys(self.makes, self._make),
            **dict.fromkeys(self.moves, self._move),
            **dict.fromkeys(self.changes, self._change),
            self.forgets: self._forget,
        }

    def _make(self, record: Any) -> None:  # noqa: ANN401  one of `makes`
        groups = self._shard.groups
        if record.group_id not in groups:
            groups.put(record.group_id, self.group_class(record.group_id, self._shard.journal))
        self._move(record)

    def _move(self, record: Any) -> None:  # noqa: ANN401  one of `moves` or `makes`
        self._change(record)
        self._shard.standings.look(record.group_id)

    def _change(self, record: Any) -> None:  # noqa: ANN401  one of any
        self._existing(record.group_id).replay(record)

    def _forget(self, record: Any) -> None:  # noqa: ANN401  the tombstone
        group = self._existing(record.group_id)
        assert group.is_empty, "members go before their group"
        assert not group.outlives_members, "what outlives the members goes before the group"
        self._shard.groups.remove(record.group_id)
        self._shard.standings.look(record.group_id)

    def _existing(self, group_id: str) -> Any:  # noqa: ANN401  of the class that `group_class` names
        group = self._shard.groups.get(group_id)
        assert isinstance(group, self.group_class), f"{group_id!r} is of this kind"
        return group
