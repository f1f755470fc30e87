"""gRPC at a server that waits for the lease of its store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass

from coordinator_api.v1 import transaction_pb2
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.build import SERVICES
from coordinator_server.grpc_front.handler import Switch
from tests.harness.manual_clock import ManualClock
from tests.harness.waiting import OWNER, TTL_MS, WAITS, waiting_server

METHODS: Mapping[str, Any] = {method.name: method for service in SERVICES for method in service.methods}


def answer(name: str, clock: ManualClock, request: Any = None, *, is_held: bool = True, later_ms: int = 0) -> Any:
    """Return the response of a server that waits, this long after it saw the lease."""
    handler = waiting_server(clock, is_held=is_held).handler
    clock.advance(later_ms)
    body = b"" if request is None else request.SerializeToString()
    reply: Pending[bytes] = handler(name, body, CallContext())
    return GetMessageClass(METHODS[name].output_type).FromString(reply.result())


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"FindCoordinator"}))
async def test_every_call_is_refused_with_the_address_of_the_owner(name: str) -> None:
    response = answer(name, ManualClock())
    assert (response.error_code, response.error_class) == (ErrorCode.NOT_COORDINATOR, ErrorClass.REFRESH)
    assert "the server at owner.test:9092 holds it" in response.error_message


async def test_the_owner_is_the_coordinator_of_every_key_and_both_servers_are_named() -> None:
    request = transaction_pb2.FindCoordinatorRequest(keys=["a", "b"])
    response = answer("FindCoordinator", ManualClock(), request)
    assert [(each.key, each.node_id, each.host, each.port) for each in response.coordinators] == [
        ("a", 1, OWNER.host, OWNER.port),
        ("b", 1, OWNER.host, OWNER.port),
    ]
    assert [(each.node_id, each.host) for each in response.servers] == [(1, OWNER.host), (2, WAITS.host)]


@pytest.mark.parametrize(("is_held", "later_ms"), [(True, TTL_MS), (False, 0)])
async def test_no_owner_is_named_without_a_valid_lease(*, is_held: bool, later_ms: int) -> None:
    request, clock = transaction_pb2.FindCoordinatorRequest(keys=["a"]), ManualClock()
    response = answer("FindCoordinator", clock, request, is_held=is_held, later_ms=later_ms)
    (found,) = response.coordinators
    assert (found.error_code, found.host) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert [each.node_id for each in response.servers] == [2]
    refused = answer("EndTxn", ManualClock(), is_held=is_held, later_ms=later_ms)
    assert "no server holds it at the moment" in refused.error_message


async def test_scrapes_tell_which_program_waits_and_of_no_shard_that_is_missing() -> None:
    readings = waiting_server(ManualClock()).readings()
    assert readings.keys() == {"txn_build_info", "txn_config_info"}
    assert all(readings.values())


async def test_transports_that_serve_go_over_to_the_next_handler() -> None:
    clock = ManualClock()
    first, second = waiting_server(clock).handler, waiting_server(clock, is_held=False).handler
    switch = Switch(first)
    before = switch("EndTxn", b"", CallContext()).result()
    switch.handler = second
    (after,) = switch.message([("EndTxn", b"", CallContext())])
    assert b"owner.test" in before
    assert b"owner.test" not in after.result()
