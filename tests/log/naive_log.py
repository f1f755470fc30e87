"""A partition log as a list that is scanned for every answer: the oracle of the machine test.

It shares no code with the log and remembers nothing but what was appended."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator_protocol.errors import ErrorCode

WINDOW = 5


@dataclass(frozen=True)
class Written:
    """One batch or marker. `group` is the commit group that carries it."""

    group: int
    base_offset: int
    count: int
    producer_id: int
    epoch: int
    sequence: int = -1
    is_transactional: bool = False
    commits: bool | None = None
    """The outcome of a marker; None for a batch."""
    next_epoch: int = -1
    csn: int = 0
    timestamp_ms: int = -1

    @property
    def end(self) -> int:
        return self.base_offset + self.count


@dataclass
class NaiveProducer:
    """State of one producer, found by a scan."""

    epoch: int = -1
    batches: list[Written] = field(default_factory=list)
    first_unstable: int | None = None
    csn: int = 0

    def is_stranger(self, sequence: int, *, is_open: bool) -> bool:
        """True if a repeated batch with this first sequence is surely not of the transaction that is open now."""
        if self.first_unstable is None:
            return is_open
        ended = [written for written in self.batches[-WINDOW:] if written.base_offset < self.first_unstable]
        return any(sequence < written.sequence + written.count for written in ended)


class NaiveLog:
    def __init__(self, written: list[Written] | None = None, of_transactions: frozenset[int] = frozenset()) -> None:
        self.written = written if written is not None else []
        self.of_transactions = of_transactions
        """Producer ids of transactional ids."""

    @property
    def end(self) -> int:
        return self.written[-1].end if self.written else 0

    def upto(self, group: int) -> NaiveLog:
        """The log as it is when the groups up to this one are on disk."""
        return NaiveLog([written for written in self.written if written.group <= group])

    def producer(self, producer_id: int) -> NaiveProducer | None:
        found: NaiveProducer | None = None
        for written in self.written:
            if written.producer_id != producer_id or producer_id < 0:
                continue
            found = found or NaiveProducer()
            epoch = written.epoch if written.commits is None else written.next_epoch
            if epoch > found.epoch:
                found.epoch, found.batches = epoch, []
            if written.commits is None:
                found.batches.append(written)
                if written.is_transactional and found.first_unstable is None:
                    found.first_unstable = written.base_offset
            else:
                found.first_unstable, found.csn = None, written.csn
        return found

    def expect(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        count: int,
        *,
        is_transactional: bool,
        is_open: bool = False,
    ) -> object:
        """Return the answer to an append: an error code, the offset of the duplicate, or None for a new batch.

        `is_open`: the partition is in the open transaction of the producer, as its coordinator says."""
        producer = self.producer(producer_id)
        if producer_id < 0:
            return None
        if not is_transactional and producer_id in self.of_transactions:
            return ErrorCode.INVALID_TXN_STATE
        if producer is None:
            return None if sequence == 0 else ErrorCode.UNKNOWN_PRODUCER_ID
        is_stranger = is_transactional and producer.is_stranger(sequence, is_open=is_open)
        if epoch == producer.epoch:
            for written in producer.batches[-WINDOW:]:
                if (written.sequence, written.count) == (sequence, count):
                    return ErrorCode.UNKNOWN_PRODUCER_ID if is_stranger else written.base_offset
        if epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if is_transactional and producer.first_unstable is not None and epoch > producer.epoch:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        batches = producer.batches if epoch == producer.epoch else []
        following = batches[-1].sequence + batches[-1].count if batches else 0
        if sequence != following:
            behind = sequence + count <= following
            if behind and is_stranger:
                return ErrorCode.UNKNOWN_PRODUCER_ID
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER if behind else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not is_transactional and producer.first_unstable is not None:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def is_marker_new(self, producer_id: int, txn_epoch: int, csn: int) -> bool:
        producer = self.producer(producer_id)
        if producer is None:
            return True
        if csn <= producer.csn or txn_epoch < producer.epoch:
            return False
        # A marker of a later transaction than the open one contradicts the log: its predecessor was lost in a crash and
        # not sent again, which no coordinator does. It is refused.
        return producer.first_unstable is None or txn_epoch == producer.epoch

    def outcome(self, batch: Written) -> bool | None:
        """True: committed or outside transactions; False: aborted; None: open."""
        if not batch.is_transactional:
            return True
        for written in self.written:
            is_behind = written.base_offset > batch.base_offset
            if is_behind and written.producer_id == batch.producer_id and written.commits is not None:
                return written.commits
        return None

    @property
    def last_stable_offset(self) -> int:
        unstable = [written.base_offset for written in self._batches() if self.outcome(written) is None]
        return min(unstable, default=self.end)

    @property
    def open_transactions(self) -> int:
        return len({written.producer_id for written in self._batches() if self.outcome(written) is None})

    def visible(self, *, is_committed: bool, start: int = 0) -> list[int]:
        """Offsets that a reader sees from `start` on, whole batches."""
        bound = self.last_stable_offset if is_committed else self.end
        return [
            offset
            for written in self._batches()
            if written.end > start and written.base_offset < bound and (not is_committed or self.outcome(written))
            for offset in range(written.base_offset, written.end)
        ]

    def count(self, start: int) -> tuple[int, int]:
        """Records from `start` on: all of them, and those that a committed reader gets."""
        seen = (self.visible(is_committed=is_committed, start=start) for is_committed in (False, True))
        records, committed = (sum(offset >= start for offset in offsets) for offsets in seen)
        return records, committed

    def hidden(self, start: int, end: int) -> tuple[int, int]:
        """Aborted records and markers between two offsets."""
        aborted = [written for written in self._batches() if self.outcome(written) is False]
        markers = [written for written in self.written if written.commits is not None]
        return _overlap(aborted, start, end), _overlap(markers, start, end)

    def first_at(self, timestamp_ms: int, bound: int) -> int:
        """The first batch of this time or later that a committed reader is shown below the bound; -1: there is none."""
        shown = (w for w in self._batches() if w.base_offset < bound and self.outcome(w))
        return min((w.base_offset for w in shown if w.timestamp_ms >= timestamp_ms), default=-1)

    def _batches(self) -> list[Written]:
        return [written for written in self.written if written.commits is None]


def _overlap(written: list[Written], start: int, end: int) -> int:
    return sum(max(0, min(one.end, end) - max(one.base_offset, start)) for one in written)
