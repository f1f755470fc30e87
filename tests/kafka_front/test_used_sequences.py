"""A producer of version 1 loses its connection, aborts, and gives the sequence numbers of its batches without an answer
to the next transaction of the same epoch. librdkafka and kafkajs do so."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from coordinator_protocol.errors import ErrorCode
from coordinator_server.kafka_front.messages.produce_response import PartitionProduceResponse
from tests.harness.inside import WorldOptions
from tests.harness.kafka_caller import KafkaCaller
from tests.harness.kafka_log import KafkaLog, batch
from tests.harness.kafka_producer import KafkaProducer
from tests.harness.kafka_reader import KafkaReader
from tests.harness.world import World
from txn_coordinator.config import TwoPhase

OK = ErrorCode.NONE


class Client:
    """A producer with one partition, and a reader of it."""

    def __init__(self, world: World, version: int, *, offers_fast_path: bool) -> None:
        self._log = KafkaLog(world, KafkaCaller(world, offers_fast_path=offers_fast_path))
        self._log.create_topic("t", 2)
        self._version = version
        self.producer = KafkaProducer(world, "orders")
        assert self.producer.initialises() is OK

    def begins(self, partition: str = "t-0") -> None:
        assert self.producer.adds(partition) == {partition: OK}

    def sends(self, *values: str, sequence: int) -> PartitionProduceResponse:
        records = batch(*values, producer=self.producer.identity, sequence=sequence, is_transactional=True)
        return self._log.produce(records, version=self._version, transactional_id="orders")

    def aborts(self) -> None:
        assert self.producer.ends(committed=False) is OK

    def committed(self) -> list[str]:
        return [entry.value for entry in KafkaReader(self._log).read("t-0").entries]


@pytest.fixture(params=product(TwoPhase, (True, False)), ids=str)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """It has sent two batches of two records each, got no answer, and aborted."""
    two_phase, has_fast_path = request.param
    world = World(WorldOptions(two_phase=two_phase, lane=has_fast_path))
    client = Client(world, 11, offers_fast_path=has_fast_path)
    client.begins()
    client.sends("a", "b", sequence=0)
    client.sends("c", "d", sequence=2)
    client.aborts()
    yield client
    world.check_replay()


def test_nothing_is_acknowledged_that_a_commit_would_lack(client: Client) -> None:
    client.begins()
    codes = [client.sends("e", "f", sequence=sequence).error_code for sequence in (0, 2)]
    assert codes == [ErrorCode.UNKNOWN_PRODUCER_ID] * 2
    assert client.producer.ends() is OK
    assert client.committed() == []


def test_other_bounds_do_not_matter(client: Client) -> None:
    client.begins()
    answers = [client.sends("e", sequence=1), client.sends("e", "f", "g", "h", sequence=0)]
    assert [each.error_code for each in answers] == [ErrorCode.UNKNOWN_PRODUCER_ID] * 2


def test_the_answer_says_what_to_do(client: Client) -> None:
    client.begins()
    refused = client.sends("e", "f", sequence=0)
    assert refused.error_message is not None
    assert "abort the open one, get a new epoch with InitProducerId" in refused.error_message
    assert (refused.base_offset, refused.log_start_offset) == (-1, 0)


def test_the_producer_goes_on_with_a_new_epoch(client: Client) -> None:
    client.begins()
    client.sends("e", "f", sequence=0)
    client.aborts()
    assert client.producer.initialises(shows=client.producer.identity) is OK
    client.begins()
    assert client.sends("e", "f", sequence=0).error_code == OK
    assert client.producer.ends() is OK
    assert client.committed() == ["e", "f"]


def test_a_batch_in_flight_behind_a_refused_one_changes_nothing(client: Client) -> None:
    client.begins()
    codes = [client.sends("e", "f", sequence=sequence).error_code for sequence in (0, 2, 4, 0, 2, 4)]
    unknown = ErrorCode.UNKNOWN_PRODUCER_ID
    assert codes == [unknown, unknown, OK, unknown, unknown, OK]


def test_a_late_batch_is_a_repetition_while_the_producer_has_nothing_open(client: Client) -> None:
    late = client.sends("c", "d", sequence=2)
    assert (late.error_code, late.base_offset) == (OK, 2)


def test_a_late_batch_is_a_repetition_while_another_partition_is_written(client: Client) -> None:
    client.begins("t-1")
    late = client.sends("c", "d", sequence=2)
    assert (late.error_code, late.base_offset) == (OK, 2)


@pytest.mark.parametrize("has_fast_path", [True, False])
def test_version_2_has_a_new_epoch_for_every_transaction(*, has_fast_path: bool) -> None:
    client = Client(World(WorldOptions(lane=has_fast_path)), 12, offers_fast_path=has_fast_path)
    client.sends("a", "b", sequence=0)
    before = client.producer.identity
    assert client.producer.ends(5, committed=False) is OK
    assert client.sends("c", "d", sequence=0).error_code == OK
    client.producer.identity = before
    assert client.sends("a", "b", sequence=0).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
