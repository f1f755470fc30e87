"""`txnctl topic delete-records`: deletion of the oldest records, up to an offset, a time or the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import remote, sdk
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    Output,
    PartitionPlace,
    Patience,
    Server,
    Yes,
    make_sure,
    parse_duration_ms,
    parse_moment_ms,
    parse_partition,
)
from txnctl.output import Column, OutputFormat, Row, moment, print_list, print_note


def delete_records(
    partitions: Annotated[
        list[PartitionPlace] | None,
        typer.Argument(metavar="TOPIC-PARTITION", parser=parse_partition, help="Partitions, as in orders-0."),
    ] = None,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="All partitions of this topic; repeatable.")
    ] = None,
    before: Annotated[
        int | None, typer.Option("--before", min=0, metavar="OFFSET", help="First offset to keep.")
    ] = None,
    before_time_ms: Annotated[
        int | None,
        typer.Option(
            "--before-time",
            metavar="TIME",
            parser=parse_moment_ms,
            help="Keep the first record of this time or later, and all after it, in UTC: 2026-11-21T08:30.",
        ),
    ] = None,
    older_than_ms: Annotated[
        int | None,
        typer.Option(
            "--older-than",
            metavar="SPAN",
            parser=parse_duration_ms,
            help="Keep the first record that is no older than this, and all after it: 7d.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all records that exist at this moment.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete the oldest records of partitions or whole topics.

    The partitions stay, and their offsets continue. Records that an open transaction may still need are kept; HELD BACK
    shows that. By time, only older records are deleted; some older ones remain if times are not in the order of
    offsets."""
    from coordinator_client.clock import SystemClock

    since_ms = max(0, SystemClock().wall_ms() - older_than_ms) if older_than_ms is not None else before_time_ms
    given = {"--before": before, "--before-time": before_time_ms, "--older-than": older_than_ms}
    chosen = [*(name for name, value in given.items() if value is not None), *(["--all"] if everything else [])]
    if len(chosen) != 1:
        raise CommandFailed(
            ExitStatus.USAGE,
            "say once where to stop: --before OFFSET, --before-time TIME, --older-than SPAN, or --all"
            + (f"; {' and '.join(chosen)} were given, not both" if chosen else ""),
        )
    if not partitions and not topics:
        raise CommandFailed(ExitStatus.USAGE, "name partitions as in orders-0, or whole topics with --topic")
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        names = dict.fromkeys([*(topics or ()), *(place.topic for place in partitions or ())])
        found = {name: remote.topic_there(connection, name, timeout_ms) for name in names}
        places = [*dict.fromkeys(_places(partitions or (), [found[name] for name in topics or ()]))]
        firsts = {} if since_ms is None else _first_since(connection, found.values(), since_ms, timeout_ms)
        planned = [_planned(place, found[place.topic], firsts.get(place, before)) for place in places]
        rows = [dict(each.row()) for each in planned]
        if not dry_run:
            if not yes:
                make_sure(_questions(planned, set(topics or ())))
            done = admin.delete_records({sdk.TopicPartition(*each.place): each.stop for each in planned})
            for row, each in zip(rows, planned, strict=True):
                result = done[sdk.TopicPartition(*each.place)]
                row |= {"result": "deleted", "log_start_offset": result.low_watermark, "held_back": result.held_back}
    print_list(rows, _COLUMNS, output, empty="")
    if since_ms is not None and output is OutputFormat.TABLE:
        print_note(f"records before {moment(since_ms)}, up to the first that is not")


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlannedDeletion:
    """Expected result of a deletion in one partition."""

    place: PartitionPlace
    log_start_offset: int
    """Log start after the deletion."""
    offsets: int
    stop: int
    """Offset to ask for; -1 = the end of the log at that moment."""
    is_held_back: bool

    def row(self) -> Row:
        return {
            "partition": str(self.place),
            "result": "would be deleted",
            "log_start_offset": self.log_start_offset,
            "offsets": self.offsets,
            "held_back": "a transaction is open" if self.is_held_back else "",
        }


def _places(partitions: Iterable[PartitionPlace], topics: Iterable[sdk.TopicDescription]) -> Iterator[PartitionPlace]:
    yield from partitions
    for topic in topics:
        yield from (PartitionPlace(topic.name, each.partition) for each in topic.partitions)


def _first_since(
    connection: sdk.Connection, topics: Iterable[sdk.TopicDescription], since_ms: int, timeout_ms: int
) -> Mapping[PartitionPlace, int]:
    """Return the offset of the first record of a time or later in each partition. If no record is that new, it is the
    end that the partition had when it was described, because newer records may have arrived since."""
    from coordinator_client.reading.reader import list_offsets
    from coordinator_client.values import TopicPartitionCount

    firsts = {}
    for topic in topics:
        counted = TopicPartitionCount(name=topic.name, topic_id=topic.topic_id, partition_count=len(topic.partitions))
        times = dict.fromkeys(range(len(topic.partitions)), since_ms)
        # Aborted and open records count too: none of that time or later is deleted.
        offsets = list_offsets(
            connection, counted, times, isolation="read_uncommitted", deadlines=remote.deadlines(timeout_ms)
        )
        for number, offset in offsets.items():
            end = topic.partitions[number].high_watermark
            firsts[PartitionPlace(topic.name, number)] = min(offset, end) if offset >= 0 else end
    return firsts


def _planned(place: PartitionPlace, topic: sdk.TopicDescription, before: int | None) -> _PlannedDeletion:
    """Return the plan for a partition; `before` = None means its end. Raises CommandFailed for a partition that does
    not exist, and for an offset beyond its end."""
    if place.partition >= len(topic.partitions):
        raise CommandFailed(
            ExitStatus.PROBLEM, f"{place.topic} has {len(topic.partitions)} partitions, from 0; {place} is none of them"
        )
    found = topic.partitions[place.partition]
    if before is not None and before > found.high_watermark:
        raise CommandFailed(
            ExitStatus.PROBLEM, f"{place} ends at offset {found.high_watermark}: it cannot be deleted up to {before}"
        )
    wanted = found.high_watermark if before is None else before
    start = max(found.log_start_offset, min(wanted, found.last_stable_offset))
    return _PlannedDeletion(
        place=place,
        log_start_offset=start,
        offsets=start - found.log_start_offset,
        stop=-1 if before is None else before,
        is_held_back=start < wanted,
    )


def _questions(planned: Sequence[_PlannedDeletion], whole_topics: set[str]) -> Iterator[str]:
    """Yield a line for each whole topic and for each other partition."""
    for topic in sorted(whole_topics):
        counts = [each.offsets for each in planned if each.place.topic == topic]
        yield f"{topic}: {sum(counts)} offsets in {len(counts)} partitions"
    yield from (f"{each.place}: {each.offsets} offsets" for each in planned if each.place.topic not in whole_topics)


_COLUMNS: Final = (
    Column("PARTITION", "partition"),
    Column("RESULT", "result"),
    Column("OFFSETS", "offsets", is_number=True),
    Column("LOG START", "log_start_offset", is_number=True),
    Column("HELD BACK", "held_back"),
)
