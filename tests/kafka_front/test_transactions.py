"""Producers of Kafka's protocol: identities, transactions of both versions, and what old versions are answered."""

from __future__ import annotations

import pytest

from coordinator_protocol.acls import ResourceType
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.limits import Limits
from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM
from coordinator_runtime.ports import CallContext, Permission
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.endpoints import handlers
from coordinator_server.kafka_front.exchange import ApiHandler, KafkaExchange
from coordinator_server.kafka_front.messages.init_producer_id_request import InitProducerIdRequest
from tests.harness.inside import WorldOptions
from tests.harness.kafka_caller import CALLER, NODE, SETTINGS, KafkaCaller
from tests.harness.kafka_producer import NO_PRODUCER, KafkaProducer
from tests.harness.world import World
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity, TransactionState

OK, FENCED, EPOCH = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture
def world() -> World:
    world = World()
    world.create_topic("t", 3)
    return world


@pytest.fixture
def producer(world: World) -> KafkaProducer:
    producer = KafkaProducer(world)
    assert producer.initialises() is OK
    return producer


@pytest.mark.parametrize("version", range(6))
def test_a_producer_of_every_version_gets_an_identity(world: World, version: int) -> None:
    producer = KafkaProducer(world)
    assert producer.initialises(version) is OK
    assert producer.identity.producer_epoch == 0
    first = producer.identity
    assert producer.initialises(version) is OK
    assert producer.identity == Identity(first.producer_id, 1)


def test_a_producer_without_transactions_gets_an_identity_of_its_own(world: World) -> None:
    plain = KafkaProducer(world, transactional_id=None)
    assert plain.initialises() is OK
    assert plain.identity == Identity(PLAIN_PRODUCER_IDS_FROM, 0)


def test_a_producer_that_goes_on_shows_its_identity(producer: KafkaProducer) -> None:
    held = producer.identity
    assert producer.initialises(shows=held) is OK
    assert producer.identity == Identity(held.producer_id, held.producer_epoch + 1)
    assert producer.initialises(shows=Identity(held.producer_id, -1)) is ErrorCode.INVALID_REQUEST


def test_a_timeout_above_the_maximum_is_refused(world: World) -> None:
    too_long = Limits().transaction_max_timeout_ms + 1
    assert KafkaProducer(world).initialises(timeout_ms=too_long) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_the_id_of_a_member_of_a_sink_is_refused(world: World) -> None:
    assert KafkaProducer(world, "__member/s/1").initialises() is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(4))
def test_a_transaction_of_version_1_keeps_its_identity(producer: KafkaProducer, version: int) -> None:
    held = producer.identity
    for sequence, is_committed in enumerate((True, False)):
        assert producer.adds("t-0", "t-1", version=version) == {"t-0": OK, "t-1": OK}
        producer.writes("t-0", f"v{sequence}", sequence=sequence)
        assert producer.ends(min(version, 4), committed=is_committed) is OK
        assert producer.identity == held
    assert producer.world.read("t-0").values == ["v0"]


def test_a_transaction_of_version_2_ends_with_the_next_identity(producer: KafkaProducer) -> None:
    first = producer.identity
    producer.writes("t-0", "a", sequence=0, txn_version=2)
    assert producer.ends(5) is OK
    assert producer.identity == Identity(first.producer_id, first.producer_epoch + 1)
    producer.writes("t-0", "b", sequence=0, txn_version=2)
    assert producer.ends(5, committed=False) is OK
    assert producer.identity == Identity(first.producer_id, first.producer_epoch + 2)
    assert producer.world.read("t-0").values == ["a"]


def test_a_client_goes_from_version_1_to_2_with_its_transaction_open(producer: KafkaProducer) -> None:
    held = producer.identity
    assert producer.adds("t-0") == {"t-0": OK}
    producer.writes("t-0", "a", sequence=0)
    producer.writes("t-1", "b", sequence=0, txn_version=2)
    assert producer.ends(5) is OK
    assert producer.identity == Identity(held.producer_id, held.producer_epoch + 1)
    assert [producer.world.read(each).values for each in ("t-0", "t-1")] == [["a"], ["b"]]


def test_a_repeated_end_gets_the_same_answer(producer: KafkaProducer) -> None:
    first = producer.identity
    producer.writes("t-0", "a", sequence=0, txn_version=2)
    assert producer.ends(5) is OK
    given = producer.identity
    producer.identity = first
    assert producer.ends(5) is OK
    assert producer.identity == given


