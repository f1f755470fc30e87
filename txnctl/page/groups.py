"""Groups of every kind, and one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from txnctl.page.request import PageRequest, PageView, portion
from txnctl.page.source import ServerSource

LENGTH: Final = 100
_OF_REBALANCES: Final = ("rebalance_started", "rebalance_failed", "member_removed")


async def listed(asked: PageRequest) -> PageView:
    """Show all groups."""
    text, page = asked.text("q"), asked.number("page", 0, 10_000)
    found = await asked.source.groups()
    rows = [each for each in found.value or () if text.lower() in each.group_id.lower()]
    return PageView(
        "groups.html",
        "Groups",
        "groups",
        {
            "found": found,
            "rows": rows[page * LENGTH : (page + 1) * LENGTH],
            "q": text,
            "portion": portion("/groups", asked.parameters, page=page, length=LENGTH, total=len(rows)),
        },
    )


async def one(asked: PageRequest) -> PageView:
    """Show the members, assignment, offsets and lag of one group."""
    group_id = asked.named("id")
    found, events = await asyncio.gather(asked.source.group(group_id), asked.source.events(1_000, _OF_REBALANCES))
    is_share = found.value is not None and found.value.group_type == "share"
    progress = await (_of_share_group if is_share else _of_consumers)(asked.source, group_id)
    of_group = [event for event in events.value or () if event.facts.get("group_id") == group_id]
    return PageView(
        "group.html",
        f"Group {group_id}",
        "groups",
        {
            "id": group_id,
            "found": found,
            "is_share": is_share,
            "rebalances": of_group[:20],
            "events": events,
            **progress,
        },
    )


async def _of_consumers(source: ServerSource, group_id: str) -> Mapping[str, object]:
    lags = await source.group_lag(group_id)
    counted = None if lags.value is None else [each.lag for each in lags.value if each.lag is not None]
    return {
        "offsets": lags,
        "to_stable": None if counted is None else sum(each.to_last_stable_offset for each in counted),
        "to_end": None if counted is None else sum(each.to_high_watermark for each in counted),
    }


async def _of_share_group(source: ServerSource, group_id: str) -> Mapping[str, object]:
    offsets = await source.share_group_offsets(group_id)
    return {"offsets": offsets, "lag": None if offsets.value is None else sum(each.lag or 0 for each in offsets.value)}
