"""Compaction keeps the newest record of each key, where it was (spec log-and-runtime 1.8; decision 60)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator_protocol.batch import Compression, Encoding
from coordinator_protocol.errors import ErrorCode
from coordinator_runtime.features import COMPACTED_LOGS, FEATURES_KEY
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import UnfinishedTransaction
from coordinator_runtime.store import CommitGroup, Family, StoreReads
from coordinator_runtime.worker import WorkerLost
from partition_log.batch_checks import KEYS_HERE_MAX
from partition_log.catalog.settings import SettingsChange
from partition_log.catalog.state import TopicToAlter
from partition_log.compaction import choice, chunks, passes
from partition_log.compaction.holds import CompactionHolds
from partition_log.compaction.payloads import TableLost
from partition_log.compaction_rows import compaction_key, encode_compaction
from partition_log.requests import AlterTopicConfigs
from partition_log.state import Compaction
from tests.harness.leases import HeldOffsets
from tests.harness.memory_store import Damage, MemoryStore
from tests.log.compacting_log import DAY_MS, CompactingLog, Content
from tests.log.driven_log import ABORT, COMMIT, COMMITTED, CONTEXT, TOPIC, UNCOMMITTED, Batch, code
from tests.log.test_delete_records import delete
from txnctl.stopped.store_verify import verify_store

pytest.importorskip("pyarrow")

T = TypeVar("T")
WRITTEN = (Encoding.RECORDS_V1, Encoding.ARROW_V1, Encoding.KAFKA_V2)

keys = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.sampled_from([b"1", b"2" * 50, None])
contents = st.lists(st.tuples(keys, values), min_size=1, max_size=4)
writes = st.tuples(
    st.just("write"), contents, st.integers(0, 2), st.sampled_from(WRITTEN), st.sampled_from(list(Compression))
)
acts = st.one_of(
    writes,
    writes,
    writes,
    st.tuples(st.just("end"), st.integers(1, 2), st.sampled_from([COMMIT, ABORT])),
    st.tuples(st.just("compact"), st.none() | st.integers(0, 12)),
    st.tuples(st.just("wait"), st.sampled_from([1, DAY_MS])),
    st.tuples(st.just("crash")),
    st.tuples(st.just("delete"), st.integers(0, 40)),
    st.tuples(st.just("hold"), st.none() | st.integers(0, 40)),
    st.tuples(st.just("restore")),
)


def act(log: CompactingLog, what: Any) -> None:
    match what:
        case ("write", records, producer_id, encoding, compression):
            log.write(records, producer_id=producer_id, encoding=encoding, compression=compression)
        case ("end", producer_id, outcome):
            if any(each.fate == "open" and each.producer_id == producer_id for each in log.records.values()):
                log.finish(producer_id, outcome)
        case ("compact", steps):
            log.compact(steps)
            log.check()
        case ("wait", duration_ms):
            log.driven.clock.advance(duration_ms)
        case ("crash",):
            log.crash()
        case ("delete", offset):
            if offset <= log.driven.head().log_end_offset:
                delete(log.driven, offset)
                log.driven.remove()
        case ("hold", offset):
            log.hold(offset)
        case ("restore",):
            log.restore()


@given(
    st.lists(acts, min_size=8, max_size=30),
    st.sampled_from([2, 64]),
    st.sampled_from([4, 4_096]),
    st.sampled_from([1, 1_000, passes.BYTES_PER_STEP]),
)
@settings(max_examples=60, deadline=None)
def test_a_log_holds_what_the_model_says(
    done: list[Any], run_rows_min: int, chunk_rows_max: int, bytes_per_step: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "BYTES_PER_STEP", bytes_per_step)
        patch.setattr(chunks, "RUN_ROWS_MIN", run_rows_min)
        patch.setattr(chunks, "CHUNK_ROWS_MAX", chunk_rows_max)
        log = CompactingLog()
        for each in done:
            act(log, each)
        log.hold(None)
        log.compact()
        log.check()


def written(*contents: Content) -> CompactingLog:
    log = CompactingLog()
    for content in contents:
        log.write([content])
    return log


def a_key(count: int, key: bytes = b"k") -> list[Content]:
    return [(key, b"%d" % at) for at in range(count)]


def test_the_newest_record_of_each_key_stays() -> None:
    log = written(*[(b"k%d" % (at % 3), b"%d" % at) for at in range(12)])
    log.compact()
    assert log.seen(0, COMMITTED) == [(9, (b"k0", b"9")), (10, (b"k1", b"10")), (11, (b"k2", b"11"))]
    log.check()


@pytest.mark.parametrize("encoding", WRITTEN)
@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_of_any_encoding_keeps_its_offsets(encoding: Encoding, compression: Compression) -> None:
    log = CompactingLog()
    mixed: list[Content] = [(b"a", b"1"), (b"b", b"2" * 300), (b"c", None), (b"d", b"")]
    log.write(mixed, encoding=encoding, compression=compression)
    for content in [(b"a", b"9"), (b"d", b"8"), (b"x", b""), (b"x", b"")]:
        log.write([content])
    log.compact()
    assert log.seen(0, COMMITTED)[:3] == [(1, mixed[1]), (2, mixed[2]), (4, (b"a", b"9"))]
    first = log.headers()[0]
    expected = Encoding.KAFKA_V2 if encoding is Encoding.KAFKA_V2 else Encoding.RECORDS_V2
    assert (first.encoding, first.compression, first.last_offset, first.hole_count) == (expected, compression, 3, 2)
    log.check()


def test_nothing_from_the_last_stable_offset_on_goes_and_it_goes_later() -> None:
    log = written(*a_key(4))
    log.write([(b"other", b"1")], producer_id=1)
    for content in a_key(7):
        log.write([content])
    log.compact()
    assert [offset for offset, _ in log.seen(0, UNCOMMITTED)] == [3, *range(4, 12)]
    log.finish(1, COMMIT)
    for content in a_key(4, b"z"):
        log.write([content])
    log.compact()
    log.check()
    assert [offset for offset, _ in log.seen(0, COMMITTED)][:2] == [4, 11]


def test_aborted_records_go_at_once_and_replace_nothing() -> None:
    log = written(*a_key(3))
    log.write([(b"k", b"aborted"), (b"k", None)], producer_id=1)
    log.finish(1, ABORT)
    for content in a_key(4, b"z"):
        log.write([content])
    log.compact()
    assert log.seen(0, UNCOMMITTED)[0] == (2, (b"k", b"2"))
    assert all(offset not in (3, 4) for offset, _ in log.seen(0, UNCOMMITTED))
    log.check()


def test_tombstones_and_markers_stay_for_delete_retention_after_the_first_pass() -> None:
    log = written(*a_key(2))
    log.write([(b"k", None)])
    log.write([(b"gone", b"1")], producer_id=1)
    log.finish(1, ABORT)
    log.write([(b"kept", b"1")], producer_id=2)
    log.finish(2, COMMIT)
    log.write([(b"z", b"0")])
    log.driven.clock.advance(2 * DAY_MS)
    log.compact()
    assert (log.seen(0, COMMITTED)[0], log.markers()) == ((2, (b"k", None)), [4, 6])
    for wait_ms, tombstone, markers in ((DAY_MS - 1, True, [4, 6]), (1, False, [6])):
        log.driven.clock.advance(wait_ms)
        for content in a_key(16, b"z"):
            log.write([content])
        log.compact()
        assert ((2, (b"k", None)) in log.seen(0, COMMITTED)) is tombstone
        assert log.markers() == markers
        log.check()
    for content in a_key(4, b"kept"):
        log.write([content])
    for content in a_key(12, b"z"):
        log.write([content])
    log.compact()
    assert log.markers() == [], "no record of its transaction is left"
    log.check()


@pytest.mark.parametrize("ended", [None, ABORT, COMMIT])
def test_the_last_row_stays(ended: Any) -> None:
    log = written(*a_key(3 if ended is None else 2))
    if ended is None:
        log.write([(b"k", None)])
    else:
        log.write([(b"k", b"x")], producer_id=1)
        log.finish(1, ended)
    log.driven.clock.advance(DAY_MS)
    for _ in range(3):
        log.compact()
        log.driven.clock.advance(2 * DAY_MS)
    end = log.driven.head().log_end_offset
    log.crash()
    assert log.driven.head().log_end_offset == end
    log.check()


def test_what_a_snapshot_holds_stays_as_it_is() -> None:
    log = written(*a_key(12))
    log.hold(4)
    log.compact()
    assert [offset for offset, _ in log.seen(0, COMMITTED)] == [3, *range(4, 12)]
    log.hold(None)
    log.compact()
    assert [offset for offset, _ in log.seen(0, COMMITTED)] == [11]


def test_a_snapshot_taken_during_a_pass_stops_it() -> None:
    log = written(*a_key(12))
    steps = log.driven.compaction.round()
    for _ in range(3):
        next(steps)
        log.driven.flush()
    log.hold(0)
    for _step in steps:
        log.driven.flush()
    assert len(log.seen(0, COMMITTED)) == 12
    assert log.driven.compaction.stopped_passes == 1
    log.hold(None)
    log.compact()
    assert [offset for offset, _ in log.seen(0, COMMITTED)] == [11]


def test_records_below_a_log_start_that_moves_during_a_pass_do_not_come_back() -> None:
    for stop in range(1, 14):
        log = CompactingLog()
        for at in range(16):
            log.write([(b"k%d" % (at % 6), b"1"), (b"%d" % at, b"1")])
        steps = log.driven.compaction.round()
        for _ in range(stop):
            next(steps, None)
            log.driven.flush()
        delete(log.driven, 20)
        log.driven.remove()
        for _step in steps:
            log.driven.flush()
        for family in (Family.LOG, Family.STRETCHES):
            assert not list(log.driven.store.scan(family, b"", log.key(20)))
        log.check()


def test_a_crash_at_any_step_loses_nothing_and_the_pass_goes_on() -> None:
    for steps in range(20):
        for kept_groups in (0, 1):
            log = written(*[(b"k%d" % (at % 3), None if at % 7 == 0 else b"%d" % at) for at in range(24)])
            for step, _ in enumerate(log.driven.compaction.round()):
                if step == steps:
                    break
                log.driven.flush()
            log.crash(kept_groups)
            log.check()
            log.compact()
            log.check()
            assert len(log.seen(0, COMMITTED)) == 3
            assert not log.driven.head().compaction.is_under_way


@pytest.mark.parametrize("error", [WorkerLost("it died"), TableLost(1)])
def test_a_pass_whose_worker_dies_goes_on_later(error: Exception) -> None:
    log = written(*a_key(12))
    log.driven.worker.is_held = True
    steps = log.driven.compaction.round()
    for _ in range(5):
        next(steps)
        log.driven.flush()
    log.driven.worker.die(error)
    log.driven.worker.is_held = False
    for _step in steps:
        log.driven.flush()
    assert len(log.seen(0, COMMITTED)) == 12
    log.compact()
    assert [offset for offset, _ in log.seen(0, COMMITTED)] == [11]


@pytest.mark.parametrize("message_bytes", [1, passes.MESSAGE_BYTES])
def test_a_batch_that_cannot_be_decoded_stays_and_so_do_tombstones_behind_it(
    message_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "MESSAGE_BYTES", message_bytes)
    log = written((b"k", b"1"))
    alter(log, {"validate_payload": "header"})
    assert log.driven.append(Batch(payload=b"no records", count=2)).error is None
    log.end += 2
    for content in [(b"k", None), *a_key(9, b"z")]:
        log.write([content])
    for _ in range(3):
        log.compact()
        log.driven.clock.advance(2 * DAY_MS)
        for content in a_key(12, b"z"):
            log.write([content])
    assert log.driven.compaction.unreadable_batches > 0
    assert [header.base_offset for header in log.headers()][:2] == [1, 3]


def test_a_pass_that_goes_on_keeps_tombstones_behind_what_it_did_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that cannot be decoded may hold the record of the tombstone, and is before the place of the crash."""
    monkeypatch.setattr(chunks, "CHUNK_ROWS_MAX", 1)
    resumed = 0
    for stop in range(40):
        log = written((b"k", b"1"))
        alter(log, {"validate_payload": "header"})
        assert log.driven.append(Batch(payload=b"no records", count=2)).error is None
        log.end += 2
        keys = [b"%d" % at for at in range(16)]
        for content in [*((key, b"1") for key in keys[:8]), (b"k", None), *((key, b"1") for key in keys[8:])]:
            log.write([content])
        log.compact()
        log.driven.clock.advance(2 * DAY_MS)
        for content in a_key(16, b"z"):
            log.write([content])
        steps = log.driven.compaction.round()
        for _ in range(stop):
            next(steps, None)
            log.driven.flush()
        log.crash(1)
        compaction = log.driven.head().compaction
        resumed += compaction.is_under_way and 3 <= compaction.position <= 11
        log.compact()
        assert 11 in [header.base_offset for header in log.headers()]
    assert resumed


