"""Kafka's batches in the log: stored as they were sent, checked as others are, and kept from readers that cannot read
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_protocol.batch import (
    ENCODINGS_OF_OLD_READERS,
    Compression,
    Encoding,
    decode_header,
    split_row,
    verify_batch,
)
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.kafka_batches import from_kafka, to_kafka
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import encode_tail
from coordinator_runtime import own_rows
from coordinator_runtime.features import COMPACT_TOPICS, FEATURES_KEY, KAFKA_BATCHES, features_of
from coordinator_runtime.rocks import open_read_only, open_store
from coordinator_runtime.store import CommitGroup, Family, StoreRefused
from coordinator_runtime.store_features import StoreFeatures
from partition_log.batch_checks import ITEMS_HERE_MAX_IN_PYTHON, UNPACKED_HERE_BYTES_MAX
from tests.harness.kafka_batches import ROW, KafkaRow, kafka_batch, kafka_packed, kafka_payload
from tests.harness.memory_store import MemoryStore
from tests.log.driven_log import (
    ABORT,
    COMMIT,
    NO_PRODUCER,
    SHARD_COUNT,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    Producer,
    code,
    offsets_of,
    transactional,
)
from txnctl.stopped.store_verify import verify_store

FULL: dict[str, str] = {}
EVERY_ENCODING = frozenset(Encoding)
IDEMPOTENT = Producer(7, 0)


@pytest.fixture
def driven() -> DrivenLog:
    """A topic with three partitions that takes what every reader can decode."""
    driven = DrivenLog()
    driven.create(partition_count=3, config=FULL)
    return driven


def sent_by(
    producer: Producer = NO_PRODUCER,
    sequence: int = -1,
    rows: list[KafkaRow] | None = None,
    compression: Compression = Compression.NONE,
    **place: Any,
) -> bytes:
    """The bytes of a Kafka client."""
    listed = [ROW] * 2 if rows is None else rows
    return kafka_batch(
        kafka_packed(kafka_payload(listed), compression),
        len(listed),
        compression=compression,
        producer=(producer.producer_id, producer.epoch, sequence),
        attributes=(producer.transactional_id is not None) << 4,
        **place,
    )


def batch(records: bytes, producer: Producer = NO_PRODUCER, **changes: Any) -> Batch:
    """Return the batch of these records that the log is given."""
    header, payload, crc = from_kafka(records)
    fields = {name: getattr(header, name) for name in header.__struct_fields__}
    return Batch(producer, header.base_sequence, header.record_count, payload, changes={**fields, **changes}, crc=crc)


def append(driven: DrivenLog, producer: Producer = NO_PRODUCER, sequence: int = -1, **fields: Any) -> Any:
    return driven.append(batch(sent_by(producer, sequence, **fields), producer))


def raw_rows(driven: DrivenLog) -> Any:
    return driven.read(accepted_encodings=EVERY_ENCODING).batches


def read_back(driven: DrivenLog, **fields: Any) -> list[bytes]:
    """Return the records that a Kafka reader gets of Kafka's batches."""
    result = driven.read(accepted_encodings=EVERY_ENCODING, **fields)
    assert result.error is None, result.error
    kept = [(header, row) for header, row in result.batches if header.encoding is Encoding.KAFKA_V2]
    return [b"".join(to_kafka(header, row)) for header, row in kept]


@pytest.mark.parametrize("compression", Compression)
def test_what_was_sent_is_stored_and_survives_a_crash(driven: DrivenLog, compression: Compression) -> None:
    assert append(driven, compression=compression).base_offset == 0
    assert append(driven, compression=compression).base_offset == 2
    epoch = driven.head().leadership.epoch
    placed = [sent_by(compression=compression, place=(offset, epoch)) for offset in (0, 2)]
    assert read_back(driven) == placed
    state = driven.state()
    again = driven.crash()
    assert again.state() == state
    assert read_back(again) == placed


