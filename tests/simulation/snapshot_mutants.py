"""Bugs of snapshots, as `mutants` has those of everything else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from coordinator_protocol import cuts
from coordinator_protocol import snapshots as protocol
from coordinator_protocol.cuts import UnreadStretch
from coordinator_protocol.snapshots import PartitionView, Scan, SnapshotFilter
from partition_log.catalog.shard import CatalogShard
from partition_log.leases import Leases
from partition_log.rules import excluding
from partition_log.shard import LogShard
from tests.simulation.mutant import Mutant
from txn_coordinator.config import TwoPhase
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.unfinished import UnfinishedOutcomes

_READING = {"snapshot_weight": 30.0, "steps": 600}
_SPLIT = {"two_phase": TwoPhase.SPLIT, "partitions": 3}
_SINKING = {"sink_weight": 80.0, "tick_weight": 3.0, "crash_weight": 0.0, "participants_at_once": 1}
_DELETING = {"delete_weight": 12.0, "tick_weight": 3.0, "removal_interval_ms": 200}


def _nothing_is_unfinished(_unfinished: Any, _outcomes: Any) -> list[Any]:
    return []


def _members_apart(_members: Any, _outcomes: Any, _key: Any) -> list[Any]:
    return []


def _away_is_finished(members: Any, outcomes: UnfinishedOutcomes, key: Any) -> Any:
    return [] if outcomes._runtime.table.find(key) is None else members(outcomes, key)


def _nothing_is_open(exclusions: Any, _opened: Any, *rest: Any) -> dict[int, int]:
    found: dict[int, int] = exclusions({}, *rest)
    return found


def _from_the_second_on(hides: Any, shown: SnapshotFilter, producer_id: int, base_offset: int, **kind: Any) -> bool:
    hidden: bool = hides(shown, producer_id, base_offset, **kind)
    return hidden and shown.excluded.get(producer_id) != base_offset


def _from(scans: Iterable[Scan], distance: int) -> list[Scan]:
    """What a log has grown by, from another offset on."""
    return [
        scan if scan.shown.only is not None else replace(scan, start_offset=max(scan.start_offset + distance, 0))
        for scan in scans
    ]


def _one_too_few(between: Any, before: PartitionView, after: PartitionView) -> list[Scan]:
    return [scan for scan in _from(between(before, after), 1) if scan.start_offset < scan.end_offset]


def _one_too_many(between: Any, before: PartitionView, after: PartitionView) -> list[Scan]:
    return _from(between(before, after), -1)


def _from_the_start_of_the_snapshot(between: Any, before: PartitionView, after: PartitionView) -> list[Scan]:
    return [
        scan if scan.shown.only is None else replace(scan, start_offset=max(scan.start_offset, before.start_offset))
        for scan in between(before, after)
    ]


def _only_what_it_grew_by(between: Any, before: PartitionView, after: PartitionView) -> list[Scan]:
    return [scan for scan in between(before, after) if scan.shown.only is None]


def _finished_or_not(between: Any, before: PartitionView, after: PartitionView) -> list[Scan]:
    finished = between(before, replace(after, excluded={}))
    return [*(scan for scan in finished if scan.shown.only), *_only_what_it_grew_by(between, before, after)]


def _hold_nothing(_oldest: Any, _leases: Leases, _ordinal: int) -> None:
    return None


def _never_longer(_renew: Any, _leases: Leases, _lease_id: bytes, _lease_ms: int) -> None:
    return None


def _all_with_the_first(_release: Any, leases: Leases, lease_id: bytes, _part: int, _parts: int) -> None:
    leases.find(lease_id)
    leases.release(lease_id)


def _what_is_being_removed(_start: Any, shard: LogShard, ordinal: int) -> int:
    head = shard.durable_head(ordinal)
    return 0 if head is None else head.log_start_offset


def _no_further(_greatest: Any, stretches: Mapping[str, UnreadStretch]) -> dict[str, int]:
    return {place: max(each.last_stable_offset, each.start_offset) for place, each in stretches.items()}


def _whatever_is_excluded(greatest: Any, stretches: Mapping[str, UnreadStretch]) -> Any:
    return greatest({place: replace(each, excluded={}) for place, each in stretches.items()})


def _any_of_that_name(find: Any, catalog: CatalogShard, topic: str, topic_id: bytes, partition: int) -> Any:
    return find(catalog, topic, b"" if topic else topic_id, partition)


SNAPSHOTS = (
    Mutant(
        "cut_at_the_stable_offsets",
        "a vector of last stable offsets is taken for a cut",
        ((cuts, "greatest_cut", _no_further),),
        _READING,
    ),
    Mutant(
        "cut_through_the_unfinished",
        "a cut has a transaction in partitions that have its marker, and not in others",
        ((cuts, "greatest_cut", _whatever_is_excluded),),
        _READING | _SPLIT,
    ),
    Mutant(
        "show_what_is_half_marked",
        "a snapshot shows a transaction where its marker has come, and not where it has not",
        ((MarkerSender, "unfinished", _nothing_is_unfinished),),
        _READING | _SPLIT,
    ),
    Mutant(
        "show_members_apart",
        "a snapshot shows members of one decision before the others",
        ((UnfinishedOutcomes, "_members", _members_apart),),
        _READING | _SPLIT | _SINKING,
    ),
    Mutant(
        "take_what_is_away_for_finished",
        "a snapshot is taken although the decisions of an unloaded shard are unknown",
        ((UnfinishedOutcomes, "_members", _away_is_finished),),
        _READING | _SPLIT | {"shard_weight": 3.0},
    ),
    Mutant(
        "exclude_nothing_open",
        "a snapshot shows a transaction that was open as soon as that ends",
        ((excluding, "exclusions", _nothing_is_open),),
        _READING,
    ),
    Mutant(
        "exclude_from_the_second_on",
        "the first batch of an excluded transaction is shown",
        ((protocol.SnapshotFilter, "hides", _from_the_second_on),),
        _READING,
    ),
    Mutant(
        "delta_begins_late",
        "a delta leaves out the first offset",
        ((protocol, "scans_between", _one_too_few),),
        _READING,
    ),
    Mutant("delta_begins_early", "a delta repeats an offset", ((protocol, "scans_between", _one_too_many),), _READING),
    Mutant(
        "delta_forgets_the_excluded",
        "what was excluded before never comes",
        ((protocol, "scans_between", _only_what_it_grew_by),),
        _READING,
    ),
    Mutant(
        "delta_takes_what_still_waits",
        "what was excluded before comes although it is not finished",
        ((protocol, "scans_between", _finished_or_not),),
        _READING,
    ),
    Mutant(
        "delta_begins_with_the_snapshot",
        "what was excluded comes from where the snapshot before began, although its reader has more",
        ((protocol, "scans_between", _from_the_start_of_the_snapshot),),
        _READING | _SPLIT | _DELETING | {"flush_weight": 4.0},
    ),
    Mutant("hold_nothing", "leases do not keep records", ((Leases, "oldest", _hold_nothing),), _READING | _DELETING),
    Mutant("never_longer", "a renewed lease ends when it would have", ((Leases, "renew", _never_longer),), _READING),
    Mutant(
        "release_with_the_first_part",
        "a snapshot is released although some of its readers have not read their part",
        ((Leases, "release_part", _all_with_the_first),),
        _READING,
    ),
    Mutant(
        "hold_what_is_being_removed",
        "a snapshot begins with records whose removal was already asked for",
        ((LogShard, "log_start_to_be", _what_is_being_removed),),
        _READING | _DELETING,
    ),
    Mutant(
        "read_another_topic_of_that_name",
        "who reads a snapshot of a topic that was deleted is shown the one that was made since",
        ((CatalogShard, "find", _any_of_that_name),),
        _READING | {"passing_weight": 8.0},
    ),
)
"""Bugs of snapshots, of deltas and of leases."""
