"""Sinks and snapshots, recent events, quotas, backups and configuration."""

from __future__ import annotations

import asyncio
from typing import Final

from txnctl.page.request import PageRequest, PageView

EVENTS_SHOWN: Final = 200
KINDS: Final = {
    "": (),
    "fences": ("fenced", "fenced_by_admin", "taken_over"),
    "timeouts": ("transaction_timed_out", "hanging_transaction", "slow_commit", "sink_given_up"),
    "acts": (
        *("act", "transaction_aborted_by_admin", "hanging_transaction_aborted", "marker_from_outside"),
        *("topic_created", "topic_deleted", "topic_altered", "topic_extended", "records_deleted"),
    ),
    "refusals": ("refused", "quota"),
    "groups": ("rebalance_started", "rebalance_failed", "member_removed"),
}
"""Kinds of events by the name of the choice."""


async def sinks(asked: PageRequest) -> PageView:
    """Show the sinks of engines and the snapshots that are held."""
    found, snapshots = await asyncio.gather(asked.source.sinks(), asked.source.snapshots())
    return PageView("sinks.html", "Sinks and snapshots", "sinks", {"found": found, "snapshots": snapshots})


async def events(asked: PageRequest) -> PageView:
    """Show the recent events."""
    choice = asked.text("kind")
    choice = choice if choice in KINDS else ""
    found = await asked.source.events(EVENTS_SHOWN, KINDS[choice])
    return PageView("events.html", "Events", "events", {"found": found, "choice": choice, "choices": list(KINDS)})


async def quotas(asked: PageRequest) -> PageView:
    """Show what principals hold."""
    return PageView("quotas.html", "Quotas", "quotas", {"found": await asked.source.quotas()})


async def backups(asked: PageRequest) -> PageView:
    """Show the backups."""
    found = await asked.source.backups()
    rows = list(reversed(found.value.backups)) if found.value is not None else []
    return PageView("backups.html", "Backups", "backups", {"found": found, "rows": rows})


async def configuration(asked: PageRequest) -> PageView:
    """Show the settings in force with their origins."""
    text = asked.text("q")
    found = await asked.source.configuration()
    rows = [each for each in found.value or () if text.lower() in each.name]
    return PageView(
        "configuration.html",
        "Configuration",
        "configuration",
        {"found": found, "rows": rows, "q": text},
        refreshes=False,
    )
