"""`txnctl abort` and `txnctl hanging`: end transactions of a running server, and list those that nothing else ends."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import admin_pb2, calls, remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    Output,
    PartitionPlace,
    Patience,
    Server,
    parse_duration_ms,
    parse_partition,
)
from txnctl.commands.watching import watched
from txnctl.output import Column, OutputFormat, Row, Value, duration, marked_if, print_list, print_note
from txnctl.tables import CellMark


def abort(
    transactional_ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Transactional ids.", show_default=False)
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="All ids with this prefix that have a transaction open.")
    ] = "",
    older_than_ms: Annotated[
        int | None,
        typer.Option(
            "--older-than",
            metavar="SPAN",
            parser=parse_duration_ms,
            help="Only transactions open for longer than this, as in 30m.",
        ),
    ] = None,
    place: Annotated[
        PartitionPlace | None,
        typer.Option(
            "--partition",
            metavar="TOPIC-PARTITION",
            parser=parse_partition,
            help="Hanging transactions of this partition, which no id owns; see `txnctl hanging`.",
        ),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(metavar="ID", help="With --partition: only those of this producer.")
    ] = None,
    fence: Annotated[
        bool, typer.Option("--fence", help="Also fence the producers until they initialise again; includes idle ids.")
    ] = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Abort open transactions by id, prefix, age or partition."""
    ids = transactional_ids or []
    _check_usage(ids, prefix, older_than_ms, place, producer_id, is_fence=fence)
    with remote.connected(server) as connection:
        if place is not None:
            rows = _abort_in_partition(connection, place, producer_id, timeout_ms, dry_run=dry_run)
            print_list(rows, _HANGING, output, empty="nothing hangs there")
            return
        selector = admin_pb2.TransactionSelector(
            transactional_ids=ids, transactional_id_prefix=prefix, older_than_ms=older_than_ms
        )
        acted = _act(connection, selector, timeout_ms, is_fence=fence, dry_run=dry_run)
    print_list(acted, _ACTED, output, empty="no transaction matches")
    refused = sum(row["error"] is not None for row in acted)
    if refused:
        raise CommandFailed(ExitStatus.PROBLEM, f"{refused} of {len(acted)} were refused")


@watched
def hanging(
    server: Server = DEFAULT_SERVER, timeout_ms: Patience = DEFAULT_PATIENCE_MS, output: Output = OutputFormat.TABLE
) -> None:
    """List hanging transactions.

    They are open, and neither a client nor the server will end them. Each comes with the command that ends
    it. There should be none: the status is 1 if there are any."""
    with remote.connected(server) as connection:
        rows = list_hanging(connection, timeout_ms)
    print_list(rows, (*_HANGING, Column("TO END IT", "command")), output, empty="nothing hangs")
    if rows:
        raise CommandFailed(ExitStatus.PROBLEM, f"{len(rows)} transactions hang: please report it")


def list_hanging(connection: sdk.Connection, timeout_ms: int) -> list[Row]:
    """Return all hanging transactions, with the command that ends each. Raises the errors of the client."""
    request = admin_pb2.ListHangingTransactionsRequest(header=connection.header())
    reply = connection.ask(calls.LIST_HANGING_TRANSACTIONS, request, deadlines=remote.deadlines(timeout_ms))
    return [
        {**_hanging(found), "command": command_that_ends(found.topic, found.partition, found.producer_id)}
        for found in reply.transactions
    ]


def _check_usage(
    ids: list[str],
    prefix: str,
    older_than_ms: int | None,
    place: PartitionPlace | None,
    producer_id: int | None,
    *,
    is_fence: bool,
) -> None:
    by_id = bool(ids) or bool(prefix) or older_than_ms is not None
    if place is None and producer_id is not None:
        raise CommandFailed(ExitStatus.USAGE, "--producer-id belongs to --partition")
    if place is not None and (by_id or is_fence):
        raise CommandFailed(
            ExitStatus.USAGE, "--partition is for what no transactional id owns: leave ids, prefix, age and --fence out"
        )
    if place is None and not by_id:
        raise CommandFailed(
            ExitStatus.USAGE, "say what to abort: transactional ids, --prefix, --older-than or --partition"
        )
    if ids and prefix:
        raise CommandFailed(ExitStatus.USAGE, "give ids or --prefix, not both")


