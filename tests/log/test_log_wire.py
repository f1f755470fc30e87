"""LogService on the wire: every RPC through the servicer, with the dispatcher's two functions around it."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from coordinator_api.v1 import common_pb2, log_pb2
from coordinator_client.descriptions.transactions import leader_epoch
from coordinator_protocol.batch import BatchHeader, Encoding, batch_crc
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.kafka_batches import from_kafka
from coordinator_protocol.methods import Method
from coordinator_runtime.disk_guard import PAUSE_MS, DiskGuard
from coordinator_runtime.incarnation import IncarnationCause
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.grpc_call import call_context
from coordinator_server.grpc_front.wire.edge import answer
from coordinator_server.grpc_front.wire.log.ranges import RangeServicer
from coordinator_server.grpc_front.wire.log.servicer import LogServicer
from partition_log.catalog.settings import Retention
from tests.harness.kafka_batches import BASE_MS, ROW, kafka_batch, kafka_payload
from tests.log.driven_log import ABORT, COMMIT, TOPIC, Batch, DrivenLog, transactional

RESPONSES: dict[str, Any] = {
    method: getattr(log_pb2, f"{method}Response")
    for method in (
        "CreateTopics",
        "DeleteTopics",
        "DescribeTopics",
        "CreatePartitions",
        "AlterTopicConfigs",
        "DescribeTopicConfigs",
        "Produce",
        "Fetch",
        "ListOffsets",
        "CountRecords",
        "MeasureRecords",
        "ListCommittedTransactions",
        "DeleteRecords",
        "WriteTxnMarkers",
        "DescribeProducers",
    )
}


def call(driven: DrivenLog, request: Message) -> Any:
    """Call as the dispatcher does with the bytes of a call."""
    method = type(request).__name__.removesuffix("Request")
    of_records = LogServicer(driven.topics, driven.log, driven.positions, driven.foreign_markers)
    of_ranges = RangeServicer(driven.ranges)
    servicer = of_ranges if hasattr(of_ranges, method) else of_records
    received: Any = type(request).FromString(request.SerializeToString())

    def serve() -> Pending[Any]:
        answered: Pending[Any] = getattr(servicer, method)(received, call_context(received.header, CallContext()))
        return answered

    pending = answer(Method(method), RESPONSES[method], serve)
    driven.flush()
    return RESPONSES[method].FromString(pending.result().SerializeToString())


def produced(driven: DrivenLog, *, transactional_id: str | None = None, **fields: Any) -> Any:
    return call(driven, produce_request(transactional_id=transactional_id, **fields)).results[0]


def produce_request(*, transactional_id: str | None = None, **fields: Any) -> log_pb2.ProduceRequest:
    batch = {
        "record_count": 2,
        "base_timestamp_ms": 5,
        "max_timestamp_ms": 9,
        "encoding": log_pb2.ENCODING_RECORDS_V1,
        "payload": b"two records",
    }
    return log_pb2.ProduceRequest(
        transactional_id=transactional_id,
        batches=[log_pb2.PartitionBatch(topic=TOPIC, batch=log_pb2.RecordBatch(**{**batch, **fields}))],
    )


def fetched(driven: DrivenLog, **fields: Any) -> Any:
    of_partition = {
        name: fields.pop(name) for name in (*fields,) if name in log_pb2.FetchPartition.DESCRIPTOR.fields_by_name
    }
    partition = log_pb2.FetchPartition(topic=TOPIC, **of_partition)
    return call(driven, log_pb2.FetchRequest(partitions=[partition], **fields)).results[0]


def test_a_topic_lives_from_its_creation_to_its_deletion() -> None:
    driven = DrivenLog()
    created = call(driven, log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=3)])).results[
        0
    ]
    assert (created.name, created.partition_count, len(created.topic_id)) == ("t", 3, 16)
    described = call(driven, log_pb2.DescribeTopicsRequest()).topics[0]
    assert described.config == {
        "validate_payload": "full",
        "retention_ms": "-1",
        "retention_bytes": "-1",
        "timestamp_after_max_ms": "-1",
        "batch_bytes_max": "1048576",
        "cleanup_policy": "delete",
        "min_compaction_lag_ms": "0",
        "max_compaction_lag_ms": "-1",
        "delete_retention_ms": "86400000",
        "min_dirty_ratio": "0.5",
    }
    assert (described.topic_id, [found.partition for found in described.partitions]) == (created.topic_id, [0, 1, 2])
    deleted = call(driven, log_pb2.DeleteTopicsRequest(topics=[log_pb2.TopicName(topic_id=created.topic_id)])).results[
        0
    ]
    assert (deleted.name, deleted.error_code) == ("t", 0)
    again = call(driven, log_pb2.DeleteTopicsRequest(topics=[log_pb2.TopicName(name="t")])).results[0]
    assert (again.error_code, again.error_class) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorClass.REJECTED)
    assert again.error_message


def test_a_topic_gets_more_partitions(driven: DrivenLog) -> None:
    wanted = [
        log_pb2.PartitionsOfTopic(name=TOPIC, partition_count=4),
        log_pb2.PartitionsOfTopic(topic_id=b"i" * 16, partition_count=4),
    ]
    for validate_only in (True, False):
        request = log_pb2.CreatePartitionsRequest(topics=wanted, validate_only=validate_only)
        done, refused = call(driven, request).results
        assert (done.name, done.partition_count, len(done.topic_id), done.error_code) == (TOPIC, 4, 16, 0)
        assert (refused.error_code, refused.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, b"i" * 16)
    again = call(driven, request).results[0]
    assert (again.error_code, again.error_class) == (ErrorCode.INVALID_PARTITIONS, ErrorClass.REJECTED)


def test_settings_are_altered_and_told_with_their_origin() -> None:
    driven = DrivenLog(default_retention=Retention(retention_bytes=9))
    driven.create(config={"validate_payload": "header"})
    change = log_pb2.TopicToAlter(name=TOPIC, set={"retention_ms": "7"}, unset=["validate_payload"])
    expected = [
        ("validate_payload", "full", log_pb2.CONFIG_ORIGIN_DEFAULT, "full"),
        ("retention_ms", "7", log_pb2.CONFIG_ORIGIN_TOPIC, "-1"),
        ("retention_bytes", "9", log_pb2.CONFIG_ORIGIN_SERVER, "9"),
        ("timestamp_after_max_ms", "-1", log_pb2.CONFIG_ORIGIN_DEFAULT, "-1"),
        ("batch_bytes_max", "1048576", log_pb2.CONFIG_ORIGIN_DEFAULT, "1048576"),
        ("cleanup_policy", "delete", log_pb2.CONFIG_ORIGIN_DEFAULT, "delete"),
        ("min_compaction_lag_ms", "0", log_pb2.CONFIG_ORIGIN_DEFAULT, "0"),
        ("max_compaction_lag_ms", "-1", log_pb2.CONFIG_ORIGIN_DEFAULT, "-1"),
        ("delete_retention_ms", "86400000", log_pb2.CONFIG_ORIGIN_DEFAULT, "86400000"),
        ("min_dirty_ratio", "0.5", log_pb2.CONFIG_ORIGIN_DEFAULT, "0.5"),
    ]
    for validate_only in (True, False):
        (altered,) = call(
            driven, log_pb2.AlterTopicConfigsRequest(topics=[change], validate_only=validate_only)
        ).results
        assert [(each.name, each.value, each.origin, each.inherited_value) for each in altered.settings] == expected
    (described,) = call(driven, log_pb2.DescribeTopicConfigsRequest()).topics
    assert (described.name, list(described.settings)) == (TOPIC, list(altered.settings))
    typo = log_pb2.TopicToAlter(name=TOPIC, set={"retention": "7"})
    (refused,) = call(driven, log_pb2.AlterTopicConfigsRequest(topics=[typo])).results
    assert (refused.error_code, refused.error_class) == (ErrorCode.INVALID_CONFIG, ErrorClass.MISCONFIGURED)
    assert "did you mean retention_ms?" in refused.error_message
    (absent,) = call(driven, log_pb2.DescribeTopicConfigsRequest(topics=[log_pb2.TopicName(name="absent")])).topics
    assert (absent.error_code, absent.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "absent")


def test_records_are_deleted_up_to_an_offset(driven: DrivenLog) -> None:
    for _ in range(3):
        driven.append(Batch())
    wanted = [log_pb2.RecordsToDelete(topic=TOPIC, partition=partition, offset=2) for partition in (0, 1)]
    done, refused = call(driven, log_pb2.DeleteRecordsRequest(partitions=wanted)).results
    assert (done.topic, done.partition, done.low_watermark, done.held_back, done.error_code) == (TOPIC, 0, 2, "", 0)
    assert (refused.error_code, refused.error_class) == (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorClass.REJECTED)
    assert "high watermark 0" in refused.error_message
    twice = call(driven, log_pb2.DeleteRecordsRequest(partitions=wanted[:1] * 2))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    fetched_before = fetched(driven, fetch_offset=1)
    assert (fetched_before.error_code, fetched_before.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)


def test_a_disk_that_is_nearly_full_tells_producers_when_to_come_again(driven: DrivenLog) -> None:
    driven.checks.disk = DiskGuard(8)
    driven.checks.disk.looked(7)
    response = call(driven, produce_request())
    (result,) = response.results
    assert (result.error_code, result.error_class) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorClass.RETRY)
    assert (response.throttle_ms, response.error_code) == (PAUSE_MS, 0)
    driven.checks.disk.looked(9)
    response = call(driven, produce_request())
    assert (response.throttle_ms, response.results[0].error_code) == (0, 0)


def test_a_batch_travels_there_and_back(driven: DrivenLog) -> None:
    header = BatchHeader(
        base_offset=0,
        record_count=2,
        base_timestamp_ms=5,
        max_timestamp_ms=9,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        encoding=Encoding.RECORDS_V1,
    )
    crc = batch_crc(header, b"two records")
    driven.append(Batch())
    result = produced(driven, producer_id=7, producer_epoch=0, base_sequence=0, crc32c=crc)
    assert (result.topic, result.partition, result.base_offset, result.error_code) == (TOPIC, 0, 1, 0)
    batch = fetched(driven, fetch_offset=1).batches[0]
    assert batch == log_pb2.RecordBatch(
        base_offset=1,
        record_count=2,
        base_timestamp_ms=5,
        max_timestamp_ms=9,
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        encoding=log_pb2.ENCODING_RECORDS_V1,
        crc32c=crc,
        payload=b"two records",
        leader_epoch=0,
    )


def test_a_kafka_batch_travels_to_readers_that_name_its_encoding(driven: DrivenLog) -> None:
    sent = kafka_batch(kafka_payload([ROW] * 2), 2)
    header, payload, crc = from_kafka(sent)
    fields = {"encoding": log_pb2.ENCODING_KAFKA_V2, "payload": payload, "crc32c": crc}
    result = produced(driven, base_timestamp_ms=header.base_timestamp_ms, max_timestamp_ms=BASE_MS, **fields)
    assert (result.base_offset, result.error_code) == (0, 0)
    of_a_later_server: Any = 99
    (batch,) = fetched(driven, accepted_encodings=[log_pb2.ENCODING_KAFKA_V2, of_a_later_server]).batches
    assert (batch.encoding, batch.payload, batch.crc32c) == (log_pb2.ENCODING_KAFKA_V2, payload, crc)
    for others in ([], [log_pb2.ENCODING_RECORDS_V1], [of_a_later_server]):
        refused = fetched(driven, accepted_encodings=others)
        assert refused.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
        assert "use a newer client" in refused.error_message
        assert (refused.next_offset, len(refused.batches)) == (2, 0)


def test_markers_travel_to_raw_readers_of_any_encoding(driven: DrivenLog) -> None:
    driven.append(Batch(transactional(7), 0))
    driven.end(transactional(7), COMMIT)
    batches = fetched(driven, raw=True, accepted_encodings=[log_pb2.ENCODING_RECORDS_V1]).batches
    assert [batch.is_control for batch in batches] == [False, True]


def test_epochs_travel_with_positions_and_a_divergence_names_where(driven: DrivenLog) -> None:
    for _ in range(3):
        driven.append(Batch())
    result = fetched(driven)
    assert (result.leader_epoch, result.last_read_epoch, result.HasField("diverging")) == (0, 0, False)
    assert result.HasField("last_read_epoch"), "the epoch 0 is one that was read"
    assert not fetched(driven, fetch_offset=3).HasField("last_read_epoch")
    diverged = fetched(driven, fetch_offset=2, last_read_epoch=7)
    assert diverged.diverging == log_pb2.EpochEnd(epoch=0, end_offset=2)
    assert (diverged.error_code, diverged.next_offset, len(diverged.batches)) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2, 0)
    ahead = fetched(driven, current_leader_epoch=1)
    assert (ahead.error_code, ahead.HasField("diverging")) == (ErrorCode.UNKNOWN_LEADER_EPOCH, False)


def test_a_topic_tells_why_each_of_its_epochs_began(driven: DrivenLog) -> None:
    """By numbers of the wire, whose 0 is no cause; the stored ones begin with 0."""
    lost = driven.backup()
    lost.begin_incarnation(IncarnationCause.DATA_LOSS, driven.clock.wall_ms())
    driven = DrivenLog(lost, driven.clock)
    driven.flush()
    driven = driven.restore(driven.backup())
    (topic,) = call(driven, log_pb2.DescribeTopicsRequest()).topics
    causes = [leader_epoch(each).cause for each in topic.partitions[0].leader_epochs]
    assert causes == ["created", "data_loss", "restore"]


def test_a_plain_batch_comes_back_without_producer_fields(driven: DrivenLog) -> None:
    produced(driven)
    batch = fetched(driven).batches[0]
    assert [batch.HasField(name) for name in ("producer_id", "producer_epoch", "base_sequence", "crc32c")] == [
        False,
        False,
        False,
        True,
    ]


def test_a_marker_is_spelled_out_in_a_raw_read(driven: DrivenLog) -> None:
    producer = transactional()
    driven.append(Batch(producer, 0))
    driven.end(producer, ABORT)
    result = fetched(driven, raw=True)
    marker = result.batches[1]
    assert marker.is_control
    assert marker.marker.HasField("committed"), "an abort is said, too"
    assert (marker.marker.committed, marker.marker.txn_epoch, marker.marker.next_epoch) == (False, 0, 1)
    assert marker.marker.csn == 1
    assert not marker.HasField("base_sequence")
    aborted = result.aborted_transactions[0]
    assert (aborted.producer_id, aborted.first_offset, aborted.marker_offset) == (7, 0, 1)


def test_a_fetch_says_where_everything_is(driven: DrivenLog) -> None:
    driven.append(Batch(count=2))
    driven.append(Batch(transactional(), 0))
    result = fetched(driven)
    assert (result.next_offset, result.high_watermark, result.last_stable_offset, result.log_start_offset) == (
        2,
        3,
        2,
        0,
    )


@pytest.mark.parametrize(("level", "end"), [(0, 0), (1, 0), (2, 2)])
def test_kafkas_numbers_of_isolation_never_show_what_is_not_committed(driven: DrivenLog, level: Any, end: int) -> None:
    """Kafka's 0 is READ_UNCOMMITTED: here that is committed, too, because callers that name none send it."""
    driven.append(Batch(transactional(), 0, count=2))
    query = log_pb2.OffsetQuery(topic=TOPIC, timestamp_ms=-1)
    listed = call(driven, log_pb2.ListOffsetsRequest(isolation_level=level, partitions=[query])).results[0]
    assert (listed.error_code, listed.offset) == (0, end)


