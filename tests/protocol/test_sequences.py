"""Sequence numbers: plain addition in a world that has 2^31 numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.producers import NO_SEQUENCE, SEQUENCE_MAX, next_sequence, subtract_sequence

PLAIN = BatchHeader(
    base_offset=0, record_count=1, base_timestamp_ms=0, max_timestamp_ms=0, encoding=Encoding.RECORDS_V1
)
sequences = st.integers(0, SEQUENCE_MAX) | st.integers(0, 5) | st.integers(SEQUENCE_MAX - 5, SEQUENCE_MAX)


def last_of(first: int, count: int) -> int:
    """The sequence of the last record of a batch."""
    return replace(PLAIN, record_count=count, base_sequence=first).last_sequence


def test_zero_follows_the_largest_sequence() -> None:
    assert next_sequence(SEQUENCE_MAX) == 0
    assert last_of(SEQUENCE_MAX, 2) == 0
    assert last_of(SEQUENCE_MAX - 1, 4) == 1


def test_the_largest_sequence_precedes_zero() -> None:
    assert subtract_sequence(0, 1) == SEQUENCE_MAX
    assert subtract_sequence(2, 5) == SEQUENCE_MAX - 2


def test_the_first_sequence_is_zero() -> None:
    assert next_sequence(NO_SEQUENCE) == 0


@given(sequences, sequences)
def test_addition_is_kafkas(sequence: int, delta: int) -> None:
    wraps = sequence > SEQUENCE_MAX - delta
    expected = delta - (SEQUENCE_MAX - sequence) - 1 if wraps else sequence + delta
    assert last_of(sequence, delta + 1) == expected


@given(sequences, sequences)
def test_subtraction_is_kafkas(sequence: int, delta: int) -> None:
    expected = SEQUENCE_MAX - (delta - sequence) + 1 if sequence < delta else sequence - delta
    assert subtract_sequence(sequence, delta) == expected


@given(sequences, sequences)
def test_subtraction_undoes_addition(sequence: int, delta: int) -> None:
    assert subtract_sequence(last_of(sequence, delta + 1), delta) == sequence


@given(sequences, st.lists(st.integers(1, 1000), max_size=10))
def test_batches_follow_each_other_without_gap(first: int, counts: list[int]) -> None:
    at = first
    for count in counts:
        last = last_of(at, count)
        assert subtract_sequence(last, count - 1) == at
        at = next_sequence(last)
    assert at == (first + sum(counts)) % 2**31
