"""`txnctl list`, `txnctl describe` and `txnctl explain`: transactions of a running server.

`explain` shows why the last stable offset of a partition does not advance."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.next_event import NextEvent
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.administration import command_that_ends
from txnctl.commands.late import calls, remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    Output,
    PartitionPlace,
    Patience,
    Server,
    parse_duration_ms,
    parse_partition,
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
    marked_words,
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
    from coordinator_client.descriptions import transaction_description

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


_STEPS = 20


_PARTITION: Final = re.compile(r".+-[0-9]+")
"""Names of partitions, and of topics that end like one."""


@watched
def explain(
    name: Annotated[str, typer.Argument(metavar="TOPIC[-PARTITION]", help="A topic, or a partition as in orders-0.")],
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Explain why committed readers do not advance.

    For a partition: the blocking transaction, its owner, and the next event. For a topic: also the partitions that are
    not served, sizes and retention, and the command to run next."""
    with remote.connected(server) as connection:
        explained = _ask(connection, parse_partition(name), timeout_ms) if _PARTITION.fullmatch(name) else name
        if isinstance(explained, str):
            from txnctl.commands.explain_topic import explain_topic

            explain_topic(connection, explained, timeout_ms, output)
            return
    row = row_of(explained)
    if output is not OutputFormat.TABLE:
        print_document(row, output)
    elif explained.blocking is None:
        print_facts(row, _FREE)
    else:
        blocking = row["blocking"]
        assert isinstance(blocking, dict)
        print_facts({**blocking, **row}, _BLOCKED)


def _ask(connection: sdk.Connection, place: PartitionPlace, timeout_ms: int) -> sdk.PartitionExplanation | str:
    """Return the explanation of a partition. A topic whose name ends in a dash and a number is returned by its name."""
    with sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        try:
            return admin.explain_partition(*place, history_limit=_STEPS)
        except sdk.Rejected as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if admin.list_partitions([str(place)], limit=1).partitions:
                return str(place)
            topic = remote.topic_there(connection, place.topic, timeout_ms)
            raise CommandFailed(
                ExitStatus.PROBLEM,
                f"{place.topic} has the partitions 0 to {len(topic.partitions) - 1}, and {place.partition} was asked"
                " for",
            ) from error


def row_of(explained: sdk.PartitionExplanation) -> Row:
    """Return an explanation in the names of the API, with the next event in words."""
    blocking = None if explained.blocking is None else _blocking(explained, explained.blocking)
    return {
        "topic": explained.topic,
        "partition": explained.partition,
        "last_stable_offset": explained.last_stable_offset,
        "high_watermark": explained.high_watermark,
        "undecided_offsets": explained.undecided_offsets,
        "open_transactions": explained.open_transactions,
        "blocking": blocking,
        "next_event": _NOTHING_IN_THE_WAY if blocking is None else blocking["next_event"],
    }


def _blocking(explained: sdk.PartitionExplanation, found: sdk.BlockingTransaction) -> Row:
    if found.transaction is not None:
        owner = described(found.transaction)
        history = owner["history"]
        assert isinstance(history, list)
        last = history[0] if history else None
        next_event = _next_event(explained.next_event, found)
        return {"start_offset": found.start_offset, **owner, "last_step": last, "next_event": next_event}
    producer_id, producer_epoch = found.identity or (None, None)
    known: Row = {
        "topic": explained.topic,
        "partition": explained.partition,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "start_offset": found.start_offset,
        "start_ms": found.start_ms,
        "age_ms": found.age_ms,
        "time_left_ms": found.time_left_ms,
        "transactional_id": found.transactional_id or None,
    }
    if explained.next_event is NextEvent.HANGING:
        command = command_that_ends(explained.topic, explained.partition, producer_id)
        next_event = f"nothing: it hangs, no transactional id owns it; `{command}` ends it"
        hanging = {"reason": found.hanging_reason, "command": command, "state": "hanging"}
        return {**known, **hanging, "next_event": next_event}
    state = "hidden" if found.is_owner_hidden else "unknown"
    return {**known, "state": state, "next_event": _next_event(explained.next_event, found)}


def _next_event(event: NextEvent, found: sdk.BlockingTransaction) -> str:
    owner = found.transaction
    abort = "`txnctl abort` with its id" if owner is None else f"`txnctl abort {owner.transactional_id}`"
    match event:
        case NextEvent.MARKER_BEING_WRITTEN:
            outcome = "outcome" if owner is None else "commit" if owner.state == "PrepareCommit" else "abort"
            return f"the {outcome} is decided and its marker being written"
        case NextEvent.OUTSIDE_DECISION:
            return f"it waits for an outside decision and never times out; {abort} breaks the promise"
        case NextEvent.CLIENT_OR_TIMEOUT:
            left = duration(found.time_left_ms)
            return f"its client ends it, or the server aborts it in {left}; {abort} does it now"
        case NextEvent.OWNER_UNKNOWN:
            return f"nobody can tell whose it is: {found.owner_unknown_reason}"
        case _:
            return "the server tells what this txnctl does not know; use one of the server's version"


_NOTHING_IN_THE_WAY = "nothing is in the way: readers get up to the end"


def _last_step(step: Value) -> str:
    if not isinstance(step, dict):
        return "-"
    who = actor(str(step["client_id"]), str(step["host"])) + (f" at {step['host']}" if step["host"] else "")
    return f"{step['cause']} by {who}, {moment(step['at_ms'])}"


_FREE = (
    Column("Topic", "topic"),
    Column("Partition", "partition"),
    Column("Committed readers get up to", "last_stable_offset"),
    Column("End of the log", "high_watermark"),
    Column("Undecided offsets", "undecided_offsets"),
    Column("Next", "next_event"),
)
_BLOCKED = (
    *_FREE[:-1],
    Column("In the way", "transactional_id"),
    Column("State", "state", mark=marked_words(bad=["hanging"])),
    Column("Producer id", "producer_id"),
    Column("Producer epoch", "producer_epoch"),
    Column("Its first offset here", "start_offset"),
    Column("Opened", "start_ms", moment),
    Column("Age", "age_ms", duration, mark=marked_if(CellMark.WARNING, above=OLD_MS)),
    Column("Time left", "time_left_ms", duration),
    Column("Last step", "last_step", _last_step),
    Column("Next", "next_event"),
)
