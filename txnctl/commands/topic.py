"""`txnctl topic`: topics of a running server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.delete_records import delete_records
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    Output,
    Patience,
    Server,
    Yes,
    make_sure,
    parse_duration_ms,
)
from txnctl.commands.topic_import import export_topics, import_topics
from txnctl.commands.totals import SIZE_COLUMNS, size_words, topic_sizes
from txnctl.commands.watching import watched
from txnctl.output import Column, OutputFormat, Row, print_list, print_note, uuid_text

app = typer.Typer(
    name="topic",
    help="Create, list, describe, change and delete topics.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class ValidatePayload(StrEnum):
    """Depth of the checks of a batch before a topic accepts it."""

    FULL = "full"
    HEADER = "header"


class CleanupChoice(StrEnum):
    """Ways in which a topic loses old records."""

    DELETE = "delete"
    COMPACT = "compact"
    COMPACT_AND_DELETE = "compact,delete"


_NO_TOPICS: Final = "no topics; `txnctl topic create NAME` makes one"

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of topics.")]

_RESULT = (
    Column("TOPIC", "topic"),
    Column("RESULT", "result"),
    Column("PARTITIONS", "partitions", is_number=True),
    Column("TOPIC ID", "topic_id"),
)


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", metavar="N", min=1, help="Number of partitions.")
    ] = 1,
    validate_payload: Annotated[
        ValidatePayload,
        typer.Option(
            help="full: accept only batches that every reader can decode. header: check headers and checksums only."
        ),
    ] = ValidatePayload.FULL,
    retention_ms: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Retention time of records (ms); -1 is no limit. [default: as the server is configured]",
        ),
    ] = None,
    retention_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Bytes that each partition keeps; -1 is no limit. [default: as the server is configured]"
        ),
    ] = None,
    timestamp_after_max_ms: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Largest lead of timestamps over the server's clock (ms); -1 is no limit. "
            "[default: as the server is configured]",
        ),
    ] = None,
    batch_bytes_max: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Largest stored size of a batch of records (bytes). [default: as the server is configured]",
        ),
    ] = None,
    cleanup_policy: Annotated[
        CleanupChoice,
        typer.Option(
            help="delete: remove old records by retention. compact: keep the newest record of each key, and none is "
            "removed by retention."
        ),
    ] = CleanupChoice.DELETE,
    min_compaction_lag_ms: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Time for which compaction removes no record (ms).")
    ] = None,
    max_compaction_lag_ms: Annotated[
        int | None,
        typer.Option(metavar="N", help="Time after which each record is compacted (ms); -1 is no limit."),
    ] = None,
    delete_retention_ms: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Time for which compaction keeps records without a value (ms)."),
    ] = None,
    min_dirty_ratio: Annotated[
        float | None,
        typer.Option(metavar="N", min=0, max=1, help="Share of records not compacted yet that begins a compaction."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Accept an existing topic of that name and size.")
    ] = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Create a topic."""
    # Defaults of every server are not sent, because an older one may not know the setting.
    config = {} if validate_payload is ValidatePayload.FULL else {"validate_payload": validate_payload.value}
    if cleanup_policy is not CleanupChoice.DELETE:
        config["cleanup_policy"] = cleanup_policy.value
    limits = {
        "retention_ms": retention_ms,
        "retention_bytes": retention_bytes,
        "timestamp_after_max_ms": timestamp_after_max_ms,
        "batch_bytes_max": batch_bytes_max,
        "min_compaction_lag_ms": min_compaction_lag_ms,
        "max_compaction_lag_ms": max_compaction_lag_ms,
        "delete_retention_ms": delete_retention_ms,
        "min_dirty_ratio": min_dirty_ratio,
    }
    config |= {setting: str(value) for setting, value in limits.items() if value is not None}
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