class HeldReader:
    """A reader on a thread, whose results come when a test says so."""

    is_apart: Final = True

    def __init__(self, store: StoreReads) -> None:
        self._store = store
        self._waiting: list[Callable[[], None]] = []

    def read(self, job: Callable[[StoreReads], T]) -> Pending[T]:
        reply, found = Pending[T](), job(self._store)
        self._waiting.append(lambda: reply.succeed(found))
        return reply

    def answer(self) -> bool:
        """Give the results that are held. False if there are none."""
        waiting, self._waiting = self._waiting, []
        for run in waiting:
            run()
        return bool(waiting)


def test_a_pass_goes_on_if_the_log_start_moves_while_a_thread_reads() -> None:
    for answers_before in range(1, 9):  # The first is the look that finds a pass worth it.
        log, answers = written(*a_key(16)), 0
        log.driven.reader = reader = HeldReader(log.driven.store)
        for _step in log.driven.compaction.round():
            if answers == answers_before:
                assert delete(log.driven, 6).error is None
                log.driven.remove()
            answers += reader.answer()
            log.driven.flush()
        assert answers > answers_before
        assert log.driven.head().compaction.clean_to >= 12
        assert not log.driven.told
        log.check()


def test_damage_ends_a_pass_and_is_reported() -> None:
    log = written(*a_key(12))
    assert isinstance(log.driven.store, MemoryStore)
    log.driven.store.damage(Family.LOG, log.key(6), Damage.VALUE)
    log.compact()
    assert log.driven.compaction.stopped_passes == 1
    assert [found.offset for found in log.driven.told] or log.driven.told
    assert len(log.headers_to(6)) == 6