def test_a_repetition_is_recognised_after_a_crash(driven: DrivenLog) -> None:
    append(driven, IDEMPOTENT, 0)
    again = driven.crash()
    repeated = append(again, IDEMPOTENT, 0)
    assert (repeated.base_offset, repeated.is_duplicate) == (0, True)
    assert append(again, IDEMPOTENT, 2).base_offset == 2
    assert code(append(again, IDEMPOTENT, 9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_readers_of_committed_records_see_what_was_committed(driven: DrivenLog) -> None:
    first, second = transactional(7), transactional(8)
    append(driven, first, 0)
    append(driven, second, 0)
    assert read_back(driven) == []
    driven.end(first, COMMIT)
    driven.end(second, ABORT)
    assert len(read_back(driven)) == 1
    assert len(read_back(driven, isolation=UNCOMMITTED)) == 2
    raw = driven.read(is_raw=True, accepted_encodings=EVERY_ENCODING)
    assert [(each.producer_id, each.first_offset) for each in raw.aborted] == [(8, 2)]


def test_a_marker_in_the_tail_of_the_row_is_split_off(driven: DrivenLog) -> None:
    """A Transact puts the marker behind the last batch of its transaction, in the same row."""
    producer = transactional(7)
    append(driven, producer, 0)
    epoch, marker = driven.head().leadership.epoch, driven.marker(producer, COMMIT)
    ((_, row),) = driven.read(isolation=UNCOMMITTED, accepted_encodings=EVERY_ENCODING).batches
    with_tail = bytes(row) + encode_tail(marker, 0, 1_000)
    whole, tail = split_row(memoryview(with_tail))
    assert tail is not None
    verify_batch(whole)
    assert b"".join(to_kafka(decode_header(whole), whole)) == sent_by(producer, 0, place=(0, epoch))


def test_a_wrong_checksum_is_refused(driven: DrivenLog) -> None:
    good = batch(sent_by())
    wrong = Batch(NO_PRODUCER, -1, good.count, good.payload, changes=good.changes, crc=(good.crc or 0) ^ 1)
    assert code(driven.append(wrong)) is ErrorCode.CORRUPT_MESSAGE
    assert driven.head().log_end_offset == 0


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4, Compression.SNAPPY])
@pytest.mark.parametrize(
    ("payload", "count", "why"),
    [
        pytest.param(b"garbage", 1, "no records of Kafka's format", id="garbage"),
        pytest.param(kafka_payload([ROW] * 3), 2, "do not lie in ascending places up to 1", id="too many"),
        pytest.param(kafka_payload([ROW] * 3), 4, "holds 4 records and holds 3", id="too few"),
        pytest.param(kafka_payload([ROW] * 2, [0, 2]), 2, "do not lie in ascending places", id="a hole"),
    ],
)
def test_what_no_reader_could_decode_is_refused(
    driven: DrivenLog, compression: Compression, payload: bytes, count: int, why: str
) -> None:
    sent = batch(kafka_batch(kafka_packed(payload, compression), count, compression=compression))
    refused = driven.append(sent)
    assert code(refused) is ErrorCode.INVALID_RECORD
    assert why in refused.error.message  # type: ignore[union-attr]  # it is there
    assert driven.head().log_end_offset == 0


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.SNAPPY])
def test_a_payload_that_cannot_be_unpacked_is_refused(driven: DrivenLog, compression: Compression) -> None:
    refused = driven.append(batch(kafka_batch(b"\xff" * 30, 1, compression=compression)))
    assert code(refused) is ErrorCode.INVALID_RECORD
    assert f"its {compression.name.lower()} payload" in refused.error.message  # type: ignore[union-attr]  # it is there


def test_a_topic_may_take_payloads_unchecked() -> None:
    driven = DrivenLog()
    driven.create(config={"validate_payload": "header"})
    assert driven.append(batch(kafka_batch(b"garbage", 1))).error is None


