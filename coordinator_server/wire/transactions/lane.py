"""What the lane takes, on the wire: from message to columns, and from what was taken to the bytes of an answer."""

from __future__ import annotations

from typing import Final

from coordinator_api.v1 import transaction_pb2
from coordinator_core.lane import Lane
from coordinator_protocol.errors import Method
from coordinator_runtime.ports import CallContext
from coordinator_server.wire.groups.committed import transacted_offsets
from coordinator_server.wire.log.servicer import lane_batches
from coordinator_server.wire.transactions.servicer import fill_results, transact_refused


class TransactFront:
    """Implements `coordinator_server.transport.LaneFront`."""

    method: Final = Method.TRANSACT

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.end, self.take_back = lane.end, lane.take_back

    def take(self, request: transaction_pb2.TransactRequest, context: CallContext) -> bytes | None:
        """The answer, if it is of the common shape. Raises Refused for what can never be a partition or an offset."""
        if not request.committed:
            return None
        batches = lane_batches(request.batches)
        if batches is None:
            return None
        groups = [transacted_offsets(group) for group in request.groups] if request.groups else ()
        identity = (request.producer_id, request.producer_epoch)
        taken = self._lane.transact(request.transactional_id, identity, batches, groups, context)
        if taken is None:
            return None
        after, first_offsets = taken
        response = transaction_pb2.TransactResponse()
        response.producer_id, response.producer_epoch = after.producer_id, after.producer_epoch
        response.csn = after.csn
        fill_results(response, first_offsets)
        return response.SerializeToString()

    def refused(
        self, request: transaction_pb2.TransactRequest, _answer: bytes, error: Exception
    ) -> transaction_pb2.TransactResponse:
        return transact_refused(request, error)


class InitFront:
    """Implements `coordinator_server.transport.LaneFront`."""

    method: Final = Method.INIT_PRODUCER_ID

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.end, self.take_back = lane.end, lane.take_back

    def take(self, request: transaction_pb2.InitProducerIdRequest, context: CallContext) -> bytes | None:
        """The answer, if it is of the common shape."""
        if (
            request.HasField("expected_producer_id")
            or request.HasField("expected_producer_epoch")
            or request.enable_2pc
            or request.keep_prepared
        ):
            return None
        # Without an id it is a plain producer's; an empty one is refused. Neither is for the lane.
        identity = self._lane.initialise(request.transactional_id, request.transaction_timeout_ms, context)
        if identity is None:
            return None
        response = transaction_pb2.InitProducerIdResponse()
        response.producer_id, response.producer_epoch = identity
        return response.SerializeToString()

    def refused(
        self, _request: transaction_pb2.InitProducerIdRequest, _answer: bytes, error: Exception
    ) -> transaction_pb2.InitProducerIdResponse:
        """Raises the error: it is all that there is to say."""
        raise error
