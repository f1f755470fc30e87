"""`txnctl group offsets`, `reset-offsets` and `delete-offsets`: committed offsets and lag of a group, and changes to
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.group_rows import (
    OFFSET_COLUMNS,
    find_group,
    group_there,
    offset_rows,
    waiting_for,
)
from txnctl.commands.late import remote, sdk
from txnctl.commands.offset_plan import (
    PlannedLine,
    TopicChoice,
    check_plan_name,
    parse_topic_choice,
    read_plan,
    write_plan,
)
from txnctl.commands.options import (
    DEFAULT_PATIENCE_MS,
    DEFAULT_SERVER,
    DryRun,
    GroupId,
    Output,
    Patience,
    Server,
    Yes,
    make_sure,
    parse_duration_ms,
    parse_moment_ms,
)
from txnctl.commands.watching import watched
from txnctl.output import Column, OutputFormat, Row, print_list, print_note

Topics = Annotated[
    list[TopicChoice] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:N,N]",
        parser=parse_topic_choice,
        help="This topic, or some of its partitions as in orders:0,2; repeatable.",
    ),
]
AllTopics = Annotated[bool, typer.Option("--all-topics", help="All partitions in which the group has an offset.")]

_MEMBERS_NAMED_MAX: Final = 3


@watched
def offsets(
    group_id: GroupId,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the committed offsets of a group and its lag.

    Also shows the transactions that hold a pending offset. Markers do not count as records. LAG is the number of
    records that a committed reader can read now, up to the last stable offset. LAG TO END also counts open and aborted
    records, up to the high watermark.
    """
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        rows = offset_rows(admin, group_there(admin, group_id))
    print_list(rows, OFFSET_COLUMNS, output, empty="the group has no offsets")
    for transactional_id in waiting_for(rows):
        print_note(
            f"offsets wait for a transaction of {transactional_id}: `txnctl describe {transactional_id}` tells about "
            f"it, `txnctl abort {transactional_id}` ends it"
        )


