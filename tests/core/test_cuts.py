"""A cut is the greatest there is, found by rule and by looking at all of them. (That none tears a transaction is tested
on the histories of `test_snapshots`.)"""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as some

from coordinator_protocol.cuts import Committed, UnreadStretch, greatest_cut

PLACES = ("p", "q", "r")


@some.composite
def stretches(draw: some.DrawFn) -> dict[str, UnreadStretch]:
    """Three short logs of what a few decisions committed, each perhaps of several producers."""
    found = {}
    for place in PLACES:
        committed = []
        for marker_offset in sorted(draw(some.sets(some.integers(1, 7), max_size=4))):
            first_offset = draw(some.integers(0, marker_offset - 1))
            decision = draw(some.integers(1, 4))
            producer_id = draw(some.integers(1, 4))
            committed.append(Committed(producer_id, first_offset, marker_offset, 0, decision))
        start, stable = sorted((draw(some.integers(0, 8)), draw(some.integers(0, 8))))
        excluded = draw(some.dictionaries(some.integers(1, 4), some.integers(0, 7), max_size=1))
        found[place] = UnreadStretch(start, stable, excluded, committed)
    return found


def is_cut(stretches: dict[str, UnreadStretch], cut: dict[str, int]) -> bool:
    """Return whether each decision lies on one side of the cut in all partitions, records before the starts left
    out."""
    sides: dict[int, set[bool]] = {}
    for place, stretch in stretches.items():
        for each in stretch.committed:
            first = max(each.first_offset, stretch.start_offset)
            # The last transaction of its producer, of which the log may have lost the beginning.
            if each.marker_offset > stretch.excluded.get(each.producer_id, each.marker_offset) and first < cut[place]:
                return False
            if each.marker_offset >= cut[place]:
                sides.setdefault(each.csn, set()).add(False)
            if first < cut[place]:
                sides.setdefault(each.csn, set()).add(True)
    return all(len(both) == 1 for both in sides.values())


@settings(max_examples=200, deadline=None)
@given(stretches())
def test_it_is_the_greatest_cut(stretches: dict[str, UnreadStretch]) -> None:
    found = greatest_cut(stretches)
    ranges = [range(each.start_offset, each.last_stable_offset + 1) for each in stretches.values()]
    cuts = [dict(zip(PLACES, ends, strict=True)) for ends in product(*ranges)]
    valid = [cut for cut in cuts if is_cut(stretches, cut)]
    assert found in valid
    assert found == {place: max(cut[place] for cut in valid) for place in PLACES}
