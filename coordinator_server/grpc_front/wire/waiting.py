"""Services on the wire at a server that waits for the lease of its store: it names the owner, and refuses the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import NoReturn

from google.protobuf.message import Message

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.methods import Method
from coordinator_runtime.pending import Pending, settled
from coordinator_runtime.ports import CallContext
from coordinator_server.addresses import Address, NodeAddress
from coordinator_server.grpc_front.wire.edge import set_error

OwnerOf = Callable[[], NodeAddress | None]
"""Returns the server that holds the lease; None if no lease is known to be valid."""


def waiting_servicer(methods: Iterable[Method], node: NodeAddress, owner_of: OwnerOf) -> object:
    """Return a servicer with a function for each method. `node` is this server."""
    functions: dict[str, object] = {method.value: partial(_refuse, owner_of) for method in methods}
    functions[Method.FIND_COORDINATOR] = partial(_find_coordinator, node, owner_of)
    return SimpleNamespace(**functions)


def _refuse(owner_of: OwnerOf, _request: Message, _context: CallContext) -> NoReturn:
    owner = owner_of()
    hint = "no server holds it at the moment" if owner is None else f"the server at {_text(owner)} holds it"
    raise Refused(ErrorCode.NOT_COORDINATOR, f"this server waits for the lease of its store, and {hint}")


def _find_coordinator(
    node: NodeAddress, owner_of: OwnerOf, request: transaction_pb2.FindCoordinatorRequest, _context: CallContext
) -> Pending[transaction_pb2.FindCoordinatorResponse]:
    """Return the owner for every key. It refuses those that the caller may not use."""
    owner, response = owner_of(), transaction_pb2.FindCoordinatorResponse()
    for key in request.keys:
        message = response.coordinators.add(key=key)
        if owner is None:
            text = "no server holds the lease of the store at the moment"
            set_error(message, Method.FIND_COORDINATOR, Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, text))
        else:
            message.node_id, message.host, message.port = owner.node_id, owner.host, owner.port
    for each in [node] if owner is None else [owner, node]:
        response.servers.add(node_id=each.node_id, host=each.host, port=each.port)
    return settled(response)


def _text(node: NodeAddress) -> str:
    return str(Address(node.host, node.port))
