"""The sticky assignor of streams groups: places tasks on members, and moves as few as balance allows.

It works in three steps, each a function of values alone:

1. *Active tasks*, stateful ones first, so that both kinds are even. Each goes back to its member, as long as that has
   room. The others go to a process that has their state, the most caught-up first, then to the least loaded process.
2. *Standby tasks* of stateful tasks, each in another process. They stay where they are. A new one goes to a process
   that adds a value of a tag (a rack, a zone), then to the least loaded one. Then they are evened out.
3. *Easing*: a stateful task whose new member lacks too much of its state stays active where it is. A limited number of
   these new members warm up. The others wait. With a report of a small lag the target is computed again.

The same input gives the same output: each step keeps what it placed before.

Source: spec groups 6.9; KIP-1071, KIP-441 (warm-up tasks), KIP-708 (tags).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Final, NamedTuple

from msgspec import Struct

from group_coordinator.streams.state import NO_ROLES, Lags, Roles, TaskId, Wishes

STICKY: Final = "sticky"
"""Name of the assignor, for events and descriptions."""


class PlacedMember(Struct, frozen=True, kw_only=True):
    """Input of the assignor about one member."""

    process_id: str
    tags: tuple[tuple[str, str], ...] = ()
    """Names and values, its rack included."""
    before: Roles = NO_ROLES
    """Its part of the previous target."""
    lags: Lags = {}
    warms_up: bool = False
    """True if it reports lags, so that it can be warmed up."""


class SubtopologyTasks(NamedTuple):
    """Input of the assignor about one subtopology."""

    subtopology_id: str
    task_count: int
    is_stateful: bool


def assign_tasks(
    members: Mapping[str, PlacedMember], subtopologies: Iterable[SubtopologyTasks], wishes: Wishes
) -> dict[str, Roles]:
    """Return the tasks of every member. An unchanged part of the target is the same object."""
    if not members:
        return {}
    stateful, stateless = list[TaskId](), list[TaskId]()
    for subtopology_id, task_count, is_stateful in sorted(subtopologies):
        (stateful if is_stateful else stateless).extend(TaskId(subtopology_id, each) for each in range(task_count))
    placing = _Placing(members)
    placing.place_active(stateful, beside=stateless)
    placing.place_active(stateless)
    placing.hold_back(stateful, wishes)
    placing.place_standbys(stateful, wishes.standbys)
    roles = _eased(placing, wishes)
    return {member_id: _kept(members[member_id].before, each) for member_id, each in roles.items()}


def _kept(before: Roles, after: Roles) -> Roles:
    return before if before == after else after


class _Placing:
    """Tasks that were placed so far."""

    def __init__(self, members: Mapping[str, PlacedMember]) -> None:
        self.members = dict(sorted(members.items()))
        self.processes: dict[str, list[str]] = {}
        """Member ids by process."""
        for member_id, member in self.members.items():
            self.processes.setdefault(member.process_id, []).append(member_id)
        self.active: dict[TaskId, str] = {}
        """Member of each active task."""
        self.held: dict[TaskId, str] = {}
        """Members at which tasks stay active until their new members caught up."""
        self.standbys: dict[TaskId, dict[str, str]] = {}
        """Members of the standby tasks of a task, by process."""
        self.loads = dict.fromkeys(self.members, 0)
        """Number of tasks by member."""
        self._beside = dict.fromkeys(self.members, 0)
        self.active_before = {
            task: member_id for member_id, each in self.members.items() for task in each.before.active
        }
        self.copies_before: dict[TaskId, list[str]] = {}
        """Members that had a standby or warm-up task."""
        self.warming_before: set[TaskId] = set()
        for member_id, member in self.members.items():
            for task in sorted(member.before.standby | member.before.warmup):
                self.copies_before.setdefault(task, []).append(member_id)
            self.warming_before |= member.before.warmup

    def process(self, member_id: str) -> str:
        return self.members[member_id].process_id

    def lag(self, process_id: str, task: TaskId) -> float:
        """Return the smallest lag of a task that members of a process report."""
        lags = (self.members[each].lags.get(task, inf) for each in self.processes[process_id])
        return min(lags, default=inf)

    # Active tasks

    def place_active(self, tasks: Sequence[TaskId], *, beside: Iterable[TaskId] = ()) -> None:
        """Place active tasks, given in order. Of members with equal claims, those come first that have few of the tasks
        `beside`, which are placed later: so these need not make room."""
        room = _Room(self.loads, sum(self.loads.values()) + len(tasks))
        self._beside = dict.fromkeys(self.members, 0)
        for task in beside:
            if task in self.active_before:
                self._beside[self.active_before[task]] += 1
        # A task that is warming up elsewhere is the first to leave.
        left = sorted(tasks, key=self.warming_before.__contains__)
        if self.active_before:
            for may_exceed in (False, True):
                left = [task for task in left if not self._stays(task, room, may_exceed=may_exceed)]
        left = [task for task in left if not self._goes_to_state(task, room)]
        least_loaded = self._least_loaded(room)
        for task in sorted(left):
            self._place(task, next(least_loaded), room)

    def _stays(self, task: TaskId, room: _Room, *, may_exceed: bool) -> bool:
        member_id = self.active_before.get(task)
        if member_id is None or not room.has(member_id, may_exceed=may_exceed):
            return False
        self._place(task, member_id, room)
        return True

    def _goes_to_state(self, task: TaskId, room: _Room) -> bool:
        """Place a task in a process that has its state, if one has room: that of its active task or of a copy."""
        had, copies = self.active_before.get(task), self.copies_before.get(task, ())
        if had is None and not copies:
            return False
        processes = {self.process(each): self.lag(self.process(each), task) for each in copies}
        if had is not None:
            processes[self.process(had)] = -1
        candidates = [
            (lag, self._claims(member_id), member_id)
            for process_id, lag in processes.items()
            for member_id in self.processes[process_id]
            if room.has(member_id)
        ]
        if not candidates:
            return False
        self._place(task, min(candidates)[2], room)
        return True

    def _place(self, task: TaskId, member_id: str, room: _Room) -> None:
        self.active[task] = member_id
        room.take(member_id)

    def _least_loaded(self, room: _Room) -> Iterator[str]:
        """Yield the least loaded member with room of the least loaded process, again and again."""
        inside = {
            process_id: [(self._claims(each), each) for each in member_ids]
            for process_id, member_ids in self.processes.items()
        }
        queue = [(self.share(process_id), process_id) for process_id in self.processes]
        heapify(queue)
        for heap in inside.values():
            heapify(heap)
        while queue:
            process_id = queue[0][1]
            heap = inside[process_id]
            while heap and not room.has(heap[0][1]):
                heappop(heap)
            if heap:
                member_id = heap[0][1]
                yield member_id
                heapreplace(heap, (self._claims(member_id), member_id))
                heapreplace(queue, (self.share(process_id), process_id))
            else:
                heappop(queue)

    def share(self, process_id: str) -> float:
        """Return the number of tasks of a process for each of its members."""
        member_ids = self.processes[process_id]
        if len(member_ids) == 1:
            return self._claims(member_ids[0])
        return sum(map(self._claims, member_ids)) / len(member_ids)

    def _claims(self, member_id: str) -> int:
        return self.loads[member_id] + self._beside[member_id]

    def hold_back(self, tasks: Sequence[TaskId], wishes: Wishes) -> None:
        """Find the tasks that stay where they are until their new members caught up."""
        if wishes.warmups == 0:
            return
        for task in tasks:
            old, new = self.active_before.get(task), self.active[task]
            if old is None or self.process(old) == self.process(new) or not self.members[new].warms_up:
                continue
            if self.lag(self.process(new), task) > wishes.acceptable_lag:
                self.held[task] = old

    # Standby tasks

    def place_standbys(self, tasks: Sequence[TaskId], count: int) -> None:
        if count == 0:
            return
        for task in tasks:
            for member_id in self.copies_before.get(task, ()):
                if len(self.standbys.get(task, ())) < count and self.is_without(task, self.process(member_id)):
                    self.place_standby(task, member_id)
        spread = _Spread(self)
        for task in tasks:
            for _ in range(count - len(self.standbys.get(task, ()))):
                process_id = spread.best(task)
                if process_id is None:
                    break
                spread.add(task, self.least_loaded_in(process_id))
        spread.even_out()

    def place_standby(self, task: TaskId, member_id: str) -> None:
        self.standbys.setdefault(task, {})[self.process(member_id)] = member_id
        self.loads[member_id] += 1

    def is_without(self, task: TaskId, process_id: str) -> bool:
        """Return True for a process that has no copy of a task."""
        return process_id not in self.standbys.get(task, ()) and self.process(self.active[task]) != process_id

    def is_held_in(self, task: TaskId, process_id: str) -> bool:
        """Return True for the process in which the task stays active until its new member caught up."""
        old = self.held.get(task)
        return old is not None and self.process(old) == process_id

    def least_loaded_in(self, process_id: str) -> str:
        member_ids = self.processes[process_id]
        return member_ids[0] if len(member_ids) == 1 else min(member_ids, key=lambda each: (self.loads[each], each))


class _Room:
    """Room of members for active tasks: all may have as many as a fair share, and some one more."""

    def __init__(self, loads: dict[str, int], total: int) -> None:
        self._loads = loads
        self._base, self._extra = divmod(total, len(loads))
        self._extra -= sum(load > self._base for load in loads.values())

    def has(self, member_id: str, *, may_exceed: bool = True) -> bool:
        load = self._loads[member_id]
        return load < self._base or (may_exceed and load == self._base and self._extra > 0)

    def take(self, member_id: str) -> None:
        self._loads[member_id] += 1
        self._extra -= self._loads[member_id] == self._base + 1


class _Spread:
    """Standby tasks over processes. The processes with the same tags are in one queue, ordered by load."""

    def __init__(self, placing: _Placing) -> None:
        self._placing = placing
        self._tags = {
            process_id: placing.members[member_ids[0]].tags for process_id, member_ids in placing.processes.items()
        }
        self._of_process: dict[str, set[TaskId]] = {process_id: set() for process_id in placing.processes}
        for task, copies in placing.standbys.items():
            for process_id in copies:
                self._of_process[process_id].add(task)
        self._queues: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = {}
        for process_id, tags in self._tags.items():
            self._queues.setdefault(tags, []).append((placing.share(process_id), process_id))
        for queue in self._queues.values():
            heapify(queue)

    def add(self, task: TaskId, member_id: str) -> None:
        placing = self._placing
        process_id = placing.process(member_id)
        placing.place_standby(task, member_id)
        self._of_process[process_id].add(task)
        queue, entry = self._queues[self._tags[process_id]], (placing.share(process_id), process_id)
        if queue and queue[0][1] == process_id:
            heapreplace(queue, entry)
        else:
            heappush(queue, entry)

    def best(self, task: TaskId) -> str | None:
        """Return the best process for one more copy of the task; None if every process has one.

        The process of its active task until now comes last. While its new one warms up, it could not be a standby."""
        firsts = [(tags, first) for tags, queue in self._queues.items() if (first := self._first(queue, task))]
        if len(firsts) <= 1:
            return firsts[0][1][1] if firsts else None
        used = {tag for process_id in self._with(task) for tag in self._tags[process_id]}
        found = ((self._placing.is_held_in(task, each[1]), -len(set(tags) - used), *each) for tags, each in firsts)
        return min(found)[3]

    def _with(self, task: TaskId) -> Iterator[str]:
        yield self._placing.process(self._placing.active[task])
        yield from self._placing.standbys.get(task, ())

    def _first(self, queue: list[tuple[float, str]], task: TaskId) -> tuple[float, str] | None:
        """Return the first entry that is up to date and whose process has no copy of the task. Drops those that are out
        of date."""
        placing, passed = self._placing, list[tuple[float, str]]()
        found = None
        while queue:
            entry = queue[0]
            if entry[0] == placing.share(entry[1]):
                if placing.is_without(task, entry[1]):
                    found = entry
                    break
                passed.append(entry)
            heappop(queue)
        for entry in passed:
            heappush(queue, entry)
        return found

    def even_out(self) -> None:
        """Move copies from processes with many to those with few, as long as that makes them more even."""
        while self._evens():
            pass

    def _evens(self) -> bool:
        """Move one copy; return False if none makes the processes more even."""
        by_load = sorted(self._of_process, key=lambda each: (self._copies(each, 0), each))
        low = by_load[0]
        for high in reversed(by_load):
            if self._copies(high, -1) < self._copies(low, 1):
                return False
            for task in sorted(self._of_process[high]):
                if self._may_move(task, high, low):
                    self._move(task, high, low)
                    return True
        return False

    def _copies(self, process_id: str, change: int) -> float:
        return (len(self._of_process[process_id]) + change) / len(self._placing.processes[process_id])

    def _may_move(self, task: TaskId, high: str, low: str) -> bool:
        placing = self._placing
        if not placing.is_without(task, low) or placing.is_held_in(task, low):
            return False
        others = {tag for process_id in self._with(task) if process_id != high for tag in self._tags[process_id]}
        return len(set(self._tags[low]) - others) >= len(set(self._tags[high]) - others)

    def _move(self, task: TaskId, high: str, low: str) -> None:
        placing = self._placing
        placing.loads[placing.standbys[task].pop(high)] -= 1
        self._of_process[high].discard(task)
        heappush(self._queues[self._tags[high]], (placing.share(high), high))
        self.add(task, placing.least_loaded_in(low))


# Easing


def _eased(placing: _Placing, wishes: Wishes) -> dict[str, Roles]:
    """Return the tasks of all members. Those that are held back stay, and warm up at their new members."""
    if not placing.held:
        return _by_member(placing.members, placing.active, placing.standbys, {})
    active, standbys = dict(placing.active), {task: dict(each) for task, each in placing.standbys.items()}
    warmups: dict[TaskId, str] = {}
    for task in sorted(
        placing.held, key=lambda task: (not _is_warming(placing, task), _lag_of_new(placing, task), task)
    ):
        active[task] = placing.held[task]
        copies = standbys.setdefault(task, {})
        copies.pop(placing.process(active[task]), None)
        new = placing.active[task]
        had = [each for each in placing.copies_before.get(task, ()) if placing.process(each) == placing.process(new)]
        if len(warmups) < wishes.warmups:
            # A member that reports no offsets would never be seen to catch up.
            warmups[task] = next((each for each in had if placing.members[each].warms_up), new)
        elif had:
            # Its copy is further than a new one would be.
            copies[placing.process(new)] = had[0]
    return _by_member(placing.members, active, standbys, warmups)


def _is_warming(placing: _Placing, task: TaskId) -> bool:
    process_id = placing.process(placing.active[task])
    return any(task in placing.members[each].before.warmup for each in placing.processes[process_id])


def _lag_of_new(placing: _Placing, task: TaskId) -> float:
    return placing.lag(placing.process(placing.active[task]), task)


def _by_member(
    members: Iterable[str],
    active: Mapping[TaskId, str],
    standbys: Mapping[TaskId, Mapping[str, str]],
    warmups: Mapping[TaskId, str],
) -> dict[str, Roles]:
    roles: dict[str, tuple[list[TaskId], list[TaskId], list[TaskId]]] = {each: ([], [], []) for each in members}
    for task, member_id in active.items():
        roles[member_id][0].append(task)
    for task, copies in standbys.items():
        for member_id in copies.values():
            roles[member_id][1].append(task)
    for task, member_id in warmups.items():
        roles[member_id][2].append(task)
    return {member_id: Roles(*(frozenset(tasks) for tasks in of_member)) for member_id, of_member in roles.items()}
