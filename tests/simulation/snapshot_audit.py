"""Judges what readers of snapshots saw, by what the logs have in the end: a decision is shown whole or not at all, in
all partitions of the snapshot, and who follows the log by deltas gets every committed record once.

What was decided together shows in the markers: they carry one csn of one shard of the transaction coordinator, those of
all members of a sink's decision, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import TypeAlias

from tests.simulation.compaction_audit import FOR_EVER, CompactionAudit
from tests.simulation.history import Entry, History, ShownSnapshot

Place: TypeAlias = tuple[str, int]
"""A partition and an offset."""
Decision: TypeAlias = tuple[int, int]
"""A shard of the transaction coordinator and a csn."""


class SnapshotAudit:
    """Checks the snapshots and deltas of one history. The checks raise AssertionError at the first broken promise."""

    def __init__(self, history: History, logs: Mapping[str, Iterable[Entry]], compaction: CompactionAudit) -> None:
        self._history = history
        self._logs = logs
        self._compaction = compaction
        self._values: dict[Place, str] = {}
        self._decisions: dict[Place, Decision] = {}
        """The decision that committed a record, by its place."""
        self._places: defaultdict[Decision, set[Place]] = defaultdict(set)
        self._partitions = {*logs, *history.sink_logs, *history.passing_logs}
        for partition, log in (*logs.items(), *history.sink_logs.items()):
            self._note(partition, log)
        for partition, parts in history.passing_logs.items():
            for part in parts:
                self._note(partition, part)

    def _note(self, partition: str, log: Iterable[Entry]) -> None:
        opened: defaultdict[int, list[Place]] = defaultdict(list)
        for entry in log:
            place = partition, entry.offset
            if not entry.outcome:
                self._values[place] = entry.value
                opened[entry.producer_id].append(place)
                continue
            ended = opened.pop(entry.producer_id, [])
            if entry.outcome == "commit":
                decision = entry.coordinator_shard, entry.csn
                self._places[decision].update(ended)
                self._decisions.update(dict.fromkeys(ended, decision))

    def check(self) -> None:
        """Judge all of it."""
        for snapshot in self._history.snapshots:
            if not snapshot.is_lost:
                self._check_snapshot(snapshot)
                self._check_cut(snapshot)
        self._check_deltas()

    def _check_cut(self, snapshot: ShownSnapshot) -> None:
        cut = snapshot.cut
        for partition, offset in cut.items():
            is_shown = snapshot.cut_starts[partition] <= offset
            _require(is_shown and offset <= snapshot.ends[partition], f"a cut goes back: {partition}: {snapshot}")
        before = self._before(snapshot.cut_starts, cut)
        self._check_whole(before, snapshot.cut_starts, f"cut {snapshot}")

    def _before(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> set[Place]:
        """The committed places between these offsets."""
        return {
            place for place in self._decisions if place[0] in ends and starts[place[0]] <= place[1] < ends[place[0]]
        }

    def _check_snapshot(self, snapshot: ShownSnapshot) -> None:
        first: set[Place] | None = None
        for reading, is_held in zip(snapshot.readings, snapshot.is_held, strict=True):
            shown = self._shown(reading, snapshot)
            first = shown if first is None else first
            may_change = not snapshot.is_checked and not is_held
            lacking = self._lacking(shown, FOR_EVER if may_change else snapshot.at)
            is_same = reading == snapshot.readings[0] or (may_change and shown < first and first - shown <= lacking)
            _require(is_same, f"a snapshot changed: {sorted(shown ^ first)}: {snapshot}")
            for partition, offset in shown:
                begin, end = snapshot.starts[partition], snapshot.ends[partition]
                _require(begin <= offset < end, f"{partition}@{offset} is not in {snapshot}")
            self._check_whole(shown, snapshot.starts, f"snapshot {snapshot}", lacking)
            compacted = {each: end for each, end in snapshot.compacted.items() if each in self._logs}
            missing = self._before(snapshot.starts, compacted) - shown - lacking
            _require(not missing, f"compaction took {sorted(missing)}: {snapshot}")

    def _shown(self, reading: Mapping[str, tuple[Entry, ...]], where: object) -> set[Place]:
        """The places that were shown, in partitions that are still there."""
        places = [(partition, each.offset) for partition, entries in reading.items() for each in entries]
        shown = {place for place in places if place[0] in self._partitions}
        _require(len(set(places)) == len(places), f"shown twice: {where}")
        _require(
            shown <= self._decisions.keys(), f"shown, and never committed: {shown - self._decisions.keys()}: {where}"
        )
        for partition, entries in reading.items():
            for each in entries:
                is_same = self._values.get((partition, each.offset), each.value) == each.value
                _require(is_same, f"{partition} has another record than {each}: {where}")
        return shown

    def _lacking(self, shown: set[Place], at: int, lost: Mapping[str, int] = MappingProxyType({})) -> set[Place]:
        """The committed places that compaction may have taken from a log by then, beside those that were shown. `lost`:
        offsets below which a compaction that a restore took back may have taken records."""
        return {
            place
            for place in self._decisions.keys() - shown
            if place[0] in self._logs and (place[1] < lost.get(place[0], 0) or self._compaction.may_lack(*place, at=at))
        }

    def _check_whole(
        self, shown: set[Place], starts: Mapping[str, int], where: str, lacking: AbstractSet[Place] = frozenset()
    ) -> None:
        torn = self.torn(shown, starts, lacking)
        _require(not torn, f"torn: of decisions {torn} only a part is shown: {where}")

    def torn(
        self, shown: set[Place], starts: Mapping[str, int], lacking: AbstractSet[Place] = frozenset()
    ) -> list[Decision]:
        """The decisions of which a part is shown and another is not, although it is in these partitions, and not
        before these offsets. `lacking`: places that need not be shown."""
        return [
            decision
            for decision in {self._decisions[place] for place in shown}
            if any(starts.get(place[0], place[1] + 1) <= place[1] for place in self._places[decision] - shown - lacking)
        ]

    def torn_vectors(self) -> int:
        """How many of the vectors of last stable offsets would have shown a part of a decision at the moments when the
        snapshots were taken: what snapshots are for."""
        count = 0
        for snapshot in self._history.snapshots:
            bounds = snapshot.last_stable
            shown = self._before(snapshot.starts, bounds)
            count += not snapshot.is_lost and bool(self.torn(shown, snapshot.starts))
        return count

    def _check_deltas(self) -> None:
        sequences = defaultdict(list)
        for delta in self._history.deltas:
            sequences[delta.sequence].append(delta)
        for number, deltas in sequences.items():
            while deltas and deltas[-1].snapshot.is_lost:
                del deltas[-1]
            have: set[Place] = set()
            starts: dict[str, int] = {}
            lacking_at = 0
            lost: dict[str, int] = {}
            for delta in deltas:
                lacking_at = max(lacking_at, delta.snapshot.at if delta.snapshot.is_checked else FOR_EVER)
                where = f"sequence {number}, {delta}"
                added = self._shown(delta.added, where)
                _require(not have & added, f"repeated: {have & added}: {where}")
                have |= added
                starts = {
                    partition: starts.get(partition, begin)
                    for partition, begin in delta.snapshot.starts.items()
                    if partition in self._partitions
                }
                if delta.snapshot.is_lost:
                    compacted = delta.snapshot.compacted if delta.snapshot.is_checked else delta.snapshot.ends
                    lost |= {each: max(end, lost.get(each, 0)) for each, end in compacted.items()}
                else:
                    lacking = self._lacking(have, lacking_at, lost)
                    self._check_whole({place for place in have if place[0] in starts}, starts, where, lacking)
            if number in self._history.caught_up:
                missing = {
                    place for place in self._decisions.keys() - have if starts.get(place[0], place[1] + 1) <= place[1]
                }
                missing -= self._lacking(have, lacking_at, lost)
                _require(not missing, f"skipped: {sorted(missing)}: sequence {number}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise AssertionError(message)
