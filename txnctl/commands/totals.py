"""Sizes of all topics and lag of all groups at once: `txnctl topic list --sizes` and `txnctl group list --lag`.

The sizes take one request for each 1,000 partitions. The lag takes one for each 50 groups and each 400 committed
offsets, and one for each share group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from coordinator_protocol.errors import ErrorCode
from txnctl.commands.group_rows import total, waiting_for
from txnctl.commands.late import sdk
from txnctl.output import Column, Row, Value, size, uuid_text

SIZE_COLUMNS: Final = (
    Column("TOPIC", "topic"),
    Column("PARTITIONS", "partitions", is_number=True),
    Column("RECORDS", "records", is_number=True),
    Column("BYTES", "size_bytes", size, is_number=True),
    Column("UNDECIDED", "undecided_offsets", is_number=True),
    Column("OPEN TXNS", "open_transactions", is_number=True),
)
"""Columns of topics with their sizes."""

LAG_COLUMNS: Final = (
    Column("GROUP", "group_id"),
    Column("TYPE", "group_type"),
    Column("STATE", "state"),
    Column("PARTITIONS", "partitions", is_number=True),
    Column("LAG", "lag_to_last_stable_offset", is_number=True),
    Column("LAG TO END", "lag_to_high_watermark", is_number=True),
    Column("WAITS FOR", "waits_for"),
)
"""Columns of groups with their lag."""

_LAGS: Final = ("lag_to_last_stable_offset", "lag_to_high_watermark")


def topic_sizes(admin: sdk.Admin) -> list[Row]:
    """Return a row for each topic, by name, with its records and bytes."""
    return [_sizes(topic, [*found]) for topic, found in groupby(listed_partitions(admin), lambda each: each.topic)]


def listed_partitions(admin: sdk.Admin, topics: Sequence[str] = ()) -> Iterator[sdk.PartitionListing]:
    """Yield the partitions of these topics, or of all topics, by name and number."""
    after: sdk.TopicPartition | None = None
    while True:
        page = admin.list_partitions(topics, after=after)
        yield from page.partitions
        after = page.next_after
        if after is None:
            return


def _sizes(topic: str, found: Sequence[sdk.PartitionListing]) -> Row:
    return {
        "topic": topic,
        "topic_id": uuid_text(found[0].topic_id),
        "partitions": len(found),
        "records": sum(each.records for each in found),
        "size_bytes": sum(each.size_bytes for each in found),
        "offsets": sum(each.high_watermark - each.log_start_offset for each in found),
        "undecided_offsets": sum(each.high_watermark - each.last_stable_offset for each in found),
        "open_transactions": sum(each.open_transactions for each in found),
        "unserved_partitions": sum(not each.is_served for each in found),
    }


def size_words(rows: Sequence[Row]) -> str:
    """Return the sums over all topics in words."""
    records, partitions, total_bytes = (total(rows, key) for key in ("records", "partitions", "size_bytes"))
    unserved = total(rows, "unserved_partitions")
    unknown = f"; {unserved} partitions are not served, and their sizes are unknown" if unserved else ""
    return f"in all {len(rows)} topics, {partitions} partitions, {records} records, {size(total_bytes)}{unknown}"


def group_lags(admin: sdk.Admin, groups: Sequence[sdk.GroupListing]) -> list[Row]:
    """Return a row for each group with its lag, and the lag in each topic."""
    lags = admin.lag_of_groups([each.group_id for each in groups if each.group_type != "share"])
    return [
        _lag(each, lags[each.group_id]) if each.group_id in lags else _summed(each, _share_places(admin, each.group_id))
        for each in groups
    ]


def _lag(listed: sdk.GroupListing, lags: Iterable[sdk.GroupLag]) -> Row:
    places: list[Row] = [
        {
            "topic": each.offset.partition.topic,
            "lag_to_last_stable_offset": None if each.lag is None else each.lag.to_last_stable_offset,
            "lag_to_high_watermark": None if each.lag is None else each.lag.to_high_watermark,
            "pending": [{"transactional_id": waiting.transactional_id} for waiting in each.offset.pending],
        }
        for each in lags
    ]
    return _summed(listed, places)


def _share_places(admin: sdk.Admin, group_id: str) -> list[Row]:
    try:
        offsets = admin.share_group_offsets(group_id)
    except sdk.Rejected as error:
        # It was listed and has been deleted since.
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return []
    return [{"topic": each.partition.topic, "pending": [], **dict.fromkeys(_LAGS, each.lag)} for each in offsets]


def _summed(listed: sdk.GroupListing, places: Sequence[Row]) -> Row:
    by_topic = groupby(sorted(places, key=_topic), _topic)
    return {
        "group_id": listed.group_id,
        "group_type": listed.group_type,
        "state": listed.state,
        "protocol_type": listed.protocol_type or None,
        **_totals(places),
        "waits_for": waiting_for(places),
        "topics": [{"topic": topic, **_totals([*found])} for topic, found in by_topic],
    }


def _totals(places: Sequence[Row]) -> Row:
    """Return the sums over partitions; None if the lag is known in none of them."""
    sums: dict[str, Value] = {"partitions": len(places)}
    for key in _LAGS:
        known = [lag for place in places if isinstance(lag := place[key], int)]
        sums[key] = sum(known) if known else None
    return sums


def _topic(place: Row) -> str:
    return str(place["topic"])


def lag_words(rows: Sequence[Row]) -> str:
    """Return the sums over all groups in words."""
    now, later = (total(rows, key) for key in _LAGS)
    return f"in all {len(rows)} groups, {now} records to read now, {later} up to the end"
