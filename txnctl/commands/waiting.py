"""`txnctl --wait`: waits until a server takes work, and prints the reason for waiting on stderr.

A starting server is first unreachable, then answers while it loads its shards, and at last reports SERVING. Only then
does a waiting command send its request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from grpc_health.v1 import health_pb2

from coordinator_client.clock import Clock
from coordinator_client.transport.first_contact import GIVE_UP_MS
from coordinator_client.transport.grpc_library import grpc
from txnctl.output import duration

Look = Callable[[int], str | None]
"""Checks a server once, for at most the given time (ms). Returns the reason to wait, or None."""

SERVICE: Final = "coordinator_api.v1.TransactionService"
"""Service to check; all services become ready together."""

METHOD: Final = "/grpc.health.v1.Health/Check"

_PAUSE_MS_FIRST: Final = 50
_PAUSE_MS_MAX: Final = 500
_SAY_AGAIN_MS: Final = 10_000

_Status = health_pb2.HealthCheckResponse


def wait_while(look: Look, *, wait_ms: int, clock: Clock, note: Callable[[str], None]) -> None:
    """Return once there is no reason to wait, or `wait_ms` are over. A remaining problem is left to the next request.

    `note` is called with the reason at once, on each change, and every ten seconds.
    """
    ends_ms = clock.monotonic_ms() + wait_ms
    pause_ms, said, say_again_ms = _PAUSE_MS_FIRST, "", 0
    while (left_ms := ends_ms - clock.monotonic_ms()) > 0:
        reason = look(left_ms)
        if reason is None:
            return
        now_ms = clock.monotonic_ms()
        left_ms = max(0, ends_ms - now_ms)
        if reason != said or now_ms >= say_again_ms:
            note(f"{reason}; waiting for at most {duration(left_ms)} more")
            said, say_again_ms = reason, now_ms + _SAY_AGAIN_MS
        clock.pause(min(pause_ms, left_ms))
        pause_ms = min(_PAUSE_MS_MAX, pause_ms * 2)


def look_for_work(server: str, reach: Look, channel: grpc.Channel, service: str = SERVICE) -> Look:
    """Return a check with no reason to wait once the health of a service is SERVING.

    `reach` checks that a server answers at all. A server without a health service, or without permission for this
    client to call it, is not waited for: the next request shows the problem.
    """
    check = channel.unary_unary(
        METHOD,
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )

    def look(timeout_ms: int) -> str | None:
        look_ms = min(timeout_ms, GIVE_UP_MS)
        problem = reach(look_ms)
        if problem is not None:
            return f"no server answers at {server} ({problem})"
        try:
            answer = check(
                health_pb2.HealthCheckRequest(service=service),
                # A channel that failed to connect pauses between its attempts. `reach` has just shown that a server is
                # there.
                wait_for_ready=True,
                timeout=look_ms / 1_000,
            )
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                return f"the server at {server} does not tell its health ({error.code().name})"
            return None
        if answer.status == _Status.SERVING:
            return None
        name = _Status.ServingStatus.Name(answer.status)
        return f"the server at {server} is there and takes no work yet ({name}): it loads its shards, or is stopping"

    return look
