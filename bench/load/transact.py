"""Transactions of one request each: the batches and the outcome in one Transact."""

from __future__ import annotations

import os

from bench.load.asking import Asker
from bench.load.stubs import TRANSACTION_TIMEOUT_MS, checked, encoded_batch
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.common_pb2 import RequestHeader

_REQUEST_ID_BYTES = 16


class TransactProducer:
    """A transactional producer that sends encoded batches. Its request is serialised for each new epoch."""

    def __init__(self, asker: Asker, request: txn.TransactRequest) -> None:
        self._asker = asker
        self._request = request
        self._has_identity = False

    async def perform(self) -> None:
        """Run one transaction. Raises: Refusal, AioRpcError; the next one then begins with a new identity."""
        try:
            if not self._has_identity:
                await self._init()
            self._request.header.request_id = os.urandom(_REQUEST_ID_BYTES)
            answer = await self._asker.ask("Transact", self._request.SerializeToString())
            ended = checked(txn.TransactResponse.FromString(answer))
            self._request.producer_id, self._request.producer_epoch = ended.producer_id, ended.producer_epoch
        except BaseException:
            self._has_identity = False
            raise

    async def _init(self) -> None:
        request = txn.InitProducerIdRequest(
            header=RequestHeader(request_id=os.urandom(_REQUEST_ID_BYTES)),
            transactional_id=self._request.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        answer = await self._asker.ask("InitProducerId", request.SerializeToString())
        identity = checked(txn.InitProducerIdResponse.FromString(answer))
        self._request.producer_id, self._request.producer_epoch = identity.producer_id, identity.producer_epoch
        self._has_identity = True


def transact_request(
    transactional_id: str, topic: str, partitions: range, *, value_bytes: int, committed: bool
) -> txn.TransactRequest:
    """Return a request with one record of this size to each partition, complete except for the identity."""
    batch = encoded_batch(value_bytes, 1, is_transactional=True)
    items = [log.PartitionBatch(topic=topic, partition=partition, batch=batch) for partition in partitions]
    return txn.TransactRequest(transactional_id=transactional_id, batches=items, committed=committed)
