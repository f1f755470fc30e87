"""Produce of Kafka's protocol: batches into the log, and what becomes of each."""

from __future__ import annotations

import pytest

from coordinator_protocol.batch import Compression
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import CallContext, Permission, ResourceType
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.endpoints import handlers
from coordinator_server.kafka_front.errors import INVALID_REQUIRED_ACKS
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.produce_request import ProduceRequest
from tests.harness.inside import WorldOptions
from tests.harness.kafka_batches import BASE_MS, ROW, kafka_batch, kafka_payload
from tests.harness.kafka_caller import CALLER, NODE, SETTINGS
from tests.harness.kafka_log import KafkaLog, batch, joined
from tests.harness.world import World
from txn_coordinator.state import Identity

SERVED = range(3, APIS[ApiKey.PRODUCE].highest + 1)
IMPLICIT = 12
"""First version that adds partitions to the transaction by itself."""


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def log(world: World) -> KafkaLog:
    log = KafkaLog(world)
    log.create_topic("t", 2)
    return log


def produce_handler(world: World) -> ApiHandler:
    return dict(handlers(world.inside.core, SETTINGS))[ApiKey.PRODUCE]


def exchange_of(version: int) -> KafkaExchange:
    context = CallContext(client_id=CALLER.client_id, client_txn_version=2 if version >= IMPLICIT else 1)
    return KafkaExchange(APIS[ApiKey.PRODUCE], version, context, NODE)


@pytest.mark.parametrize("version", SERVED)
def test_a_batch_of_every_version_gets_the_next_offset(log: KafkaLog, version: int) -> None:
    log.produce(batch("a", "b"))
    result = log.produce(batch("c"), version=version)
    assert (result.error_code, result.base_offset, result.log_start_offset) == (0, 2, 0)
    assert (result.log_append_time_ms, result.record_errors, result.error_message) == (-1, (), None)
    assert [each.values for each in log.read()] == [[b"a", b"b"], [b"c"]]


def test_what_was_sent_comes_back_byte_by_byte(log: KafkaLog) -> None:
    sent = kafka_batch(kafka_payload([ROW, ROW]), 2)
    log.produce(memoryview(sent))
    assert joined(log.fetch().records)[16:] == sent[16:]


@pytest.mark.parametrize("compression", Compression)
def test_every_compression_is_kept(log: KafkaLog, compression: Compression) -> None:
    assert log.produce(batch("a", "b", compression=compression)).error_code == 0
    (read,) = log.read()
    assert (read.attributes, read.values) == (compression, [b"a", b"b"])


