"""Range: each topic is cut into neighbouring pieces, one for each subscriber in turn.

Stateless: previous owners do not matter. Topics with the same subscribers and as many partitions are cut alike, so that
one member gets the same numbers of each and can join them. The first members get the larger pieces of *every* topic:
with many small topics they carry much more than the last.

Source: spec groups 5.2; Kafka's two `RangeAssignor`s, KIP-881 for racks.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from coordinator_protocol.assignors.audiences import Audience, audiences, in_order
from coordinator_protocol.assignors.racks import Racks, racks_that_matter
from coordinator_protocol.assignors.values import MemberSpec, Shares, TopicSpec, TopicT

_Piece = tuple[int, ...]


def assign_range(members: Mapping[str, MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec]) -> Shares[TopicT]:
    """Return the shares without regard to racks: pieces of a topic are neighbours and differ by one at most."""
    turns = in_order(members)
    shares: list[dict[TopicT, _Piece]] = [{} for _ in turns]
    known: dict[tuple[int, int], list[_Piece]] = {}
    for topic, audience in audiences([members[member_id] for member_id in turns], topics).items():
        cut = topics[topic].partition_count, len(audience.places)
        pieces = known.get(cut)
        if pieces is None:
            pieces = known[cut] = _pieces(*cut)
        for place, piece in zip(audience.places, pieces, strict=False):
            shares[place][topic] = piece
    return dict(zip(turns, shares, strict=True))


def assign_range_by_rack(
    members: Mapping[str, MemberSpec[TopicT]], topics: Mapping[TopicT, TopicSpec]
) -> Shares[TopicT]:
    """Return the shares of `assign_range`, but with a preference for members in a rack with a replica.

    Pieces are as large as there, but their partitions are no longer neighbours. If racks make no difference this is
    `assign_range`."""
    turns = in_order(members)
    specs = [members[member_id] for member_id in turns]
    racks = racks_that_matter(specs, topics)
    if racks is None:
        return assign_range(members, topics)
    alike: dict[tuple[Audience, int], list[TopicT]] = defaultdict(list)
    for topic, audience in audiences(specs, topics).items():
        alike[audience, topics[topic].partition_count].append(topic)
    shares: list[dict[TopicT, _Piece]] = [{} for _ in turns]
    for (audience, count), names in alike.items():
        for place, piece in _pieces_by_rack(audience.places, count, names, racks).items():
            for topic in names if piece else ():
                shares[place][topic] = piece
    return dict(zip(turns, shares, strict=True))


def _pieces(partition_count: int, size: int) -> list[_Piece]:
    """Return the pieces of a topic for its `size` subscribers, without empty ones."""
    each, larger = divmod(partition_count, size)
    pieces = []
    start = 0
    for turn in range(min(partition_count, size)):
        end = start + each + (turn < larger)
        pieces.append(tuple(range(start, end)))
        start = end
    return pieces


def _pieces_by_rack(
    places: Sequence[int], partition_count: int, topics: Sequence[TopicT], racks: Racks[TopicT]
) -> dict[int, _Piece]:
    """Return one piece per subscriber for all topics alike, so that they stay joinable.

    A partition goes to the first member in turn that may take more and is near to it in all these topics. A member
    without a rack is near to everything. The rest is cut as if there were no racks."""
    each, larger = divmod(partition_count, len(places))
    held: dict[int, list[int]] = {place: [] for place in places}
    waiting: dict[str | None, deque[int]] = defaultdict(deque)
    for place in places:
        waiting[racks.of_members[place]].append(place)
    left = []
    for partition in range(partition_count):
        near = frozenset.intersection(*(racks.of_partition(topic, partition) for topic in topics))
        # The limit of a member never rises (`larger` only falls), so a full member leaves its queue permanently.
        for rack in (None, *near):
            while waiting[rack] and len(held[waiting[rack][0]]) >= each + (larger > 0):
                waiting[rack].popleft()
        first = min((waiting[rack][0] for rack in (None, *near) if waiting[rack]), default=None)
        if first is None:
            left.append(partition)
            continue
        held[first].append(partition)
        larger -= len(held[first]) > each
    return {place: tuple(sorted(piece)) for place, piece in _fill(held, left, each, larger).items()}


def _fill(held: dict[int, list[int]], left: Sequence[int], each: int, larger: int) -> dict[int, list[int]]:
    """Give the `left` partitions to members that may take more, neighbours together."""
    start = 0
    for piece in held.values():
        end = start + max(0, each + (larger > 0) - len(piece))
        piece += left[start:end]
        larger -= end > start and len(piece) > each
        start = end
    return held
