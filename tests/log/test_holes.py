"""Batches with holes, and gaps between batches, go through every reader with the right offsets and keys.

A log is written as clients write it, and compacted in its store by hand; what stays of it is known record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_api.v1 import log_pb2
from coordinator_client import encodings
from coordinator_client.encodings import FetchedBatch, checked_batch
from coordinator_client.errors import CorruptBatch
from coordinator_client.fetch_reply import parse_fetch_reply
from coordinator_protocol.batch import BatchHeader, Encoding
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.store import CommitGroup, Family
from coordinator_server.grpc_front.wire.log.fetch_edge import FetchAnswer
from partition_log import codec
from partition_log.batches import batches
from partition_log.counting import count_records
from partition_log.reading import ReadBudget
from partition_log.state import Isolation, PartitionConfig
from tests.harness.compaction import Left, compact
from tests.harness.memory_store import Damage, MemoryStore
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    COMMITTED,
    NO_PRODUCER,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    code,
    transactional,
)
from txnctl.commands.stopped_log import StoppedLog
from txnctl.stopped.store_verify import verify_store

pytest.importorskip("pyarrow")

SHORT_STRETCHES = PartitionConfig(index_interval_batches=3)
TO_THE_END = 10**9

Written = tuple[int, int, bool]
"""Number of records of a batch, its producer (0 = none), and whether what its producer wrote is then ended."""

writings = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2), st.booleans()), min_size=1, max_size=12)
leftovers = st.lists(st.tuples(st.sampled_from(Left), st.sets(st.integers(0, 5))), min_size=1, max_size=12)


@dataclass
class Holed:
    """A log, compacted, and what is left in it."""

    driven: DrivenLog
    records: dict[int, str] = field(default_factory=dict)
    """Fate of the record at each offset that has one: committed, aborted or open."""

    def __post_init__(self) -> None:
        self.store = self.driven.store
        assert isinstance(self.store, MemoryStore)

    def offsets(self, start: int, end: int, *fates: str) -> list[int]:
        return [at for at, fate in sorted(self.records.items()) if start <= at < end and fate in fates]


def key_of(offset: int) -> bytes:
    return b"key %d" % offset


def payload(first_offset: int, count: int) -> bytes:
    offsets = range(first_offset, first_offset + count)
    records = [log_pb2.Record(key=key_of(at), value=b"v", timestamp_ms=at) for at in offsets]
    return log_pb2.Records(records=records).SerializeToString()


def holed(written: Sequence[Written], leave: Sequence[tuple[Left, set[int]]]) -> Holed:
    """A log with these batches, of which everything before the last stable offset is compacted."""
    driven = DrivenLog(config=SHORT_STRETCHES)
    driven.create(config={})
    found = Holed(driven)
    epochs, sequences = {1: 0, 2: 0}, {1: 0, 2: 0}
    of_open: dict[int, list[int]] = {1: [], 2: []}
    batches: list[tuple[int, int]] = []
    end = 0
    for number, (count, producer_id, is_ended) in enumerate(written):
        producer = transactional(producer_id, epochs[producer_id]) if producer_id else NO_PRODUCER
        sequence = sequences[producer_id] if producer_id else -1
        batch = Batch(producer, sequence, count, payload(end, count), timestamp_ms=end)
        assert driven.append(batch).error is None
        batches.append((end, count))
        offsets = range(end, end + count)
        end += count
        found.records.update(dict.fromkeys(offsets, "open" if producer_id else "committed"))
        if not producer_id:
            continue
        sequences[producer_id] += count
        of_open[producer_id] += offsets
        if is_ended:
            outcome, fate = (ABORT, "aborted") if number % 2 else (COMMIT, "committed")
            driven.end(producer, outcome)
            end += 1
            found.records.update(dict.fromkeys(of_open[producer_id], fate))
            of_open[producer_id] = []
            epochs[producer_id], sequences[producer_id] = producer.epoch + 1, 0
    _compact(found, dict(zip((base for base, _count in batches), _repeated(leave), strict=False)), dict(batches))
    return found


def _repeated(leave: Sequence[tuple[Left, set[int]]]) -> Iterator[tuple[Left, set[int]]]:
    while True:
        yield from leave


def _compact(found: Holed, plan: dict[int, tuple[Left, set[int]]], counts: dict[int, int]) -> None:
    driven, head = found.driven, found.driven.head()
    bound = head.last_stable_offset

    def left(base_offset: int) -> tuple[Left, set[int]]:
        how, deltas = plan.get(base_offset, (Left.AS_IT_WAS, set()))
        is_last = base_offset + counts.get(base_offset, 1) == head.log_end_offset
        return Left.EMPTY if is_last and how is Left.NOTHING else how, {base_offset + delta for delta in deltas}

    for base_offset, count in counts.items():
        how, gone = left(base_offset)
        if base_offset + count > bound or how is Left.AS_IT_WAS:
            continue
        everything = set(range(base_offset, base_offset + count))
        for offset in everything if how in (Left.EMPTY, Left.NOTHING) else gone & everything:
            del found.records[offset]
    assert isinstance(driven.store, MemoryStore)
    compact(driven.store, driven.ordinal(), bound, left)
    found.driven = DrivenLog(driven.store, driven.clock, config=SHORT_STRETCHES)


# Readers. Each gives the offset and key of every record that it sees from one offset up to another.

Seen = list[tuple[int, bytes | None]]


def fetched(log: Holed, start: int, end: int, *, isolation: Isolation, raw: bool = False) -> Iterator[FetchedBatch]:
    """Yield the batches that the SDK makes of the server's answers."""
    at = start
    while True:
        result = log.driven.read(
            fetch_offset=at, end_offset=end, isolation=isolation, is_raw=raw, accepted_encodings=frozenset(Encoding)
        )
        assert result.error is None, result.error
        reply = parse_fetch_reply(FetchAnswer([result]).SerializeToString())
        for wire in reply.results[0].batches:
            batch = checked_batch(TOPIC, 0, wire, start_offset=at, end_offset=end)
            if batch is not None:
                yield batch
        if result.next_offset == at:
            return
        at = result.next_offset


