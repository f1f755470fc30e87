"""The first page: health, rates, and the things that need attention."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from coordinator_client.admin.observing import PartitionListing
from txnctl.page.charts import charts
from txnctl.page.request import PageRequest, PageView
from txnctl.page.source import Backups, PageAnswer, Shards
from txnctl.page.words import duration, size

OLD_MS: Final = 60_000
"""Age from which an open transaction needs attention, because it holds up readers (ms)."""
SHOWN_MAX: Final = 8
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


@dataclass(frozen=True, slots=True)
class Attention:
    """One thing that an operator should look at."""

    level: str
    """bad or warn."""
    text: str
    link: str = ""


async def overview(asked: PageRequest) -> PageView:
    """Show the state of the server at a glance."""
    source = asked.source
    limits, shards, rates, events = await asyncio.gather(
        source.limits(), source.shards(), source.rates(), source.events(SHOWN_MAX)
    )
    open_ids, blocked = await asyncio.gather(
        source.transactions(limit=SHOWN_MAX, states=OPEN_STATES), source.blocked_partitions(1_000)
    )
    hanging, backups = await asyncio.gather(source.hanging(), source.backups())
    held_up = [each for each in blocked.value or () if each.blocker is not None and each.blocker.age_ms >= OLD_MS]
    attention = [
        *_of_shards(shards),
        *_of_backups(backups),
        *(
            [Attention("bad", f"{len(hanging.value)} transactions hang: no client will end them", "/transactions")]
            if hanging.value
            else []
        ),
        *_of_blocked(held_up),
    ]
    states = Counter(each.state for each in shards.value.shards) if shards.value is not None else Counter[str]()
    return PageView(
        "overview.html",
        "Overview",
        "overview",
        {
            "limits": limits,
            "shards": shards,
            "shard_states": states,
            "rates": rates,
            "charts": charts(rates.value) if rates.value is not None else [],
            "open": open_ids,
            "blocked": sorted(
                (each for each in blocked.value or () if each.blocker is not None),
                key=lambda each: -each.blocker.age_ms if each.blocker is not None else 0,
            )[:SHOWN_MAX],
            "blocked_count": len(blocked.value or ()),
            "blocked_answer": blocked,
            "events": events,
            "attention": attention,
        },
    )


def _of_shards(answer: PageAnswer[Shards]) -> Sequence[Attention]:
    if answer.value is None:
        return ()
    found = [
        Attention("bad", f"shard {each.coordinator} {each.shard} has failed: {each.reason}")
        for each in answer.value.shards
        if each.state == "failed"
    ][:SHOWN_MAX]
    idle = sum(1 for each in answer.value.shards if each.state not in ("active", "failed"))
    if idle:
        found.append(Attention("warn", f"{idle} shards do not serve"))
    disk = answer.value.disk
    if disk.is_low:
        found.append(
            Attention("bad", f"records are refused: {size(disk.free_bytes)} of the disk are free", "/configuration")
        )
    return found


def _of_backups(answer: PageAnswer[Backups]) -> Sequence[Attention]:
    backups = answer.value.backups if answer.value is not None else ()
    if backups and backups[-1].state == "failed":
        return [Attention("bad", f"the last backup failed: {backups[-1].reason}", "/backups")]
    return ()


def _of_blocked(held_up: Sequence[PartitionListing]) -> Sequence[Attention]:
    if not held_up:
        return ()
    oldest_ms = max(each.blocker.age_ms for each in held_up if each.blocker is not None)
    return [
        Attention(
            "warn",
            f"readers of {len(held_up)} {'partition' if len(held_up) == 1 else 'partitions'} wait for transactions "
            f"that have been open for up to {duration(oldest_ms)}",
            "/topics?only=blocked",
        )
    ]