def alter(log: CompactingLog, wanted: dict[str, str]) -> None:
    change = TopicToAlter(TOPIC, b"", SettingsChange(wanted))
    altered = log.driven.topics.alter_topic_configs(AlterTopicConfigs([change]), CONTEXT)
    log.driven.flush()
    assert altered.result()[0].error is None


def test_a_topic_that_is_not_to_be_compacted_is_left_alone() -> None:
    log = written(*a_key(12))
    alter(log, {"cleanup_policy": "delete"})
    log.compact()
    assert len(log.seen(0, COMMITTED)) == 12
    alter(log, {"cleanup_policy": "compact,delete"})
    log.compact()
    assert len(log.seen(0, COMMITTED)) == 1


def test_young_records_stay_and_old_ones_do_not_wait() -> None:
    log = written(*a_key(8))
    alter(log, {"min_compaction_lag_ms": "1000"})
    log.driven.clock.advance(500)
    for content in a_key(4):
        log.write([content])
    log.compact()
    assert len(log.seen(0, COMMITTED)) == 12
    log.driven.clock.advance(600)
    log.compact()
    assert [offset for offset, _ in log.seen(0, COMMITTED)] == [7, 8, 9, 10, 11]


def test_a_small_dirty_part_waits_for_the_ratio_or_for_its_age() -> None:
    log = written(*[(b"%d" % at, b"1") for at in range(16)])
    log.compact()
    for content in a_key(6):
        log.write([content])
    log.compact()
    assert (len(log.seen(0, COMMITTED)), log.driven.compaction.waiting_ms()) == (22, 0)
    alter(log, {"max_compaction_lag_ms": "60000"})
    log.driven.clock.advance(60_000)
    for _ in range(2):
        log.compact()
    assert len(log.seen(0, COMMITTED)) == 17
    log.check()


