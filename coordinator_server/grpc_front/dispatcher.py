"""The handler of every gRPC transport: bytes -> `GrpcCall` -> gatekeeper -> bytes.

A transport adapter knows a network and no servicer. It calls a `Handler` with the full name of a method, the bytes of
the request and the caller, and sends the result back. `transports` names the adapters; nothing inside knows which one
runs (design 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import ServiceDescriptor

from coordinator_protocol.errors import Refused
from coordinator_protocol.wire import Pieces
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext, Connection
from coordinator_server.grpc_front.grpc_call import CallInPieces, Endpoint, GrpcCall, UnknownCall, endpoint_of
from coordinator_server.grpc_front.handler import FastMethod, NamedCall
from coordinator_server.traffic.call import Call
from coordinator_server.traffic.metering import Keeper

REQUEST_PARTS_MAX: Final = 30_000
"""Maximum number of elements of all lists of one request. A transaction of the largest size fits in: 10,000 partitions,
each of another topic."""


class Dispatcher:
    """Implements `Handler` over the gatekeeper that all fronts share."""

    def __init__(
        self,
        services: Iterable[ServiceDescriptor],
        keeper: Keeper,
        *,
        message_bytes_max: int,
        parts_max: int = REQUEST_PARTS_MAX,
    ) -> None:
        self._keeper = keeper
        self._table = endpoint_table(services, parts_max, message_bytes_max)

    def serve(self, servicers: Iterable[object], fast: Iterable[FastMethod] = ()) -> None:
        """Set the function that serves each method. A servicer has one function per method, with the method's name.
        Call it before the gatekeeper opens."""
        servicers = list(servicers)
        by_method = {each.method: each for each in fast}
        for endpoint in self._table.values():
            method = endpoint.rule.method
            found = [function for servicer in servicers if (function := getattr(servicer, method, None)) is not None]
            assert len(found) == 1, f"{method} must have one servicer and has {len(found)}"
            endpoint.serve, endpoint.fast = found[0], by_method.get(method)

    def __call__(self, method: str, body: bytes, call: CallContext) -> Pending[bytes]:
        return self._keeper.begin(self._call(method, body, call))

    def in_pieces(self, method: str, body: bytes, call: CallContext) -> Pending[bytes | Pieces]:
        return self._keeper.begin(self._call(method, body, call, CallInPieces))

    def message(self, calls: Sequence[NamedCall]) -> Sequence[Pending[bytes]]:
        return self._keeper.begin_all([self._call(*each) for each in calls])

    def is_behind(self, connection: Connection, then: Callable[[], None]) -> bool:
        return self._keeper.is_behind(connection, then)

    def refuse(self, method: str, refusal: Refused) -> Pending[bytes]:
        return self._keeper.refuse(self._call(method, b"", CallContext()), refusal)

    def _call(self, method: str, body: bytes, call: CallContext, kind: type[GrpcCall] = GrpcCall) -> Call[Any]:
        endpoint = self._table.get(method)
        return UnknownCall(method, body, call) if endpoint is None else kind(endpoint, body, call)


def endpoint_table(
    services: Iterable[ServiceDescriptor], parts_max: int, answer_bytes_max: int
) -> Mapping[str, Endpoint]:
    """Return the endpoint of every method of the services, under two names. Unary calls use the full name
    ("/package.Service/Method"), operations of a session the bare one."""
    table = {}
    for service in services:
        for method in service.methods:
            endpoint = endpoint_of(method, parts_max, answer_bytes_max)
            table[f"/{service.full_name}/{method.name}"] = table[method.name] = endpoint
    return table
