"""Outcomes of all transactions, as reported by their producers and as seen by readers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

PARTITIONS: Final = 3
"""Number of partitions; every transaction writes one record to each."""
EXAMPLES_MAX: Final = 3

BEGUN, COMMITTED, ABORTED = "b", "c", "a"


@dataclass(slots=True)
class Told:
    """Reports of the producers of one transactional id, one after the other, about their transactions."""

    begun: int = 0
    """Number of begun transactions, which are numbered from 0."""
    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)

    def note(self, line: str) -> float | None:
        """Take a line of a producer. Returns the time of the commit (ms) if it was one. A line that was cut short by a
        kill is ignored."""
        words = line.split()
        if len(words) != 3 or not line.endswith("\n"):
            return None
        number, what, took = int(words[0]), words[1], float(words[2])
        if what == BEGUN:
            self.begun = max(self.begun, number + 1)
        elif what == COMMITTED:
            self.committed.add(number)
            return took
        else:
            self.aborted.add(number)
        return None


class Seen:
    """Number of times that readers of committed records of one topic saw each transaction, by partition."""

    def __init__(self) -> None:
        self._counts: dict[int, Sequence[bytearray]] = {}

    def note(self, producer: int, number: int, partition: int) -> None:
        """Count one record."""
        counts = self._counts.setdefault(producer, [bytearray() for _ in range(PARTITIONS)])[partition]
        if number >= len(counts):
            counts.extend(bytes(number + 1 - len(counts) + 1_024))
        counts[number] = min(counts[number] + 1, 255)

    def of(self, producer: int, number: int) -> tuple[int, ...]:
        """Return how often a transaction was seen in each partition."""
        counts = self._counts.get(producer, [bytearray()] * PARTITIONS)
        return tuple(each[number] if number < len(each) else 0 for each in counts)


def differences(told: Mapping[int, Told], orders: Seen, copies: Seen) -> list[str]:
    """Return the errors in what readers saw.

    A committed transaction is there once in every partition, and an aborted one nowhere. One with an unknown outcome is
    there once everywhere, or nowhere. A copy is the same as its original."""
    once, never = (1,) * PARTITIONS, (0,) * PARTITIONS
    lost, shown, torn, uneven = [], [], [], []
    for producer, said in told.items():
        for number in range(said.begun):
            seen = orders.of(producer, number)
            name = f"{producer}/{number}: {seen}"
            if number in said.committed:
                lost += [name] * (seen != once)
            elif number in said.aborted:
                shown += [name] * (seen != never)
            else:
                torn += [name] * (seen not in {once, never})
            copied = copies.of(producer, number)
            uneven += [f"{name}, copied {copied}"] * (copied != seen)
    return [
        *_told("acknowledged and not there once in every partition", lost),
        *_told("aborted and seen", shown),
        *_told("there in part or more than once", torn),
        *_told("copied otherwise than it is", uneven),
    ]


def _told(what: str, found: Iterable[str]) -> list[str]:
    found = list(found)
    return [f"{len(found)} transactions {what}, such as {'; '.join(found[:EXAMPLES_MAX])}"] if found else []
