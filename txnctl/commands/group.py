"""`txnctl group`: groups of a running server."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands import group_offsets
from txnctl.commands.group_rows import (
    MEMBER_COLUMNS,
    described,
    group_there,
    member_row,
    offset_rows,
    total,
    waiting_for,
)
from txnctl.commands.group_unstick import unstick
from txnctl.commands.late import remote, sdk
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
)
from txnctl.commands.totals import LAG_COLUMNS, group_lags, lag_words
from txnctl.commands.watching import watched
from txnctl.output import Column, OutputFormat, Row, marked_if, print_document, print_facts, print_list, print_note
from txnctl.tables import CellMark

app = typer.Typer(
    name="group",
    help="List, describe, change, unstick and delete groups.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("offsets")(group_offsets.offsets)
app.command("reset-offsets")(group_offsets.reset_offsets)
app.command("delete-offsets")(group_offsets.delete_offsets)
app.command()(unstick)

_STATES: Final = (
    *("Empty", "Stable", "PreparingRebalance", "CompletingRebalance"),
    *("NotReady", "Assigning", "Reconciling", "Dead"),
)
_TYPES: Final = ("classic", "consumer", "share", "streams")
_NO_MATCH: Final = "no group matches"
TEXT_SETTINGS: Final = frozenset(
    {
        "share_auto_offset_reset",
        "share_isolation_level",
        "share_renew_acknowledge_enable",
        "share_dead_letter_topic",
    }
)
"""Settings whose values are texts, also one of digits alone, such as the name of a topic."""


@app.command("list")
@watched
def list_groups(
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only groups in this state, such as Empty or Stable; repeatable."
        ),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only classic, consumer, share or streams groups; repeatable."),
    ] = None,
    lag: Annotated[
        bool, typer.Option("--lag", help="Show the records that each group has left, and all together.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List groups by their ids.

    With --lag, JSON also has the lag in each topic. LAG and LAG TO END mean the same as in `txnctl group offsets`."""
    _check_names("state", states or [], _STATES)
    _check_names("type", types or [], _TYPES)
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        listed = admin.list_groups(states=states or (), types=types or ())
        if lag:
            lags = group_lags(admin, listed)
            print_list(lags, LAG_COLUMNS, output, empty=_NO_MATCH)
            if lags and output is OutputFormat.TABLE:
                print_note(lag_words(lags))
            return
        rows: list[Row] = [
            {
                "group_id": found.group_id,
                "group_type": found.group_type,
                "state": found.state,
                "protocol_type": found.protocol_type or None,
            }
            for found in listed
        ]
    columns = (
        Column("GROUP", "group_id"),
        Column("TYPE", "group_type"),
        Column("STATE", "state"),
        Column("PROTOCOL", "protocol_type"),
    )
    print_list(rows, columns, output, empty=_NO_MATCH)


@app.command()
@watched
def describe(
    group_id: GroupId,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describe a group: its state, and its lag.

    Names the transactions that its offsets wait for, and counts dead letters that are not yet written. JSON also has
    its members and offsets."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        group = group_there(admin, group_id)
        offsets = offset_rows(admin, group)
    is_share = group.group_type == "share"
    facts = {
        **described(group),
        "lag_to_last_stable_offset": total(offsets, "lag_to_last_stable_offset"),
        "lag_to_high_watermark": total(offsets, "lag_to_high_watermark"),
        "waits_for": waiting_for(offsets),
        "due_letters": total(offsets, "due_letters") if is_share else None,
    }
    if output is OutputFormat.TABLE:
        columns = (*_FACTS, _DUE_LETTERS) if is_share else _FACTS
        print_facts({**facts, "members": len(group.members), "partitions": len(offsets)}, columns)
    else:
        members = [member_row(member) for member in group.members]
        print_document({**facts, "members": members, "offsets": offsets}, output)


@app.command()
@watched
def members(
    group_id: GroupId,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List the members of a group and their partitions."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        rows = [member_row(member) for member in group_there(admin, group_id).members]
    print_list(rows, MEMBER_COLUMNS, output, empty="the group has no members")


@app.command()
def delete(
    group_ids: Annotated[list[str], typer.Argument(metavar="GROUP", help="Ids of groups without members.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete groups with their offsets."""
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        rows: list[Row] = []
        for group_id in dict.fromkeys(group_ids):
            group = group_there(admin, group_id)
            if group.members:
                raise CommandFailed(ExitStatus.PROBLEM, f"{group_id} has {len(group.members)} members: stop them first")
            rows.append({"group_id": group_id, "partitions": len(admin.group_offsets(group_id))})
        if not dry_run:
            if not yes:
                make_sure(f"{row['group_id']}: offsets of {row['partitions']} partitions" for row in rows)
            for row in rows:
                admin.delete_group(str(row["group_id"]))
    result = "would be deleted" if dry_run else "deleted"
    columns = (
        Column("GROUP", "group_id"),
        Column("RESULT", "result"),
        Column("PARTITIONS", "partitions", is_number=True),
    )
    print_list([{**row, "result": result} for row in rows], columns, output, empty="")


@app.command()
def config(
    group_id: GroupId,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Such as consumer_session_timeout_ms=50s or share_auto_offset_reset=earliest; repeatable.",
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
    """Show or change the settings of a group.

    Shows the settings that differ from the server's. Members of consumer, share and streams groups receive a
    change with their next heartbeat."""
    wanted = dict(_parse_setting(text) for text in settings or [])
    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        if wanted or unset:
            admin.alter_group_configs(group_id, wanted, unset=unset or (), validate_only=dry_run)
        values = admin.group_configs(group_id)
    if dry_run:
        values = {name: value for name, value in {**values, **wanted}.items() if name not in (unset or ())}
    rows: list[Row] = [{"name": name, "value": value} for name, value in sorted(values.items())]
    columns = (Column("SETTING", "name"), Column("VALUE", "value", is_number=True))
    print_list(rows, columns, output, empty="the group follows the settings of the server")


def _check_names(what: str, names: list[str], known: tuple[str, ...]) -> None:
    """Refuse unknown names. The server would treat one as a filter that matches nothing, and hide a typing error."""
    for name in names:
        if name.lower() not in {each.lower() for each in known}:
            raise CommandFailed(ExitStatus.USAGE, f"there is no {what} {name!r}: the {what}s are {', '.join(known)}")


def _parse_setting(text: str) -> tuple[str, int | str]:
    name, _, span = text.partition("=")
    if name in TEXT_SETTINGS:
        return name, span
    if span.isascii() and span.isdigit():
        return name, int(span)
    if not name.endswith("_ms"):
        return name, span
    try:
        return name, parse_duration_ms(span)
    except typer.BadParameter as why:
        raise CommandFailed(ExitStatus.USAGE, f"--set {text}: {why.message}, or a number of milliseconds") from why


_FACTS = (
    Column("Group", "group_id"),
    Column("Type", "group_type"),
    Column("State", "state"),
    Column("Protocol", "protocol_type"),
    Column("Assignor", "assignor"),
    Column("Epoch", "epoch"),
    Column("Epoch of the assignment", "assignment_epoch"),
    Column("Leader", "leader"),
    Column("Members", "members"),
    Column("Partitions", "partitions"),
    Column("Records it can read now", "lag_to_last_stable_offset"),
    Column("Records up to the end", "lag_to_high_watermark"),
    Column("Offsets wait for", "waits_for", mark=marked_if(CellMark.WARNING)),
)
_DUE_LETTERS = Column("Dead letters to be written", "due_letters", mark=marked_if(CellMark.WARNING))
