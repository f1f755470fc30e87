"""Steps that tests of producers repeat."""

from __future__ import annotations

from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn_api
from coordinator_client import Producer
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method
from tests.client.fake_server import refuse
from tests.client.world import World


def producer_in(world: World, transactional_id: str | None = "p", **options) -> Producer:
    """A producer that sends its transactions in parts by default, so that each part can fail for itself."""
    options.setdefault("transact_bytes", 0)
    return Producer(options.pop("connection", None) or world.connection(), transactional_id=transactional_id, **options)


def commit(producer: Producer, *values: bytes, **options) -> int:
    with producer.transaction() as txn:
        for value in values:
            txn.send("t", value, partition=0, **options)
    return txn.csn


def ended(world: World) -> list[bool]:
    return [request.committed for request in world.requests(Method.END_TXN)]


def refused(method: Method, code: ErrorCode, what: ErrorClass | None = None):
    replies = {
        Method.INIT_PRODUCER_ID: txn_api.InitProducerIdResponse,
        Method.PREPARE_TRANSACTION: txn_api.PrepareTransactionResponse,
        Method.END_TXN: txn_api.EndTxnResponse,
    }
    return refuse(replies[method](), method, code, what=what)


def produce_refused(*codes: ErrorCode) -> log.ProduceResponse:
    reply = log.ProduceResponse()
    for code in codes:
        result = reply.results.add()
        if code:
            refuse(result, Method.PRODUCE, code)
    return reply
