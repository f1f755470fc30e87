"""All cases by name: those that compare two servers, and *stories*, modules that print a table of their own."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bench.case import Case
from bench.cases import (
    back_to_back,
    consume,
    disk,
    init_producer_id,
    kafka_front,
    memory,
    offset_commits,
    produce,
    recovery,
    share,
    spark_idle,
    spark_read,
    spark_sink,
    streams,
    transactions,
)

_MODULES: Final = (
    transactions,
    back_to_back,
    init_producer_id,
    offset_commits,
    produce,
    consume,
    kafka_front,
    share,
    streams,
    spark_read,
    spark_sink,
    spark_idle,
    recovery,
    memory,
    disk,
)
CASES: Final[Mapping[str, Case]] = MappingProxyType({module.CASE.name: module.CASE for module in _MODULES})

STORIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "load_ids": "how long a server needs to load 100,000 transactional ids",
        "assignors": "how long assignors take",
        "payloads": "what it costs to look into payloads",
        "rebalance": "how long a group needs for a rebalance",
        "heartbeats": "how long heartbeats of 10,000 members take",
        "exhaustion": "what commits of others take beside floods and readers that stand still, and what memory is kept",
        "decisions": "how long one decision on a large batch of a sink keeps the loop",
        "compaction": "what compaction of a log leaves, and what it costs others meanwhile",
        "cleaner": "what compaction leaves and what it costs others meanwhile, beside Kafka's cleaner",
        "snapshots": "how long taking a snapshot keeps the loop, and what reading it costs",
        "access": "what TLS, ways to say who calls, and ACLs cost the transactions of 64 producers",
        "redelivery": "how soon the records of a share consumer that was killed come to another one",
        "streams_targets": "how long targets of streams groups take, and how long they keep the loop",
        "takeover": "how soon the task of a killed member of a streams group runs on its standby",
        "share_memory": "what records in flight cost, and the operations on them",
        "bucket": "how soon another server takes over a store in a bucket, and what transactions cost there",
        "growth": "whether the memory of a server grows under a mixed load",
    }
)
"""Modules beside this one with a `main`. They take minutes, and have no quick form."""


def known_stories() -> dict[str, str]:
    """Return the stories that exist in this tree."""
    folder = Path(__file__).parent
    return {name: summary for name, summary in STORIES.items() if (folder / f"{name}.py").is_file()}


def tell(name: str) -> str:
    """Return the output of a story."""
    main: Callable[[], None] = importlib.import_module(f"bench.{name}").main
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main()
    return printed.getvalue()
