"""One shard of groups: the state of the registered parts, and its changes by records.

A *part* is a kind of group (`classic`, `consumer`), or something that groups of every kind have (`committed` offsets,
`administration` with the settings of groups). The shard knows none of them by name: it is made from their `ShardPart`s,
which `registry` lists. The decisions on a shard are in the parts, each with its `decisions` module. They read the shard
and return Decisions; only `replay` changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from coordinator_runtime.decision import Decision, Effect, Operation, ShardEpoch, ShardKey, Turn
from coordinator_runtime.ports import Committer, TopicMetadata
from coordinator_runtime.share_ports import NO_SHARE_STATES, ShareStates
from coordinator_runtime.timeline import Journal, TimelineMap
from group_coordinator.assignors import SERVER_ASSIGNORS, ServerAssignor
from group_coordinator.config import GroupConfig
from group_coordinator.state import Group, GroupKind, OfGroup

Replays = Mapping[type, Callable[[Any], None]]
"""Function that applies the value of a record, by class of the value."""


class PartState(Protocol):
    """State of one part in one shard, and the changes that its records make."""

    def replays(self) -> Replays:
        """Return the functions that apply the part's record values, by class."""


K = TypeVar("K", bound=Hashable)
PartStateT = TypeVar("PartStateT", bound=PartState)


class ShardPart(Struct, frozen=True, kw_only=True):
    """Contribution of a part to a shard."""

    make: Callable[[GroupShard], PartState]
    """Makes the part's state, empty. Only the constructor of the shard calls it."""
    owed: Callable[[GroupShard, Turn], Decision] | None = None
    """Decision on the part's work after a load: timers of members, and of data that expires."""
    unlisted_group: Callable[[GroupShard, str], Group | None] | None = None
    """Finds a group in live state that has no entry in `GroupShard.groups`, but exists because of this part's state."""
    durable_unlisted_group: Callable[[GroupShard, str], Group | None] | None = None
    """Finds such a group as it is on disk."""
    kind: GroupKind | None = None
    """The kind of group that this part is."""
    commit_effects: Callable[[Group, Committer], tuple[Effect, ...]] | None = None
    """Effects of an accepted offset commit outside a transaction, for a group of this kind. In a classic group the
    commit counts as a heartbeat, so the member's session timer is armed again (spec groups 2.11)."""
    forget_topic: Callable[..., Decision] | None = None
    """Decision that drops what the part keeps of a topic that is being deleted: `forget_topic(shard, turn,
    topic_id=topic_id)`."""
    topics_changed: Callable[..., Decision] | None = None
    """Decision on topics that were created, deleted or extended: `topics_changed(shard, turn, names=names)`."""
    delete: Callable[[GroupShard, Group], tuple[Operation, ...]] | None = None
    """Returns the operations on other shards that go with the deletion of a group of this kind."""
    foreign_calls: Mapping[type[OfGroup], Callable[..., Decision]] | None = None
    """Decisions on calls of another kind's protocol about groups of this kind, by class of the request. Consumer groups
    take members that speak the classic protocol (spec groups 3.10)."""


class Tally(Generic[K]):
    """Count of each key, live and durable. Only `replay` changes it."""

    __slots__ = ("_numbers",)

    def __init__(self, journal: Journal) -> None:
        self._numbers: TimelineMap[K, int] = TimelineMap(journal)

    def add(self, key: K, change: int = 1) -> None:
        number = (self._numbers.get(key) or 0) + change
        if number:
            self._numbers.put(key, number)
        else:
            self._numbers.remove(key)

    def live(self, key: K) -> int:
        return self._numbers.get(key) or 0

    def durable(self) -> dict[K, int]:
        """Return the numbers that are not 0, as they are on disk."""
        return dict(self._numbers.durable_items())


class CountedGroup(NamedTuple):
    """Kind and state of a group, as the metrics count groups."""

    kind: GroupKind
    state_name: str


class CountedGroups:
    """Number of groups by kind and state, so that a scrape of the metrics looks at no group. Replay updates it after
    each change."""

    __slots__ = ("_known", "_look_up", "_tally")

    def __init__(self, journal: Journal, look_up: Callable[[str], CountedGroup | None]) -> None:
        self._look_up = look_up
        self._known: TimelineMap[str, CountedGroup] = TimelineMap(journal)
        self._tally: Tally[CountedGroup] = Tally(journal)

    def look(self, group_id: str) -> None:
        """Look up kind and state of the group again, since they may have changed. In `replay` only."""
        self.place(group_id, self._look_up(group_id))

    def place(self, group_id: str, now: CountedGroup | None) -> None:
        """Set kind and state of the group; None if it is gone. In `replay` only."""
        before = self._known.get(group_id)
        if now == before:
            return
        if before is not None:
            self._tally.add(before, -1)
        if now is None:
            self._known.remove(group_id)
        else:
            self._known.put(group_id, now)
            self._tally.add(now)

    def durable(self) -> dict[CountedGroup, int]:
        """Return the number of durable groups by kind and state."""
        return self._tally.durable()


