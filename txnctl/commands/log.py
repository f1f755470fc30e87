"""`txnctl consume` prints the records of a topic. `txnctl log` dumps the logs of a running server or of a stopped
directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import log_rows, record_format, remote, remote_log, sdk
from txnctl.commands.options import DEFAULT_PATIENCE_MS, DEFAULT_SERVER, Output, Patience, Server
from txnctl.commands.work import progress_of_rows
from txnctl.output import OutputFormat, Row, RowStream, print_note


class IsolationChoice(StrEnum):
    """Isolation level of a reader: which records it sees."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class OnCorruptBatch(StrEnum):
    """Reaction to a batch that cannot be read."""

    RAISE = "raise"
    SKIP = "skip"


Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition; repeatable. [default: all]"),
]
From = Annotated[
    str,
    typer.Option("--from", metavar="POSITION", help="earliest, latest, an offset, or a time in UTC: 2026-11-21T08:30."),
]
Max = Annotated[int | None, typer.Option("--max", "-n", min=1, metavar="N", help="Stop after this many.")]


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    partitions: Partitions = None,
    isolation: Annotated[
        IsolationChoice,
        typer.Option(help="read_committed shows committed records only, read_uncommitted all durable records."),
    ] = IsolationChoice.READ_COMMITTED,
    start: From = "earliest",
    count_max: Max = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new records; ends with Ctrl-C.")
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Also show aborted records, and the markers that end transactions."),
    ] = False,
    on_corrupt_batch: Annotated[
        OnCorruptBatch, typer.Option(help="For a batch that cannot be read: raise fails, skip continues after it.")
    ] = OnCorruptBatch.RAISE,
    key: Annotated[str | None, typer.Option(metavar="TEXT", help="Only records with this key.")] = None,
    key_hex: Annotated[
        str | None, typer.Option(metavar="HEX", help="Only records with this key, in hexadecimal digits.")
    ] = None,
    keys_only: Annotated[
        bool, typer.Option("--keys-only", help="Show the keys of records, without values and headers.")
    ] = False,
    format_text: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help=r"Print each record in a format such as '%o %k %v\n': %t topic, %p partition, %o offset, %k key, %v or"
            r" %s value, %T timestamp (ms), %h headers, %K and %S their lengths; \n, \t, \xNN.",
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print the records of a topic, each partition in order.

    The JSON output is one object per line, which `txnctl produce` reads back. A format prints the stored bytes into a
    pipe or file. A search by key reads all chosen partitions.
    """
    stream = _stream(format_text, output, is_raw=raw, keys_only=keys_only)
    chosen = log_rows.ShownRecords(is_raw=raw, key=_chosen_key(key, key_hex), keys_only=keys_only)
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
    with remote.connected(server, remote.PrintingTransport) as connection:
        log = _opened(connection, wanted)
        with progress_of_rows("read", "offsets", log.offset_count) as progress:
            watched = log_rows.watched(log, log.starts, progress)
            shown = stream.add_all((log_rows.chosen_rows(batch, chosen) for batch in watched), count_max)
    if output is OutputFormat.TABLE and format_text is None:
        hidden = log.hidden
        print_note(f"{shown} shown; hidden: {hidden.aborted} aborted records, {hidden.control} markers")
    skipped = log.skipped
    if skipped.last is not None:
        print_note(
            f"skipped: {skipped.batches} batches that cannot be read, {skipped.offsets} offsets; the last: "
            f"{skipped.last.reason}"
        )


def _stream(
    format_text: str | None, output: OutputFormat, *, is_raw: bool, keys_only: bool
) -> RowStream | record_format.FormattedStream:
    """Return the printer of records. Raises CommandFailed for a wrong format, and for options that exclude it."""
    if format_text is None:
        return RowStream(output, log_rows.key_line if keys_only else log_rows.record_line)
    if output is not OutputFormat.TABLE:
        raise CommandFailed(ExitStatus.USAGE, f"--format and -o {output} are two forms of output: choose one")
    if is_raw or keys_only:
        other = "--raw" if is_raw else "--keys-only"
        raise CommandFailed(ExitStatus.USAGE, f"--format says itself what of a record is shown: leave {other} out")
    return record_format.FormattedStream(record_format.RecordFormat(format_text))


def _chosen_key(text: str | None, digits: str | None) -> bytes | None:
    if text is not None and digits is not None:
        raise CommandFailed(ExitStatus.USAGE, "--key and --key-hex both name the key: leave one of them out")
    if digits is None:
        return None if text is None else text.encode()
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise CommandFailed(ExitStatus.USAGE, f"--key-hex {digits}: write pairs of hexadecimal digits") from None


app = typer.Typer(
    name="log", help="Dump the logs of partitions and of the coordinator.", no_args_is_help=True, rich_markup_mode=None
)


class Shown(StrEnum):
    """Kind of thing that a dump prints, one line for each."""

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
            " which needs the directory of a stopped server."
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
    """Dump everything that is durable in a log.

    That includes aborted and undecided records. A batch that cannot be read gets a line with the reason, and the dump
    continues after it.
    """
    if show is Shown.TRANSACTIONS:
        _dump_transactions(data_dir, transactional_id, count_max, output)
        return
    if topic is None:
        raise CommandFailed(ExitStatus.USAGE, "name the topic to dump; `txnctl topic list` shows those of a server")
    if transactional_id is not None:
        raise CommandFailed(ExitStatus.USAGE, "--id chooses lines of --show transactions; a topic has no use for it")
    from coordinator_client.settings import SKIP

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
        log = _opened(connection, wanted)
        with progress_of_rows("dumped", "offsets", log.offset_count) as progress:
            watched = log_rows.watched(log.with_what_is_corrupt(), log.starts, progress)
            _print(watched, show, count_max, output)


def _opened(connection: sdk.Connection, wanted: remote_log.Wanted) -> remote_log.RemoteLog:
    """Return the log. Prints a note if no record is as new as the start time. Raises the errors of `RemoteLog`."""
    log = remote_log.RemoteLog(connection, wanted)
    if log.is_behind_all:
        follows = ": what follows comes as it is written" if wanted.is_following else ""
        print_note(f"no record of {wanted.topic} is as new as --from{follows}")
    return log


def _dump_stopped(
    wanted: remote_log.Wanted, data_dir: Path, show: Shown, count_max: int | None, output: OutputFormat
) -> None:
    from txnctl.commands.stopped import opened
    from txnctl.commands.stopped_log import StoppedLog

    with opened(data_dir) as store:
        log = StoppedLog(store, wanted.topic, wanted.partitions, wanted.start)
        with progress_of_rows("dumped", "offsets", log.offset_count) as progress:
            _print(log_rows.watched(log, log.starts, progress), show, count_max, output)


def _dump_transactions(
    data_dir: Path | None, transactional_id: str | None, count_max: int | None, output: OutputFormat
) -> None:
    if data_dir is None:
        raise CommandFailed(
            ExitStatus.USAGE,
            "the history of transactions is read from a stopped directory: give --data-dir DIR. Of a running server,"
            " `txnctl list` shows the newest state of all ids, and `txnctl describe ID` the last steps of one",
        )
    from txnctl.commands.stopped import opened
    from txnctl.commands.stopped_log import transaction_history, transaction_line

    with opened(data_dir) as store, progress_of_rows("read", "steps") as progress:
        history = transaction_history(store, transactional_id, on_step=progress.advance)
        RowStream(output, transaction_line).add_all(history, count_max)


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
