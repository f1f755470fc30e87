"""`txnctl group unstick`: finds what holds a group up, shows the plan, and does it.

A transaction may keep offsets or records of the group pending. A member may not give up its partitions, and a rebalance
may wait for its leader. Holds that end by themselves within a moment are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

import typer

from coordinator_protocol.errors import ErrorCode
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.group_rows import group_there, offset_rows, waiting_for
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
from txnctl.commands.transactions import describe_ids
from txnctl.output import Column, OutputFormat, Row, duration, print_list, print_note, write

_LISTED_MAX: Final = 1_000
"""Maximum number of open transactions among which those of a share group are searched, the oldest first."""

_REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance"})


class HoldAction(StrEnum):
    """Way to end what holds a group up."""

    ABORT = "abort the transaction"
    ABORT_HANGING = "abort the hanging transaction"
    REMOVE_MEMBER = "remove the member"
    NONE = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHold:
    """One thing that holds a group up."""

    subject: str
    """Transactional id, member id, or partition of a hanging transaction."""
    cause: str
    action: HoldAction
    advice: str = ""
    """Advice for a person, if the command does nothing."""
    hanging: sdk.HangingListing | None = None

    def row(self, result: str) -> Row:
        """Return it as a row."""
        return {"subject": self.subject, "cause": self.cause, "action": self.action, "result": result}


def unstick(
    group_id: GroupId,
    members: Annotated[
        list[str] | None,
        typer.Option("--member", metavar="ID", help="Also remove this member; repeatable."),
    ] = None,
    look_ms: Annotated[
        int,
        typer.Option(
            "--look",
            metavar="SPAN",
            parser=parse_duration_ms,
            show_default=False,
            help="Time that a member or a rebalance must not have moved. [default: 6s]",
        ),
    ] = 6_000,
    yes: Yes = False,
    dry_run: DryRun = False,
    server: Server = DEFAULT_SERVER,
    timeout_ms: Patience = DEFAULT_PATIENCE_MS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Find what holds a group up, and end it.

    Shows the plan and asks first. Aborts transactions that keep offsets or records of the group pending. Removes
    members that do not give up their partitions, and a leader that does not finish a rebalance. Such a member joins
    again if it is alive. Status 1 if something is left that only a person may end."""
    from coordinator_client.clock import SystemClock

    with remote.connected(server) as connection, sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        group = group_there(admin, group_id)
        pause = SystemClock().pause
        holds = [
            *_of_transactions(admin, connection, group, timeout_ms),
            *_of_members(admin, group, lambda: pause(look_ms)),
            *_of_named(group, members or ()),
        ]
        planned = [each for each in holds if each.action is not HoldAction.NONE]
        if planned and not dry_run:
            if not yes:
                make_sure((f"{each.action} {each.subject}: {each.cause}" for each in planned), "Do this?", _NOT_DONE)
            results = [_end(admin, group_id, each) for each in planned]
        else:
            results = [f"would {each.action}" for each in planned]
    _print([*planned, *(each for each in holds if each not in planned)], results, group_id, output)


def _print(holds: Sequence[GroupHold], results: Sequence[str], group_id: str, output: OutputFormat) -> None:
    left = holds[len(results) :]
    if not holds and output is OutputFormat.TABLE:
        write(f"nothing holds {group_id}\n")
        return
    rows = [each.row(result) for each, result in zip(holds, [*results, *("left" for _ in left)], strict=True)]
    print_list(rows, _COLUMNS, output, empty="")
    for each in left:
        print_note(f"{each.subject}: {each.advice}")
    if left or any(result.startswith(_REFUSED) for result in results):
        raise typer.Exit(ExitStatus.PROBLEM)


# Transactions


def _of_transactions(
    admin: sdk.Admin, connection: sdk.Connection, group: sdk.GroupDescription, timeout_ms: int
) -> Iterator[GroupHold]:
    if group.group_type == "share":
        open_ids = [
            each.transactional_id
            for each in admin.oldest_transactions(limit=_LISTED_MAX).transactions
            if each.start_ms >= 0
        ]
        rows = describe_ids(connection, open_ids, timeout_ms, history_limit=0) if open_ids else []
        yield from (transaction_hold(row) for row in rows if _acknowledges(row, group.group_id))
        yield from (_hanging_hold(each) for each in _hanging(admin) if each.group_id == group.group_id)
        return
    ids = waiting_for(offset_rows(admin, group))
    rows = describe_ids(connection, ids, timeout_ms, history_limit=1) if ids else []
    yield from map(transaction_hold, rows)


def _acknowledges(row: Row, group_id: str) -> bool:
    shares = row["shares"]
    return isinstance(shares, Sequence) and any(
        isinstance(each, Mapping) and each["group_id"] == group_id for each in shares
    )