class GroupShard:
    """State of one shard of groups; see the module."""

    def __init__(
        self,
        key: ShardKey,
        journal: Journal,
        *,
        topics: TopicMetadata,
        config: GroupConfig,
        parts: Sequence[ShardPart],
        assignors: Mapping[str, ServerAssignor] = SERVER_ASSIGNORS,
    ) -> None:
        self.key = key
        self.journal = journal
        self.topics = topics
        self.config = config
        self.assignors = assignors
        self.share_states: ShareStates = NO_SHARE_STATES
        """States of the partitions of share groups."""
        self.coordinator_epoch = 0
        self.least_epoch = 0
        """Bound between incarnations: generations and group epochs of a lost one are below it, and none given here is.
        0 if nothing was lost."""
        self.groups: TimelineMap[str, Group] = TimelineMap(journal)
        """Groups by id. A group that only has offsets has no entry: see `group`."""
        self.standings = CountedGroups(journal, self._standing)
        self._parts = parts
        self._commit_effects = {part.kind: part.commit_effects for part in parts if part.commit_effects is not None}
        self._deletes = {part.kind: part.delete for part in parts if part.delete is not None}
        self._foreign_calls = {part.kind: part.foreign_calls for part in parts if part.foreign_calls is not None}
        states = [part.make(self) for part in parts]
        self._states: dict[type, Any] = {type(state): state for state in states}
        self._replays: dict[type, Callable[[Any], None]] = {ShardEpoch: self._open}
        for state in states:
            replays = state.replays()
            assert self._replays.keys().isdisjoint(replays), "every class of record belongs to one part"
            self._replays |= replays

    def part(self, state_type: type[PartStateT]) -> PartStateT:
        """Return the state of a part in this shard, by its class."""
        state: PartStateT = self._states[state_type]
        return state

    def group(self, group_id: str) -> Group | None:
        """Return the group in live state, also one without an entry in `groups`; None if it does not exist."""
        group = self.groups.get(group_id)
        if group is not None:
            return group
        for part in self._parts:
            if part.unlisted_group is not None and (group := part.unlisted_group(self, group_id)) is not None:
                return group
        return None

    def durable_group(self, group_id: str) -> Group | None:
        """Return the group as it is on disk; None if it does not exist there. A consumer group is one object for both
        views: its own methods read the durable state."""
        group = self.groups.durable(group_id)
        if group is not None:
            return group
        for part in self._parts:
            find = part.durable_unlisted_group
            if find is not None and (group := find(self, group_id)) is not None:
                return group
        return None

    def commit_effects(self, group: Group, committer: Committer) -> tuple[Effect, ...]:
        """Return the effects of an accepted commit outside a transaction, see `ShardPart.commit_effects`."""
        effects = self._commit_effects.get(group.kind)
        return () if effects is None else effects(group, committer)

    def foreign_call(self, group: Group | None, request: OfGroup) -> Callable[..., Decision] | None:
        """Return the decision on a call of another kind's protocol about this group, see `ShardPart.foreign_calls`."""
        calls = None if group is None else self._foreign_calls.get(group.kind)
        return None if calls is None else calls.get(type(request))

    def deletion(self, group: Group) -> tuple[Operation, ...]:
        """Return the operations that go with the deletion of a group, see `ShardPart.delete`."""
        delete = self._deletes.get(group.kind)
        return () if delete is None else delete(self, group)

    def decide_forget_topic(self, _turn: Turn, *, topic_id: bytes) -> Decision:
        """Drop what the parts keep of a topic that is being deleted."""
        forgets = (part.forget_topic for part in self._parts if part.forget_topic is not None)
        return self._joined(partial(forget, topic_id=topic_id) for forget in forgets)

    def decide_topics_changed(self, _turn: Turn, *, names: frozenset[str]) -> Decision:
        """Tell the parts of topics that were created, deleted or extended. No names: permissions changed."""
        tells = (part.topics_changed for part in self._parts if part.topics_changed is not None)
        return self._joined(partial(tell, names=names) for tell in tells)

    def _joined(self, decides: Iterable[Callable[..., Decision]]) -> Decision:
        return Decision(joins=tuple(Operation(self.key, decide) for decide in decides))

    def _standing(self, group_id: str) -> CountedGroup | None:
        group = self.group(group_id)
        return None if group is None else CountedGroup(group.kind, group.live_state_name)

    def replay(self, value: object) -> None:
        self._replays[type(value)](value)

    def _open(self, opened: ShardEpoch) -> None:
        self.coordinator_epoch = opened.coordinator_epoch

    def on_loaded(self, _turn: Turn) -> Decision:
        """Return the work of the parts after a load, in the order of their registration. Calls that waited ended with
        the previous process."""
        return self._joined(part.owed for part in self._parts if part.owed is not None)
