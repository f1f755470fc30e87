"""Two-phase participants and AddOffsetsToTxn over real gRPC: switches, permissions, and what Describe and List show."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from coordinator_api.v1 import log_pb2, log_pb2_grpc, transaction_pb2, transaction_pb2_grpc
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused
from coordinator_runtime.ports import ALLOW_ALL, AllowAll, Authorizer, CallContext, Permission, ResourceType
from tests.harness.in_process import InProcessServer, in_process_server
from tests.harness.inside import WorldOptions
from tests.harness.patience import looks
from tests.harness.world import World
from txn_coordinator.state import Identity

pytestmark = pytest.mark.usefixtures("every_combination")

_Init = transaction_pb2.InitProducerIdRequest
_Prepare = transaction_pb2.PrepareTransactionRequest
_End = transaction_pb2.EndTxnRequest
_Offsets = transaction_pb2.AddOffsetsToTxnRequest
INT32_MAX = 2**31 - 1


@pytest_asyncio.fixture
async def server() -> AsyncIterator[InProcessServer]:
    async with in_process_server(transaction_two_phase_commit_enable=True) as served:
        created = await log_pb2_grpc.LogServiceStub(served.channel).CreateTopics(
            log_pb2.CreateTopicsRequest(topics=[log_pb2.NewTopic(name="t", partition_count=2)])
        )
        assert not created.results[0].error_code
        yield served


def stub_of(server: InProcessServer) -> transaction_pb2_grpc.TransactionServiceStub:
    return transaction_pb2_grpc.TransactionServiceStub(server.channel)


async def test_what_describe_and_list_show_of_a_prepared_and_kept_transaction(server: InProcessServer) -> None:
    stub = stub_of(server)
    init = await stub.InitProducerId(_Init(transactional_id="x", enable_2pc=True))
    assert not init.error_code
    assert not init.HasField("ongoing_producer_id")
    mine = {"transactional_id": "x", "producer_id": init.producer_id, "producer_epoch": init.producer_epoch}
    assert not (await stub.AddOffsetsToTxn(_Offsets(group_id="g", **mine))).error_code

    async def description() -> transaction_pb2.TransactionDescription:
        request = transaction_pb2.DescribeTransactionsRequest(transactional_ids=["x"])
        (found,) = (await stub.DescribeTransactions(request)).transactions
        return found

    opened = await description()
    assert (opened.state, opened.two_phase, opened.HasField("prepared_ms")) == ("Ongoing", True, False)
    assert (opened.transaction_timeout_ms, list(opened.groups)) == (INT32_MAX, ["g"])
    prepared = await stub.PrepareTransaction(_Prepare(**mine))
    noted = (prepared.ongoing_producer_id, prepared.ongoing_producer_epoch)
    assert noted == (init.producer_id, init.producer_epoch)
    assert (await stub.PrepareTransaction(_Prepare(**mine))) == prepared, "a repetition changes nothing"

    kept = await stub.InitProducerId(_Init(transactional_id="x", enable_2pc=True, keep_prepared=True))
    assert (kept.ongoing_producer_id, kept.ongoing_producer_epoch) == noted
    found = await description()
    assert (found.producer_id, found.producer_epoch) == noted
    assert (found.client_producer_id, found.client_producer_epoch) == (kept.producer_id, kept.producer_epoch)
    assert found.prepared_ms >= found.start_ms > 0
    assert found.age_ms >= 0
    listing = await stub.ListTransactions(transaction_pb2.ListTransactionsRequest(state_filters=["Ongoing"]))
    (listed,) = listing.transactions
    assert (listed.producer_epoch, listed.two_phase, listed.prepared_ms) == (noted[1], True, found.prepared_ms)
    assert listed.HasField("age_ms")

    refused = await stub.AddOffsetsToTxn(_Offsets(transactional_id="x", producer_id=kept.producer_id, producer_epoch=1))
    assert refused.error_code == ErrorCode.INVALID_GROUP_ID
    recovered = {"transactional_id": "x", "producer_id": kept.producer_id, "producer_epoch": kept.producer_epoch}
    assert (await stub.AddOffsetsToTxn(_Offsets(group_id="h", **recovered))).error_code == ErrorCode.INVALID_TXN_STATE
    # The transaction holds a group, and this server has no group coordinator: nothing is pending, so nothing fails.
    assert not (await stub.EndTxn(_End(committed=True, **recovered))).error_code
    for _ in looks("the transaction, which is answered when it is decided and completes after that"):
        done = await description()
        if done.state != "PrepareCommit":
            break
    assert (done.state, done.two_phase, list(done.groups)) == ("CompleteCommit", False, [])
    assert not done.HasField("age_ms")
    assert not done.HasField("client_producer_id")


async def test_prepare_refuses_what_the_log_does_not_hold(server: InProcessServer) -> None:
    stub = stub_of(server)
    init = await stub.InitProducerId(_Init(transactional_id="x", transaction_timeout_ms=1_000))
    mine = {"transactional_id": "x", "producer_id": init.producer_id, "producer_epoch": init.producer_epoch}
    await stub.AddOffsetsToTxn(_Offsets(group_id="g", **mine))
    lost = transaction_pb2.LastSequence(topic="t", partition=0, sequence=4)
    refused = await stub.PrepareTransaction(_Prepare(last_sequences=[lost], **mine))
    assert (refused.error_code, refused.error_class) == (ErrorCode.TRANSACTION_ABORTABLE, ErrorClass.ABORT)
    request = transaction_pb2.DescribeTransactionsRequest(transactional_ids=["x"])
    (found,) = (await stub.DescribeTransactions(request)).transactions
    assert not found.two_phase


async def test_the_switch_is_off_by_default() -> None:
    async with in_process_server() as server:
        stub = stub_of(server)
        refused = await stub.InitProducerId(_Init(transactional_id="x", enable_2pc=True))
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        # Row 6 comes after the shape of the arguments and before the timeout.
        for fields, code in (
            ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
            ({"expected_producer_id": 3}, ErrorCode.INVALID_REQUEST),
            ({"transaction_timeout_ms": -1}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ):
            request = _Init(**({"transactional_id": "x", "enable_2pc": True} | fields))  # type: ignore[arg-type]
            assert (await stub.InitProducerId(request)).error_code == code
        init = await stub.InitProducerId(_Init(transactional_id="x", keep_prepared=True, transaction_timeout_ms=1_000))
        assert not init.error_code, "keep_prepared alone is legal: an ordinary transaction can be taken over"
        prepare = _Prepare(transactional_id="x", producer_id=init.producer_id, producer_epoch=init.producer_epoch)
        refused_prepare = await stub.PrepareTransaction(prepare)
        assert refused_prepare.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert refused_prepare.error_class == ErrorClass.MISCONFIGURED


class Without(AllowAll):
    """Allows all but one permission."""

    def __init__(self, missing: Permission) -> None:
        self._missing = missing

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return permission is not self._missing


@pytest.mark.parametrize(
    ("authorizer", "is_enabled", "is_allowed"),
    [
        (ALLOW_ALL, True, True),
        (ALLOW_ALL, False, False),
        (Without(Permission.TWO_PHASE_COMMIT), True, False),
        (Without(Permission.CREATE), True, True),
    ],
)
def test_switched_off_and_not_allowed_are_the_same(authorizer: Authorizer, is_enabled: bool, is_allowed: bool) -> None:
    world = World(WorldOptions(authorizer=authorizer, two_phase_commit_enable=is_enabled))
    initialised = world.recover("x", enable_2pc=True)
    world.settle()
    if is_allowed:
        assert initialised.result().identity == Identity(0, 0)
        return
    with pytest.raises(Refused) as refused:
        initialised.result()
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
