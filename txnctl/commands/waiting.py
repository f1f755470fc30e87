"""`txnctl --wait`: waits for a server that takes work, and says on stderr what it waits for.

A server that starts is first not reachable, then it answers and loads its shards, and at last its health is SERVING.
Only then does a command that waits ask it anything.
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
"""Looks once at a server, for at most so many milliseconds: what there is to wait for, or None."""

SERVICE: Final = "coordinator_api.v1.TransactionService"
"""The service to ask for: all of them become ready together."""

METHOD: Final = "/grpc.health.v1.Health/Check"

_PAUSE_MS_FIRST: Final = 50
_PAUSE_MS_MAX: Final = 500
_SAY_AGAIN_MS: Final = 10_000

_Status = health_pb2.HealthCheckResponse


def wait_while(look: Look, *, wait_ms: int, clock: Clock, note: Callable[[str], None]) -> None:
    """Return once there is nothing to wait for, or `wait_ms` are over: what is wrong then, the next request tells.

    `note` is called with what it waits for, at once, with each change of it, and every ten seconds.
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
    """Return a look that finds nothing to wait for once the health of a service is SERVING.

    `reach` looks whether a server answers at all. One that has no health service, or shows it to others only, is not
    waited for any longer: what a command asks it will tell.
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
                # A channel that found nothing pauses between its attempts; the reach knows better that one is there.
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
