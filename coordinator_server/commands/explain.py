"""`txnctl explain`: why the committed end of a partition stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coordinator_server.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    Output,
    PartitionPlace,
    Patience,
    Server,
    parse_partition,
)
from coordinator_server.exit_status import CommandFailed, ExitStatus
from coordinator_server.output import Column, OutputFormat, Row, Value, duration, moment, print_document, print_facts

if TYPE_CHECKING:
    from coordinator_api.v1 import log_pb2
    from coordinator_client.connection import Connection

_TRIES = 3
"""How often to ask again: a transaction may end between two questions, and then the next one is in the way."""

_STEPS = 20


def explain(
    place: Annotated[
        PartitionPlace,
        typer.Argument(metavar="TOPIC-PARTITION", parser=parse_partition, help="The partition, as in orders-0."),
    ],
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Explain why committed readers of a partition get no further: which transaction is in the way, whose it is, and
    what happens next."""
    from coordinator_server.commands.remote import connected

    with connected(server) as connection:
        explained = _explained(connection, place, timeout_ms)
    if output is OutputFormat.TABLE:
        print_facts(explained, _BLOCKED if explained["blocking"] is not None else _FREE)
    else:
        print_document({key: value for key, value in explained.items() if not key.startswith("_")}, output)


def _explained(connection: Connection, place: PartitionPlace, timeout_ms: int) -> Row:
    positions: Row = {}
    for _try in range(_TRIES):
        positions = _positions(connection, place, timeout_ms)
        blocker = _blocker(connection, place, timeout_ms)
        if blocker is None:
            return {**positions, "blocking": None, "next_event": "nothing is in the way: readers get up to the end"}
        owner = _owner(connection, place, blocker, timeout_ms)
        if owner is not None:
            blocking: Row = {
                "producer_id": blocker.producer_id,
                "start_offset": blocker.current_txn_start_offset,
                **owner,
            }
            shown = {f"_{key}": value for key, value in blocking.items()}
            return {**positions, **shown, "blocking": blocking, "next_event": blocking["next_event"]}
    return {**positions, "blocking": None, "next_event": "transactions come and go quickly: nothing stays in the way"}


def _positions(connection: Connection, place: PartitionPlace, timeout_ms: int) -> Row:
    from coordinator_server.commands.remote import topic_there

    topic = topic_there(connection, place.topic, timeout_ms)
    found = [each for each in topic.partitions if each.partition == place.partition]
    if not found:
        raise CommandFailed(
            ExitStatus.PROBLEM,
            f"{place.topic} has the partitions 0 to {len(topic.partitions) - 1}, and {place.partition} was asked for",
        )
    (partition,) = found
    return {
        "topic": place.topic,
        "partition": place.partition,
        "last_stable_offset": partition.last_stable_offset,
        "high_watermark": partition.high_watermark,
        "undecided_offsets": partition.high_watermark - partition.last_stable_offset,
        "open_transactions": partition.open_transactions,
    }


def _blocker(connection: Connection, place: PartitionPlace, timeout_ms: int) -> log_pb2.ProducerState | None:
    """Return the producer of the oldest transaction that is open in the partition."""
    from coordinator_api.v1 import common_pb2, log_pb2
    from coordinator_client.methods import DESCRIBE_PRODUCERS
    from coordinator_server.commands.remote import deadlines

    request = log_pb2.DescribeProducersRequest(
        header=connection.header(),
        topics=[common_pb2.TopicPartitions(topic=place.topic, partitions=[place.partition])],
    )
    reply = connection.ask(
        DESCRIBE_PRODUCERS, request, deadlines=deadlines(timeout_ms), items=lambda reply: reply.partitions
    )
    opened = [each for each in reply.partitions[0].producers if each.HasField("current_txn_start_offset")]
    return min(opened, key=lambda each: each.current_txn_start_offset, default=None)


def _owner(
    connection: Connection, place: PartitionPlace, blocker: log_pb2.ProducerState, timeout_ms: int
) -> Row | None:
    """Return whose transaction it is and what happens next; None where it has just ended."""
    from coordinator_client.admin import Admin
    from coordinator_server.commands.administration import list_hanging
    from coordinator_server.commands.transactions import describe_ids

    for found in list_hanging(connection, timeout_ms):
        if (found["topic"], found["partition"], found["producer_id"]) == (*place, blocker.producer_id):
            next_event = f"nothing: it hangs, no transactional id owns it; `{found['command']}` ends it"
            return {**found, "state": "hanging", "next_event": next_event}
    with Admin(connection, deadline_ms=timeout_ms) as admin:
        listed = admin.list_transactions(producer_ids=[blocker.producer_id])
    ids = [each.transactional_id for each in listed if each.age_ms is not None]
    if not ids:
        return None
    (described,) = describe_ids(connection, ids[:1], timeout_ms, history_limit=_STEPS)
    if described["age_ms"] is None:
        return None
    history = described["history"]
    assert isinstance(history, list)
    last = history[0] if history else None
    return {**described, "history": history, "last_step": last, "next_event": _next_event(described)}


def _next_event(described: Row) -> str:
    state, identity = described["state"], described["transactional_id"]
    if state != "Ongoing":
        return f"the {'commit' if state == 'PrepareCommit' else 'abort'} is decided and its marker being written"
    if described["two_phase"]:
        return f"it waits for an outside decision and never times out; `txnctl abort {identity}` breaks the promise"
    left = duration(described["time_left_ms"])
    return f"its client ends it, or the server aborts it in {left}; `txnctl abort {identity}` does it now"


def _last_step(step: Value) -> str:
    from coordinator_server.commands.transactions import actor

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
    Column("In the way", "_transactional_id"),
    Column("State", "_state"),
    Column("Producer id", "_producer_id"),
    Column("Producer epoch", "_producer_epoch"),
    Column("Its first offset here", "_start_offset"),
    Column("Opened", "_start_ms", moment),
    Column("Age", "_age_ms", duration),
    Column("Time left", "_time_left_ms", duration),
    Column("Last step", "_last_step", _last_step),
    Column("Next", "next_event"),
)
