"""Leader epochs of a partition: which of several lines of its log an offset belongs to.

After a loss that was accepted, or a restored backup, the log goes on from an earlier end, and offsets that readers have
seen are given once more, to other records. So the leader epoch rises there, before the partition serves (`raised`), and
every batch carries its own.

Source: KIP-101, KIP-320.
"""

from __future__ import annotations

from msgspec.structs import replace

from coordinator_runtime.incarnation import Incarnation, LineCause, first_epoch
from partition_log.state import EMPTY_HEAD, LeaderEpoch, Leadership, PartitionHead


def head_of_new(incarnation: Incarnation, now_ms: int) -> PartitionHead:
    """The head of a partition that is created now. Its first epoch is that of the store's line, so that readers of a
    topic of the same name in a lost one are told."""
    epoch = LeaderEpoch(incarnation.number, 0, now_ms, LineCause.CREATED)
    return replace(EMPTY_HEAD, leadership=Leadership(epoch.epoch, incarnation.number, (epoch,)))


def raised(head: PartitionHead, incarnation: Incarnation, now_ms: int) -> PartitionHead | None:
    """The head of a partition that is loaded, where the store has begun another line since; None: nothing changes."""
    before = head.leadership
    if before.incarnation == incarnation.number:
        return None
    epoch = LeaderEpoch(first_epoch(before.epoch, incarnation), head.log_end_offset, now_ms, incarnation.cause)
    return replace(head, leadership=Leadership(epoch.epoch, incarnation.number, (*before.history, epoch)))