def test_a_refused_partition_keeps_the_others_out(producer: KafkaProducer) -> None:
    unknown, others = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert producer.adds("t-0", "t-9", "u-0") == {"t-0": others, "t-9": unknown, "u-0": unknown}
    assert producer.world.describe("a").state is TransactionState.EMPTY
    assert producer.adds("t-0", "t-0") == {"t-0": OK}


@pytest.mark.parametrize(("version", "code"), [(0, EPOCH), (1, EPOCH), (2, FENCED), (3, FENCED)])
def test_a_fenced_producer_hears_what_its_version_knows(
    world: World, producer: KafkaProducer, version: int, code: ErrorCode
) -> None:
    assert KafkaProducer(world).initialises() is OK
    assert producer.adds("t-0", version=version) == {"t-0": code}
    assert producer.adds_group(version=version) is code
    assert producer.ends(version) is code


@pytest.mark.parametrize(("version", "code"), [(3, EPOCH), (4, FENCED), (5, FENCED)])
def test_a_fenced_producer_cannot_go_on(world: World, producer: KafkaProducer, version: int, code: ErrorCode) -> None:
    held = producer.identity
    for _instance in range(2):
        assert KafkaProducer(world).initialises() is OK
    assert producer.initialises(version, shows=held) is code


def test_a_commit_of_nothing_and_of_a_foreign_producer(world: World, producer: KafkaProducer) -> None:
    assert producer.ends() is ErrorCode.INVALID_TXN_STATE
    stranger = KafkaProducer(world, "a", Identity(producer.identity.producer_id + 1, 0))
    assert stranger.ends() is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_offsets_of_version_1_come_after_their_group(producer: KafkaProducer, version: int) -> None:
    assert producer.adds_group() is OK
    assert producer.commits_offset("t-0", 7, version) is OK
    assert producer.world.offsets.fetches("t-0") == {"t-0": -1}
    assert producer.ends() is OK
    assert producer.world.offsets.fetches("t-0") == {"t-0": 7}


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("version", range(5))
def test_offsets_of_version_1_without_their_group_are_refused(
    producer: KafkaProducer, version: int, *, is_open: bool
) -> None:
    if is_open:
        assert producer.adds("t-0") == {"t-0": OK}
    expected = ErrorCode.INVALID_TXN_STATE if version < 4 else ErrorCode.TRANSACTION_ABORTABLE
    assert producer.commits_offset("t-0", 7, version) is expected


def test_offsets_of_version_2_bring_their_group(producer: KafkaProducer) -> None:
    assert producer.commits_offset("t-0", 7, 5) is OK
    assert producer.ends(5) is OK
    assert producer.world.offsets.fetches("t-0") == {"t-0": 7}


def test_offsets_of_a_caller_that_is_no_member(producer: KafkaProducer) -> None:
    code = producer.commits_offset("t-0", 7, 5, member_id="m", generation_id=3)
    assert code is ErrorCode.ILLEGAL_GENERATION


def test_a_fenced_producer_commits_no_offsets(world: World, producer: KafkaProducer) -> None:
    assert KafkaProducer(world).initialises() is OK
    assert producer.commits_offset("t-0", 7, 5) is EPOCH


@pytest.mark.parametrize("version", [3, 5])
def test_a_producer_goes_on_with_a_new_id_past_the_last_epoch(version: int) -> None:
    world = World(WorldOptions(producer_epoch_max=5))
    world.create_topic("t", 1)
    producer = KafkaProducer(world)
    identities: set[Identity] = set()
    values = []
    for number in range(20):
        if version < 5 or not identities:
            assert producer.initialises() is OK
        assert producer.identity not in identities
        identities.add(producer.identity)
        values.append(str(number))
        if version < 5:
            assert producer.adds("t-0") == {"t-0": OK}
        producer.writes("t-0", str(number), sequence=0, txn_version=1 if version < 5 else 2)
        assert producer.ends(version) is OK
    assert world.read("t-0").values == values
    assert len({identity.producer_id for identity in identities}) >= 4
    assert max(identity.producer_epoch for identity in identities) < 5