def test_the_ratio_of_a_topic_decides() -> None:
    log = written(*[(b"%d" % at, b"1") for at in range(16)])
    log.compact()
    for content in a_key(4):
        log.write([content])
    alter(log, {"min_dirty_ratio": "0.1"})
    log.compact()
    assert len(log.seen(0, COMMITTED)) == 17


def test_a_stretch_with_more_records_than_a_pass_takes_is_compacted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "KEYS_MAX", 3)
    log = written(*a_key(12))
    for first_left in (3, 7, 11):
        log.compact()
        assert [offset for offset, _ in log.seen(0, COMMITTED)] == [*range(first_left, 12)]
    log.check()


def test_an_index_does_not_grow_beside_a_log_that_does_not() -> None:
    log = CompactingLog()
    for _ in range(10):
        for content in a_key(16):
            log.write([content])
        log.compact()
        log.check()
    assert len(list(log.driven.store.scan(Family.STRETCHES, b"", b"\xff"))) <= 4


def test_totals_before_a_chunk_are_corrected() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ROWS_MAX", 4)
        log = written(*[(b"%d" % at if at < 16 else b"k", b"%d" % at) for at in range(48)])
        log.compact()
        log.check()
        for start in range(49):
            assert log.driven.count(start)[0] == len(log.seen(start, UNCOMMITTED))


