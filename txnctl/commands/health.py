"""`txnctl health`: health check for scripts that start and stop servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coordinator_server.exits import ExitStatus
from txnctl.commands.late import remote, waiting
from txnctl.commands.options import DEFAULT_PATIENCE_MS, DEFAULT_SERVER, Output, Patience, Server
from txnctl.commands.watching import watched
from txnctl.output import Column, OutputFormat, Row, marked_words, print_document, print_facts

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message
    from grpc_health.v1 import health_pb2

_COLUMNS = (Column("Server", "server"), Column("Status", "status", mark=marked_words(bad=["NOT_SERVING"])))


@watched
def health(
    server: Server = DEFAULT_SERVER,
    is_alive_enough: Annotated[
        bool, typer.Option("--alive", help="Only check that the process answers; it may still be loading.")
    ] = False,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Ask a server whether it takes work.

    It asks gRPC's health service. Shards that could not be read are reported, but do not change the status: the others
    serve. Ends with status 0 if the server takes work. Ends with 1 if it answers but is loading or stopping, and with
    5 without an answer. `txnctl --wait 60s health` waits up to a minute for a server that takes work, and then ends
    with one of these.
    """
    import grpc
    from grpc_health.v1 import health_pb2

    service = "" if is_alive_enough else waiting.SERVICE
    server = remote.check_reachable(server, timeout_ms, service=service)
    request = health_pb2.HealthCheckRequest(service=service)
    with remote.open_channel(server) as channel:
        check = channel.unary_unary(
            waiting.METHOD,
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = check(request, timeout=timeout_ms / 1_000)
            is_whole = is_alive_enough or _are_shards_well(check, timeout_ms)
        except grpc.RpcError as error:
            raise remote.unreachable(server, f"{error.code().name}: {error.details()}") from error
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    row: Row = {"server": server, "status": status}
    if not is_whole:
        row = {**row, "shards": "some have failed: `txnctl shard list --state failed` says which and why"}
    if output is OutputFormat.TABLE:
        print_facts(row, _COLUMNS if is_whole else (*_COLUMNS, Column("Shards", "shards")))
    else:
        print_document(row, output)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise typer.Exit(ExitStatus.PROBLEM)


def _are_shards_well(
    check: grpc.UnaryUnaryMultiCallable[Message, health_pb2.HealthCheckResponse], timeout_ms: int
) -> bool:
    """Return False once a shard has failed. A server that is loading does not report shards, and neither does an older
    one."""
    import grpc
    from grpc_health.v1 import health_pb2

    from coordinator_server.shard_health import SHARDS

    try:
        answer = check(health_pb2.HealthCheckRequest(service=SHARDS), timeout=timeout_ms / 1_000)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return True
        raise
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
