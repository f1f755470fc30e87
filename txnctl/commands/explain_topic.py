"""`txnctl explain TOPIC`: why committed readers of a topic see no more, and what to do next.

Four requests find it for a topic of up to 1,000 partitions, and one more for each transaction in the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from coordinator_protocol.errors import ErrorCode
from txnctl.commands.explained_partition import row_of
from txnctl.commands.late import remote, sdk
from txnctl.commands.totals import listed_partitions
from txnctl.output import (
    NOTHING,
    Column,
    OutputFormat,
    Row,
    Value,
    duration,
    print_document,
    print_facts,
    print_list,
    print_note,
    size,
    write,
)

_EXPLAINED_MAX: Final = 10
"""Maximum number of transactions in the way that are looked at one by one, those that block most partitions first."""


def explain_topic(connection: sdk.Connection, topic: str, timeout_ms: int, output: OutputFormat) -> None:
    """Print the reason why readers of a topic see no more. Raises CommandFailed if it does not exist."""
    with sdk.Admin(connection, deadline_ms=timeout_ms) as admin:
        partitions = [*listed_partitions(admin, [topic])]
        if not partitions:
            # It is not there, or this caller may not describe it: the answer to this says which.
            remote.topic_there(connection, topic, timeout_ms)
        retention = _retention(admin, topic)
        blockers = [*_blockers(admin, partitions)]
    row = topic_explanation(topic, partitions, blockers, retention)
    if output is not OutputFormat.TABLE:
        print_document(row, output)
        return
    print_facts(row, _FACTS)
    blocked = row["blocked"]
    assert isinstance(blocked, list)
    if blocked:
        write("\n")
        print_list(blocked, _BLOCKED, output, empty="")
    steps = row["next"]
    assert isinstance(steps, list)
    for step in steps:
        print_note(str(step))


def topic_explanation(
    topic: str,
    partitions: Sequence[sdk.PartitionListing],
    blockers: Sequence[Row],
    retention: Mapping[str, sdk.TopicSetting],
) -> Row:
    """Return all that is known of the readers of a topic. `blockers` are explanations of one partition each."""
    served = [each for each in partitions if each.is_served]
    waiting = [each for each in served if each.last_stable_offset < each.high_watermark]
    unserved = [each.partition for each in partitions if not each.is_served]
    return {
        "topic": topic,
        "partitions": len(partitions),
        "unserved_partitions": unserved,
        "blocked_partitions": [each.partition for each in waiting],
        "records": sum(each.records for each in served),
        "size_bytes": sum(each.size_bytes for each in served),
        "undecided_offsets": sum(each.high_watermark - each.last_stable_offset for each in served),
        "removed_offsets": sum(each.log_start_offset for each in served),
        "retention": {name: {"value": each.value, "origin": each.origin} for name, each in retention.items()},
        "blocked": [_blocked_row(each, blockers) for each in waiting],
        "blockers": list(blockers),
        "next": [*_next_steps(served, unserved, waiting, blockers)],
    }


def _next_steps(
    served: Sequence[sdk.PartitionListing],
    unserved: Sequence[int],
    waiting: Sequence[sdk.PartitionListing],
    blockers: Sequence[Row],
) -> Iterator[str]:
    """Yield what to do next, the worst first."""
    if unserved:
        yield f"{len(unserved)} partitions are not served, so they cannot be read: `txnctl shard list log` shows why"
    for each in blockers:
        yield f"{each['topic']}-{each['partition']}: {each['next_event']}"
    hidden = len({_blocker_key(each) for each in waiting}) - len(blockers)
    if hidden > 0:
        yield f"{hidden} more transactions are in the way: `txnctl list --state Ongoing` shows the oldest first"
    if not waiting and not unserved:
        yield "nothing is in the way: readers get up to the end; `txnctl group list --lag` shows how far groups are"
    if served and all(each.records == 0 for each in served) and any(each.log_start_offset for each in served):
        topic = served[0].topic
        yield f"all records are gone by retention or deletion: `txnctl topic configs {topic}` shows the limits"


def _blocked_row(found: sdk.PartitionListing, blockers: Sequence[Row]) -> Row:
    blocker = found.blocker
    named = None if blocker is None else blocker.transactional_id or ("(hidden)" if blocker.owner_hidden else None)
    explained = next((each["blocking"] for each in blockers if _blocks(each, found)), None)
    left_ms = explained.get("time_left_ms") if isinstance(explained, Mapping) else None
    return {
        "partition": found.partition,
        "last_stable_offset": found.last_stable_offset,
        "high_watermark": found.high_watermark,
        "transactional_id": named,
        "state": None if blocker is None else blocker.state or None,
        "age_ms": None if blocker is None else blocker.age_ms,
        "time_left_ms": left_ms,
    }


def _blocks(explained: Row, found: sdk.PartitionListing) -> bool:
    """Return True if the transaction that was explained is the one that blocks this partition."""
    blocking = explained["blocking"]
    if not isinstance(blocking, Mapping) or found.blocker is None:
        return False
    if explained["partition"] == found.partition:
        return True
    return bool(found.blocker.transactional_id) and blocking["transactional_id"] == found.blocker.transactional_id


def _blocker_key(found: sdk.PartitionListing) -> Value:
    """Return what two partitions have in common if one transaction blocks both."""
    return found.blocker.transactional_id if found.blocker and found.blocker.transactional_id else found.partition


def _blockers(admin: sdk.Admin, partitions: Sequence[sdk.PartitionListing]) -> Iterator[Row]:
    """Yield the explanation of one partition for each transaction in the way."""
    by_owner: dict[Value, list[sdk.PartitionListing]] = {}
    for each in partitions:
        if each.is_served and each.blocker is not None:
            by_owner.setdefault(_blocker_key(each), []).append(each)
    worst_first = sorted(by_owner.values(), key=len, reverse=True)
    for found in worst_first[:_EXPLAINED_MAX]:
        row = row_of(admin.explain_partition(found[0].topic, found[0].partition, history_limit=1))
        # It may have ended since it was listed.
        if row["blocking"] is not None:
            yield row


def _retention(admin: sdk.Admin, topic: str) -> dict[str, sdk.TopicSetting]:
    """Return the settings that remove records; empty if this caller may not see them."""
    try:
        settings = admin.topic_configs(topic)
    except sdk.TransactionError as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        return {}
    return {name: settings[name] for name in _RETENTION if name in settings}


def _retention_words(value: Value) -> str:
    if not isinstance(value, Mapping) or not value:
        return NOTHING
    return ", ".join(_limit_words(name, each) for name, each in value.items())


def _limit_words(name: str, limit: Value) -> str:
    assert isinstance(limit, Mapping)
    value = str(limit["value"])
    if name == "retention_ms" and value.isdigit():
        words = duration(int(value))
    elif name == "retention_bytes" and value.isdigit():
        words = f"{size(int(value))} a partition"
    else:
        words = _NO_LIMIT.get((name, value), value)
    return f"{words} ({limit['origin']})"


def _count(value: Value) -> str:
    return str(len(value)) if isinstance(value, list) else NOTHING


_RETENTION: Final = ("retention_ms", "retention_bytes", "cleanup_policy")
_NO_LIMIT: Final = {("retention_ms", "-1"): "no time limit", ("retention_bytes", "-1"): "no size limit"}
_FACTS: Final = (
    Column("Topic", "topic"),
    Column("Partitions", "partitions"),
    Column("Not served", "unserved_partitions", _count),
    Column("Blocked", "blocked_partitions", _count),
    Column("Records", "records"),
    Column("Bytes", "size_bytes", size),
    Column("Undecided offsets", "undecided_offsets"),
    Column("Offsets removed so far", "removed_offsets"),
    Column("Retention", "retention", _retention_words),
)
_BLOCKED: Final = (
    Column("PARTITION", "partition", is_number=True),
    Column("LAST STABLE", "last_stable_offset", is_number=True),
    Column("END", "high_watermark", is_number=True),
    Column("IN THE WAY", "transactional_id"),
    Column("STATE", "state"),
    Column("AGE", "age_ms", duration, is_number=True),
    Column("TIME LEFT", "time_left_ms", duration, is_number=True),
)
