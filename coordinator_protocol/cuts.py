"""Cuts: offsets, one for each partition, that have every transaction on one side in all of them.

A reader that keeps nothing but offsets, and stops at cuts, has seen each transaction whole or not at all whenever it
stands at one. A vector of last stable offsets is none: an older open transaction in one partition holds back there what
is shown elsewhere. A cut waits where an open transaction holds a partition back, with all that hangs together with what
lies behind it there; a snapshot waits for nothing, and needs more than offsets to be remembered
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
    """What the commit marker of a transaction says in one partition."""

    producer_id: int
    first_offset: int
    """Where the transaction begins in this partition."""
    marker_offset: int
    """Where it ends."""
    coordinator_shard: int
    csn: int
    """With the shard it names what was decided together: a transaction, or all members of one decision."""


class UnreadStretch(Struct, frozen=True):
    """A partition from where its reader stands to the end of a snapshot."""

    start_offset: int
    last_stable_offset: int
    excluded: Mapping[int, int]
    """What the snapshot leaves out: by producer id, from which offset on."""
    committed: Sequence[Committed]
    """What has its marker in between, by marker offset, ascending."""


def greatest_cut(stretches: Mapping[PlaceT, UnreadStretch]) -> dict[PlaceT, int]:
    """Return the greatest cut that is nowhere before the starts of the stretches, nor behind a last stable offset. All
    are of one snapshot. If the starts are a cut themselves, no transaction lies on both sides of either; else what
    lies before them is left out of account.

    Two cuts of the same partitions have their maximum for a cut, so there is a greatest one, and a later one is nowhere
    before it."""
    cut: dict[PlaceT, int] = {}
    parts: defaultdict[tuple[int, int], list[tuple[PlaceT, int]]] = defaultdict(list)
    for place, stretch in stretches.items():
        # One that is decided and not finished everywhere is open elsewhere, or a member of a decision under way. It is
        # known by its end, for what is excluded may begin where the log does by now.
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
