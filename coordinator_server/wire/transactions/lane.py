"""Transact on the wire, for the lane: from message to command, and from its result to the bytes of an answer."""

from __future__ import annotations

from typing import Final

from coordinator_api.v1 import transaction_pb2
from coordinator_core.lane import Lane
from coordinator_protocol.errors import Method
from coordinator_runtime.ports import CallContext
from coordinator_server.wire.transactions.servicer import transact_command, transact_refused, transact_response


class TransactFront:
    """Implements `coordinator_server.transport.LaneFront`."""

    method: Final = Method.TRANSACT

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.end, self.take_back = lane.end, lane.take_back
        self.refused = transact_refused

    def take(self, request: transaction_pb2.TransactRequest, context: CallContext) -> bytes | None:
        """The answer, if it is of the common shape. Raises Refused for what can never be a partition or an offset."""
        result = self._lane.transact(transact_command(request), context)
        return None if result is None else transact_response(result).SerializeToString()