@app.command()
def add_partitions(
    name: Name,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, help="New number of partitions, including the present ones."
        ),
    ],
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Add partitions to a topic. Partitions are never removed. New records of a key may go to another partition than
    its earlier ones."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        before = remote.topic_there(connection, name, timeout_ms)
        admin.add_partitions(name, partitions, validate_only=dry_run)
    result: Row = {
        "topic": name,
        "result": "would be extended" if dry_run else "extended",
        "partitions": partitions,
        "before": len(before.partitions),
    }
    columns = (*_RESULT[:3], Column("BEFORE", "before", is_number=True))
    print_list([result], columns, output, empty="")


@app.command()
def configs(
    name: Name,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the settings of a topic, and the origin of each.

    The origin is the topic itself, a default_ setting of the server, or the built-in default."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        _print_settings(admin.topic_configs(name), output)


@app.command()
def alter(
    name: Name,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Such as retention_ms=86400000 or retention_ms=1d; repeatable."
        ),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="NAME", help="Return to the server's setting; repeatable."),
    ] = None,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Change settings of a topic, and show all of them.

    A change takes effect at once. `txnctl topic configs` shows the names of the settings."""
    wanted = _parse_settings(settings or [])
    if not wanted and not unset:
        raise CommandFailed(ExitStatus.USAGE, "say what to change: --set NAME=VALUE or --unset NAME")
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        _print_settings(admin.alter_topic_configs(name, wanted, unset=unset or (), validate_only=dry_run), output)


def _print_settings(found: Mapping[str, sdk.TopicSetting], output: OutputFormat) -> None:
    rows: list[Row] = [
        {"name": name, "value": each.value, "origin": each.origin, "inherited_value": each.inherited_value}
        for name, each in sorted(found.items())
    ]
    columns = (
        Column("SETTING", "name"),
        Column("VALUE", "value"),
        Column("ORIGIN", "origin"),
        Column("WITHOUT IT", "inherited_value"),
    )
    print_list(rows, columns, output, empty="")


def _parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Parse NAME=VALUE pairs. Raises CommandFailed for a text that is none, and for a repeated setting."""
    wanted: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise CommandFailed(ExitStatus.USAGE, f"--set {text}: write NAME=VALUE")
        if name in wanted:
            raise CommandFailed(ExitStatus.USAGE, f"--set names {name} twice: name it once")
        if name.endswith("_ms") and value[-1:].isalpha():
            try:
                value = str(parse_duration_ms(value))
            except typer.BadParameter as why:
                raise CommandFailed(ExitStatus.USAGE, f"--set {text}: {why.message}, or milliseconds") from why
        wanted[name] = value
    return wanted


@app.command("list")
@watched
def list_topics(
    sizes: Annotated[bool, typer.Option("--sizes", help="Show records and bytes of each topic, and of all.")] = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List all topics, with the number of offsets in each.

    Also shows how many offsets are not decided yet. Markers count as offsets and bytes, and not as records."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        rows = topic_sizes(admin) if sizes else [_summary(topic) for topic in admin.describe_topics()]
    if sizes:
        print_list(rows, SIZE_COLUMNS, output, empty=_NO_TOPICS)
        if rows and output is OutputFormat.TABLE:
            print_note(size_words(rows))
        return
    columns = (
        Column("TOPIC", "topic"),
        Column("PARTITIONS", "partitions", is_number=True),
        Column("OFFSETS", "offsets", is_number=True),
        Column("UNDECIDED", "undecided_offsets", is_number=True),
        Column("OPEN TXNS", "open_transactions", is_number=True),
        Column("TOPIC ID", "topic_id"),
    )
    print_list(rows, columns, output, empty=_NO_TOPICS)


@app.command()
@watched
def describe(
    names: Names,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describe topics partition by partition. JSON has all leader epochs of each, with their start offsets."""
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
        Column("RETENTION MS", "retention_ms", is_number=True),
        Column("RETENTION BYTES", "retention_bytes", is_number=True),
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
    """Delete topics with all their records. Open transactions that touch them are aborted."""
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
    """Return the topics with these names. Raises CommandFailed for the first one that does not exist."""
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
            **topic.config,
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


app.command()(delete_records)
app.command("export")(export_topics)
app.command("import")(import_topics)
