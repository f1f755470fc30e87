"""Reference model of a share partition: one offset at a time, without a window, runs or numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from group_coordinator.share_partitions.acquiring import Content, Read, Span, Terms
from group_coordinator.share_partitions.rules import AckBatch, AckType
from group_coordinator.share_partitions.state import AcknowledgingTransaction, RecordState

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, TX_PENDING = (
    RecordState.AVAILABLE,
    RecordState.ACQUIRED,
    RecordState.ACKNOWLEDGED,
    RecordState.ARCHIVING,
    RecordState.ARCHIVED,
    RecordState.TX_PENDING,
)


class Log:
    """The log, offset by offset: what each holds, and in which batch. Offsets without a batch are gaps."""

    def __init__(self, batches: Sequence[tuple[int, Sequence[Content]]]) -> None:
        """`batches`: how many offsets lie before each batch without one, and what its own offsets hold."""
        self._contents: dict[int, Content] = {}
        self._batches: list[range] = []
        at = 0
        for gap, contents in batches:
            if gap:
                self._batches.append(range(at, at + gap))
            self._batches.append(range(at + gap, at + gap + len(contents)))
            at += gap
            for content in contents:
                self._contents[at] = content
                at += 1
        self.end = at

    def content(self, offset: int) -> Content:
        return self._contents.get(offset, Content.NOTHING)

    def batches(self, offsets: range) -> Iterator[range]:
        """The batches, and the gaps between them, of these offsets."""
        for batch in self._batches:
            found = range(max(batch.start, offsets.start), min(batch.stop, offsets.stop))
            if found:
                yield found

    def is_whole(self, batch: range) -> bool:
        """Whether all of it is acquired once it is begun: something in it differs, or all of it are records."""
        contents = {self.content(at) for at in batch}
        return len(contents) > 1 or contents == {Content.RECORDS}

    def whole_batches(self, offsets: range) -> list[range]:
        """The batches that have some of these offsets."""
        return [each for each in self._batches if range(max(each.start, offsets.start), min(each.stop, offsets.stop))]

    def size_of_batches(self, offsets: range) -> int:
        """The number of offsets in the batches that have some of these."""
        return sum(len(each) for each in self.whole_batches(offsets) if each.start in self._contents)

    def read(self, offsets: range) -> Read:
        """Read as the product gets it: the first batch may begin before the offsets."""
        spans: list[Span] = []
        for batch in self.whole_batches(offsets):
            runs = [(content, [*each]) for content, each in groupby(batch, self._contents.get) if content is not None]
            spans += [Span(each[0], each[-1], content, ends_batch=each[-1] + 1 == batch.stop) for content, each in runs]
        return Read(offsets.start, tuple(spans))


@dataclass
class Hold:
    """One acquisition."""

    member: str
    limit: int
    has_letters: bool = False


@dataclass
class Pending:
    """What a transaction does with a record when it commits."""

    transaction: AcknowledgingTransaction
    is_rejection: bool
    limit: int
    has_letters: bool = False


@dataclass
class Entry:
    """One offset in flight."""

    state: RecordState
    deliveries: int
    hold: Hold | None = None
    pending: Pending | None = None
    letter: str = ""
    """Why it was given up, as long as its letter is not written."""


class Throttle:
    """Part of one acquisition near the delivery limit."""

    def __init__(self, log: Log, offsets: range, limit: int) -> None:
        """`offsets`: those that were read."""
        self._log = log
        self._offsets = offsets
        self._limit = limit
        self._deliveries = self._left = 0

    @property
    def is_on(self) -> bool:
        return self._deliveries > 0

    def allows(self, at: int, entries: dict[int, Entry], *, has_others: bool) -> bool:
        deliveries = entries[at].deliveries
        if not self.is_on:
            threshold = max(2, -(-self._limit // 2))
            if deliveries < threshold:
                return True
            if has_others:
                return False
            self._deliveries = deliveries
            self._left = 1
            if deliveries < self._limit - 1:
                size = self._log.size_of_batches(self._like(at, entries))
                self._left = max(1, size // 2 ** (deliveries - threshold + 1))
        if deliveries != self._deliveries or not self._left:
            return False
        self._left -= 1
        return True

    def _like(self, at: int, entries: dict[int, Entry]) -> range:
        """The offsets read from this one on that are as available as it."""
        end = at
        while entries.get(end) == entries[at]:
            end += 1
        return range(at, max(at + 1, min(end, self._read_end)))

    @property
    def _read_end(self) -> int:
        return max(each.stop for each in self._log.whole_batches(self._offsets))


class NotAllowed(Exception):
    """The member does not hold what it acknowledges, or nobody ever got it."""


@dataclass
class Model:
    """One share partition, by offset."""

    start: int = 0
    end: int = 0
    entries: dict[int, Entry] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    """Why offsets are done, as far as they are."""

    def picture(self) -> str:
        """The line that `pictures.picture` makes of it."""
        letters = {AVAILABLE: ".", ACKNOWLEDGED: "+", ARCHIVED: "x", TX_PENDING: "?", ARCHIVING: "!"}

        def shown(entry: Entry) -> str:
            return f"{entry.hold.member if entry.hold else letters[entry.state]}{entry.deliveries}"

        held = [f"{at}{shown(entry)}" for at, entry in sorted(self.entries.items()) if at < self.start and entry.hold]
        return " ".join([*held, f"{self.start}:", *(shown(self.entries[at]) for at in range(self.start, self.end))])

    def acquire(
        self, member: str, log: Log, offsets: range, terms: Terms, most: int, end: int | None = None
    ) -> dict[int, int]:
        """Deliveries of the offsets that the member gets, of these that it read: no record from `end` on."""
        found: dict[int, int] = {}
        hold = Hold(member, terms.delivery_count_limit, terms.has_letters)
        throttle = Throttle(log, offsets, terms.delivery_count_limit)
        for batch in log.batches(offsets):
            has_begun = False
            for at in batch:
                content = log.content(at)
                if at > self.end or (at == self.end and throttle.is_on):
                    break
                if end is not None and at >= end and content is Content.RECORDS:
                    break
                if not has_begun and len(found) >= most and at == batch[0]:
                    break
                if at == self.end:
                    if content is not Content.RECORDS and self.start == self.end:
                        self.start = self.end = at + 1
                        self.reasons[at] = content.value
                        has_begun = True
                        continue
                    if self.end - self.start >= terms.in_flight_max and not (has_begun and log.is_whole(batch)):
                        break
                    has_begun = True
                    self.end += 1
                    self.entries[at] = Entry(AVAILABLE, 0)
                if at >= self.start and self.entries[at].state is AVAILABLE:
                    is_candidate = content is Content.RECORDS and self.entries[at].deliveries < hold.limit
                    if is_candidate and not throttle.allows(at, self.entries, has_others=bool(found)):
                        break
                    self._hand_out(at, content, hold, found)
            else:
                continue
            break
        self._go_on()
        return found

    def _hand_out(self, at: int, content: Content, hold: Hold, found: dict[int, int]) -> None:
        entry = self.entries[at]
        if content is not Content.RECORDS:
            self._done(at, ARCHIVED, content.value)
        elif entry.deliveries >= hold.limit:
            self._give_up(at, content.value, has_letter=hold.has_letters)
        else:
            found[at] = entry.deliveries + 1
            self.entries[at] = Entry(ACQUIRED, entry.deliveries + 1, hold)

    def acknowledge(self, member: str, batches: Sequence[AckBatch], terms: Terms) -> None:
        """All or nothing."""
        outcomes = {}
        known = [at for at, entry in self.entries.items() if at < self.start and entry.hold]
        for batch in batches:
            offsets = range(batch.first_offset, batch.last_offset + 1)
            if batch.last_offset >= self.end or batch.last_offset < min([self.start, *known]):
                raise NotAllowed
            for at in offsets:
                outcomes[at] = AckType(batch.types[0 if len(batch.types) == 1 else at - batch.first_offset])
        for at in outcomes:
            if at >= self.start and not self._is_held_by(at, member):
                raise NotAllowed
        renewed = Hold(member, terms.delivery_count_limit, terms.has_letters)
        for at, kind in outcomes.items():
            entry = self.entries.get(at)
            if entry is None or (at < self.start and not self._is_held_by(at, member)):
                continue
            if at < self.start:
                self._done(at, ARCHIVED, "log_start")
            elif kind is AckType.ACCEPT:
                self._done(at, ACKNOWLEDGED, "accepted")
            elif kind is AckType.RELEASE:
                self._release(at)
            elif kind is AckType.RENEW:
                entry.hold = renewed
            else:
                is_gap = kind is AckType.GAP
                has_letter = not is_gap and entry.hold is not None and entry.hold.has_letters
                self._give_up(at, "gap" if is_gap else "rejected", has_letter=has_letter)
        self._go_on()

    def acknowledge_in_transaction(
        self, member: str, batches: Sequence[AckBatch], transaction: AcknowledgingTransaction
    ) -> None:
        """All or nothing."""
        kinds = {kind for batch in batches for kind in batch.types}
        offsets = [at for batch in batches for at in range(batch.first_offset, batch.last_offset + 1)]
        if not kinds <= {AckType.ACCEPT, AckType.REJECT}:
            raise NotAllowed
        known = [at for at, entry in self.entries.items() if at < self.start and entry.hold]
        if any(batch.last_offset >= self.end or batch.last_offset < min([self.start, *known]) for batch in batches):
            raise NotAllowed
        if any(at >= self.start and not self._may_wait(at, member, transaction) for at in offsets):
            raise NotAllowed
        for batch in batches:
            for at in range(batch.first_offset, batch.last_offset + 1):
                kind = AckType(batch.types[0 if len(batch.types) == 1 else at - batch.first_offset])
                self._wait(at, member, Pending(transaction, kind is AckType.REJECT, 0))
        self._go_on()

    def _may_wait(self, at: int, member: str, transaction: AcknowledgingTransaction) -> bool:
        pending = self.entries[at].pending
        return self._is_held_by(at, member) or (pending is not None and pending.transaction == transaction)

    def _wait(self, at: int, member: str, pending: Pending) -> None:
        entry = self.entries.get(at)
        if at < self.start:
            if self._is_held_by(at, member):
                self._done(at, ARCHIVED, "log_start")
            return
        assert entry is not None
        before = entry.hold or entry.pending
        assert before is not None
        pending.limit, pending.has_letters = before.limit, before.has_letters
        self.entries[at] = Entry(TX_PENDING, entry.deliveries, pending=pending)

    def settle(self, transaction: AcknowledgingTransaction, *, is_commit: bool) -> None:
        """The transaction ends."""
        for at, entry in list(self.entries.items()):
            pending = entry.pending
            if pending is None or pending.transaction != transaction:
                continue
            if is_commit and pending.is_rejection:
                self._give_up(at, "rejected", has_letter=pending.has_letters)
            elif is_commit:
                self._done(at, ACKNOWLEDGED, "accepted")
            elif entry.deliveries >= pending.limit:
                self._give_up(at, "delivery_limit", has_letter=pending.has_letters)
            else:
                self.entries[at] = Entry(AVAILABLE, entry.deliveries)
        self._go_on()

    def _is_held_by(self, at: int, member: str) -> bool:
        entry = self.entries.get(at)
        return entry is not None and entry.hold is not None and entry.hold.member == member

    def release_member(self, member: str) -> None:
        for at in list(self.entries):
            if self._is_held_by(at, member):
                self._release(at)
        self._go_on()

    def release_hold_of(self, offset: int) -> None:
        """The time of the acquisition is over that holds this offset."""
        hold = self.entries[offset].hold
        for at, entry in list(self.entries.items()):
            if entry.hold is hold:
                self._release(at)
        self._go_on()

    def _release(self, at: int) -> None:
        entry = self.entries[at]
        assert entry.hold is not None
        if at < self.start:
            self._done(at, ARCHIVED, "log_start")
        elif entry.deliveries >= entry.hold.limit:
            self._give_up(at, "delivery_limit", has_letter=entry.hold.has_letters)
        else:
            self.entries[at] = Entry(AVAILABLE, entry.deliveries)

    def move_log_start(self, offset: int) -> None:
        for at in range(self.start, offset):
            if at >= self.end or self.entries[at].state in (AVAILABLE, TX_PENDING, ARCHIVING):
                self.entries.setdefault(at, Entry(AVAILABLE, 0))
                self._done(at, ARCHIVED, "log_start")
        self.start = max(self.start, offset)
        self.end = max(self.end, offset)
        self._go_on()

    def restart(self) -> None:
        """What members held is available, and what was never delivered is as if nobody had looked."""
        for at in [at for at, entry in self.entries.items() if at < self.start]:
            if self.entries.pop(at).hold:
                self.reasons[at] = "log_start"
        for at, entry in self.entries.items():
            if entry.hold:
                self.entries[at] = Entry(AVAILABLE, entry.deliveries - 1)
            elif entry.state is ARCHIVED and not entry.deliveries:
                self.entries[at] = Entry(AVAILABLE, 0)
                del self.reasons[at]
        while self.end > self.start and self.entries[self.end - 1] == Entry(AVAILABLE, 0):
            self.end -= 1
            del self.entries[self.end]

    def due_letters(self) -> list[int]:
        """The offsets whose letters are to be written."""
        return [at for at, entry in sorted(self.entries.items()) if entry.letter]

    def end_letters(self, offsets: Sequence[int]) -> None:
        """The letters of these are written, or never will be."""
        for at in offsets:
            self._done(at, ARCHIVED, self.entries[at].letter)
        self._go_on()

    def _give_up(self, at: int, reason: str, *, has_letter: bool) -> None:
        if has_letter:
            self.entries[at] = Entry(ARCHIVING, self.entries[at].deliveries, letter=reason)
        else:
            self._done(at, ARCHIVED, reason)

    def _done(self, at: int, state: RecordState, reason: str) -> None:
        assert at not in self.reasons, "nothing is done twice"
        self.entries[at] = Entry(state, self.entries[at].deliveries)
        self.reasons[at] = reason

    def _is_done(self, at: int) -> bool:
        return self.entries[at].state in (ACKNOWLEDGED, ARCHIVED)

    def _go_on(self) -> None:
        while self.start < self.end and self._is_done(self.start):
            self.start += 1