def by_rows(shown: Iterator[FetchedBatch]) -> Seen:
    found: Seen = []
    for batch in shown:
        if batch.marker is None:
            offsets, rows = batch.placed()
            assert batch.record_count == len(rows)
            found += zip(offsets, (row[0] for row in rows), strict=True)
    return found


def by_arrow(shown: Iterator[FetchedBatch]) -> Seen:
    found: Seen = []
    for batch in shown:
        offsets, rows = batch.placed_arrow()
        first = batch.first_offset
        places = range(first, first + rows.num_rows) if offsets is None else offsets.to_pylist()
        found += zip(places, rows.column("key").to_pylist(), strict=True)
    return found


def by_spark(shown: Iterator[FetchedBatch]) -> Seen:
    from pyspark_txnlog.read.arrow_rows import spark_batches

    found: Seen = []
    for made in spark_batches(shown, ("offset", "key", "timestamp", "partition")):
        found += zip(made.column("offset").to_pylist(), made.column("key").to_pylist(), strict=True)
    return found


def by_spark_with_values(shown: Iterator[FetchedBatch]) -> Seen:
    from pyspark_txnlog.read.arrow_rows import spark_batches

    found: Seen = []
    for made in spark_batches(shown, ("offset", "key", "value")):
        found += zip(made.column("offset").to_pylist(), made.column("key").to_pylist(), strict=True)
    return found


def by_spark_without_payload(shown: Iterator[FetchedBatch]) -> list[int]:
    from pyspark_txnlog.read.arrow_rows import spark_batches

    return [offset for made in spark_batches(shown, ("partition", "offset")) for offset in made["offset"].to_pylist()]


def by_dump(log: Holed, start: int) -> Seen:
    """Return the records that `log dump` shows of a stopped store."""
    found: Seen = []
    for batch in StoppedLog(log.store, TOPIC, None, start):
        assert not isinstance(batch, CorruptBatch), batch
        if batch.marker is None:
            offsets, rows = batch.records()
            found += zip(offsets, (row[0] for row in rows), strict=True)
    return found


