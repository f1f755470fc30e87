"""Fetch of Kafka's protocol: what a consumer reads, and what it is told about the log."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from coordinator_protocol.batch import BatchHeader, Compression, Encoding
from coordinator_protocol.compression import pack
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import CallContext, ClientBatch, Connection, NoAnswerLimit
from coordinator_runtime.worker import WorkerLost
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.errors import FETCH_SESSION_ID_NOT_FOUND
from coordinator_server.kafka_front.exchange import KafkaExchange
from coordinator_server.kafka_front.fetch import FetchApi
from coordinator_server.kafka_front.messages.fetch_request import ReplicaState
from coordinator_server.kafka_front.messages.fetch_response import AbortedTransaction, NodeEndpoint
from coordinator_server.kafka_front.outgoing import ITEMS_HERE_MAX
from partition_log.requests import Produce
from tests.harness.calls import partition_name
from tests.harness.every_encoding import payload_of_records
from tests.harness.fast_path_calls import transact
from tests.harness.group_calls import ANYBODY
from tests.harness.inside import WorldOptions
from tests.harness.kafka_batches import BASE_MS
from tests.harness.kafka_caller import CALLER, NODE
from tests.harness.kafka_log import TRANSACTIONAL, KafkaLog, batch, consumed
from tests.harness.workers import HeldWorker
from tests.harness.world import World
from txn_coordinator.requests import Transact
from txn_coordinator.state import Identity

SERVED = range(APIS[ApiKey.FETCH].lowest, APIS[ApiKey.FETCH].highest + 1)
COMMITTED = 1
CONTROL = TRANSACTIONAL | 1 << 5
COMMIT_MARKER = b"\0\0\0\1"
ABORT_MARKER = b"\0\0\0\0"


@pytest.fixture
def worker() -> HeldWorker:
    return HeldWorker()


@pytest.fixture
def world(worker: HeldWorker) -> World:
    return World(WorldOptions(worker=worker))


@pytest.fixture
def log(world: World) -> KafkaLog:
    log = KafkaLog(world)
    log.create_topic("t", 2)
    return log


@pytest.mark.parametrize("version", SERVED)
def test_a_consumer_of_every_version_reads_what_was_sent(log: KafkaLog, version: int) -> None:
    log.produce(batch("a", "b"))
    log.produce(batch("c"))
    data = log.fetch(version=version)
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset) == (0, 3, 3, 0)
    assert (data.aborted_transactions, data.preferred_read_replica) == (None, -1)
    assert [(each.base_offset, each.leader_epoch, each.values) for each in consumed(data.records)] == [
        (0, 0, [b"a", b"b"]),
        (2, 0, [b"c"]),
    ]


def test_an_offset_inside_a_batch_is_answered_with_the_whole_batch(log: KafkaLog) -> None:
    log.produce(batch("a", "b", "c"))
    assert [each.base_offset for each in log.read(offset=2)] == [0]


def test_the_end_of_the_log_is_an_empty_answer_and_not_null(log: KafkaLog) -> None:
    log.produce(batch("a"))
    data = log.fetch(offset=1)
    assert (data.error_code, data.high_watermark) == (0, 1)
    assert consumed(data.records) == []


@pytest.mark.parametrize("offset", [-1, 5])
def test_an_offset_outside_the_log_is_out_of_range(log: KafkaLog, offset: int) -> None:
    log.produce(batch("a"))
    data = log.fetch(offset=offset)
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (data.high_watermark, data.last_stable_offset, data.log_start_offset) == (-1, -1, -1)
    assert consumed(data.records) == []


def test_an_unknown_partition_does_not_harm_the_others(log: KafkaLog) -> None:
    log.produce(batch("a"))
    response = log.fetch_all(("u-0", 0), ("t-7", 0), ("t--1", 0), ("t-0", 0), max_wait_ms=500)
    found = [topic.partitions[0] for topic in response.responses]
    assert [each.error_code for each in found] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3 + [0]
    assert [each.values for each in consumed(found[3].records)] == [[b"a"]]


def test_an_unknown_topic_id_is_an_error_of_its_partition_alone(log: KafkaLog) -> None:
    log.produce(batch("a"))
    response = log.fetch_all(("nowhere-0", 0), ("t-0", 0), version=13)
    assert [topic.partitions[0].error_code for topic in response.responses] == [ErrorCode.UNKNOWN_TOPIC_ID, 0]
    assert [topic.topic_id for topic in response.responses] == [log.topic_id("nowhere"), log.topic_id("t")]


# Transactions


def test_a_committed_reader_stops_before_an_open_transaction(world: World, log: KafkaLog) -> None:
    log.produce(batch("plain"))
    send(world, log, "orders", "open")
    committed, all_records = log.fetch(isolation=COMMITTED), log.fetch()
    assert [each.values for each in consumed(committed.records)] == [[b"plain"]]
    assert (committed.last_stable_offset, committed.high_watermark) == (1, 2)
    assert [each.values for each in consumed(all_records.records)] == [[b"plain"], [b"open"]]


@pytest.mark.parametrize(("outcome", "key"), [(Outcome.COMMIT, COMMIT_MARKER), (Outcome.ABORT, ABORT_MARKER)], ids=str)
def test_a_marker_is_a_control_batch_of_kafka(world: World, log: KafkaLog, outcome: Outcome, key: bytes) -> None:
    producer = send(world, log, "orders", "a")
    end(world, "orders", producer, outcome)
    data, marker = log.read()
    assert (data.attributes, data.values) == (TRANSACTIONAL, [b"a"])
    assert (marker.base_offset, marker.attributes, marker.producer[0]) == (1, CONTROL, producer.producer_id)
    ((offset, written, value),) = marker.records
    assert (offset, written) == (1, key)
    assert value is not None
    assert (len(value), value[:2]) == (6, b"\0\0")


def test_aborted_transactions_are_listed_for_committed_readers_only(world: World, log: KafkaLog) -> None:
    log.produce(batch("plain"))
    producer = send(world, log, "orders", "a")
    end(world, "orders", producer, Outcome.ABORT)
    data = log.fetch(isolation=COMMITTED)
    assert data.aborted_transactions == [AbortedTransaction(producer.producer_id, 1)]
    # The consumer drops their records itself.
    assert [each.values for each in consumed(data.records)][:2] == [[b"plain"], [b"a"]]
    assert log.fetch().aborted_transactions is None


def test_no_aborted_transactions_are_an_empty_list(log: KafkaLog) -> None:
    log.produce(batch("plain"))
    assert log.fetch(isolation=COMMITTED).aborted_transactions == []


def test_an_unknown_isolation_level_is_refused_in_every_partition(log: KafkaLog) -> None:
    response = log.fetch_all(("t-0", 0), ("t-1", 0), isolation=2)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    codes = [each.error_code for topic in response.responses for each in topic.partitions]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_a_refusal_of_the_whole_call_names_no_partition_since_version_13(log: KafkaLog) -> None:
    response = log.fetch_all(("t-0", 0), isolation=2, version=13)
    assert (response.error_code, list(response.responses)) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", [6, 12, 18])
def test_want_of_capacity_is_an_answer_without_records_for_all_partitions(
    world: World, log: KafkaLog, version: int
) -> None:
    refusal = Refused(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "later")
    exchange = KafkaExchange(APIS[ApiKey.FETCH], version, CALLER, NODE)
    request = log.fetch_request(("t-0", 0), ("t-1", 0), version=version)
    response = api_of(world).refused(request, exchange, refusal)
    codes = [each.error_code for topic in response.responses for each in topic.partitions]
    assert (response.error_code, codes, exchange.codes) == (0, [0, 0], set())


# Sessions and replicas


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_opens_no_session(log: KafkaLog, epoch: int) -> None:
    log.produce(batch("a"))
    response = log.fetch_all(("t-0", 0), session_id=0, session_epoch=epoch)
    assert (response.error_code, response.session_id) == (0, 0)
    assert [each.values for each in consumed(response.responses[0].partitions[0].records)] == [[b"a"]]


def test_a_session_that_goes_on_is_unknown(log: KafkaLog) -> None:
    response = log.fetch_all(session_id=77, session_epoch=3)
    assert (response.error_code, response.session_id) == (FETCH_SESSION_ID_NOT_FOUND, 0)


@pytest.mark.parametrize(
    ("version", "fields"), [(12, {"replica_id": 2}), (15, {"replica_state": ReplicaState(2, 1)})], ids=["v12", "v15"]
)
def test_a_replica_is_refused(log: KafkaLog, version: int, fields: dict[str, Any]) -> None:
    log.produce(batch("a"))
    data = log.fetch(version=version, **fields)
    assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert consumed(data.records) == []


# Leader epochs


def restored(world: World, log: KafkaLog) -> int:
    """Lose two batches, and append another in their place. The new leader epoch."""
    log.produce(batch("a"))
    backup = world.back_up()
    log.produce(batch("b"))
    log.produce(batch("c"))
    world.restore(backup)
    world.settle()
    log.produce(batch("d"))
    return log.read(offset=1)[0].leader_epoch


def test_a_reader_of_another_log_learns_where_they_part_without_an_error(world: World, log: KafkaLog) -> None:
    epoch = restored(world, log)
    asked = {"current_leader_epoch": epoch, "last_fetched_epoch": 0}
    data = log.fetch(offset=3, version=12, partition_fields=asked)
    assert data.error_code == 0
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)
    assert consumed(data.records) == []
    assert log.read(offset=1, version=12, partition_fields=asked)[0].values == [b"d"]


@pytest.mark.parametrize("version", [15, 16])
def test_a_reader_of_an_older_epoch_is_fenced_and_told_the_leader(world: World, log: KafkaLog, version: int) -> None:
    epoch = restored(world, log)
    response = log.fetch_all(("t-0", 1), version=version, partition_fields={"current_leader_epoch": 0})
    data = response.responses[0].partitions[0]
    assert data.error_code == ErrorCode.FENCED_LEADER_EPOCH
    leader, nodes = data.current_leader, list(response.node_endpoints)
    if version < 16:
        assert (leader.leader_id, leader.leader_epoch, nodes) == (-1, -1, [])
    else:
        assert (leader.leader_id, leader.leader_epoch) == (NODE.node_id, epoch)
        assert nodes == [NodeEndpoint(NODE.node_id, NODE.host, NODE.port)]


def test_a_reader_of_a_newer_epoch_is_ahead_of_this_server(log: KafkaLog) -> None:
    log.produce(batch("a"))
    data = log.fetch(partition_fields={"current_leader_epoch": 9})
    assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# Limits and waiting


def test_one_batch_is_answered_however_small_the_limits(log: KafkaLog) -> None:
    log.produce(batch("a"))
    log.produce(batch("b"))
    assert len(log.read(max_bytes=1)) == 1
    assert len(log.read(partition_fields={"partition_max_bytes": 0})) == 1
    assert len(log.read()) == 2


def test_a_fetch_waits_for_the_next_batch(world: World, log: KafkaLog) -> None:
    log.produce(batch("a"))
    waiting = log.begin(ApiKey.FETCH, 11, log.fetch_request(("t-0", 1), max_wait_ms=500))
    world.settle()
    assert not waiting.is_settled
    log.produce(batch("b"))
    assert [each.values for each in consumed(waiting.result().responses[0].partitions[0].records)] == [[b"b"]]


def test_a_fetch_waits_no_longer_than_it_says(world: World, log: KafkaLog) -> None:
    waiting = log.begin(ApiKey.FETCH, 11, log.fetch_request(("t-0", 0), max_wait_ms=500, min_bytes=1 << 20))
    world.pass_time(499)
    assert not waiting.is_settled
    world.pass_time(1)
    assert waiting.result().responses[0].partitions[0].error_code == 0


def test_a_fetch_with_an_error_waits_for_nothing(log: KafkaLog) -> None:
    """A consumer otherwise learns late that its metadata are old."""
    waiting = log.begin(ApiKey.FETCH, 11, log.fetch_request(("-0", 0), ("t-0", 0), max_wait_ms=500))
    found = [topic.partitions[0].error_code for topic in waiting.result().responses]
    assert found == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


@pytest.mark.parametrize("wait_ms", [0, -1])
def test_a_fetch_without_a_wait_is_answered_at_once(log: KafkaLog, wait_ms: int) -> None:
    request = log.fetch_request(("t-0", 0), max_wait_ms=wait_ms, min_bytes=-5)
    assert log.begin(ApiKey.FETCH, 11, request).is_settled


# What the version of the client cannot take


def test_zstd_is_for_clients_of_version_10_and_later(log: KafkaLog) -> None:
    log.produce(batch("plain"))
    log.produce(batch("a", compression=Compression.ZSTD))
    log.produce(batch("behind"))
    assert [each.values for each in log.read(version=9)] == [[b"plain"]]
    data = log.fetch(offset=1, version=9)
    assert data.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert consumed(data.records) == []
    assert [each.values for each in log.read(offset=1, version=10)] == [[b"a"], [b"behind"]]


# Records of other clients


def test_records_of_other_clients_are_converted(world: World, log: KafkaLog, worker: HeldWorker) -> None:
    log.produce(batch("kafka"))
    append(world, ["a", "b"])
    before = worker.done_count
    assert [(each.base_offset, each.values) for each in log.read()] == [(0, [b"kafka"]), (1, [b"a", b"b"])]
    assert worker.done_count == before


def test_a_transaction_in_one_request_is_read_with_its_marker(world: World, log: KafkaLog) -> None:
    producer = begin(world, "orders")
    log.produce(batch("kafka"))
    header, payload = records_batch(["a"], producer)
    command = Transact(
        "orders", producer, Outcome.COMMIT, [ClientBatch(partition_name("t-0"), header, payload, None)], []
    )
    pending = transact(world.inside.core, command, CallContext(request_id=b"r" * 16))
    world.settle()
    assert pending.error is None
    _kafka, data, marker = log.read(isolation=COMMITTED)
    assert (data.base_offset, data.attributes, data.values) == (1, TRANSACTIONAL, [b"a"])
    assert (data.producer, data.leader_epoch) == ((producer.producer_id, producer.producer_epoch, 0), 0)
    assert (marker.base_offset, marker.attributes, marker.records[0][1]) == (2, CONTROL, COMMIT_MARKER)


def test_an_undecodable_batch_ends_the_answer_and_is_an_error_if_it_is_the_first(world: World, log: KafkaLog) -> None:
    world.create_topic("words", 1)
    append(world, ["a"], "words-0")
    unreadable = world.produce(None, Identity(-1, -1), "words-0", ["no", "records"], sequence=-1)
    world.settle()
    assert unreadable.result().error is None
    append(world, ["b"], "words-0")
    assert [each.values for each in log.read("words-0")] == [[b"a"]]
    data = log.fetch("words-0", 1)
    assert data.error_code == ErrorCode.CORRUPT_MESSAGE
    assert [each.values for each in log.read("words-0", 3)] == [[b"b"]]


@pytest.mark.parametrize(
    "batches",
    [[["a"] * (10 * ITEMS_HERE_MAX)], [["a" * 600_000], ["b" * 600_000]], [["a"]] * (ITEMS_HERE_MAX // 16 + 1)],
    ids=["many records", "many bytes", "many batches"],
)
def test_large_conversions_do_not_hold_up_the_loop(
    world: World, log: KafkaLog, worker: HeldWorker, batches: list[list[str]]
) -> None:
    for values in batches:
        append(world, values)
    worker.is_held = True
    waiting = log.begin(ApiKey.FETCH, 11, log.fetch_request(("t-0", 0), ("t-1", 0)))
    assert not waiting.is_settled
    worker.release()
    read = consumed(waiting.result().responses[0].partitions[0].records)
    assert [each.values for each in read] == [[value.encode() for value in values] for values in batches]


def test_batches_that_wait_for_conversion_count_as_an_answer(world: World, log: KafkaLog, worker: HeldWorker) -> None:
    held = world.inside.log.fetcher.answer_limit = HeldBytes()
    append(world, ["a"] * (10 * ITEMS_HERE_MAX))
    worker.is_held = True
    waiting = log.begin(ApiKey.FETCH, 11, log.fetch_request(("t-0", 0)))
    assert held.by_connection[CALLER.connection] > 10 * ITEMS_HERE_MAX
    worker.release()
    assert waiting.is_settled
    assert held.by_connection[CALLER.connection] == 0


def test_a_lost_worker_is_an_error_that_consumers_repeat(world: World, log: KafkaLog, worker: HeldWorker) -> None:
    held = world.inside.log.fetcher.answer_limit = HeldBytes()
    append(world, ["a"] * (10 * ITEMS_HERE_MAX))
    worker.is_held = True
    waiting = log.begin(ApiKey.FETCH, 11, log.fetch_request(("t-0", 0)))
    worker.die(WorkerLost("gone"))
    assert waiting.result().responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert held.by_connection[CALLER.connection] == 0, "nothing waits any more"


def test_an_answer_ends_where_conversion_makes_it_too_large(world: World, log: KafkaLog) -> None:
    for partition in ("t-0", "t-1"):
        append(world, ["a" * 3_000] * 20, partition, Compression.GZIP)
        append(world, ["b" * 3_000] * 20, partition, Compression.GZIP)
    response = log.fetch_all(("t-0", 0), ("t-1", 0), max_bytes=100_000)
    first, second = (consumed(topic.partitions[0].records) for topic in response.responses)
    assert [each.base_offset for each in first] == [0]
    assert second == []
    assert [topic.partitions[0].error_code for topic in response.responses] == [0, 0]
    assert [each.base_offset for each in log.read(offset=20, max_bytes=100_000)] == [20]


def test_a_batch_that_is_too_large_once_converted_is_answered_alone(world: World, log: KafkaLog) -> None:
    """The consumer could otherwise never go on."""
    append(world, ["a" * 3_000] * 20, compression=Compression.GZIP)
    append(world, ["b"])
    assert [each.base_offset for each in log.read(max_bytes=1)] == [0]


class HeldBytes(NoAnswerLimit):
    """Limits nothing, and counts."""

    def __init__(self) -> None:
        self.by_connection: Counter[Connection] = Counter()

    def hold(self, connection: Connection, size_bytes: int) -> None:
        self.by_connection[connection] += size_bytes

    def release(self, connection: Connection, size_bytes: int) -> None:
        self.by_connection[connection] -= size_bytes


def records_batch(
    values: list[str], producer: Identity | None = None, compression: Compression = Compression.NONE
) -> tuple[BatchHeader, bytes]:
    """A batch as the SDK sends it."""
    header = BatchHeader(0, len(values), BASE_MS, BASE_MS, Encoding.RECORDS_V1, compression=compression)
    if producer is not None:
        header = replace(header, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
        header = replace(header, base_sequence=0, is_transactional=True)
    records = [(at, BASE_MS, None, value.encode(), ()) for at, value in enumerate(values)]
    return header, pack(payload_of_records(records, header), compression)


def append(
    world: World, values: list[str], partition: str = "t-0", compression: Compression = Compression.NONE
) -> None:
    """Append records as the SDK does."""
    header, payload = records_batch(values, compression=compression)
    item = ClientBatch(partition_name(partition), header, payload, None)
    pending = world.inside.log.produce(Produce(None, (item,)), ANYBODY)
    world.settle()
    assert pending.result()[0].error is None


def begin(world: World, transactional_id: str) -> Identity:
    pending = world.init(transactional_id)
    world.settle()
    return pending.result()


def send(world: World, log: KafkaLog, transactional_id: str, *values: str) -> Identity:
    """Append in a new transaction."""
    producer = begin(world, transactional_id)
    records = batch(*values, producer=producer, is_transactional=True)
    assert log.produce(records, version=12, transactional_id=transactional_id).error_code == 0
    return producer


def end(world: World, transactional_id: str, producer: Identity, outcome: Outcome) -> None:
    pending = world.end(transactional_id, producer, outcome)
    world.settle()
    assert pending.error is None


def api_of(world: World) -> FetchApi:
    core = world.inside.core
    return FetchApi(core.log.records, core.checks.worker)