def transaction_hold(row: Row) -> GroupHold:
    """Return the hold of a transaction that keeps offsets or records of a group pending, by its description."""
    transactional_id, state = str(row["transactional_id"]), str(row["state"])
    age = f"open for {duration(row['age_ms'])}"
    if state.startswith("Prepare"):
        return GroupHold(
            subject=transactional_id,
            cause=f"its transaction is decided ({state}), and its markers are being written",
            action=HoldAction.NONE,
            advice=f"it ends by itself; `txnctl describe {transactional_id}` shows how far it is",
        )
    if state != "Ongoing":
        return GroupHold(
            subject=transactional_id,
            cause=f"its transaction has ended ({state}) since it was found",
            action=HoldAction.NONE,
            advice="look again",
        )
    if row["two_phase"]:
        return GroupHold(
            subject=transactional_id,
            cause=f"its transaction waits for an outside decision, {age}",
            action=HoldAction.NONE,
            advice=f"only the deciding system knows its outcome; `txnctl abort {transactional_id}` breaks the promise",
        )
    left = row["time_left_ms"]
    timeout = f", times out in {duration(left)}" if left is not None else ""
    return GroupHold(
        subject=transactional_id,
        cause=f"its transaction keeps offsets or records pending, {age}{timeout}",
        action=HoldAction.ABORT,
    )


def _hanging(admin: sdk.Admin) -> list[sdk.HangingListing]:
    try:
        return admin.list_hanging_transactions()
    except sdk.Misconfigured as error:
        if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        print_note("hanging transactions are not shown to this client: that needs describe on the cluster")
        return []


def _hanging_hold(found: sdk.HangingListing) -> GroupHold:
    return GroupHold(
        subject=f"{found.partition.topic}-{found.partition.partition}",
        cause=f"a transaction without an owner has acknowledged records, {duration(found.age_ms)} ago ({found.reason})",
        action=HoldAction.ABORT_HANGING,
        hanging=found,
    )


# Members


def _of_members(
    admin: sdk.Admin, group: sdk.GroupDescription, wait_a_moment: Callable[[], None]
) -> Iterator[GroupHold]:
    """Yield the members that have not moved between two looks."""
    if not (late_members(group) or group.state in _REBALANCING):
        return
    wait_a_moment()
    again = admin.describe_group(group.group_id)
    if again.group_type == "consumer":
        late = late_members(group)
        yield from (_late_hold(member, names) for member, names in late_members(again) if (member, names) in late)
    elif group.state == again.state and {each.member_id for each in group.members} == {
        each.member_id for each in again.members
    }:
        yield _rebalance_hold(again)


def late_members(group: sdk.GroupDescription) -> list[tuple[sdk.GroupMember, tuple[sdk.TopicPartition, ...]]]:
    """Return the members of a consumer group that still have partitions that others wait for, and these partitions."""
    if group.group_type != "consumer":
        return []
    wanted = {name for member in group.members for name in member.target_assignment or ()}
    late = []
    for member in group.members:
        own = set(member.target_assignment or ())
        kept = tuple(name for name in member.assignment if name not in own and name in wanted)
        if kept:
            late.append((member, kept))
    return late


def _late_hold(member: sdk.GroupMember, kept: Iterable[sdk.TopicPartition]) -> GroupHold:
    names = ", ".join(f"{topic}-{partition}" for topic, partition in kept)
    return GroupHold(
        subject=member.member_id,
        cause=f"{_named(member)} does not give up {names}, which others wait for",
        action=HoldAction.REMOVE_MEMBER,
    )


def _rebalance_hold(group: sdk.GroupDescription) -> GroupHold:
    if group.state == "CompletingRebalance" and group.leader:
        who = next((_named(each) for each in group.members if each.member_id == group.leader), group.leader)
        return GroupHold(
            subject=group.leader,
            cause=f"the rebalance waits for the assignment of the leader, {who}",
            action=HoldAction.REMOVE_MEMBER,
        )
    return GroupHold(
        subject=group.group_id,
        cause=f"a rebalance waits for its {len(group.members)} members to join again",
        action=HoldAction.NONE,
        advice="who does not join is removed at its rebalance timeout; --member ID removes one of `txnctl group members"
        f" {group.group_id}` now",
    )


def _of_named(group: sdk.GroupDescription, member_ids: Sequence[str]) -> Iterator[GroupHold]:
    """Yield the members that the user names. Raises CommandFailed for one that does not exist."""
    known = {each.member_id: each for each in group.members}
    for member_id in dict.fromkeys(member_ids):
        if member_id not in known:
            raise CommandFailed(
                ExitStatus.PROBLEM,
                f"{group.group_id} has no member {member_id!r}; `txnctl group members {group.group_id}` shows all",
            )
        yield GroupHold(
            subject=member_id, cause=f"{_named(known[member_id])} was named", action=HoldAction.REMOVE_MEMBER
        )


def _named(member: sdk.GroupMember) -> str:
    return f"{member.client_id or 'a member'} at {member.client_host}"


# Ends


def _end(admin: sdk.Admin, group_id: str, hold: GroupHold) -> str:
    """End what holds the group, and return the result. A transaction that has ended meanwhile is no error."""
    if hold.action is HoldAction.REMOVE_MEMBER:
        admin.remove_members(group_id, [hold.subject])
        return "removed"
    if hold.hanging is not None:
        topic, partition = hold.hanging.partition
        admin.abort_hanging_transactions(topic, partition, producer_id=hold.hanging.identity.producer_id)
        return "aborted"
    (ended,) = admin.abort_transactions([hold.subject])
    return "aborted" if ended.refusal is None else f"{_REFUSED}: {ended.refusal.reason}"


_REFUSED: Final = "refused"
_NOT_DONE: Final = "nothing was changed; say --yes to do it without being asked"
_COLUMNS: Final = (Column("HELD BY", "subject"), Column("RESULT", "result"), Column("WHY", "cause"))
