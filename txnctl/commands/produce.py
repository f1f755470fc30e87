"""`txnctl produce`: send records from stdin to a topic, in a transaction."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    Output,
    Patience,
    Server,
    parse_duration_ms,
)
from txnctl.commands.work import bytes_left, progress_of
from txnctl.output import Column, OutputFormat, Row, print_document, print_facts, print_note

if TYPE_CHECKING:
    from txnctl.commands.record_input import InputRecord


_RECORDS_PER_STEP: Final = 100
"""Number of records between two looks at the clock, which cost more than a record."""


class InputFormat(StrEnum):
    """Format of a line of stdin."""

    LINES = "lines"
    JSON = "json"


class CompressionChoice(StrEnum):
    """Compression of batches before they are sent."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    input_format: Annotated[
        InputFormat,
        typer.Option(
            "--format",
            help="lines: a line is a value. json: a line is an object with key, value, headers,"
            " partition, timestamp_ms, as `consume -o json` prints it.",
        ),
    ] = InputFormat.LINES,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help="With lines: text between key and value."),
    ] = None,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            "--transactional-id",
            metavar="ID",
            help="Transactional id; fences the previous producer that used it. [default: a new one for this run]",
        ),
    ] = None,
    transaction_timeout_ms: Annotated[
        int,
        typer.Option(
            "--transaction-timeout",
            metavar="SPAN",
            parser=parse_duration_ms,
            show_default=False,
            help="Time after which the server aborts the transaction. [default: 60s]",
        ),
    ] = 60_000,
    commit_every: Annotated[
        int | None,
        typer.Option(
            "--commit-every",
            min=1,
            metavar="N",
            help="Commit after every N records. [default: one transaction for all]",
        ),
    ] = None,
    repartition: Annotated[
        bool,
        typer.Option(
            "--repartition",
            help="With json: choose partitions by key, as the SDK does, and not as the records say. Records without a"
            " key go to all in turn.",
        ),
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Send everything, then abort: a test that readers see nothing.")
    ] = False,
    compression: Annotated[CompressionChoice, typer.Option(help="Compression of batches.")] = CompressionChoice.NONE,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Send the lines of stdin to a topic, in a transaction. Either all of them become visible together, or none."""
    from txnctl.commands.record_input import InputRefused, NamedPartitions, json_records, plain_records, repartitioned

    if key_separator is not None and input_format is InputFormat.JSON:
        raise CommandFailed(ExitStatus.USAGE, "--key-separator is for plain lines")
    separator = None if key_separator is None else key_separator.encode()
    with remote.connected(server) as connection:
        plan = _Plan(
            topic=topic,
            transactional_id=transactional_id or f"txnctl-{connection.random_source.request_id().hex()[:12]}",
            transaction_timeout_ms=transaction_timeout_ms,
            delivery_timeout_ms=timeout_ms,
            compression=compression,
            batch=commit_every,
            is_aborting=abort,
        )
        # Check the topic before anything is read from stdin.
        partition_count = len(remote.topic_there(connection, topic, timeout_ms).partitions)
        lines = _stdin()
        given = json_records(lines) if input_format is InputFormat.JSON else plain_records(lines, separator)
        named = NamedPartitions(repartitioned(given, partition_count) if repartition else given)
        try:
            with _watched_input(lines, "read" if dry_run else "sent", iter(named)) as watched:
                result = _counted(plan, watched) if dry_run else _sent(connection, plan, watched)
        except InputRefused as refusal:
            advice = "" if dry_run else "\nits transaction was aborted: nothing of it is visible"
            raise CommandFailed(ExitStatus.USAGE, f"{refusal}{advice}") from refusal
        except sdk.Rejected as refusal:
            if named.largest >= partition_count:
                refusal.add_note("--repartition chooses partitions by key")
            raise
    _print(result, output)
    if repartition:
        print_note(
            "records of a key are in the order of the input; offsets, transactions and the order among partitions are"
            " new"
        )
    elif named.has_keys and named.largest < partition_count - 1:
        print_note(
            f"the largest partition that the records name is {named.largest}, and {topic} has {partition_count}:"
            " producers may choose others for the same keys; --repartition does as they do"
        )


def _stdin() -> BinaryIO:
    """Return the lines to send. Raises CommandFailed if stdin is closed."""
    try:
        if sys.stdin.isatty():
            print_note("a record per line; Ctrl-D ends the input, Ctrl-C aborts")
        return sys.stdin.buffer
    except AttributeError as error:
        # A program that is started with a closed stdin has none.
        raise CommandFailed(ExitStatus.USAGE, "stdin is closed: give it records, or </dev/null for none") from error


@contextmanager
def _watched_input(lines: BinaryIO, verb: str, records: Iterator[InputRecord]) -> Iterator[Iterator[InputRecord]]:
    """Return the records, with progress: in bytes of a file, or else in records."""
    left = bytes_left(lines)
    with progress_of(verb, "records" if left is None else "bytes", left) as progress:
        start = 0 if left is None else lines.tell()

        def watched() -> Iterator[InputRecord]:
            for number, record in enumerate(records, start=1):
                yield record
                if number % _RECORDS_PER_STEP == 0:
                    progress.reach(number if left is None else lines.tell() - start)

        yield watched() if progress.is_shown else records


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Settings of one run."""

    topic: str
    transactional_id: str
    transaction_timeout_ms: int
    delivery_timeout_ms: int
    compression: str
    batch: int | None
    """Number of records in one transaction; None for all."""
    is_aborting: bool


