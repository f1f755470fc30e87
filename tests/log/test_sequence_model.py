"""Sequence numbers against a model that counts records and never wraps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.producers import SEQUENCE_MAX
from partition_log.rules.appending import AppendVerdict, entry_after_append, judge_append, refusal_if_open
from partition_log.state import CachedBatch, ForgottenProducers, ProducerEntry

CIRCLE = SEQUENCE_MAX + 1


def batch(start: int, count: int, *, is_transactional: bool = False) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        record_count=count,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=start % CIRCLE,
        encoding=Encoding.RECORDS_V1,
        is_transactional=is_transactional,
    )


class Counted:
    """A producer as the model sees it: how many records of its epoch are in the log, and its batches."""

    def __init__(self, record_count: int) -> None:
        self.batches: list[tuple[int, int]] = [(record_count - 1, 1)] if record_count else []
        self.entry: ProducerEntry | None = None
        if record_count:
            last = (record_count - 1) % CIRCLE
            self.entry = ProducerEntry(epoch=0, batches=(CachedBatch(last, last, record_count - 1),))
        self.record_count = record_count

    def send(self, start: int, count: int) -> None:
        """Send the records from `start` on, and check the answer; offsets are record counts here."""
        header = batch(start, count)
        is_in_log = start + count <= self.record_count
        try:
            verdict = judge_append(self.entry, header, is_admitted=True, log_start_offset=0)
        except Refused as refusal:
            assert start != self.record_count, "what follows is appended"
            assert (start, count) not in self.batches[-5:], "what was appended last is recognised"
            if refusal.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                assert is_in_log, "nothing is called a duplicate that is not in the log"
            elif self.record_count < CIRCLE:
                assert not is_in_log, "before the first wrap every repetition is recognised"
            return
        if isinstance(verdict, CachedBatch):
            assert (start, count) in self.batches[-5:]
            assert verdict.base_offset == start
            return
        assert verdict is AppendVerdict.APPEND
        assert start == self.record_count, "only what follows is appended"
        self.entry = entry_after_append(
            self.entry, header, base_offset=start, now_ms=0, forgotten=ForgottenProducers(), coordinator_shard=-1
        )
        self.batches.append((start, count))
        self.record_count += count


starts = st.one_of(st.just(0), st.integers(1, 40), st.integers(CIRCLE - 40, CIRCLE + 40))
sends = st.lists(st.tuples(st.integers(-25, 4), st.integers(1, 6)), max_size=40)


@given(starts, sends)
def test_every_answer_is_true_of_the_log(record_count: int, attempts: list[tuple[int, int]]) -> None:
    producer = Counted(record_count)
    for distance, count in attempts:
        # Mostly what follows, as producers do; else something behind or ahead of it.
        start = producer.record_count + (distance if distance % 3 else 0)
        if start >= 0:
            producer.send(start, count)


class InTransactions:
    """A producer of version 1: its transactions end, and its epoch goes on. Offsets are record counts here, too."""

    def __init__(self, record_count: int) -> None:
        self.entry: ProducerEntry | None = None
        self.record_count = self.open_from = record_count
        """Number of its records in the log, and of those before the transaction that is open."""
        self.batches: list[tuple[int, int]] = []
        if record_count:
            last = (record_count - 1) % CIRCLE
            self.entry = ProducerEntry(epoch=0, batches=(CachedBatch(last, last, record_count - 1),))
            self.batches.append((record_count - 1, 1))

    def send(self, start: int, count: int) -> None:
        """Send the records from `start` on. What the client takes for kept must be kept by the open transaction."""
        header = batch(start, count, is_transactional=True)
        try:
            verdict = judge_append(self.entry, header, is_admitted=True, log_start_offset=0)
        except Refused as refusal:
            if refusal.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self.check_repetition(header, start)
            elif refusal.code is ErrorCode.UNKNOWN_PRODUCER_ID and self.entry is not None:
                assert start < self.open_from, "only what an ended transaction has is refused"
            return
        if isinstance(verdict, CachedBatch):
            self.check_repetition(header, start)
            return
        assert start == self.record_count, "only what follows is appended"
        self.entry = entry_after_append(
            self.entry, header, base_offset=start, now_ms=0, forgotten=ForgottenProducers(), coordinator_shard=-1
        )
        self.batches.append((start, count))
        self.record_count += count

    def check_repetition(self, header: BatchHeader, start: int) -> None:
        has_records = self.open_from < self.record_count
        assert (refusal_if_open(self.entry, header) is None) is has_records, "the coordinator is asked if it must be"
        remembered_from = self.batches[-5:][0][0]
        assert not has_records or start >= self.open_from or remembered_from >= self.open_from

    def end(self) -> None:
        self.open_from = self.record_count
        if self.entry is not None:
            self.entry = replace(self.entry, open_transaction=None)


@given(starts, sends, st.sets(st.integers(0, 39)))
def test_no_transaction_is_taken_to_have_the_records_of_another(
    record_count: int, attempts: list[tuple[int, int]], ends: set[int]
) -> None:
    producer = InTransactions(record_count)
    for number, (distance, count) in enumerate(attempts):
        if number in ends:
            producer.end()
        start = producer.record_count + (distance if distance % 3 else 0)
        if start >= 0:
            producer.send(start, count)
