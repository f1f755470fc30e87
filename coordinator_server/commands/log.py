"""`txnctl log`: what lies in the logs, of a running server or of a stopped directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coordinator_server.commands.consume import From, Max, Partitions
from coordinator_server.commands.late import log_rows, remote, remote_log, sdk
from coordinator_server.commands.options import DEFAULT_PATIENCE_MS, DEFAULT_SERVER, Output, Patience, Server
from coordinator_server.exit_status import CommandFailed, ExitStatus
from coordinator_server.output import OutputFormat, Row, RowStream

app = typer.Typer(
    name="log", help="Dump the logs of partitions and of the coordinator.", no_args_is_help=True, rich_markup_mode=None
)


class Shown(StrEnum):
    """What a dump shows: one line for each of these."""

    BATCHES = "batches"
    RECORDS = "records"
    MARKERS = "markers"
    TRANSACTIONS = "transactions"


@app.command()
def dump(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="Name of the topic; not needed for --show transactions.")
    ] = None,
    show: Annotated[
        Shown,
        typer.Option(
            help="A line per batch (markers included), per record, or per marker; or the coordinator's history,"
            " which only a stopped directory has."
        ),
    ] = Shown.BATCHES,
    partitions: Partitions = None,
    start: From = "earliest",
    count_max: Max = None,
    transactional_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="With --show transactions: only this transactional id.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Read the directory of a stopped server instead.")
    ] = None,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Dump everything that is durable in a log, also what was aborted and what is undecided.

    A batch that cannot be read has a line that says why, and the dump goes on behind it.
    """
    if show is Shown.TRANSACTIONS:
        _dump_transactions(data_dir, transactional_id, count_max, output)
        return
    if topic is None:
        raise CommandFailed(ExitStatus.USAGE, "name the topic to dump; `txnctl topic list` shows those of a server")
    if transactional_id is not None:
        raise CommandFailed(ExitStatus.USAGE, "--id chooses lines of --show transactions; a topic has no use for it")
    from coordinator_client.corrupt import SKIP

    wanted = remote_log.Wanted(
        topic=topic,
        partitions=partitions,
        start=remote_log.parse_position(start),
        isolation="read_uncommitted",
        is_raw=True,
        on_corrupt_batch=SKIP,
        timeout_ms=timeout_ms,
    )
    if data_dir is None:
        _dump_remote(wanted, server, show, count_max, output)
    else:
        _dump_stopped(wanted, data_dir, show, count_max, output)


def _dump_remote(
    wanted: remote_log.Wanted, server: str, show: Shown, count_max: int | None, output: OutputFormat
) -> None:
    with remote.connected(server, remote.PrintingTransport) as connection:
        _print(remote_log.RemoteLog(connection, wanted).with_what_is_corrupt(), show, count_max, output)


def _dump_stopped(
    wanted: remote_log.Wanted, data_dir: Path, show: Shown, count_max: int | None, output: OutputFormat
) -> None:
    from coordinator_server.commands.stopped import opened
    from coordinator_server.commands.stopped_log import stopped_log

    with opened(data_dir) as store:
        _print(stopped_log(store, wanted.topic, wanted.partitions, wanted.start), show, count_max, output)


def _dump_transactions(
    data_dir: Path | None, transactional_id: str | None, count_max: int | None, output: OutputFormat
) -> None:
    if data_dir is None:
        raise CommandFailed(
            ExitStatus.USAGE,
            "the history of transactions is read from a stopped directory: give --data-dir DIR. Of a running server,"
            " `txnctl list` and `txnctl describe ID` show the newest state",
        )
    from coordinator_server.commands.stopped import opened
    from coordinator_server.commands.stopped_log import transaction_history, transaction_line

    with opened(data_dir) as store:
        RowStream(output, transaction_line).add_all(transaction_history(store, transactional_id), count_max)


def _print(
    batches: Iterable[log_rows.LoggedBatch | sdk.CorruptBatch], show: Shown, count_max: int | None, output: OutputFormat
) -> None:
    def rows() -> Iterator[Iterable[Row]]:
        for batch in batches:
            if isinstance(batch, sdk.CorruptBatch):
                yield [log_rows.corrupt_row(batch)]
            elif show is Shown.RECORDS:
                try:
                    yield list(log_rows.record_rows(batch, is_raw=True))
                except sdk.CorruptBatch as error:
                    yield [log_rows.corrupt_row(error)]
            elif show is Shown.BATCHES or batch.marker is not None:
                yield [log_rows.batch_row(batch)]

    RowStream(output, log_rows.record_line if show is Shown.RECORDS else log_rows.batch_line).add_all(rows(), count_max)
