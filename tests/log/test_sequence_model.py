"""Sequence numbers against a model that counts records and never wraps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.producers import SEQUENCE_MAX
from partition_log.rules.appending import AppendVerdict, entry_after_append, judge_append
from partition_log.state import CachedBatch, ForgottenProducers, ProducerEntry

CIRCLE = SEQUENCE_MAX + 1


def batch(start: int, count: int) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        record_count=count,
        base_timestamp_ms=0,
        max_timestamp_ms=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=start % CIRCLE,
        encoding=Encoding.RECORDS_V1,
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