def with_keys(offsets: Sequence[int]) -> Seen:
    return [(at, key_of(at)) for at in offsets]


def check_readers(log: Holed, start: int, end: int) -> None:
    committed, everything = ("committed",), ("committed", "aborted", "open")
    for isolation, fates in ((COMMITTED, committed), (UNCOMMITTED, everything)):
        bound = log.driven.head().last_stable_offset if isolation is COMMITTED else TO_THE_END
        expected = with_keys(log.offsets(start, min(end, bound), *fates))
        for reader in (by_rows, by_arrow, by_spark, by_spark_with_values):
            assert reader(fetched(log, start, end, isolation=isolation)) == expected, reader
        offsets = [offset for offset, _key in expected]
        assert by_spark_without_payload(fetched(log, start, end, isolation=isolation)) == offsets
    assert by_rows(fetched(log, start, end, isolation=UNCOMMITTED, raw=True)) == with_keys(
        log.offsets(start, end, *everything)
    )
    if end == TO_THE_END:
        assert by_dump(log, start) == with_keys(log.offsets(start, end, *everything))


def check_counts(log: Holed) -> None:
    """A count is never too low, and exact where it does not begin inside a batch with holes."""
    head, ordinal = log.driven.head(), log.driven.ordinal()
    holes_around = {
        at: header.hole_count for header in headers(log) for at in range(header.base_offset + 1, header.last_offset + 1)
    }
    for start in range(head.log_end_offset + 1):
        counted = count_records(log.store, ordinal, head, start, ReadBudget(0))
        records = len(log.offsets(start, TO_THE_END, "committed", "aborted", "open"))
        committed = len(log.offsets(start, head.last_stable_offset, "committed"))
        slack = holes_around.get(start, 0)
        assert records <= counted.records <= records + slack
        assert committed <= counted.committed_records <= committed + slack


def headers(log: Holed) -> list[BatchHeader]:
    return [header for header, _encoded in batches(log.store, log.driven.ordinal(), 0)]


def check_store(log: Holed) -> None:
    found = {check.name: check.violations for check in verify_store(log.store)}
    assert (found["batches"], found["stretches"]) == ([], [])


@given(writings, leftovers, st.data())
@settings(max_examples=60, deadline=None)
def test_every_reader_sees_what_is_left_where_it_was(
    written: list[Written], leave: list[tuple[Left, set[int]]], data: st.DataObject
) -> None:
    log = holed(written, leave)
    end = log.driven.head().log_end_offset
    check_readers(log, 0, TO_THE_END)
    start = data.draw(st.integers(0, end), "start")
    check_readers(log, start, TO_THE_END)
    check_readers(log, start, data.draw(st.integers(start, end), "end"))
    check_counts(log)
    check_store(log)


LEAVE_EVERY_THIRD = [(Left.RECORDS, {0, 1, 3, 4}), (Left.ARROW, {0, 1, 3, 4}), (Left.NOTHING, set[int]())]
LEAVE_KAFKAS = [(Left.KAFKA, {0, 1, 3, 4}), (Left.KAFKA, set[int]()), (Left.AS_IT_WAS, set[int]())]
SIX_BATCHES: list[Written] = [(6, 0, False)] * 6


def test_a_read_from_a_hole_begins_at_the_next_record() -> None:
    log = holed(SIX_BATCHES, LEAVE_EVERY_THIRD)
    for start, first in ((0, 2), (3, 5), (4, 5), (6, 8), (9, 11), (12, 20), (17, 20)):
        assert by_rows(fetched(log, start, TO_THE_END, isolation=COMMITTED))[0] == (first, key_of(first))


def test_from_every_offset_every_reader_sees_what_is_left() -> None:
    for leave in (LEAVE_EVERY_THIRD, LEAVE_KAFKAS):
        log = holed(SIX_BATCHES, leave)
        for start in range(37):
            check_readers(log, start, TO_THE_END)
            check_readers(log, start, start + 3)