def test_a_duplicate_that_is_no_longer_remembered_is_no_reason_to_act(driven: DrivenLog) -> None:
    for sequence in range(6):
        produced(driven, producer_id=7, producer_epoch=0, base_sequence=2 * sequence)
    result = produced(driven, producer_id=7, producer_epoch=0, base_sequence=0)
    assert (result.error_code, result.error_class) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorClass.NONE)
    assert (result.base_offset, result.is_duplicate) == (-1, True)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"encoding": 0}, ErrorCode.INVALID_RECORD),
        ({"encoding": 9}, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ({"compression": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"timestamp_type": 9}, ErrorCode.INVALID_TIMESTAMP),
        ({"timestamp_type": 1}, ErrorCode.INVALID_TIMESTAMP),
        ({"is_control": True}, ErrorCode.INVALID_RECORD),
        ({"encoding": 0, "is_control": True}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"encoding": 3}, ErrorCode.INVALID_RECORD),
        ({"encoding": 4, "hole_count": 1}, ErrorCode.INVALID_RECORD),
        ({"hole_count": 1}, ErrorCode.INVALID_RECORD),
        ({"hole_count": -1}, ErrorCode.INVALID_RECORD),
        ({"payload": b""}, ErrorCode.INVALID_RECORD),
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 7}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 7, "producer_epoch": 40_000, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
        ({"crc32c": 1}, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_batch_that_means_nothing_is_refused(driven: DrivenLog, fields: dict[str, Any], expected: ErrorCode) -> None:
    result = produced(driven, **fields)
    assert (result.error_code, bool(result.error_message)) == (expected, True)


def test_a_batch_that_is_missing_is_refused(driven: DrivenLog) -> None:
    response = call(driven, log_pb2.ProduceRequest(batches=[log_pb2.PartitionBatch(topic=TOPIC)]))
    assert response.results[0].error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "request_",
    [
        log_pb2.ProduceRequest(batches=[log_pb2.PartitionBatch(partition=0)]),
        log_pb2.ProduceRequest(batches=[log_pb2.PartitionBatch(topic=TOPIC, partition=-1)]),
        log_pb2.ProduceRequest(batches=[log_pb2.PartitionBatch(topic=TOPIC, topic_id=b"short")]),
        log_pb2.ProduceRequest(transactional_id=""),
        log_pb2.FetchRequest(max_wait_ms=-1),
        log_pb2.FetchRequest(min_bytes=-1),
        log_pb2.FetchRequest(max_bytes=-1),
        log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic=TOPIC, partition_max_bytes=-1)]),
        log_pb2.FetchRequest(isolation_level=5),  # type: ignore[arg-type]  # what a newer client may send
        log_pb2.ListOffsetsRequest(isolation_level=5),  # type: ignore[arg-type]  # as above
        log_pb2.FetchRequest(isolation_level=-1),  # type: ignore[arg-type]  # would be the last one, counted from behind
        log_pb2.ListOffsetsRequest(partitions=[log_pb2.OffsetQuery()]),
        log_pb2.CountRecordsRequest(partitions=[log_pb2.CountQuery(topic=TOPIC, start_offset=-1)]),
        log_pb2.CountRecordsRequest(partitions=[log_pb2.CountQuery()]),
        log_pb2.MeasureRecordsRequest(partitions=[log_pb2.MeasureQuery(topic=TOPIC)]),
        log_pb2.ListCommittedTransactionsRequest(partitions=[log_pb2.OffsetRange(topic=TOPIC, start_offset=1)]),
        log_pb2.ListCommittedTransactionsRequest(partitions=[log_pb2.OffsetRange()]),
        log_pb2.DeleteTopicsRequest(topics=[log_pb2.TopicName()]),
        log_pb2.CreatePartitionsRequest(topics=[log_pb2.PartitionsOfTopic(partition_count=3)]),
        log_pb2.CreatePartitionsRequest(topics=[log_pb2.PartitionsOfTopic(topic_id=b"short", partition_count=3)]),
        log_pb2.AlterTopicConfigsRequest(topics=[log_pb2.TopicToAlter(set={"retention_ms": "1"})]),
        log_pb2.DescribeTopicConfigsRequest(topics=[log_pb2.TopicName()]),
        log_pb2.DescribeTopicsRequest(header=common_pb2.RequestHeader(request_id=b"short")),
        log_pb2.WriteTxnMarkersRequest(markers=[log_pb2.TxnMarker(producer_id=7)]),
        log_pb2.WriteTxnMarkersRequest(
            markers=[
                log_pb2.TxnMarker(marker=log_pb2.ControlMarker(committed=True, csn=1)),
                log_pb2.TxnMarker(marker=log_pb2.ControlMarker(csn=2)),
            ]
        ),
    ],
)
def test_a_request_that_means_nothing_is_refused_as_a_whole(driven: DrivenLog, request_: Message) -> None:
    response = call(driven, request_)
    assert (response.error_code, response.error_class) == (ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED)
    assert response.error_message


