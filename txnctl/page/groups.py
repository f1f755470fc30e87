"""Groups of every kind, and one of them."""

from __future__ import annotations

import asyncio
from typing import Final

from txnctl.page.request import PageRequest, PageView, portion

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
    """Show the members, assignment, lag and pending offsets of one group."""
    group_id = asked.named("id")
    found, lags, events = await asyncio.gather(
        asked.source.group(group_id),
        asked.source.group_lag(group_id),
        asked.source.events(1_000, _OF_REBALANCES),
    )
    of_group = [event for event in events.value or () if event.facts.get("group_id") == group_id]
    counted = [each.lag for each in lags.value or () if each.lag is not None]
    return PageView(
        "group.html",
        f"Group {group_id}",
        "groups",
        {
            "id": group_id,
            "found": found,
            "lags": lags,
            "to_stable": sum(each.to_last_stable_offset for each in counted),
            "to_end": sum(each.to_high_watermark for each in counted),
            "rebalances": of_group[:20],
            "events": events,
        },
    )