def test_few_records_are_checked_at_once_however_large(driven: DrivenLog) -> None:
    append(driven, rows=[(None, bytes(4 * UNPACKED_HERE_BYTES_MAX), ROW[2], ())])
    append(driven, rows=[(None, None, ROW[2], ())] * ITEMS_HERE_MAX_IN_PYTHON)
    append(driven, compression=Compression.SNAPPY)
    assert driven.worker.done_count == 0


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"rows": [(None, None, ROW[2], ())] * (ITEMS_HERE_MAX_IN_PYTHON + 1)}, id="many records"),
        pytest.param({"rows": [(None, None, ROW[2], ((b"h", b""),) * ITEMS_HERE_MAX_IN_PYTHON)]}, id="many headers"),
        pytest.param(
            {"rows": [(None, bytes(UNPACKED_HERE_BYTES_MAX), ROW[2], ())], "compression": Compression.ZSTD},
            id="much when unpacked",
        ),
    ],
)
def test_many_are_checked_elsewhere_and_nothing_overtakes_them(driven: DrivenLog, fields: dict[str, Any]) -> None:
    driven.append(batch(sent_by()), partition=1)
    driven.worker.is_held = True
    rows = fields["rows"]
    first = driven.send(batch(sent_by(IDEMPOTENT, 0, **fields), IDEMPOTENT))
    second = driven.send(batch(sent_by(IDEMPOTENT, len(rows)), IDEMPOTENT))
    driven.flush()
    assert not first.is_settled
    assert not second.is_settled
    driven.worker.is_held = False
    driven.worker.release()
    driven.flush()
    assert [first.result()[0].base_offset, second.result()[0].base_offset] == [0, len(rows)]


def test_what_fits_kafkas_default_fits_here(driven: DrivenLog) -> None:
    around = len(sent_by(rows=[(None, bytes(1_000_000), ROW[2], ())])) - 1_000_000
    fits = [(None, bytes(1_048_588 - around), ROW[2], ())]
    assert len(sent_by(rows=fits)) == 1_048_588 == Limits().batch_bytes_max + 12
    assert append(driven, rows=fits).error is None
    more = [(None, bytes(1_048_589 - around), ROW[2], ())]
    assert code(append(driven, rows=more)) is ErrorCode.MESSAGE_TOO_LARGE


class TestReaders:
    """A reader gets only encodings that it has named."""

    def test_one_that_names_none_is_told_what_to_do(self, driven: DrivenLog) -> None:
        append(driven)
        result = driven.read()
        assert code(result) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert result.error is not None
        assert "the batch at offset 0 has the encoding KAFKA_V2" in result.error.message
        assert not result.batches
        assert result.next_offset == 2, "it may go on without the batch"

    def test_it_gets_what_lies_before_and_behind(self, driven: DrivenLog) -> None:
        driven.append(Batch(payload=b"\n\0", count=1))
        append(driven)
        driven.append(Batch(payload=b"\n\0", count=1))
        before = driven.read()
        assert (before.error, offsets_of(before), before.next_offset) == (None, [0], 1)
        refused = driven.read(fetch_offset=1)
        assert code(refused) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert offsets_of(driven.read(fetch_offset=refused.next_offset)) == [3]

    def test_what_is_hidden_from_it_does_not_matter(self, driven: DrivenLog) -> None:
        append(driven, transactional(7), 0)
        driven.end(transactional(7), ABORT)
        driven.append(Batch(payload=b"\n\0", count=1))
        result = driven.read()
        assert (result.error, offsets_of(result), result.aborted_records_hidden) == (None, [3], 2)

    def test_a_waiting_one_is_answered(self, driven: DrivenLog) -> None:
        waiting = driven.fetch(wait_ms_max=60_000)
        append(driven)
        assert code(waiting.result()[0]) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    def test_one_of_kafkas_gets_no_others(self, driven: DrivenLog) -> None:
        driven.append(Batch(payload=b"\n\0", count=1))
        only = frozenset({Encoding.KAFKA_V2})
        assert code(driven.read(accepted_encodings=only)) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    def test_old_readers_take_all_that_1_0_0_stored(self) -> None:
        assert sorted(ENCODINGS_OF_OLD_READERS) == [0, 1, 2, 3, 4]


