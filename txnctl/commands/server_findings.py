"""Findings of `txnctl doctor --server` about a running server: one for each thing that has harmed users before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterator
from statistics import median
from typing import Final

from coordinator_client.admin.admin import Admin, TopicDescription
from coordinator_client.admin.server_admin import DiskDescription, ServerLimits, ShardDescription
from coordinator_client.admin.transaction_admin import TransactionListing
from coordinator_client.transport.connection import Connection
from coordinator_runtime.clock import Clock
from coordinator_runtime.disk_guard import mib_enough
from coordinator_runtime.running_version import running_version
from txnctl.machine import Finding, Severity
from txnctl.output import duration

_CALLS: Final = 5
_SLOW_ANSWER_MS: Final = 100
"""Slow reply to a call that needs no disk (ms). Such a call usually takes a few milliseconds, most of them on the
network."""
_AWAITED_MS_MAX: Final = 3_600_000
"""Age at which a transaction that waits for an outside decision gets a warning (ms)."""
_NAMED_MAX: Final = 3


def look_at_server(connection: Connection, clock: Clock, timeout_ms: int) -> Iterator[Finding]:
    """Yield all findings. Raises the errors of the client if the server does not answer."""
    with Admin(connection, deadline_ms=timeout_ms) as admin:
        limits = yield from _answers(admin, clock)
        yield judge_version(limits.server_version)
        yield judge_shards(admin.list_shards())
        yield judge_disk(admin.describe_disk())
        yield judge_hanging(len(admin.list_hanging_transactions()))
        yield judge_transactions(admin.list_transactions(), limits.transaction_max_timeout_ms)
        yield judge_stable_offsets(admin.describe_topics())


def _answers(admin: Admin, clock: Clock) -> Generator[Finding, None, ServerLimits]:
    """Measure calls that need no disk. Returns the reply to the last one."""
    calls = [_measured(admin, clock) for _call in range(_CALLS)]
    median_ms = median(elapsed_ms for _limits, elapsed_ms in calls)
    found = f"answers in {duration(int(median_ms))} (median of {_CALLS})"
    if median_ms > _SLOW_ANSWER_MS:
        advice = "look at its processor time and at txn_runtime_event_loop_lag_seconds, or at the network in between"
        yield Finding("answer", Severity.WARNING, found, advice)
    else:
        yield Finding("answer", Severity.OK, found)
    return calls[-1][0]


def _measured(admin: Admin, clock: Clock) -> tuple[ServerLimits, int]:
    """Return the limits, and the time that the call took (ms)."""
    began_us = clock.monotonic_us()
    limits = admin.describe_limits()
    return limits, (clock.monotonic_us() - began_us) // 1_000


def judge_version(version: str) -> Finding:
    """Judge the versions of server and txnctl, which should be the same."""
    ours = running_version()
    if version == ours:
        return Finding("version", Severity.OK, version)
    return Finding("version", Severity.WARNING, f"{version}, and txnctl is {ours}", "install the same version of both")


def judge_shards(shards: Collection[ShardDescription]) -> Finding:
    """Judge the states of all shards."""
    states = Counter(shard.state for shard in shards)
    found = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    if states["failed"]:
        names = _named([f"{shard.coordinator} {shard.shard}" for shard in shards if shard.state == "failed"])
        advice = f"{names}: the log says why; `txnctl shard load` tries again once that is repaired"
        return Finding("shards", Severity.PROBLEM, found, advice)
    if len(states) > 1 or not states["active"]:
        return Finding(
            "shards", Severity.WARNING, found, "only active ones serve: `txnctl shard list` shows the others"
        )
    return Finding("shards", Severity.OK, found)


def judge_disk(disk: DiskDescription) -> Finding:
    """Judge the free space on disk."""
    if not disk.free_bytes_min:
        return Finding("room on disk", Severity.WARNING, "not watched", "a full disk ends it: set disk_free_min_bytes")
    if disk.free_bytes is None:
        return Finding("room on disk", Severity.OK, "it has no disk")
    found = f"{disk.free_bytes >> 20} MiB are free"
    if disk.is_low:
        # The free space may be above the minimum again, but not yet enough to accept records.
        found += f", and no records are taken until {mib_enough(disk.free_bytes_min)} MiB are, an eighth more than"
        found += " disk_free_min_bytes"
        return Finding("room on disk", Severity.PROBLEM, found, "delete topics, or make the disk larger")
    if disk.free_bytes < 2 * disk.free_bytes_min:
        advice = f"below {disk.free_bytes_min >> 20} MiB no records are taken: make room"
        return Finding("room on disk", Severity.WARNING, found, advice)
    return Finding("room on disk", Severity.OK, found)


def judge_hanging(count: int) -> Finding:
    """Judge the number of hanging transactions, which should be 0."""
    if count:
        advice = "`txnctl hanging` shows how to end them; please report it"
        return Finding("hanging transactions", Severity.PROBLEM, f"{count} that no coordinator will end", advice)
    return Finding("hanging transactions", Severity.OK, "none")


def judge_transactions(listings: Collection[TransactionListing], timeout_ms_max: int) -> Finding:
    """Judge the open transactions: some may be older than any timeout allows, or have waited long for an outside
    decision."""
    opened = [each for each in listings if each.age_ms is not None]
    oldest = max(opened, key=_age_ms, default=None)
    if oldest is None:
        return Finding("open transactions", Severity.OK, "none")
    found = f"{len(opened)}, the oldest for {duration(_age_ms(oldest))}"
    late = [each for each in opened if not each.two_phase and _age_ms(each) > timeout_ms_max]
    awaited = [each for each in opened if each.two_phase and _age_ms(each) > _AWAITED_MS_MAX]
    if late:
        advice = f"{_ids(late)}: longer than any timeout allows; see `txnctl describe` and the log, then `txnctl abort`"
        return Finding("open transactions", Severity.PROBLEM, found, advice)
    if awaited:
        advice = f"{_ids(awaited)}: waits for an outside decision; ask its owner, and end it as that was decided"
        return Finding("open transactions", Severity.WARNING, found, advice)
    return Finding("open transactions", Severity.OK, found)


def judge_stable_offsets(topics: Collection[TopicDescription]) -> Finding:
    """Judge how many partitions hold back their committed readers at this moment."""
    held = [
        (partition.high_watermark - partition.last_stable_offset, f"{topic.name}-{partition.partition}")
        for topic in topics
        for partition in topic.partitions
        if partition.last_stable_offset < partition.high_watermark
    ]
    if not held:
        return Finding("committed readers", Severity.OK, "no partition is held back by an open transaction")
    offsets, worst = max(held)
    found = f"{len(held)} partitions are held back by open transactions, {worst} most, by {offsets} offsets"
    return Finding(
        "committed readers", Severity.OK, found, f"usual while work goes on; `txnctl explain {worst}` says why"
    )


def _age_ms(listing: TransactionListing) -> int:
    return listing.age_ms or 0


def _ids(listings: list[TransactionListing]) -> str:
    return _named([each.transactional_id for each in sorted(listings, key=_age_ms, reverse=True)])


def _named(names: list[str]) -> str:
    """Return the first few names, and the number of the others."""
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