def _act(
    connection: sdk.Connection,
    selector: admin_pb2.TransactionSelector,
    timeout_ms: int,
    *,
    is_fence: bool,
    dry_run: bool,
) -> list[Row]:
    """Abort or fence the selected transactions, in as many requests as needed."""
    rows: list[Row] = []
    patience = remote.deadlines(timeout_ms)
    if is_fence:
        fence = admin_pb2.FenceProducersRequest(
            header=connection.header(connection.random_source.request_id()), selector=selector, dry_run=dry_run
        )
        fenced = connection.ask(calls.FENCE_PRODUCERS, fence, deadlines=patience)
        return [_acted(result, "would be fenced" if dry_run else "fenced") for result in fenced.results]
    while True:
        request = admin_pb2.AbortTransactionsRequest(
            header=connection.header(connection.random_source.request_id()), selector=selector, dry_run=dry_run
        )
        reply = connection.ask(calls.ABORT_TRANSACTIONS, request, deadlines=patience)
        rows += [_acted(result, "would be aborted" if dry_run else "aborted") for result in reply.results]
        if not reply.remaining or dry_run or not reply.results:
            break
    if reply.remaining:
        print_note(f"{reply.remaining} more would be aborted too")
    return rows


def _acted(result: admin_pb2.TransactionActResult, word: str) -> Row:
    if result.error_code:
        return {
            "transactional_id": result.transactional_id,
            "result": "refused",
            "error": {"code": remote.error_name(result.error_code), "message": result.error_message},
        }
    return {
        "transactional_id": result.transactional_id,
        "result": word,
        "state": result.state,
        "fenced_producer_id": result.fenced_producer_id,
        "fenced_producer_epoch": result.fenced_producer_epoch,
        "age_ms": result.age_ms if result.HasField("age_ms") else None,
        "partitions": result.partition_count,
        "error": None,
    }


def _abort_in_partition(
    connection: sdk.Connection, place: PartitionPlace, producer_id: int | None, timeout_ms: int, *, dry_run: bool
) -> list[Row]:
    request = admin_pb2.AbortHangingTransactionsRequest(
        header=connection.header(connection.random_source.request_id()),
        topic=place.topic,
        partition=place.partition,
        producer_id=producer_id,
        dry_run=dry_run,
    )
    reply = connection.ask(calls.ABORT_HANGING_TRANSACTIONS, request, deadlines=remote.deadlines(timeout_ms))
    return [{**_hanging(found), "result": "would be aborted" if dry_run else "aborted"} for found in reply.aborted]


def _hanging(found: admin_pb2.HangingTransaction) -> Row:
    return {
        "topic": found.topic,
        "partition": found.partition,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "start_offset": found.start_offset,
        "start_ms": found.start_ms or None,
        "age_ms": found.age_ms if found.start_ms else None,
        "reason": found.reason,
        "transactional_id": found.transactional_id or None,
        "group_id": found.group_id or None,
    }


def command_that_ends(topic: str, partition: int, producer_id: int | None) -> str:
    """Return the command line that ends a hanging transaction of a partition. Without a producer id it ends those of
    all producers."""
    place = shlex.quote(f"{topic}-{partition}")
    return f"txnctl abort --partition {place}" + ("" if producer_id is None else f" --producer-id {producer_id}")


def _reason(reason: Value) -> str:
    return _REASONS.get(str(reason), str(reason))


_REASONS = {
    "unknown_producer": "no id has this producer",
    "not_open": "its id has nothing open",
    "other_epoch": "its id has another transaction open",
    "not_a_member": "the transaction of its id does not know the partition",
}

_HANGING = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition", is_number=True),
    Column("PRODUCER ID", "producer_id", is_number=True),
    Column("EPOCH", "producer_epoch", is_number=True),
    Column("FROM OFFSET", "start_offset", is_number=True),
    Column("AGE", "age_ms", duration, is_number=True),
    Column("WHY", "reason", _reason, mark=marked_if(CellMark.BAD)),
)


def _refusal(error: Value) -> str:
    return str(error["message"]) if isinstance(error, dict) else "-"


_ACTED = (
    Column("TRANSACTIONAL ID", "transactional_id"),
    Column("RESULT", "result"),
    Column("STATE BEFORE", "state"),
    Column("FENCED ID", "fenced_producer_id", is_number=True),
    Column("FENCED EPOCH", "fenced_producer_epoch", is_number=True),
    Column("AGE", "age_ms", duration, is_number=True),
    Column("PARTITIONS", "partitions", is_number=True),
    Column("WHY NOT", "error", _refusal, mark=marked_if(CellMark.BAD)),
)
