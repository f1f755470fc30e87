"""Deals partitions like cards: one each, around the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator_protocol.assignors.values import TopicT


def deal(shares: Sequence[dict[TopicT, tuple[int, ...]]], runs: Iterable[tuple[TopicT, Sequence[int]]]) -> None:
    """Add the partitions of `runs` to the shares, one after the other, starting with the first share and going around.

    A run is some partitions of one topic, ascending.
    """
    turn = 0
    size = len(shares)
    hands: list[tuple[int, ...]] = []
    cut: Sequence[int] = ()
    for topic, partitions in runs:
        if partitions != cut:
            # Topics are often dealt alike and then share the tuples: for a million partitions, they would be most of
            # the memory.
            hands, cut = _hands(partitions, size), partitions
        end = turn + len(partitions)
        around = shares[turn:end] if end <= size else [*shares[turn:], *shares[: min(turn, end - size)]]
        for share, hand in zip(around, hands, strict=True):
            if topic in share:
                share[topic] = tuple(sorted(share[topic] + hand))
            else:
                share[topic] = hand
        turn = end % size


def _hands(partitions: Sequence[int], size: int) -> list[tuple[int, ...]]:
    """Return the partitions that each receiver gets, in the order of turns; receivers without any are left out."""
    if len(partitions) <= size:
        return [*zip(partitions, strict=True)]
    return [tuple(partitions[turn::size]) for turn in range(size)]
