"""GroupService and ShareService without a network: its requests, answered by the servicers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message

from coordinator_api.v1 import group_pb2, share_pb2
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.grpc_front.grpc_call import call_context
from coordinator_server.grpc_front.wire.edge import answer

_RESPONSES = {
    method.input_type.full_name: (Method(method.name), getattr(module, method.output_type.name))
    for module in (group_pb2, share_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


class GroupWire:
    """The RPCs that a client of one server can call."""

    def __init__(self, servicers: Sequence[object]) -> None:
        self._servicers = servicers

    def call(self, request: Message, context: CallContext | None = None) -> Pending[Any]:
        """The Pending response has error fields, as on the wire."""
        method, response_type = _RESPONSES[request.DESCRIPTOR.full_name]
        (serve,) = (found for each in self._servicers if (found := getattr(each, method, None)) is not None)
        known = context or CallContext(host="/127.0.0.1")

        def use_case() -> Pending[Any]:
            return serve(request, call_context(request.header, known, method))  # type: ignore[attr-defined,no-any-return]  # field 1

        return answer(method, response_type, use_case)
