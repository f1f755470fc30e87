"""Leader epochs of a partition, which tell apart records that have the same offset before and after a loss.

After a loss that was accepted, or a restored backup, the log continues from an earlier end. Offsets that readers have
seen are then assigned again, to other records. So the leader epoch rises there, before the partition serves (`raised`),
and every batch carries its own. A reader that has read up to an offset names the epoch of the last record that it read.
If this log has no such epoch, or ended it before that offset, the two logs diverge. The reader then gets the offset of
the divergence instead of records (`divergence`).

Source: KIP-101, KIP-279 (which epoch to go back to), KIP-320 (how readers ask).
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.batch import NO_LEADER_EPOCH
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.incarnation import Incarnation, IncarnationCause, first_epoch
from partition_log.state import EMPTY_HEAD, NO_OFFSET, LeaderEpoch, Leadership, PartitionHead

_EPOCH: Final = attrgetter("epoch")
_START: Final = attrgetter("start_offset")


class Divergence(Struct, frozen=True, gc=False):
    """Point at which the log that a reader has read diverges from this one."""

    epoch: int
    """Newest epoch that both have, or -1."""
    end_offset: int
    """Records that the reader has from here on are not in this log. Those below are, unless the epoch is -1."""


class Diverged(Refused):
    """Error for a reader that has read records which are not in this log. Nothing was read."""

    def __init__(self, divergence: Divergence, message: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.divergence = divergence


def head_of_new(incarnation: Incarnation, now_ms: int) -> PartitionHead:
    """Return the head of a new partition. Its first epoch is the number of the store's incarnation. Readers of a topic
    of the same name in a lost incarnation therefore learn of the loss."""
    epoch = LeaderEpoch(incarnation.number, 0, now_ms, IncarnationCause.CREATED)
    return replace(EMPTY_HEAD, leadership=Leadership(epoch.epoch, incarnation.number, (epoch,)))


def raised(head: PartitionHead, incarnation: Incarnation, now_ms: int) -> PartitionHead | None:
    """Return the head of a loaded partition if the store has begun another incarnation since; None if nothing
    changes."""
    before = head.leadership
    if before.incarnation == incarnation.number:
        return None
    epoch = LeaderEpoch(first_epoch(before.epoch, incarnation), head.log_end_offset, now_ms, incarnation.cause)
    return replace(head, leadership=Leadership(epoch.epoch, incarnation.number, (*before.history, epoch)))


def epoch_at(leadership: Leadership, offset: int) -> int:
    """Return the epoch of the record at an offset; at the log end and behind it, the current one."""
    history = leadership.history
    return history[max(bisect_right(history, offset, key=_START) - 1, 0)].epoch


def divergence(head: PartitionHead, last_read_epoch: int, offset: int) -> Divergence | None:
    """Return the point at which this log diverges from that of a reader, or None. The reader has read up to `offset`,
    and the last record that it read is of `last_read_epoch`."""
    history = head.leadership.history
    known = bisect_right(history, last_read_epoch, key=_EPOCH)
    if not known:
        return Divergence(NO_LEADER_EPOCH, min(offset, history[0].start_offset))
    epoch = history[known - 1].epoch
    end_offset = history[known].start_offset if known < len(history) else head.log_end_offset
    if epoch == last_read_epoch and offset <= end_offset:
        return None
    return Divergence(epoch, min(offset, end_offset))


def epoch_end(head: PartitionHead, epoch: int) -> tuple[int, int]:
    """Return the newest epoch of this log up to the one asked for, and its end offset. Both are -1 for an epoch newer
    than the current one, and for -1. An epoch before the first one is answered itself, with the beginning of the
    first.

    Source: Kafka's `LeaderEpochFileCache.endOffsetFor`."""
    history = head.leadership.history
    if not 0 <= epoch <= head.leadership.epoch:
        return NO_LEADER_EPOCH, NO_OFFSET
    known = bisect_right(history, epoch, key=_EPOCH)
    if known == len(history):
        return epoch, head.log_end_offset
    return (history[known - 1].epoch if known else epoch), history[known].start_offset


def check_leader_epochs(
    head: PartitionHead, offset: int, *, current_leader_epoch: int | None, last_read_epoch: int | None
) -> None:
    """Return only if everything that a reader at the offset has read is in this log, as far as its epochs can tell.

    Raises Refused FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH if it takes another epoch for the current one;
    Diverged."""
    epoch = head.leadership.epoch
    if current_leader_epoch is not None and current_leader_epoch != epoch:
        raise _other_leader(current_leader_epoch, epoch)
    if last_read_epoch is None:
        return
    found = divergence(head, last_read_epoch, offset)
    if found is not None:
        raise Diverged(
            found,
            f"what was read up to offset {offset} in leader epoch {last_read_epoch} is not all in this log: it went "
            f"another way from offset {found.end_offset} on, because acknowledged writes were lost or a backup was "
            "restored. Decide what becomes of the records that were read from there on, and go on at that offset",
        )


def check_range(head: PartitionHead, end_offset: int, end_epoch: int) -> None:
    """Return only if everything before the end of a range is as it was when the end was learned, in this epoch. Raises
    Diverged."""
    found = divergence(head, end_epoch, end_offset)
    if found is not None:
        raise Diverged(
            found,
            f"the range up to offset {end_offset} was planned in leader epoch {end_epoch}, and is not all in this log: "
            f"it went another way from offset {found.end_offset} on, because acknowledged writes were lost or a backup "
            "was restored. Drop what was made of the range from there on, and plan it anew",
        )


def _other_leader(theirs: int, ours: int) -> Refused:
    if theirs < ours:
        return Refused(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {theirs} of the partition is over, {ours} is the present one: go on with that",
        )
    return Refused(
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"leader epoch {theirs} of the partition is not known here, {ours} is the newest: this server may be behind, "
        "try again",
    )