@dataclass(slots=True)
class _Progress:
    """Number of records and transactions so far, and the csn of the newest commit."""

    records: int = 0
    transactions: int = 0
    csn: int = 0


def _sent(connection: sdk.Connection, plan: _Plan, records: Iterator[InputRecord]) -> Row:
    """Send all records. On an error or an interrupt, print how much of the input was committed, so that the rest is
    known."""
    progress = _Progress()
    outcome = "aborted" if plan.is_aborting else "committed"
    try:
        _send(connection, plan, records, progress)
    except BaseException:
        if progress.transactions:
            print_note(f"{progress.records} records in {progress.transactions} transactions were {outcome} before this")
        raise
    return _result(plan, outcome, progress.records, progress.transactions, progress.csn)


def _send(connection: sdk.Connection, plan: _Plan, records: Iterator[InputRecord], progress: _Progress) -> None:
    with sdk.Producer(
        connection,
        transactional_id=plan.transactional_id,
        transaction_timeout_ms=plan.transaction_timeout_ms,
        delivery_timeout_ms=plan.delivery_timeout_ms,
        compression=plan.compression,
    ) as producer:
        # Initialise before the input is read. This ends a transaction that an earlier owner of the id left open,
        # however long the input takes.
        producer.init()
        for first in records:
            count = 0
            with producer.transaction() as transaction:
                for record in chain([first], islice(records, None if plan.batch is None else plan.batch - 1)):
                    transaction.send(
                        plan.topic,
                        record.value,
                        key=record.key,
                        headers=record.headers,
                        timestamp_ms=record.timestamp_ms,
                        partition=record.partition,
                    )
                    count += 1
                if plan.is_aborting:
                    transaction.flush()
                    transaction.abort()
            progress.records += count
            progress.transactions += 1
            progress.csn = transaction.csn or progress.csn


def _counted(plan: _Plan, records: Iterator[InputRecord]) -> Row:
    count = sum(1 for _ in records)
    transactions = -(-count // plan.batch) if plan.batch else min(count, 1)
    return _result(plan, f"would be {'aborted' if plan.is_aborting else 'committed'}", count, transactions, 0)


def _result(plan: _Plan, outcome: str, count: int, transactions: int, csn: int) -> Row:
    return {
        "topic": plan.topic,
        "outcome": outcome if count else "nothing to send",
        "records": count,
        "transactions": transactions,
        "transactional_id": plan.transactional_id,
        "csn": csn or None,
    }


def _print(result: Row, output: OutputFormat) -> None:
    if output is not OutputFormat.TABLE:
        print_document(result, output)
        return
    columns = (
        Column("Topic", "topic"),
        Column("Outcome", "outcome"),
        Column("Records", "records"),
        Column("Transactions", "transactions"),
        Column("Transactional id", "transactional_id"),
        Column("Last outcome (csn)", "csn"),
    )
    print_facts(result, columns)