def test_the_first_pass_begins_the_feature() -> None:
    log = written(*a_key(12))
    before = log.driven.store.get(Family.META, FEATURES_KEY) or b""
    assert COMPACTED_LOGS.encode() not in before
    log.compact()
    assert COMPACTED_LOGS.encode() in (log.driven.store.get(Family.META, FEATURES_KEY) or b"")


@pytest.mark.parametrize("encoding", WRITTEN)
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("count", [1, KEYS_HERE_MAX])
def test_a_record_without_a_key_is_refused(encoding: Encoding, compression: Compression, count: int) -> None:
    log = CompactingLog()
    keyless: list[Content] = [(b"k", b"1")] * count
    result = log.send([*keyless, (None, b"2")], encoding=encoding, compression=compression)
    assert code(result) is ErrorCode.INVALID_RECORD
    assert "without a key" in str(result.error)
    log.write([*keyless, (b"", b"2")], encoding=encoding, compression=compression)
    alter(log, {"cleanup_policy": "delete"})
    assert log.send([(None, b"2")], encoding=encoding, compression=compression).error is None


@pytest.mark.parametrize("encoding", WRITTEN)
def test_keys_of_batches_that_nobody_counts_are_looked_for_by_the_worker(encoding: Encoding) -> None:
    """A megabyte of small records would hold up the loop, whatever the header says."""
    log = CompactingLog()
    alter(log, {"validate_payload": "header"})
    log.write([(b"k", b"1")], encoding=encoding)
    assert log.driven.worker.done_count == 1
    assert code(log.send([(None, b"2")], encoding=encoding)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("encoding", WRITTEN)
def test_a_usual_commit_of_a_changelog_does_not_wait_for_the_worker(encoding: Encoding) -> None:
    log = CompactingLog()
    log.write([(b"k%d" % at, b"1") for at in range(KEYS_HERE_MAX)], encoding=encoding)
    assert log.driven.worker.done_count == 0
    log.write([(b"k%d" % at, b"1") for at in range(KEYS_HERE_MAX + 1)], encoding=encoding)
    assert log.driven.worker.done_count > 0


@pytest.mark.parametrize(
    "wrong", [Compaction(13, 13, 13), Compaction(4, 8, 9), Compaction(8, 4, 4), Compaction(0, 12, -1)]
)
def test_a_progress_that_cannot_be_is_noticed_in_a_stopped_store(wrong: Compaction) -> None:
    log = written(*a_key(12))
    log.compact()
    log.check()
    row = (Family.PARTITIONS, compaction_key(log.driven.ordinal()), encode_compaction(wrong))
    log.driven.store.write([CommitGroup(log.driven.store.version() + 1, [row])])
    violated = {check.name: check.violations for check in verify_store(log.driven.store)}
    assert "which does not fit" in violated["positions"][0]


class Unfinished:
    """A transaction that is decided, and has its marker in this partition only."""

    def __init__(self, *found: UnfinishedTransaction) -> None:
        self.found = found

    def unfinished(self) -> tuple[UnfinishedTransaction, ...]:
        return self.found


def test_a_transaction_that_is_not_complete_everywhere_holds_what_it_replaced() -> None:
    log = written(*a_key(3))
    log.write([(b"k", b"new")], producer_id=1)
    log.finish(1, COMMIT)
    for content in a_key(7, b"z"):
        log.write([content])
    driven, ordinal = log.driven, log.driven.ordinal()
    entry = driven.entry(1)
    assert entry is not None
    assert entry.last_marker is not None
    placed = driven.catalog.place(TOPIC, b"", 0)
    this = UnfinishedTransaction(1, entry.coordinator_shard, entry.last_marker.csn, frozenset({ordinal, 99}))
    anywhere = replace(this, partitions=None)
    for unfinished, held in (((), None), ((this,), 3), ((anywhere,), 3)):
        holds = CompactionHolds(driven.runtime, Unfinished(*unfinished), HeldOffsets({}))
        assert holds.held_from(placed) == held
    assert CompactionHolds(driven.runtime, Unfinished(this), HeldOffsets({ordinal: 1})).held_from(placed) == 1