def test_a_call_behind_a_completion_waits_no_longer_than_its_deadline() -> None:
    world = World(WorldOptions(two_phase=TwoPhase.SPLIT))
    world.create_topic("t", 1)
    producer = KafkaProducer(world)
    assert producer.initialises() is OK
    assert producer.adds("t-0") == {"t-0": OK}
    producer.writes("t-0", "a", sequence=0)
    caller = KafkaCaller(world)
    ended = caller.begin(ApiKey.END_TXN, 3, producer.end_request())
    world.flush(1)
    request = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=60_000)
    waiting = caller.begin(ApiKey.INIT_PRODUCER_ID, 4, request, deadline_ms=world.clock.monotonic_ms() + 5_000)
    patient = caller.begin(ApiKey.INIT_PRODUCER_ID, 4, request)
    world.tick(5_000)
    assert waiting.is_settled
    assert waiting.result().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.settle()
    assert [each.result().error_code for each in (ended, patient)] == [0, 0]


class OnlyReading:
    """A caller who may write to no transactional id and to no topic."""

    def is_allowed(self, _context: CallContext, permission: Permission, _resource: ResourceType, _name: str) -> bool:
        return permission is not Permission.WRITE

    def on_refused(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> None:
        """Nothing is counted."""


def test_a_caller_without_the_right_is_refused_at_every_place() -> None:
    world = World(WorldOptions(authorizer=OnlyReading()))
    world.create_topic("t", 2)
    producer = KafkaProducer(world, identity=Identity(1, 0))
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert producer.initialises() is denied
    assert producer.adds("t-0", "t-1") == {"t-0": denied, "t-1": denied}
    assert producer.adds_group() is denied
    assert producer.commits_offset("t-0", 1) is denied
    assert producer.ends() is denied


# On the fast path


def handler(world: World, key: ApiKey) -> ApiHandler:
    return dict(handlers(world.inside.core, SETTINGS))[key]


def exchange(key: ApiKey, version: int, txn_version: int = 1) -> KafkaExchange:
    context = CallContext(client_id=CALLER.client_id, client_txn_version=txn_version)
    return KafkaExchange(APIS[key], version, context, NODE)


@pytest.fixture
def fast_world() -> World:
    world = World(WorldOptions(lane=True))
    world.create_topic("t", 1)
    # The first of a block of producer ids takes the general path.
    assert KafkaProducer(world, "first").initialises() is OK
    return world


def test_the_fast_path_takes_identities_and_commits(fast_world: World) -> None:
    fast_path = fast_world.inside.core.fast_path
    assert fast_path is not None
    take = handler(fast_world, ApiKey.INIT_PRODUCER_ID).take
    assert take is not None
    request = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=60_000)
    given = take(request, exchange(ApiKey.INIT_PRODUCER_ID, 4))
    assert given is not None
    fast_path.end()
    fast_world.settle()
    producer = KafkaProducer(fast_world, "a", Identity(given.producer_id, given.producer_epoch))
    producer.writes("t-0", "a", sequence=0, txn_version=2)
    take = handler(fast_world, ApiKey.END_TXN).take
    assert take is not None
    ended = take(producer.end_request(), exchange(ApiKey.END_TXN, 5, 2))
    assert ended is not None
    fast_path.end()
    fast_world.settle()
    assert (ended.producer_id, ended.producer_epoch) == (given.producer_id, given.producer_epoch + 1)
    assert fast_world.read("t-0").values == ["a"]


@pytest.mark.parametrize(
    "request_of",
    [
        InitProducerIdRequest(transactional_id=None),
        InitProducerIdRequest(transactional_id=""),
        InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=1, producer_id=3, producer_epoch=0),
        InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=-1),
    ],
)
def test_the_fast_path_leaves_other_identities_alone(fast_world: World, request_of: InitProducerIdRequest) -> None:
    take = handler(fast_world, ApiKey.INIT_PRODUCER_ID).take
    assert take is not None
    assert take(request_of, exchange(ApiKey.INIT_PRODUCER_ID, 4)) is None


def test_the_fast_path_leaves_aborts_and_commits_of_nothing_alone(fast_world: World) -> None:
    producer = KafkaProducer(fast_world)
    assert producer.initialises() is OK
    take = handler(fast_world, ApiKey.END_TXN).take
    assert take is not None
    assert take(producer.end_request(), exchange(ApiKey.END_TXN, 5, 2)) is None
    producer.writes("t-0", "a", sequence=0, txn_version=2)
    assert take(producer.end_request(committed=False), exchange(ApiKey.END_TXN, 5, 2)) is None
    assert producer.identity != NO_PRODUCER


def test_a_server_without_a_fast_path_offers_it_nothing() -> None:
    world = World(WorldOptions(lane=False))
    assert handler(world, ApiKey.INIT_PRODUCER_ID).take is None
    assert handler(world, ApiKey.END_TXN).take is None
