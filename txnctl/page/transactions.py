"""Transactional ids: the list, and the timeline of one."""

from __future__ import annotations

import asyncio
from typing import Final

from coordinator_client.descriptions.transactions import TransactionDescription
from txnctl.page.request import NotThere, PageRequest, PageView, portion
from txnctl.page.source import PageAnswer
from txnctl.page.timeline import cause_words, drawing, kind_of

LENGTH: Final = 100
"""Number of ids of a page."""
STEPS_MAX: Final = 100
STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty")
_SPECIAL: Final = frozenset(r"\.+*?()|[]{}^$")


async def listed(asked: PageRequest) -> PageView:
    """Show the transactional ids, the longest open transaction first."""
    text, state, page = asked.text("q"), asked.text("state"), asked.number("page", 0, 10_000)
    producer = asked.optional_number("producer")
    if state and state not in STATES:
        raise NotThere(f"there is no state {state}: the states are {', '.join(STATES)}")
    found, blocked = await asyncio.gather(
        asked.source.transactions(
            limit=LENGTH,
            skip=page * LENGTH,
            states=[state] if state else (),
            producer_ids=[] if producer is None else [producer],
            pattern=containing(text),
        ),
        asked.source.blocked_partitions(1_000),
    )
    holds: dict[str, list[str]] = {}
    for each in blocked.value or ():
        if each.blocker is not None and each.blocker.transactional_id:
            holds.setdefault(each.blocker.transactional_id, []).append(f"{each.topic}-{each.partition}")
    total = found.value.matching if found.value is not None else 0
    return PageView(
        "transactions.html",
        "Transactions",
        "transactions",
        {
            "found": found,
            "holds": holds,
            "states": STATES,
            "q": text,
            "state": state,
            "producer": "" if producer is None else producer,
            "portion": portion("/transactions", asked.parameters, page=page, length=LENGTH, total=total),
        },
    )


def containing(text: str) -> str:
    """Return the regular expression for ids that contain this text; empty for all ids."""
    if not text:
        return ""
    quoted = "".join("\\" + character if character in _SPECIAL else character for character in text)
    return f"(?s).*{quoted}.*"


async def one(asked: PageRequest) -> PageView:
    """Show the timeline of one transactional id."""
    transactional_id = asked.named("id")
    found, blocked = await asyncio.gather(
        asked.source.transaction(transactional_id, STEPS_MAX), asked.source.blocked_partitions(1_000)
    )
    held = [
        each
        for each in blocked.value or ()
        if each.blocker is not None and each.blocker.transactional_id == transactional_id
    ]
    steps = found.value.history if found.value is not None else ()
    return PageView(
        "transaction.html",
        "Transaction",
        "transactions",
        {
            "id": transactional_id,
            "found": found,
            "held": held,
            "drawing": drawing(steps),
            "steps": [(step, kind_of(step.state), cause_words(step)) for step in steps],
            "state": _state(found),
        },
    )


def _state(found: PageAnswer[TransactionDescription]) -> str:
    return "" if found.value is None else found.value.state or "Dead"
