"""Topics, their partitions, and a look into one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from coordinator_client.admin.observing import PartitionListing
from txnctl.page.looking import LookWanted
from txnctl.page.request import NotThere, PageRequest, PageView, portion

LENGTH: Final = 100
"""Number of topics of a page."""
PARTITIONS_LENGTH: Final = 200
"""Number of partitions of a page."""
COUNTS: Final = (20, 50, 200)
FORMS: Final = ("text", "json", "hex")


@dataclass(slots=True)
class TopicRow:
    """One topic, with the sums over its partitions."""

    name: str
    partitions: int = 0
    unserved: int = 0
    records: int = 0
    size_bytes: int = 0
    undecided: int = 0
    """Offsets that committed readers do not reach yet."""
    open_transactions: int = 0
    oldest: PartitionListing | None = None
    """Partition with the oldest open transaction."""


async def listed(asked: PageRequest) -> PageView:
    """Show all topics."""
    text, page, only = asked.text("q"), asked.number("page", 0, 10_000), asked.text("only")
    found = await asked.source.partitions()
    rows = [row for row in rows_of(found.value or ()) if text.lower() in row.name.lower()]
    if only == "blocked":
        rows = [row for row in rows if row.oldest is not None]
        rows.sort(key=lambda row: -_age_ms(row.oldest))
    shown = rows[page * LENGTH : (page + 1) * LENGTH]
    return PageView(
        "topics.html",
        "Topics",
        "topics",
        {
            "found": found,
            "rows": shown,
            "total": TopicRow(
                "",
                partitions=sum(row.partitions for row in rows),
                records=sum(row.records for row in rows),
                size_bytes=sum(row.size_bytes for row in rows),
                open_transactions=sum(row.open_transactions for row in rows),
            ),
            "q": text,
            "only": only,
            "portion": portion("/topics", asked.parameters, page=page, length=LENGTH, total=len(rows)),
        },
    )


def rows_of(partitions: Iterable[PartitionListing]) -> list[TopicRow]:
    """Return the topics of partitions, which come topic by topic."""
    rows: dict[str, TopicRow] = {}
    for each in partitions:
        row = rows.get(each.topic)
        if row is None:
            row = rows[each.topic] = TopicRow(each.topic)
        row.partitions += 1
        row.unserved += not each.is_served
        row.records += each.records
        row.size_bytes += each.size_bytes
        row.undecided += each.high_watermark - each.last_stable_offset
        row.open_transactions += each.open_transactions
        if each.blocker is not None and _age_ms(each) >= _age_ms(row.oldest):
            row.oldest = each
    return list(rows.values())


def _age_ms(partition: PartitionListing | None) -> int:
    return -1 if partition is None or partition.blocker is None else partition.blocker.age_ms


async def one(asked: PageRequest) -> PageView:
    """Show the partitions and settings of one topic."""
    name, page = asked.named("name"), asked.number("page", 0, 10_000)
    partitions, settings = await asyncio.gather(asked.source.partitions([name]), asked.source.topic_settings(name))
    found: Sequence[PartitionListing] = partitions.value or ()
    rows = rows_of(found)
    return PageView(
        "topic.html",
        f"Topic {name}",
        "topics",
        {
            "name": name,
            "partitions": partitions,
            "rows": found[page * PARTITIONS_LENGTH : (page + 1) * PARTITIONS_LENGTH],
            "topic": rows[0] if rows else None,
            "topic_id": found[0].topic_id.hex() if found else "",
            "settings": settings,
            "portion": portion("/topic", asked.parameters, page=page, length=PARTITIONS_LENGTH, total=len(found)),
        },
    )


async def records(asked: PageRequest) -> PageView:
    """Show some records of a partition."""
    name, partition = asked.named("name"), asked.number("partition", 0, 2**31 - 1)
    form, count = asked.text("as") or FORMS[0], asked.number("count", COUNTS[1], COUNTS[-1])
    if form not in FORMS:
        raise NotThere(f"records are shown as {', '.join(FORMS)}")
    at, key = asked.text("at"), asked.text("key")
    wanted = LookWanted(
        topic=name,
        partition=partition,
        start_offset=asked.optional_number("from"),
        start_ms=_time_ms(at) if at else None,
        key=key.encode() if key else None,
        count=max(1, count),
    )
    found, explained = await asyncio.gather(asked.source.records(wanted), asked.source.explanation(name, partition))
    look = found.value
    kept = {"name": name, "partition": partition, "as": form, "count": count, "key": key}
    return PageView(
        "records.html",
        f"Records of {name}-{partition}",
        "topics",
        {
            "name": name,
            "partition": partition,
            "found": found,
            "explained": explained,
            "form": form,
            "forms": FORMS,
            "count": count,
            "counts": COUNTS,
            "start": asked.text("from"),
            "at": at,
            "key": key,
            "after": "" if look is None else f"/records?{urlencode({**kept, 'from': look.next_offset})}",
            "before": ""
            if look is None
            else f"/records?{urlencode({**kept, 'from': max(look.log_start_offset, look.start_offset - count)})}",
        },
        refreshes=False,
    )


def _time_ms(text: str) -> int:
    """Return a time such as 2026-11-21T08:30 in UTC, in ms. Raises NotThere."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise NotThere("a time is written as 2026-11-21T08:30, in UTC") from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return max(0, round(found.timestamp() * 1_000))
