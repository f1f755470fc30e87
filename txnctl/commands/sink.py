"""`txnctl sink`: sinks of a running server. Many members write a batch of a sink, and one decision commits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import calls, remote, sdk, transaction_pb2
from txnctl.commands.options import DEFAULT_PATIENCE_MS, DEFAULT_SERVER, DryRun, Output, Patience, Server
from txnctl.commands.watching import watched
from txnctl.output import (
    Column,
    OutputFormat,
    Row,
    duration,
    print_document,
    print_facts,
    print_list,
    print_note,
    write,
)

app: Final = typer.Typer(
    name="sink",
    help="List, describe and clean up the sinks of Spark queries.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="SINK", help="Name of the sink.", show_default=False)]

_COLUMNS: Final = (
    Column("SINK", "sink"),
    Column("RUN", "run_id"),
    Column("BATCH", "batch_id", is_number=True),
    Column("COMMITTED", "last_batch_id", is_number=True),
    Column("MEMBERS", "member_count", is_number=True),
    Column("SEALED", "sealed_count", is_number=True),
    Column("IDLE", "idle_ms", duration),
)
_MEMBER_COLUMNS: Final = (
    Column("PRODUCER ID", "producer_id", is_number=True),
    Column("BATCH", "batch_id", is_number=True),
    Column("ATTEMPT", "attempt"),
    Column("STATE", "state"),
    Column("PARTITIONS", "partition_count", is_number=True),
    Column("AGE", "age_ms", duration),
)


@app.command("list")
@watched
def list_sinks(
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List sinks with their runs, current and committed batches."""
    rows = [_row(each) for each in _described([], server, timeout_ms)]
    print_list(rows, _COLUMNS, output, empty="there are no sinks")


@app.command()
@watched
def describe(
    name: Name,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describe a sink, its runs, its batches and its members.

    Members that are complete are not shown."""
    (found,) = _described([name], server, timeout_ms)
    if found.error_code:
        raise CommandFailed(ExitStatus.PROBLEM, f"{found.error_message}; `txnctl sink list` shows all")
    row = _row(found)
    if output is not OutputFormat.TABLE:
        print_document(row, output)
        return
    print_facts(
        row,
        (
            Column("Sink", "sink"),
            Column("Run", "run_id"),
            Column("Fenced runs", "fenced_run_ids"),
            Column("Batch", "batch_id"),
            Column("Committed batch", "last_batch_id"),
            Column("Its outcome (csn)", "last_csn"),
            Column("Markers are missing", "completing"),
            Column("Gives up after", "transaction_timeout_ms", duration),
            Column("Idle", "idle_ms", duration),
        ),
    )
    members = [_member(each) for each in found.members]
    if members:
        write("\n")
        print_list(members, _MEMBER_COLUMNS, output, empty="")


@app.command()
def abort(
    name: Name,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
) -> None:
    """Give up every undecided member of a sink, sealed or not. Decided members stay decided. A query that still runs
    writes its batch again."""
    count = 0 if dry_run else _give_up(name, server, timeout_ms)
    if count:
        print_note(f"{count} members are given up")
        return
    # Looked up only now: a principal that may abort members of a sink need not have the permission to describe it.
    (found,) = _described([name], server, timeout_ms)
    if found.error_code:
        raise CommandFailed(ExitStatus.PROBLEM, f"{found.error_message}; `txnctl sink list` shows all")
    undecided = sum(1 for each in found.members if each.state in ("open", "sealed")) if dry_run else 0
    print_note(f"{undecided} members would be given up" if undecided else "no member is undecided; nothing was done")


def _give_up(name: str, server: str, timeout_ms: int) -> int:
    """Give up the members, and return their number."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        return admin.abort_sink(name)


def _described(names: Sequence[str], server: str, timeout_ms: int) -> Sequence[transaction_pb2.SinkDescription]:
    with remote.connected(server) as connection:
        request = transaction_pb2.DescribeSinksRequest(header=connection.header(), sinks=names)
        reply = connection.ask(calls.DESCRIBE_SINKS, request, deadlines=remote.deadlines(timeout_ms))
    return reply.sinks


def _row(found: transaction_pb2.SinkDescription) -> Row:
    return {
        "sink": found.sink,
        "run_id": found.run_id,
        "fenced_run_ids": list(found.fenced_run_ids),
        "batch_id": found.batch_id,
        "last_batch_id": found.last_batch_id if found.last_csn else None,
        "last_csn": found.last_csn or None,
        "completing": found.completing,
        "transaction_timeout_ms": found.transaction_timeout_ms,
        "idle_ms": found.idle_ms,
        "member_count": len(found.members),
        "sealed_count": sum(1 for each in found.members if each.state == "sealed"),
        "members": [_member(each) for each in found.members],
    }


def _member(found: transaction_pb2.SinkMemberDescription) -> Row:
    return {
        "transactional_id": found.transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "batch_id": found.batch_id,
        "attempt": found.attempt,
        "state": found.state,
        "partition_count": found.partition_count,
        "age_ms": found.age_ms,
    }
