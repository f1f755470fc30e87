"""What the workers of a share group were told, and what must not contradict it (spec groups 10.5, I9).

An offset is done once its outcome was acknowledged. A worker holds what it was given until its lock, its session or its
shard may have ended. The book forgets a hold sooner than the server does, never later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tests.simulation.told import require

DELIVERIES_MAX: Final = 3
LOCK_MS: Final = 900
SESSION_MS: Final = 1_000

Place = tuple[str, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A record that a worker was given."""

    worker: str
    until_ms: int
    shard: object
    """The shard that gave it: its holds end with it."""


@dataclass(slots=True)
class ShareBook:
    """All that a run knows of the records of the group."""

    values: dict[str, str] = field(default_factory=dict)
    """Outcome of the transaction of each value that was written, or may have been."""
    deliveries: dict[Place, int] = field(default_factory=dict)
    """Greatest count that anybody was told."""
    counted: dict[Place, tuple[int, object]] = field(default_factory=dict)
    """Count of the newest delivery, and the shard that counted."""
    holds: dict[Place, Hold] = field(default_factory=dict)
    done: dict[Place, str] = field(default_factory=dict)
    """What was accepted or rejected, and answered."""
    asked: set[Place] = field(default_factory=set)
    """Records with an accept that was sent, answered or not."""
    rejected: set[Place] = field(default_factory=set)
    """Records with a reject that was sent, answered or not."""
    given_up: set[Place] = field(default_factory=set)
    """What was delivered as often as the group allows, as the server has it."""
    unended: set[Place] = field(default_factory=set)
    """Records of transactions that are open, as far as their writer knows."""
    delivered: int = 0

    def copy(self) -> ShareBook:
        """A copy of what is known now, without the holds."""
        return ShareBook(
            dict(self.values),
            dict(self.deliveries),
            {},
            {},
            dict(self.done),
            set(self.asked),
            set(self.rejected),
            set(self.given_up),
            set(self.unended),
            self.delivered,
        )

    def go_back_to(self, book: ShareBook) -> None:
        """What was told since is of a lost line. The values are known still."""
        known = book.copy()
        self.deliveries, self.holds, self.done = known.deliveries, known.holds, known.done
        self.asked, self.rejected, self.given_up = known.asked, known.rejected, known.given_up
        self.counted, self.unended = known.counted, known.unended

    def deliver(self, place: Place, count: int, hold: Hold, now_ms: int) -> None:
        """A worker is given a record."""
        before = self.holds.get(place)
        require(place not in self.done, f"I9: {place} was {self.done.get(place)} and comes again to {hold.worker}")
        require(count <= DELIVERIES_MAX, f"I9: {place} is delivered for the {count}th time")
        require(place not in self.unended, f"I9: {place} is delivered, and its transaction is open or aborted")
        last_count, shard = self.counted.get(place, (0, hold.shard))
        # What a shard had only in memory ends with it, and so do counts.
        require(shard is not hold.shard or count > last_count, f"I9: {place} is delivered twice with the count {count}")
        self.counted[place] = count, hold.shard
        if before is not None and before.shard is hold.shard and now_ms < before.until_ms:
            require(before.worker == "", f"I9: {place} is held by {before.worker} and comes to {hold.worker}")
        self.deliveries[place] = max(count, self.deliveries.get(place, 0))
        self.holds[place] = hold
        self.delivered += 1

    def ask(self, worker: str, place: Place, *, is_accepted: bool, is_rejected: bool) -> Hold | None:
        """A worker asks for an outcome, and holds the record no more. Return the hold of another one."""
        if is_accepted:
            self.asked.add(place)
        elif is_rejected:
            self.rejected.add(place)
        hold = self.holds.get(place)
        if hold is None or hold.worker == worker:
            self.holds.pop(place, None)
            return None
        return hold

    def wait(self, place: Place, hold: Hold, foreign: Hold | None, now_ms: int) -> None:
        """A transaction has acknowledged a record, which comes to no worker before its end. `foreign`: as `finish`."""
        stands = foreign is not None and self.holds.get(place) is foreign and now_ms < foreign.until_ms
        require(not stands, f"I9: {place} is acknowledged in {hold.worker}, and {foreign} holds it")
        self.holds[place] = hold

    def finish(self, place: Place, how: str, foreign: Hold | None, now_ms: int) -> None:
        """An outcome was acknowledged. `foreign`: the hold of another worker, when it was asked for."""
        stands = foreign is not None and self.holds.get(place) is foreign and now_ms < foreign.until_ms
        require(not stands, f"I9: {place} is {how} by another, and {foreign} holds it")
        self.done[place] = how

    def let_go(self, worker: str) -> None:
        """A worker may hold nothing any more."""
        self.holds = {place: hold for place, hold in self.holds.items() if hold.worker != worker}

    def may_have_letter(self, place: Place) -> bool:
        """Whether the group may have given it up."""
        return place in self.rejected or place in self.given_up
