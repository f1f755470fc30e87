"""`txnctl list` and `txnctl describe`: transactions of a running server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from coordinator_protocol.errors import ErrorCode
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import calls, remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    Output,
    Patience,
    Server,
    parse_duration_ms,
)
from txnctl.commands.watching import watched
from txnctl.output import (
    NOTHING,
    Column,
    OutputFormat,
    Row,
    Value,
    duration,
    marked_if,
    moment,
    print_document,
    print_facts,
    print_list,
    print_note,
    write,
)
from txnctl.tables import CellMark

SERVER_ITSELF: Final = "(server)"
"""Client name shown for a step of the server itself: a timeout, or the completion of an earlier decision."""

UNNAMED: Final = "(unnamed)"
"""Client name shown for a client without a client id. Its host still shows where it runs."""

OLD_MS: Final = 60_000
"""Age from which an open transaction is marked, because it holds up readers (ms)."""

_NO_TIMEOUT_MS: Final = 2**31 - 1


@watched
def list_transactions(
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only ids in this state, such as Ongoing or PrepareCommit; repeatable."
        ),
    ] = None,
    producer_ids: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="ID", help="Only of this producer id; repeatable.")
    ] = None,
    older_than_ms: Annotated[
        int | None,
        typer.Option(
            "--older-than",
            metavar="SPAN",
            parser=parse_duration_ms,
            help="Only transactions open for longer than this, as in 30s.",
        ),
    ] = None,
    pattern: Annotated[
        str, typer.Option(metavar="REGEX", help="Only ids that match this as a whole, as in 'billing-.*'.")
    ] = "",
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List transactional ids, the oldest open transaction first."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        try:
            found = admin.list_transactions(
                states=states or (), producer_ids=producer_ids or (), older_than_ms=older_than_ms, pattern=pattern
            )
        except sdk.Rejected as error:
            if error.code != ErrorCode.INVALID_REQUEST:
                raise
            raise CommandFailed(ExitStatus.USAGE, error.reason) from error
    rows = [_listed(each) for each in found]
    rows.sort(key=_oldest_first)
    columns = (
        Column("TRANSACTIONAL ID", "transactional_id"),
        Column("STATE", "state"),
        Column("PRODUCER ID", "producer_id", is_number=True),
        Column("OPENED", "start_ms", moment),
        Column("AGE", "age_ms", duration, is_number=True, mark=marked_if(CellMark.WARNING, above=OLD_MS)),
    )
    print_list(rows, columns, output, empty="no transactional id matches")


def _listed(found: sdk.TransactionListing) -> Row:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "start_ms": found.start_ms if found.start_ms >= 0 else None,
        "age_ms": found.age_ms,
    }


def _oldest_first(row: Row) -> tuple[int, str]:
    age_ms = row["age_ms"]
    return (-age_ms if isinstance(age_ms, int) else 1, str(row["transactional_id"]))


@watched
def describe(
    transactional_ids: Annotated[list[str], typer.Argument(metavar="ID", help="Transactional ids.")],
    history_limit: Annotated[
        int, typer.Option("--history", metavar="N", min=0, max=100, help="Number of last steps to show.")
    ] = 10,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describe transactional ids and their transactions.

    Shows identity and state, the open transaction and its age, and the last steps with their clients."""
    with remote.connected(server) as connection:
        rows = describe_ids(connection, transactional_ids, timeout_ms, history_limit=history_limit)
    if output is not OutputFormat.TABLE:
        print_document(rows, output)
        return
    columns = (
        Column("Transactional id", "transactional_id"),
        Column("State", "state"),
        Column("Producer id", "producer_id"),
        Column("Producer epoch", "producer_epoch"),
        Column("Opened", "start_ms", moment),
        Column("Age", "age_ms", duration),
        Column("Time left", "time_left_ms", duration),
        Column("Timeout", "transaction_timeout_ms", timeout_words),
        Column("Waits for an outside decision", "two_phase"),
        Column("Partitions", "partitions", _partition_names),
        Column("Groups", "groups"),
        Column("Share groups", "shares", _share_names),
        Column("Last outcome (csn)", "csn"),
        Column("Last change", "last_update_ms", moment),
    )
    for at, row in enumerate(rows):
        if at:
            write("\n")
        print_facts(row, columns)
        _print_history(row)


def _print_history(row: Row) -> None:
    history = row["history"]
    assert isinstance(history, Sequence)
    steps = [
        {**step, "actor": actor(str(step["client_id"]), str(step["host"]))}
        for step in history
        if isinstance(step, Mapping)
    ]
    if not steps:
        return
    write("\n")
    print_list(steps, _HISTORY, OutputFormat.TABLE, empty="")
    if not row["history_complete"]:
        print_note("there are older steps; --history shows more")


