"""Rows that describe groups: members, committed offsets, lag, and the transactions that hold them up."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from coordinator_protocol.errors import ErrorCode
from coordinator_server.exits import CommandFailed, ExitStatus
from txnctl.commands.late import sdk
from txnctl.output import NOTHING, Column, Row, Value, marked_if
from txnctl.tables import CellMark


def group_there(admin: sdk.Admin, group_id: str) -> sdk.GroupDescription:
    """Return the group. Raises CommandFailed if it does not exist, and suggests the closest name."""
    found = find_group(admin, group_id)
    if found is not None:
        return found
    near = difflib.get_close_matches(group_id, [each.group_id for each in admin.list_groups()], n=1)
    advice = f"did you mean {near[0]}?" if near else "`txnctl group list` shows all"
    raise CommandFailed(ExitStatus.PROBLEM, f"there is no group {group_id!r}; {advice}")


def find_group(admin: sdk.Admin, group_id: str) -> sdk.GroupDescription | None:
    """Return the group, or None if it does not exist."""
    try:
        return admin.describe_group(group_id)
    except sdk.Rejected as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


def described(group: sdk.GroupDescription) -> Row:
    """Return a group as a row, without its members."""
    return {
        "group_id": group.group_id,
        "group_type": group.group_type,
        "state": group.state,
        "protocol_type": group.protocol_type or None,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "leader": group.leader or None,
    }


def member_row(member: sdk.GroupMember) -> Row:
    """Return a member as a row, with its partitions."""
    target = member.target_assignment
    return {
        **({} if member.tasks is None else {"tasks": _tasks(member.tasks)}),
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "epoch": member.epoch,
        "is_classic": member.is_classic,
        "subscribed_topic_names": list(member.subscribed_topic_names),
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "assignment": [_place(name) for name in member.assignment],
        "target_assignment": None if target is None else [_place(name) for name in target],
    }


def _tasks(tasks: sdk.MemberTasks) -> Row:
    return {
        "process_id": tasks.process_id,
        **{
            role: [f"{name}_{partition}" for name, partition in held]
            for role, held in (("active", tasks.active), ("standby", tasks.standby), ("warmup", tasks.warmup))
        },
        "lags": {f"{name}_{partition}": lag for (name, partition), lag in tasks.lags.items()},
    }


def offset_rows(admin: sdk.Admin, group: sdk.GroupDescription) -> list[Row]:
    """Return a row for every partition where the group has an offset or a member.

    A row has the committed offset, the lag, the member that owns the partition, if there is only one, and the
    transactions with pending offsets. In a share group, the start offset takes the place of a committed one. Its
    `due_letters` are dead letters that are not yet written."""
    if group.group_type == "share":
        return _share_rows(admin, group)
    lags = {each.offset.partition: each for each in admin.group_lag(group.group_id)}
    owners = _owners(group.members)
    blockers = _blockers(admin, lags.values())
    return [_offset_row(name, lags.get(name), owners.get(name), blockers) for name in sorted({*lags, *owners})]


def _share_rows(admin: sdk.Admin, group: sdk.GroupDescription) -> list[Row]:
    owners = _owners(group.members)
    found = {each.partition: each for each in admin.share_group_offsets(group.group_id)}
    rows: list[Row] = []
    for name in sorted({*found, *owners}):
        known = found.get(name)
        progress: Row = (
            {}
            if known is None
            else {
                "committed_offset": known.start_offset,
                "lag_to_last_stable_offset": known.lag,
                "lag_to_high_watermark": known.lag,
                "due_letters": known.due_letters,
            }
        )
        rows.append({**_offset_row(name, None, owners.get(name), {}), **progress})
    return rows


def _owners(members: Iterable[sdk.GroupMember]) -> dict[sdk.TopicPartition, sdk.GroupMember | None]:
    """Return the owner of each assigned partition; None for one that members of a share group have together."""
    owners: dict[sdk.TopicPartition, sdk.GroupMember | None] = {}
    for member in members:
        for name in member.assignment:
            owners[name] = None if name in owners else member
    return owners


def _offset_row(
    name: sdk.TopicPartition, found: sdk.GroupLag | None, owner: sdk.GroupMember | None, blockers: Mapping[int, Row]
) -> Row:
    committed = None if found is None else found.offset.committed
    lag = None if found is None else found.lag
    pending = () if found is None else found.offset.pending
    return {
        **_place(name),
        "committed_offset": None if committed is None else committed.offset,
        "metadata": None if committed is None else committed.metadata,
        "commit_timestamp_ms": None if found is None else found.offset.commit_timestamp_ms,
        "lag_to_last_stable_offset": None if lag is None else lag.to_last_stable_offset,
        "lag_to_high_watermark": None if lag is None else lag.to_high_watermark,
        "log_start_offset": None if lag is None else lag.log_start_offset,
        "last_stable_offset": None if lag is None else lag.last_stable_offset,
        "high_watermark": None if lag is None else lag.high_watermark,
        "due_letters": None,
        "member_id": None if owner is None else owner.member_id,
        "client_id": None if owner is None else owner.client_id,
        "client_host": None if owner is None else owner.client_host,
        "pending": [_pending(each, blockers) for each in pending],
    }


def _pending(waiting: sdk.PendingOffset, blockers: Mapping[int, Row]) -> Row:
    return {
        "transactional_id": waiting.transactional_id,
        "producer_id": waiting.producer_id,
        "offset": waiting.offset,
        **blockers.get(waiting.producer_id, {"state": None, "age_ms": None}),
    }


def _blockers(admin: sdk.Admin, lags: Iterable[sdk.GroupLag]) -> dict[int, Row]:
    """Return the transactions that offsets wait for, by producer id. One that has ended meanwhile has no age."""
    producer_ids = sorted({waiting.producer_id for each in lags for waiting in each.offset.pending})
    if not producer_ids:
        return {}
    listed = admin.list_transactions(producer_ids=producer_ids)
    return {each.producer_id: {"state": each.state, "age_ms": each.age_ms} for each in listed}


def total(rows: Iterable[Row], key: str) -> int:
    """Return the sum of a column over the rows with a number in it."""
    return sum(number for row in rows if isinstance(number := row[key], int))


def waiting_for(rows: Iterable[Row]) -> list[str]:
    """Return the transactional ids that any partition waits for, sorted."""
    found = (waiting for row in rows for waiting in _listed(row["pending"]))
    return sorted({str(waiting["transactional_id"]) for waiting in found})


def place_names(value: Value) -> str:
    """Return partitions for a person, as in `orders-0,1,2`, grouped by topic."""
    by_topic: dict[str, list[str]] = {}
    for place in _listed(value):
        by_topic.setdefault(str(place["topic"]), []).append(str(place["partition"]))
    return " ".join(f"{topic}-{','.join(numbers)}" for topic, numbers in by_topic.items()) or NOTHING


def _pending_words(value: Value) -> str:
    return ", ".join(str(waiting["transactional_id"]) for waiting in _listed(value)) or NOTHING


def _listed(value: Value) -> list[Row]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _place(name: sdk.TopicPartition) -> Row:
    return {"topic": name.topic, "partition": name.partition}


MEMBER_COLUMNS: Final = (
    Column("MEMBER", "member_id"),
    Column("INSTANCE", "instance_id"),
    Column("CLIENT", "client_id"),
    Column("HOST", "client_host"),
    Column("EPOCH", "epoch", is_number=True),
    Column("PARTITIONS", "assignment", place_names),
    Column("TARGET", "target_assignment", place_names),
)
OFFSET_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition", is_number=True),
    Column("COMMITTED", "committed_offset", is_number=True),
    Column("LAG", "lag_to_last_stable_offset", is_number=True),
    Column("LAG TO END", "lag_to_high_watermark", is_number=True),
    Column("LAST STABLE", "last_stable_offset", is_number=True),
    Column("HIGH WATERMARK", "high_watermark", is_number=True),
    Column("MEMBER", "member_id"),
    Column("WAITS FOR", "pending", _pending_words, mark=marked_if(CellMark.WARNING)),
)