def test_damage_behind_a_batch_with_holes_begins_behind_all_its_offsets() -> None:
    log = holed(SIX_BATCHES, [(Left.RECORDS, {3, 4, 5})])
    assert isinstance(log.store, MemoryStore)
    for last_offset in (17, 23):
        damage = Damage.BLOCK if last_offset == 17 else Damage.HEALTHY_IN_BLOCK
        log.store.damage(Family.LOG, codec.log_key(log.driven.ordinal(), last_offset), damage)
    before = log.driven.read(fetch_offset=0)
    assert ([header.base_offset for header, _encoded in before.batches], before.next_offset) == ([0, 6], 12)
    at_damage = log.driven.read(fetch_offset=12)
    assert (code(at_damage), at_damage.next_offset) == (ErrorCode.CORRUPT_MESSAGE, 18)
    behind = log.driven.read(fetch_offset=18)
    assert [header.base_offset for header, _encoded in behind.batches] == [18, 24, 30]


def test_writers_go_on_behind_holes() -> None:
    log = holed(SIX_BATCHES, LEAVE_EVERY_THIRD)
    log.driven.append(Batch(count=2, payload=payload(36, 2)))
    assert log.driven.head().totals.record_count == 38
    log.records.update({36: "committed", 37: "committed"})
    check_readers(log, 0, TO_THE_END)
    check_store(log)


@pytest.mark.parametrize(
    ("compacted_to", "said"),
    [
        (6, "the batch at offset 6 has holes, and the log was compacted up to 6 only"),
        (14, "the batch at offset 18 does not follow 12"),
    ],
)
def test_holes_where_nothing_was_compacted_are_a_loss(compacted_to: int, said: str) -> None:
    log = holed(SIX_BATCHES, LEAVE_EVERY_THIRD)
    wrong = codec.encode_head(replace(log.driven.head(), compacted_to=compacted_to))
    row = (Family.PARTITIONS, codec.head_key(log.driven.ordinal()), wrong)
    log.store.write([CommitGroup(log.store.version() + 1, [row])])
    found = {check.name: check.violations for check in verify_store(log.store)}
    assert any(said in violation for violation in found["batches"]), found["batches"]


def test_hidden_records_of_a_batch_with_holes_are_counted() -> None:
    as_it_was = (Left.AS_IT_WAS, set[int]())
    written = [(1, 0, False), (1, 0, False), (6, 1, False), (1, 1, True)]
    log = holed(written, [as_it_was, as_it_was, (Left.RECORDS, {0, 3}), as_it_was])
    whole = log.driven.read(fetch_offset=0, isolation=COMMITTED)
    assert (whole.aborted_records_hidden, whole.control_records_hidden) == (5, 1)
    # From the middle of a batch with holes on there are at most as many as offsets.
    assert log.driven.read(fetch_offset=6, isolation=COMMITTED).aborted_records_hidden == 3
    assert log.driven.read(fetch_offset=5, isolation=COMMITTED).aborted_records_hidden == 4


Bug = Callable[[pytest.MonkeyPatch], None]


def check_everything(log: Holed) -> None:
    check_readers(log, 3, TO_THE_END)
    check_counts(log)


def a_hole_is_counted_as_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def between(header: BatchHeader, start: int, end: int) -> int:
        return max(0, min(header.last_offset + 1, end) - max(header.base_offset, start))

    monkeypatch.setattr(BatchHeader, "records_between", between)


def offsets_are_taken_from_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = encodings.decode_rows

    def by_position(payload: Any, header: BatchHeader, where: str) -> Any:
        _offsets, rows = decode(payload, header, where)
        return range(header.base_offset, header.base_offset + len(rows)), rows

    monkeypatch.setattr(encodings, "decode_rows", by_position)


def a_batch_ends_behind_its_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = property(lambda header: header.base_offset + header.record_count - 1)
    monkeypatch.setattr(BatchHeader, "last_offset", ends)


@pytest.mark.parametrize(
    "bug", [a_hole_is_counted_as_a_record, offsets_are_taken_from_positions, a_batch_ends_behind_its_last_record]
)
def test_bugs_with_holes_are_noticed(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    log = holed(SIX_BATCHES, LEAVE_EVERY_THIRD)
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        check_everything(log)