def reset_offsets(
    group_id: GroupId,
    topics: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Go to the log start.")] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="Go to the last stable offset: open transactions are read later.")
    ] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Stay at the committed offset.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, metavar="N", help="Go to this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Go forward by this many offsets; back if negative.")
    ] = None,
    to_datetime_ms: Annotated[
        int | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            parser=parse_moment_ms,
            help="Go to the first record of this time or later, in UTC, as 2026-11-21T08:30.",
        ),
    ] = None,
    by_duration_ms: Annotated[
        int | None,
        typer.Option(
            "--by-duration",
            metavar="SPAN",
            parser=parse_duration_ms,
            help="Go to the first record that is no older than this, as 2h.",
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan", metavar="FILE", help="Go to the offsets in this file: .csv or .json, as --plan-out wrote."
        ),
    ] = None,
    plan_out: Annotated[
        Path | None, typer.Option("--plan-out", metavar="FILE", help="Write the plan to this file too: .csv or .json.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Apply the plan. Without this it is only shown.")] = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Reset the offsets of a group without members. Shows the plan, and applies it only with --execute.

    An offset outside the log is moved to the nearer end. If no record is as new as the given time, the offset is the
    end of the readable records, and a note says so.
    """
    from coordinator_client.clock import SystemClock

    since_ms = None if by_duration_ms is None else max(0, SystemClock().wall_ms() - by_duration_ms)
    rule = _rule(
        {
            "--to-earliest": ("earliest", 0 if to_earliest else None),
            "--to-latest": ("latest", 0 if to_latest else None),
            "--to-current": ("current", 0 if to_current else None),
            "--to-offset": ("offset", to_offset),
            "--shift-by": ("shift", shift_by),
            "--to-datetime": ("time", to_datetime_ms),
            "--by-duration": ("time", since_ms),
        },
        has_plan=plan is not None,
    )
    _check_choice(topics, all_topics=all_topics, has_plan=plan is not None)
    if plan_out is not None:
        check_plan_name(plan_out)
    lines = [] if plan is None else read_plan(plan, group_id)
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        is_share = _check_empty(admin, group_id)
        if rule is None:
            resets = _as_planned(lines)
        else:
            chosen = _partitions(admin, group_id, topics, all_topics=all_topics, is_share=is_share)
            resets = dict.fromkeys(chosen, rule)
        plan_resets = admin.plan_share_offset_resets if is_share else admin.plan_offset_resets
        planned = plan_resets(group_id, resets)
        rows = [_planned_row(group_id, each, "set" if execute else "would be set") for each in planned]
        if plan_out is not None:
            write_plan(plan_out, rows)
        if execute and planned:
            alter = admin.alter_share_group_offsets if is_share else admin.alter_group_offsets
            alter(
                group_id,
                {each.partition: each.offset for each in planned},
                topic_ids={each.partition: each.topic_id for each in planned},
            )
    print_list(rows, _RESET_COLUMNS, output, empty="the group has no offsets")
    _tell(planned, is_done=execute)


def delete_offsets(
    group_id: GroupId,
    topics: Topics = None,
    all_topics: AllTopics = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete the committed offsets of a group in topics.

    No member may be subscribed to these topics. Pending offsets of transactions are deleted, too. A share group must
    have no members, and forgets all that it knows of these topics."""
    _check_choice(topics, all_topics=all_topics, has_plan=False)
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        if group_there(admin, group_id).group_type == "share":
            forgotten = _delete_of_share_group(admin, group_id, topics, yes=yes, dry_run=dry_run)
            print_list(forgotten, _DELETED_COLUMNS, output, empty="the group reads nothing there")
            return
        found = [each for each in admin.group_offsets(group_id) if all_topics or _is_meant(each.partition, topics)]
        result = "would be deleted" if dry_run else "deleted"
        rows: list[Row] = [
            {
                "group_id": group_id,
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed_offset": None if each.committed is None else each.committed.offset,
                "pending": [waiting.transactional_id for waiting in each.pending],
                "result": result,
            }
            for each in found
        ]
        if found and not dry_run:
            if not yes:
                make_sure(f"{row['topic']}-{row['partition']}: offset {row['committed_offset']}" for row in rows)
            admin.delete_group_offsets(group_id, [each.partition for each in found])
    print_list(rows, _DELETED_COLUMNS, output, empty="the group has no offsets there")


def _delete_of_share_group(
    admin: sdk.Admin, group_id: str, topics: Sequence[TopicChoice] | None, *, yes: bool, dry_run: bool
) -> list[Row]:
    """Drop what a share group knows of topics, and return its partitions. Raises CommandFailed for parts of topics."""
    if any(numbers is not None for _topic, numbers in topics or ()):
        raise CommandFailed(ExitStatus.USAGE, "a share group forgets whole topics: leave the partitions out")
    found = [each for each in admin.share_group_offsets(group_id) if not topics or _is_meant(each.partition, topics)]
    rows: list[Row] = [
        {
            "group_id": group_id,
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "committed_offset": each.start_offset,
            "result": "would be deleted" if dry_run else "deleted",
        }
        for each in found
    ]
    if found and not dry_run:
        if not yes:
            make_sure(f"{row['topic']}-{row['partition']}: start offset {row['committed_offset']}" for row in rows)
        admin.delete_share_group_offsets(group_id, sorted({each.partition.topic for each in found}))
    return rows


def _rule(choices: Mapping[str, tuple[str, int | None]], *, has_plan: bool) -> sdk.OffsetReset | None:
    """Return the chosen rule, or None for a plan. Raises CommandFailed for none and for several."""
    chosen = {flag: (to, number) for flag, (to, number) in choices.items() if number is not None}
    if len(chosen) + has_plan != 1:
        said = [*chosen, *(["--plan"] if has_plan else [])]
        raise CommandFailed(
            ExitStatus.USAGE,
            f"say once where to go on, with one of {', '.join(choices)} or --plan"
            + (f"; {' and '.join(said)} were given" if said else ""),
        )
    return next((sdk.OffsetReset(sdk.ResetTo(to), number) for to, number in chosen.values()), None)


