"""`txnctl topic`: topics of a running server."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from coordinator_server.commands.late import remote, sdk
from coordinator_server.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    Output,
    Patience,
    Server,
    Yes,
    make_sure,
)
from coordinator_server.output import Column, OutputFormat, Row, print_list, uuid_text

app = typer.Typer(
    name="topic", help="Create, list, describe and delete topics.", no_args_is_help=True, rich_markup_mode=None
)


class ValidatePayload(StrEnum):
    """How much of a batch is looked at before a topic takes it."""

    FULL = "full"
    HEADER = "header"


Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")]

_RESULT = (
    Column("TOPIC", "topic"),
    Column("RESULT", "result"),
    Column("PARTITIONS", "partitions", is_number=True),
    Column("TOPIC ID", "topic_id"),
)


@app.command()
def create(
    name: Name,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1, help="How many partitions it has.")] = 1,
    validate_payload: Annotated[
        ValidatePayload,
        typer.Option(
            help="full: take only batches that every reader can decode. header: look at headers and checksums only."
        ),
    ] = ValidatePayload.FULL,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Be content with a topic of that name and size.")
    ] = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a topic."""
    # What is the default anyway, every server knows.
    config = {} if validate_payload is ValidatePayload.FULL else {"validate_payload": validate_payload.value}
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        if dry_run:
            is_new = admin.would_create_topic(name, partitions, config=config, is_existing_ok=if_not_exists)
            result: Row = {
                "topic": name,
                "result": "would be created" if is_new else "exists",
                "partitions": partitions,
            }
        else:
            created = admin.create_topic(name, partitions, config=config, is_existing_ok=if_not_exists)
            result = {"topic": name, "result": "ready", "partitions": partitions, "topic_id": _id(created)}
    print_list([result], _RESULT, output, empty="")


@app.command("list")
def list_topics(
    server: Server = DEFAULT_SERVER, timeout_ms: Patience = DEFAULT_PATIENCE_MS, output: Output = OutputFormat.TABLE
) -> None:
    """List all topics: how much is in them, and how much of it is not decided yet."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        rows = [_summary(topic) for topic in admin.describe_topics()]
    columns = (
        Column("TOPIC", "topic"),
        Column("PARTITIONS", "partitions", is_number=True),
        Column("OFFSETS", "offsets", is_number=True),
        Column("UNDECIDED", "undecided_offsets", is_number=True),
        Column("OPEN TXNS", "open_transactions", is_number=True),
        Column("TOPIC ID", "topic_id"),
    )
    print_list(rows, columns, output, empty="no topics; `txnctl topic create NAME` makes one")


@app.command()
def describe(
    names: Names,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describe topics partition by partition. JSON has all leader epochs of each, and where they began."""
    with remote.connected(server) as connection:
        rows = [row for topic in _found(connection, names, timeout_ms) for row in _partitions(topic)]
    columns = (
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition", is_number=True),
        Column("LOG START", "log_start_offset", is_number=True),
        Column("LAST STABLE", "last_stable_offset", is_number=True),
        Column("HIGH WATERMARK", "high_watermark", is_number=True),
        Column("OPEN TXNS", "open_transactions", is_number=True),
        Column("LEADER EPOCH", "leader_epoch", is_number=True),
        Column("VALIDATE PAYLOAD", "validate_payload"),
    )
    print_list(rows, columns, output, empty="")


@app.command()
def delete(
    names: Names,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete topics with everything in them. Open transactions that touch them are aborted."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        summaries = [_summary(topic) for topic in _found(connection, names, timeout_ms)]
        if not dry_run:
            if not yes:
                make_sure(_deletions(summaries))
            for name in dict.fromkeys(names):
                admin.delete_topic(name)
    result = "would be deleted" if dry_run else "deleted"
    columns = (
        *_RESULT[:3],
        Column("OFFSETS", "offsets", is_number=True),
        Column("OPEN TXNS", "open_transactions", is_number=True),
    )
    print_list([{**summary, "result": result} for summary in summaries], columns, output, empty="")


def _deletions(summaries: list[Row]) -> list[str]:
    return [
        f"{summary['topic']}: {summary['partitions']} partitions, {summary['offsets']} offsets,"
        f" {summary['open_transactions']} open transactions that would be aborted"
        for summary in summaries
    ]


def _found(connection: sdk.Connection, names: list[str], timeout_ms: int) -> list[sdk.TopicDescription]:
    """The topics of these names. Raises CommandFailed that names the first one that is not there."""
    return [remote.topic_there(connection, name, timeout_ms) for name in dict.fromkeys(names)]


def _summary(topic: sdk.TopicDescription) -> Row:
    return {
        "topic": topic.name,
        "topic_id": _id(topic),
        "partitions": len(topic.partitions),
        "offsets": sum(found.high_watermark - found.log_start_offset for found in topic.partitions),
        "undecided_offsets": sum(found.high_watermark - found.last_stable_offset for found in topic.partitions),
        "open_transactions": sum(found.open_transactions for found in topic.partitions),
    }


def _partitions(topic: sdk.TopicDescription) -> list[Row]:
    return [
        {
            "topic": topic.name,
            "topic_id": _id(topic),
            "partition": found.partition,
            "validate_payload": topic.config.get("validate_payload"),
            "log_start_offset": found.log_start_offset,
            "last_stable_offset": found.last_stable_offset,
            "high_watermark": found.high_watermark,
            "open_transactions": found.open_transactions,
            "leader_epoch": found.leader_epochs[-1].epoch if found.leader_epochs else None,
            "leader_epochs": [
                {
                    "epoch": begun.epoch,
                    "start_offset": begun.start_offset,
                    "began_ms": begun.began_ms,
                    "cause": begun.cause,
                }
                for begun in found.leader_epochs
            ],
        }
        for found in topic.partitions
    ]


def _id(topic: sdk.TopicDescription) -> str:
    return uuid_text(topic.topic_id)
