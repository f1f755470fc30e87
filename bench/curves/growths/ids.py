"""Transactional ids that were initialised, and have no transaction."""

from __future__ import annotations

from bench.curves.growths.growth import Growth, Place, ask_all
from bench.load.stubs import TRANSACTION_TIMEOUT_MS, checked
from coordinator_api.v1 import transaction_pb2 as txn


class Ids(Growth):
    """Ids by InitProducerId, over one session."""

    async def grow(self, place: Place, have: int, to: int) -> None:
        requests = (
            txn.InitProducerIdRequest(
                transactional_id=f"application-{number % 97}-task-{number}",
                transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            ).SerializeToString()
            for number in range(have, to)
        )
        await ask_all(
            place.endpoint,
            (("InitProducerId", request) for request in requests),
            lambda answer: checked(txn.InitProducerIdResponse.FromString(answer)),
        )
