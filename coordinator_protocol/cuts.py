"""Cuts: offsets, one for each partition, that have every transaction on one side in all of them.

A reader that keeps only offsets and stops at cuts has always seen each transaction whole or not at all when it stops. A
vector of last stable offsets is not a cut: an older open transaction in one partition hides there what is shown
elsewhere. If an open transaction holds a partition back, a cut waits there, and so does everything connected with the
records after it. A snapshot waits for nothing, and needs more than offsets to be remembered
(`coordinator_protocol/snapshots.py`).

Source: spec log-and-runtime 2.4, Algorithm C; decision 40.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

PlaceT = TypeVar("PlaceT", bound=Hashable)


class Committed(Struct, frozen=True):
    """Content of a transaction's commit marker in one partition."""

    producer_id: int
    first_offset: int
    """First offset of the transaction in this partition."""
    marker_offset: int
    """Offset of the marker, its end."""
    coordinator_shard: int
    csn: int
    """Commit sequence number. With the shard it names what was decided together: a transaction, or all members of one
    decision."""


class UnreadStretch(Struct, frozen=True):
    """Range of a partition from its reader's position to the end of a snapshot."""

    start_offset: int
    last_stable_offset: int
    excluded: Mapping[int, int]
    """Exclusions of the snapshot: by producer id, the offset from which nothing of it is shown."""
    committed: Sequence[Committed]
    """Transactions with their marker in the range, by marker offset, ascending."""


def greatest_cut(stretches: Mapping[PlaceT, UnreadStretch]) -> dict[PlaceT, int]:
    """Return the greatest cut that is nowhere before the starts of the ranges, nor past a last stable offset.

    All ranges are of one snapshot. If the starts are a cut themselves, no transaction lies on both sides of either cut.
    Otherwise, anything before the starts is ignored.

    The maximum of two cuts of the same partitions is a cut. So there is a greatest one, and a later one is nowhere
    before it."""
    cut: dict[PlaceT, int] = {}
    parts: defaultdict[tuple[int, int], list[tuple[PlaceT, int]]] = defaultdict(list)
    for place, stretch in stretches.items():
        # A decided transaction that is not finished everywhere is open elsewhere, or a member of a decision in
        # progress. It is recognised by its end, because an exclusion may by now begin at the log start.
        unfinished = [
            each.first_offset
            for each in stretch.committed
            if each.marker_offset > stretch.excluded.get(each.producer_id, each.marker_offset)
        ]
        cut[place] = max(min([stretch.last_stable_offset, *unfinished]), stretch.start_offset)
        for each in stretch.committed:
            first_offset = max(each.first_offset, stretch.start_offset)
            parts[each.coordinator_shard, each.csn].append((place, first_offset))
    behind = {place: list(stretch.committed) for place, stretch in stretches.items()}
    moved = list(cut)
    while moved:
        place = moved.pop()
        while behind[place] and behind[place][-1].marker_offset >= cut[place]:
            last = behind[place].pop()
            for other, first_offset in parts[last.coordinator_shard, last.csn]:
                if first_offset < cut[other]:
                    cut[other] = first_offset
                    moved.append(other)
    return cut