class TestFeature:
    """A store with such batches has a feature, which keeps older programs out."""

    def test_it_is_durable_before_the_first_batch(self, driven: DrivenLog) -> None:
        assert driven.store.get(Family.META, FEATURES_KEY) is None
        sent = driven.send(batch(sent_by()))
        again = driven.crash(kept_groups=1)
        assert not sent.is_settled
        assert again.store.get(Family.META, FEATURES_KEY) == KAFKA_BATCHES.encode()
        assert again.head().log_end_offset == 0

    def test_it_is_durable_before_a_first_batch_that_the_worker_checks(self, driven: DrivenLog) -> None:
        rows = [(None, None, ROW[2], ())] * (ITEMS_HERE_MAX_IN_PYTHON + 1)
        driven.worker.is_held = True
        sent = driven.send(batch(sent_by(rows=rows)))
        driven.flush()
        assert driven.store.get(Family.META, FEATURES_KEY) is None, "the batch may be refused"
        driven.worker.release()
        driven.flush()
        assert sent.result()[0].base_offset == 0
        assert driven.store.get(Family.META, FEATURES_KEY) == KAFKA_BATCHES.encode()

    def test_a_store_without_them_has_none(self, driven: DrivenLog) -> None:
        driven.append(Batch(payload=b"\n\0", count=1))
        assert code(driven.append(batch(kafka_batch(b"garbage", 1)))) is ErrorCode.INVALID_RECORD
        assert driven.store.get(Family.META, FEATURES_KEY) is None

    def test_batches_that_come_together_begin_it_once(self, driven: DrivenLog) -> None:
        sent = [driven.send(batch(sent_by(IDEMPOTENT, 2 * number), IDEMPOTENT)) for number in range(3)]
        driven.flush()
        assert [each.result()[0].base_offset for each in sent] == [0, 2, 4]

    def test_one_that_begins_beside_another_does_not_lose_it(self, driven: DrivenLog) -> None:
        features = StoreFeatures(driven.runtime, driven.store)
        begun = [features.begin(name) for name in (KAFKA_BATCHES, COMPACT_TOPICS, KAFKA_BATCHES)]
        driven.flush()
        assert [each.error for each in begun] == [None] * 3
        assert features.has(KAFKA_BATCHES)
        assert features.has(COMPACT_TOPICS)
        row = driven.crash().store.get(Family.META, FEATURES_KEY)
        assert row is not None
        assert set(features_of(row)) == {KAFKA_BATCHES, COMPACT_TOPICS}

    def test_others_are_kept(self) -> None:
        store = MemoryStore()
        store.write([CommitGroup(1, [(Family.META, FEATURES_KEY, b"later")])])
        store.sync()
        driven = DrivenLog(store)
        driven.create(config=FULL)
        append(driven)
        assert store.get(Family.META, FEATURES_KEY) == b"kafka_v2,later"

    def test_it_is_there_after_a_restart(self, driven: DrivenLog) -> None:
        append(driven)
        again = driven.crash()
        row = again.store.get(Family.META, FEATURES_KEY)
        sent = again.send(batch(sent_by()))
        again.driver.settle()
        assert sent.result()[0].base_offset == 2
        assert again.store.get(Family.META, FEATURES_KEY) == row

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """A stopped store with a batch of Kafka's in a segment, and one in a sorted file."""
        path = tmp_path / "store"
        store = open_store(path, shard_count=SHARD_COUNT)
        driven = DrivenLog(store)
        driven.create(config=FULL)
        append(driven)
        append(driven, rows=[(None, bytes(100_000), ROW[2], ())])
        store.close()
        return path

    def test_every_promise_of_its_rows_holds(self, path: Path) -> None:
        store = open_read_only(path)
        try:
            checks = verify_store(store)
            assert not any(check.violations for check in checks)
        finally:
            store.close()

    def test_a_restored_backup_has_it(self, driven: DrivenLog) -> None:
        append(driven)
        backup = driven.backup()
        append(driven)
        restored = driven.restore(backup)
        assert restored.store.get(Family.META, FEATURES_KEY) == KAFKA_BATCHES.encode()
        assert append(restored).base_offset == 2
        assert [decode_header(row).leader_epoch for _header, row in raw_rows(restored)] == [
            0,
            restored.head().leadership.epoch,
        ]

    def test_an_older_program_refuses_the_store(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(own_rows, "KNOWN_FEATURES", frozenset())
        with pytest.raises(StoreRefused, match="the feature 'kafka_v2', which this program"):
            open_store(path, shard_count=SHARD_COUNT)

    def test_this_one_reads_what_is_there(self, path: Path) -> None:
        store = open_store(path, shard_count=SHARD_COUNT)
        try:
            assert store.identity.features == (KAFKA_BATCHES,)
            assert [len(each) for each in read_back(DrivenLog(store))] == [
                len(sent_by()),
                len(sent_by(rows=[(None, bytes(100_000), ROW[2], ())])),
            ]
        finally:
            store.close()
