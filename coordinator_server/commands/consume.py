"""`txnctl consume`: the records of a topic."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from coordinator_server.commands.late import log_rows, remote, remote_log
from coordinator_server.commands.options import DEFAULT_PATIENCE_MS, DEFAULT_SERVER, Output, Patience, Server
from coordinator_server.output import OutputFormat, RowStream, print_note


class Isolation(StrEnum):
    """Which records a reader sees."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class OnCorruptBatch(StrEnum):
    """What to do with a batch that cannot be read."""

    RAISE = "raise"
    SKIP = "skip"


Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition; repeatable. [default: all]"),
]
From = Annotated[
    str,
    typer.Option("--from", metavar="POSITION", help="earliest, latest, an offset, or a time such as 2026-11-21T08:30."),
]
Max = Annotated[int | None, typer.Option("--max", "-n", min=1, metavar="N", help="Stop after so many.")]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    partitions: Partitions = None,
    isolation: Annotated[
        Isolation,
        typer.Option(help="read_committed shows what is decided and committed, read_uncommitted all that is durable."),
    ] = Isolation.READ_COMMITTED,
    start: From = "earliest",
    count_max: Max = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes; ends with Ctrl-C.")] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Show everything: also aborted records, and the markers that end transactions."),
    ] = False,
    on_corrupt_batch: Annotated[
        OnCorruptBatch, typer.Option(help="At a batch that cannot be read: raise ends, skip goes on behind it.")
    ] = OnCorruptBatch.RAISE,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print the records of a topic, each partition in order.

    JSON is one object per line, and `txnctl produce` takes it back.
    """
    wanted = remote_log.Wanted(
        topic=topic,
        partitions=partitions,
        start=remote_log.parse_position(start),
        isolation=isolation,
        is_raw=raw,
        is_following=follow,
        on_corrupt_batch=on_corrupt_batch,
        timeout_ms=timeout_ms,
    )
    stream = RowStream(output, log_rows.record_line)
    with remote.connected(server, remote.PrintingTransport) as connection:
        log = remote_log.RemoteLog(connection, wanted)
        shown = stream.add_all((log_rows.record_rows(batch, is_raw=raw) for batch in log), count_max)
    if output is OutputFormat.TABLE:
        hidden = log.hidden
        print_note(f"{shown} shown; hidden: {hidden.aborted} aborted records, {hidden.control} markers")
    skipped = log.skipped
    if skipped.last is not None:
        print_note(
            f"skipped: {skipped.batches} batches that cannot be read, {skipped.offsets} offsets; the last: "
            f"{skipped.last.reason}"
        )