def _check_choice(topics: Sequence[TopicChoice] | None, *, all_topics: bool, has_plan: bool) -> None:
    if bool(topics) + all_topics + has_plan != 1:
        raise CommandFailed(
            ExitStatus.USAGE,
            "the plan says which partitions are meant: leave --topic and --all-topics out"
            if has_plan
            else "say which partitions are meant: --topic, as often as needed, or --all-topics",
        )


def _check_empty(admin: sdk.Admin, group_id: str) -> bool:
    """Return True for a share group. Raise CommandFailed for a group with members. A group that does not exist is
    created by its first offset."""
    group = find_group(admin, group_id)
    if group is None or not group.members:
        return group is not None and group.group_type == "share"
    named = [f"{member.client_id or member.member_id} at {member.client_host}" for member in group.members]
    more = f" and {len(named) - _MEMBERS_NAMED_MAX} more" if len(named) > _MEMBERS_NAMED_MAX else ""
    raise CommandFailed(
        ExitStatus.PROBLEM,
        f"{group_id} has members, who would not hear of it: stop {', '.join(named[:_MEMBERS_NAMED_MAX])}{more} first",
    )


def _as_planned(lines: Sequence[PlannedLine]) -> dict[sdk.TopicPartition, sdk.OffsetReset]:
    return {
        sdk.TopicPartition(line.topic, line.partition): sdk.OffsetReset(sdk.ResetTo.OFFSET, line.offset)
        for line in lines
    }


def _partitions(
    admin: sdk.Admin, group_id: str, topics: Sequence[TopicChoice] | None, *, all_topics: bool, is_share: bool
) -> list[sdk.TopicPartition]:
    """Return the chosen partitions. A topic without numbers stands for all its partitions, including those that the
    group has never read."""
    if all_topics and is_share:
        return [each.partition for each in admin.share_group_offsets(group_id)]
    if all_topics:
        return [each.partition for each in admin.group_offsets(group_id)]
    found: dict[sdk.TopicPartition, None] = {}
    for topic, numbers in topics or ():
        if numbers is None:
            numbers = tuple(each.partition for each in admin.describe_topic(topic).partitions)
        found.update(dict.fromkeys(sdk.TopicPartition(topic, number) for number in numbers))
    return list(found)


def _is_meant(name: sdk.TopicPartition, topics: Sequence[TopicChoice] | None) -> bool:
    return any(
        name.topic == topic and (numbers is None or name.partition in numbers) for topic, numbers in topics or ()
    )


def _planned_row(group_id: str, planned: sdk.PlannedOffset, result: str) -> Row:
    return {
        "group_id": group_id,
        "topic": planned.partition.topic,
        "partition": planned.partition.partition,
        "committed_offset": planned.committed_offset,
        "offset": planned.offset,
        "wanted_offset": planned.wanted_offset,
        "result": result,
    }


def _tell(planned: Sequence[sdk.PlannedOffset], *, is_done: bool) -> None:
    for each in planned:
        if each.offset != each.wanted_offset:
            print_note(
                f"{each.partition.topic}-{each.partition.partition}: offset {each.wanted_offset} is not in the log, "
                f"{each.offset} is taken"
            )
        if each.is_behind_all:
            print_note(
                f"{each.partition.topic}-{each.partition.partition}: no record is that new, offset {each.offset} is "
                "taken, behind all that can be read"
            )
    if planned and not is_done:
        print_note("nothing was changed; --execute does it")


_PARTITION: Final = (Column("TOPIC", "topic"), Column("PARTITION", "partition", is_number=True))
_DELETED_COLUMNS: Final = (
    *_PARTITION,
    Column("COMMITTED", "committed_offset", is_number=True),
    Column("RESULT", "result"),
)
_RESET_COLUMNS: Final = (
    *_PARTITION,
    Column("COMMITTED", "committed_offset", is_number=True),
    Column("NEW", "offset", is_number=True),
    Column("RESULT", "result"),
)