def test_a_transactional_request_without_its_id_says_so(driven: DrivenLog) -> None:
    response = call(driven, produce_request(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "transactional_id" in response.error_message


def test_the_version_of_the_client_decides_whether_its_partition_is_added(driven: DrivenLog) -> None:
    request = produce_request(
        transactional_id="tx", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    request.header.client_txn_version = 1
    assert call(driven, request).results[0].error_code == ErrorCode.INVALID_TXN_STATE
    request.header.client_txn_version = 0
    assert call(driven, request).results[0].error_code == 0
    assert [question for question, _, _ in driven.transactions.questions] == ["verify", "add"]


def test_positions_are_listed_in_the_order_asked(driven: DrivenLog) -> None:
    driven.append(Batch(count=4, timestamp_ms=50))
    queries = [log_pb2.OffsetQuery(topic=TOPIC, timestamp_ms=asked) for asked in (-1, -2, 10, 60, -9)]
    response = call(driven, log_pb2.ListOffsetsRequest(partitions=queries))
    assert [(result.offset, result.timestamp_ms, result.error_code) for result in response.results] == [
        (4, -1, 0),
        (0, -1, 0),
        (0, 50, 0),
        (-1, -1, 0),
        (0, 0, ErrorCode.INVALID_REQUEST),
    ]


def test_committed_transactions_are_listed_with_their_place_and_outcome(driven: DrivenLog) -> None:
    for number, outcome in enumerate((COMMIT, ABORT, COMMIT)):
        producer = transactional(number)
        driven.append(Batch(producer, 0, count=2))
        driven.end(producer, outcome)
    driven.append(Batch(transactional(3), 0))
    wanted = log_pb2.OffsetRange(topic=TOPIC, end_offset=100)
    (listed,) = call(driven, log_pb2.ListCommittedTransactionsRequest(partitions=[wanted])).results
    assert (listed.error_code, listed.topic, listed.next_offset) == (0, TOPIC, 10)
    found = [(each.producer_id, each.first_offset, each.marker_offset, each.csn) for each in listed.transactions]
    assert found == [(0, 0, 2, 1), (2, 6, 8, 3)]
    missing = log_pb2.OffsetRange(topic=TOPIC, partition=9, end_offset=1)
    (refused,) = call(driven, log_pb2.ListCommittedTransactionsRequest(partitions=[missing])).results
    assert (refused.error_code, refused.partition) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9)


def test_without_a_snapshot_what_is_open_is_measured_for_uncommitted_readers_only(driven: DrivenLog) -> None:
    driven.append(Batch(count=2))
    driven.append(Batch(transactional(), 0, 3))
    query = log_pb2.MeasureQuery(topic=TOPIC, end_offset=100)
    for level, end in (
        (common_pb2.ISOLATION_LEVEL_READ_COMMITTED, 2),
        (common_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED, 5),
    ):
        request_ = log_pb2.MeasureRecordsRequest(partitions=[query], step_bytes=1_000, isolation_level=level)
        (measured,) = call(driven, request_).results
        assert (measured.error_code, measured.next_offset) == (0, end)
        assert [(step.first_offset, step.end_offset, step.records) for step in measured.steps] == [(0, end, end)]


def test_what_a_reader_has_before_it_is_counted(driven: DrivenLog) -> None:
    driven.append(Batch(count=2))
    driven.append(Batch(transactional(), 0, 3))
    queries = [log_pb2.CountQuery(topic=TOPIC, start_offset=1), log_pb2.CountQuery(topic=TOPIC, partition=9)]
    counted, refused = call(driven, log_pb2.CountRecordsRequest(partitions=queries)).results
    assert (counted.topic, counted.records, counted.committed_records) == (TOPIC, 4, 1)
    assert (counted.next_offset, counted.high_watermark, counted.last_stable_offset) == (5, 5, 2)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