def test_each_partition_has_its_own_result(log: KafkaLog) -> None:
    damaged = bytearray(batch("a"))
    damaged[-1] ^= 1
    response = log.send(
        ("t-1", batch("a")), ("t-0", memoryview(bytes(damaged))), ("t--1", batch("a")), ("u-0", batch("a"))
    )
    assert response is not None
    codes = [[each.error_code for each in topic.partition_responses] for topic in response.responses]
    assert codes == [
        [0],
        [ErrorCode.CORRUPT_MESSAGE],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    refused = response.responses[1].partition_responses[0]
    assert (refused.base_offset, refused.log_start_offset) == (-1, -1)
    assert refused.error_message is not None
    assert "checksum" in refused.error_message
    assert [each.values for each in log.read("t-1")] == [[b"a"]]


def test_a_topic_id_that_no_topic_has_is_unknown(log: KafkaLog) -> None:
    result = log.produce(batch("a"), "nowhere-0", version=13)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("acks", [1, -1])
def test_an_acknowledged_batch_is_durable(world: World, log: KafkaLog, acks: int) -> None:
    log.produce(batch("warm"))
    request = log.produce_request(("t-0", batch("a")), acks=acks)
    pending = log.begin(ApiKey.PRODUCE, 9, request)
    assert not pending.is_settled
    world.flush()
    assert pending.result().responses[0].partition_responses[0].base_offset == 1


def test_a_producer_without_acks_gets_no_answer_and_its_batch_is_kept(log: KafkaLog) -> None:
    assert log.send(("t-0", batch("a")), acks=0) is None
    assert [each.values for each in log.read()] == [[b"a"]]


def test_a_producer_without_acks_learns_of_a_failure_by_the_end_of_its_connection(world: World, log: KafkaLog) -> None:
    exchange = exchange_of(9)
    request = log.produce_request(("nowhere-0", batch("a")), acks=0)
    pending = produce_handler(world).serve(request, exchange)
    world.settle()
    assert pending.result() is None
    # A code without an answer: `KafkaCall` closes the connection.
    assert exchange.codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_refusal_of_a_whole_call_without_acks_has_no_answer_either(world: World, log: KafkaLog) -> None:
    exchange = exchange_of(9)
    request = log.produce_request(("t-0", batch("a")), acks=0)
    refusal = Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no")
    assert produce_handler(world).refused(request, exchange, refusal) is None
    assert exchange.codes == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused_and_nothing_is_appended(log: KafkaLog, acks: int) -> None:
    result = log.produce(batch("a"), acks=acks)
    assert (result.error_code, result.base_offset) == (INVALID_REQUIRED_ACKS, -1)
    assert log.read() == []


def with_magic(magic: int) -> memoryview:
    records = bytearray(batch("a"))
    records[16] = magic
    return memoryview(bytes(records))


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
        pytest.param(memoryview(b""), ErrorCode.INVALID_RECORD, id="empty"),
        pytest.param(memoryview(b"\0" * 10), ErrorCode.CORRUPT_MESSAGE, id="too short"),
        pytest.param(memoryview(bytes(batch("a")) * 2), ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(with_magic(0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, id="magic 0"),
        pytest.param(with_magic(1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, id="magic 1"),
        pytest.param(
            memoryview(kafka_batch(kafka_payload([ROW]), 1, attributes=1 << 3)),
            ErrorCode.INVALID_TIMESTAMP,
            id="log append time",
        ),
        pytest.param(
            memoryview(kafka_batch(kafka_payload([ROW]), 1, attributes=1 << 5)),
            ErrorCode.INVALID_RECORD,
            id="control batch",
        ),
        pytest.param(memoryview(kafka_batch(kafka_payload([ROW]), 2)), ErrorCode.INVALID_RECORD, id="a record too few"),
        pytest.param(memoryview(kafka_batch(b"words", 1)), ErrorCode.INVALID_RECORD, id="no records"),
    ],
)
def test_a_batch_that_no_client_may_send_is_refused(log: KafkaLog, records: memoryview | None, code: ErrorCode) -> None:
    result = log.produce(records)
    assert (result.error_code, result.base_offset) == (code, -1)
    assert log.read() == []


@pytest.mark.parametrize("version", [8, SERVED[-1]])
@pytest.mark.parametrize("count", [2, 300])
def test_a_compacted_topic_names_the_records_without_a_key(log: KafkaLog, version: int, count: int) -> None:
    log.create_topic("keys", cleanup_policy="compact")
    rows = [ROW, (None, *ROW[1:])] * count
    refused = log.produce(memoryview(kafka_batch(kafka_payload(rows), 2 * count)), "keys-0", version=version)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in refused.record_errors] == list(range(1, 2 * count, 2))
    assert log.read("keys-0") == []


def test_zstd_is_for_clients_of_version_7_and_later(log: KafkaLog) -> None:
    records = batch("a", compression=Compression.ZSTD)
    assert log.produce(records, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert log.produce(records, version=7).error_code == 0


def test_a_repeated_batch_keeps_its_offset(world: World, log: KafkaLog) -> None:
    producer = plain_producer(world)
    for sequence in range(7):
        assert log.produce(batch("a", producer=producer, sequence=sequence)).base_offset == sequence
    again = log.produce(batch("a", producer=producer, sequence=6))
    assert (again.error_code, again.base_offset) == (0, 6)


def test_a_batch_that_is_no_longer_remembered_is_a_duplicate_without_an_offset(world: World, log: KafkaLog) -> None:
    producer = plain_producer(world)
    for sequence in range(7):
        log.produce(batch("a", producer=producer, sequence=sequence))
    again = log.produce(batch("a", producer=producer, sequence=0))
    assert (again.error_code, again.base_offset) == (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1)


def test_a_gap_in_the_sequences_is_out_of_order(world: World, log: KafkaLog) -> None:
    producer = plain_producer(world)
    log.produce(batch("a", producer=producer))
    gap = log.produce(batch("a", producer=producer, sequence=5))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_client_of_transaction_version_2_opens_the_transaction_by_its_first_batch(
    world: World, log: KafkaLog
) -> None:
    producer = identity(world, "orders")
    records = batch("a", producer=producer, is_transactional=True)
    assert log.produce(records, version=IMPLICIT, transactional_id="orders").error_code == 0
    assert log.read(isolation=1) == []
    assert [each.values for each in log.read(isolation=0)] == [[b"a"]]


def test_a_client_of_transaction_version_1_adds_the_partition_first(world: World, log: KafkaLog) -> None:
    producer = identity(world, "orders")
    records = batch("a", producer=producer, is_transactional=True)
    for version, code in ((10, ErrorCode.INVALID_TXN_STATE), (IMPLICIT - 1, ErrorCode.TRANSACTION_ABORTABLE)):
        early = log.produce(records, version=version, transactional_id="orders")
        assert early.error_code == code
    added = world.add("orders", producer, ["t-0"])
    world.settle()
    assert added.result()
    assert log.produce(records, version=10, transactional_id="orders").error_code == 0


def test_an_id_without_transactional_batches_has_no_meaning(log: KafkaLog) -> None:
    assert log.produce(batch("a"), transactional_id="orders").error_code == 0


def test_the_fast_path_takes_a_transactional_batch(world: World, log: KafkaLog) -> None:
    path = world.inside.core.fast_path
    if path is None:
        pytest.skip("this run has no fast path")
    log.produce(batch("warm"))
    producer = identity(world, "orders")
    handler = produce_handler(world)
    records = batch("a", producer=producer, is_transactional=True)
    request = log.produce_request(("t-0", records), version=13, transactional_id="orders")
    assert handler.take is not None
    response = handler.take(request, exchange_of(13))
    assert response is not None
    assert response.responses[0].partition_responses[0].base_offset == 1
    ended = path.end()
    world.settle()
    assert ended.is_settled
    assert [each.values for each in log.read()] == [[b"warm"], [b"a"]]


def test_the_fast_path_leaves_unknown_acks_to_the_general_path(world: World, log: KafkaLog) -> None:
    handler = produce_handler(world)
    records = batch("a", producer=identity(world, "orders"), is_transactional=True)
    request = log.produce_request(("t-0", records), acks=3, transactional_id="orders")
    assert handler.take is None or handler.take(request, exchange_of(12)) is None


def test_a_batch_without_acks_is_appended_once_and_nothing_in_its_place(world: World, log: KafkaLog) -> None:
    """The fast path must not gather what the general path appends: others come between."""
    path, handler = world.inside.core.fast_path, produce_handler(world)
    if path is None or handler.take is None:
        pytest.skip("this run has no fast path")
    log.produce(batch("warm"))

    def sent_by(transactional_id: str, value: str, acks: int) -> ProduceRequest:
        records = batch(value, producer=identity(world, transactional_id), is_transactional=True)
        return log.produce_request(("t-0", records), version=13, acks=acks, transactional_id=transactional_id)

    without_acks, of_another = sent_by("orders", "a", 0), sent_by("payments", "b", -1)
    assert handler.take(without_acks, exchange_of(13)) is None
    handler.serve(without_acks, exchange_of(13))
    world.settle()
    log.produce(batch("between"))
    assert handler.take(of_another, exchange_of(13)) is not None
    path.end()
    world.settle()
    assert [each.values for each in log.read()] == [[b"warm"], [b"a"], [b"between"], [b"b"]]


def test_a_caller_without_the_right_to_the_id_is_refused_everywhere() -> None:
    world = World(WorldOptions(authorizer=TopicsOnly()))
    log = KafkaLog(world)
    log.create_topic("t", 2)
    records = batch("a", producer=Identity(1, 0), is_transactional=True)
    response = log.send(("t-0", records), ("t-1", records), version=13, transactional_id="orders")
    assert response is not None
    codes = [each.error_code for topic in response.responses for each in topic.partition_responses]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert [topic.topic_id for topic in response.responses] == [log.topic_id("t")] * 2


def test_timestamps_of_records_are_kept(log: KafkaLog) -> None:
    log.produce(batch("a", "b", times_ms=(BASE_MS, BASE_MS + 5)))
    (read,) = log.read()
    assert read.max_timestamp_ms == BASE_MS + 5


class TopicsOnly:
    """Allows everything but transactional ids."""

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return resource is not ResourceType.TRANSACTIONAL_ID

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None: ...


def plain_producer(world: World) -> Identity:
    pending = world.init_plain()
    world.settle()
    return pending.result()


def identity(world: World, transactional_id: str) -> Identity:
    pending = world.init(transactional_id)
    world.settle()
    return pending.result()