def actor(client_id: str, host: str) -> str:
    """Return the name of the client that took a step. A request always has a host, so a step without one is the
    server's own."""
    return client_id or (UNNAMED if host else SERVER_ITSELF)


def _host(host: Value) -> str:
    return str(host) or NOTHING


def _identity(identity: Value) -> str:
    if not isinstance(identity, Mapping):
        return NOTHING
    return f"{identity['producer_id']} epoch {identity['producer_epoch']}"


_HISTORY = (
    Column("WHEN", "at_ms", moment),
    Column("STATE", "state"),
    Column("CAUSE", "cause"),
    Column("CLIENT", "actor"),
    Column("HOST", "host", _host),
    Column("PRODUCER ID", "producer_id", is_number=True),
    Column("EPOCH", "producer_epoch", is_number=True),
    Column("FENCED", "fenced", _identity),
)


def describe_ids(
    connection: sdk.Connection, transactional_ids: list[str], timeout_ms: int, *, history_limit: int
) -> list[Row]:
    """Return a row for each id, with all that the server reports about it. Raises the errors of the client."""
    from coordinator_api.v1 import transaction_pb2 as txn
    from coordinator_client.descriptions.transactions import transaction_description

    request = txn.DescribeTransactionsRequest(
        header=connection.header(), transactional_ids=transactional_ids, history_limit=history_limit
    )
    reply = connection.ask(
        calls.DESCRIBE_TRANSACTIONS,
        request,
        deadlines=remote.deadlines(timeout_ms),
        # A forgotten id counts as not found, but its history is more useful than the error.
        items=lambda reply: [found for found in reply.transactions if not found.history],
    )
    rows = []
    for found in reply.transactions:
        told = transaction_description(found)
        unknown = {**_NOTHING_KNOWN, "transactional_id": told.transactional_id, **_history(told)}
        rows.append(unknown if found.error_code else described(told))
    return rows


def described(found: sdk.TransactionDescription) -> Row:
    """Return a transactional id in full, in the names of the API."""
    is_timed = found.age_ms is not None and found.state == "Ongoing" and not found.two_phase
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "start_ms": found.start_ms if found.start_ms >= 0 else None,
        "age_ms": found.age_ms,
        "time_left_ms": max(0, found.transaction_timeout_ms - (found.age_ms or 0)) if is_timed else None,
        "transaction_timeout_ms": found.transaction_timeout_ms,
        "two_phase": found.two_phase,
        "prepared_ms": found.prepared_ms,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in found.partitions],
        "groups": list(found.groups),
        "shares": [
            {"group_id": group_id, "topic": topic, "partition": partition}
            for group_id, topic, partition in found.shares
        ],
        "csn": found.csn or None,
        "last_update_ms": found.last_update_ms,
        **_history(found),
    }


def _history(found: sdk.TransactionDescription) -> Row:
    return {"history": list(map(_step, found.history)), "history_complete": found.is_history_complete}


_NOTHING_KNOWN: Final[Row] = {
    "transactional_id": None,
    # Name in the history for the end of an expired id.
    "state": "Dead",
    "producer_id": None,
    "producer_epoch": None,
    "start_ms": None,
    "age_ms": None,
    "time_left_ms": None,
    "transaction_timeout_ms": None,
    "two_phase": False,
    "prepared_ms": None,
    "partitions": [],
    "groups": [],
    "shares": [],
    "csn": None,
    "last_update_ms": None,
}
"""Fields of a forgotten id, besides its history."""


def _step(step: sdk.TransactionStep) -> Row:
    return {
        "at_ms": step.at_ms,
        "state": step.state,
        "cause": step.cause,
        "client_id": step.client_id,
        "host": step.host,
        "producer_id": step.producer_id,
        "producer_epoch": step.producer_epoch,
        "fenced": None if step.fenced is None else step.fenced._asdict(),
        "participants": step.participants,
        "csn": step.csn or None,
    }


def timeout_words(timeout_ms: Value) -> str:
    """Return the timeout of an id as text. A participant in an outside two-phase commit has none."""
    return "none" if timeout_ms == _NO_TIMEOUT_MS else duration(timeout_ms)


def _partition_names(value: Value) -> str:
    assert isinstance(value, list)
    return ", ".join(f"{place['topic']}-{place['partition']}" for place in value) or "none"


def _share_names(value: Value) -> str:
    assert isinstance(value, list)
    return ", ".join(f"{share['group_id']} in {share['topic']}-{share['partition']}" for share in value) or "none"
