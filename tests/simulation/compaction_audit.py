"""Knows what compaction may take from a log, and what it must: the rules alone, of values and their keys.

- A record may be missing if a pass went over it, and it was aborted, or a newer committed record with its key lies
  before the end of that pass.
- A marker may be missing if a pass went over it, and no record of its transaction is shown any more.
- Before the offset up to which a log is clean, no record is left that may be missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.harness.payloads import key_of
from tests.simulation.history import CompactedPart, Entry, History
from tests.simulation.told import require

FOR_EVER = 1 << 60


def whole_log(history: History, partition: str) -> list[Entry]:
    """All that was ever in a partition: what was removed or compacted, too."""
    entries: dict[int, Entry] = {}
    parts = [part.entries for part in history.compacted if part.partition == partition]
    for each in (*parts, history.removed[partition], history.final_raw[partition].entries):
        for entry in each:
            known = entries.setdefault(entry.offset, entry)
            require(known == entry, f"{partition}: {known} became {entry}")
    return [entry for _offset, entry in sorted(entries.items())]


class CompactionAudit:
    """Judges what is missing in one history."""

    def __init__(self, history: History, logs: Mapping[str, Sequence[Entry]]) -> None:
        self._history = history
        self._logs = logs
        self._entries = {(partition, entry.offset): entry for partition, log in logs.items() for entry in log}
        self._parts: defaultdict[str, list[CompactedPart]] = defaultdict(list)
        for part in history.compacted:
            self._parts[part.partition].append(part)
        self._committed: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        """Offsets of the committed records of a key in a partition, ascending."""
        self._ends: dict[str, str] = {}
        """Outcome of each value."""
        self._values_before: dict[tuple[str, int], list[str]] = {}
        """Values of the transaction that a marker ended."""
        for partition, log in logs.items():
            self._note(partition, log)

    def _note(self, partition: str, log: Sequence[Entry]) -> None:
        opened: defaultdict[int, list[Entry]] = defaultdict(list)
        for entry in log:
            if not entry.outcome:
                opened[entry.producer_id].append(entry)
                continue
            ended = opened.pop(entry.producer_id, [])
            self._values_before[partition, entry.offset] = [each.value for each in ended]
            self._ends.update((each.value, entry.outcome) for each in ended)
        for entry in log:
            if self._ends.get(entry.value) == "commit":
                self._committed[partition, self._key_of(entry)].append(entry.offset)

    def _key_of(self, entry: Entry) -> str:
        return key_of(entry.value, self._history.key_count)

    def has(self, partition: str) -> bool:
        """Whether a pass has gone over any part of a partition."""
        return partition in self._parts

    def newer(self, partition: str, offset: int) -> list[tuple[str, int]]:
        """The places of the committed records of the same key behind a record."""
        places = self._committed[partition, self._key_of(self._entries[partition, offset])]
        return [(partition, place) for place in places[bisect_right(places, offset) :]]

    def may_lack(self, partition: str, offset: int, *, at: int = FOR_EVER) -> bool:
        """Whether a record may be missing at a moment."""
        return any(
            part.at <= at
            and part.begin_offset <= offset < part.end_offset
            and self._is_replaced(partition, offset, part.pass_end_offset)
            for part in self._parts[partition]
        )

    def _is_replaced(self, partition: str, offset: int, end: int) -> bool:
        """Whether a record was aborted, or a newer one with its key lies before an offset."""
        entry = self._entries[partition, offset]
        if self._ends.get(entry.value) == "abort":
            return True
        return any(place < end for _partition, place in self.newer(partition, offset)[:1])

    def may_lack_marker(self, partition: str, marker: Entry, at: int, shown: Sequence[Entry]) -> bool:
        """Whether a marker may be missing at a moment, beside what is shown."""
        is_passed = any(
            part.at <= at and part.begin_offset <= marker.offset < part.end_offset for part in self._parts[partition]
        )
        values = {entry.value for entry in shown}
        return is_passed and values.isdisjoint(self._values_before[partition, marker.offset])

    def check(self) -> None:
        """Nothing is left that passes must have taken, and nothing went that a lease held."""
        for partition, clean_to in self._history.clean_to.items():
            left = [
                entry
                for entry in self._history.final_raw[partition].entries
                if not entry.outcome
                and entry.offset < clean_to
                and self._is_replaced(partition, entry.offset, clean_to)
            ]
            require(not left, f"{partition}: still there before {clean_to}: {left}")
        for lease in self._history.leases:
            for part in self._parts[lease.partition]:
                is_held = lease.taken_at < part.at and (lease.ended_at is None or part.at < lease.ended_at)
                require(not is_held or part.end_offset <= lease.offset, f"{lease} was ignored: {part}")
