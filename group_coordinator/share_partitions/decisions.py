"""Decisions on a shard of share partitions. They change nothing; `ShareShard.replay` does.

A member's acquisition has one timer, named ("share_lock", group id, ordinal, number of the acquisition). It is armed
with the acquisition, cancelled when the last of its records is settled, and gone after a load, as the acquisition is.

A decision never reads the settings of the group, which lie in another shard: its caller gives them as `Terms`. The
limit of deliveries is kept with each acquisition, so a lock that expires needs no caller.

A record that is given up waits for its letter, if the group has a dead-letter topic. The effect `LettersDue` begins
that, and `decide_end_letters` archives the record in the operation that appends the letter (`letter_writer`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import ArmTimer, CancelTimer, Decision, Effect, Operation, Record, ShardKey, Turn
from group_coordinator.share_partitions import acquiring, rules
from group_coordinator.share_partitions.acquiring import AcquiredRange
from group_coordinator.share_partitions.draft import Archived, LetterEnd, ShareChange
from group_coordinator.share_partitions.events import (
    LettersDelayed,
    LettersDue,
    LockExpired,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsArchived,
    RecordsPending,
    RecordsSettled,
    SharesAvailable,
)
from group_coordinator.share_partitions.letters import dropped_letters, end_letters
from group_coordinator.share_partitions.records import ShareKey, SharePartitionChanged, SharePartitionForgotten
from group_coordinator.share_partitions.requests import (
    Acknowledge,
    Acquire,
    AcquireReply,
    DescribedShare,
    TxnAcknowledge,
)
from group_coordinator.share_partitions.shard import ShareShard
from group_coordinator.share_partitions.state import SharePartition

SHARE_LOCK: Final = "share_lock"
"""Kind of the timers of acquisitions."""


# The life of a share partition


def decide_initialize(shard: ShareShard, _turn: Turn, *, key: ShareKey, state_epoch: int) -> Decision:
    """Make a share partition, whose start offset its first fetch resolves. A newer state epoch begins anew; the same
    one changes nothing. No reply.

    Raises Refused FENCED_STATE_EPOCH for an older one."""
    before = shard.find(key)
    if before is not None and before.state_epoch == state_epoch:
        return Decision()
    if before is not None and before.state_epoch > state_epoch:
        raise _fenced(key, before, state_epoch)
    ended = () if before is None else tuple(before.acquisitions)
    change = ShareChange(SharePartition(state_epoch=state_epoch), is_stored=True, ended=ended)
    decision = _decision(shard, key, change, cause="initialize")
    return replace(decision, events=(*decision.events, *dropped_letters(key, before)))


def decide_delete(shard: ShareShard, _turn: Turn, *, keys: Iterable[ShareKey]) -> Decision:
    """Drop share partitions with all that is known of their records. Those that do not exist are passed over. No
    reply."""
    records: list[Record] = []
    effects: list[Effect] = []
    events: list[object] = []
    for key in keys:
        before = shard.find(key)
        if before is not None:
            records.append(Record(shard.key, SharePartitionForgotten(key), cause="delete"))
            effects += [CancelTimer(_lock_name(key, number)) for number in before.acquisitions]
            effects.append(SharesAvailable(*key))
            events += dropped_letters(key, before)
    return Decision(records=tuple(records), effects=tuple(effects), events=tuple(events))


def decide_delete_partitions(shard: ShareShard, turn: Turn, *, ordinals: Iterable[int]) -> Decision:
    """Drop the share partitions that all groups have of these partitions, because their topic is deleted. No reply."""
    return decide_delete(shard, turn, keys=[key for ordinal in ordinals for key in shard.of_ordinal(ordinal)])


def decide_resolve_start(shard: ShareShard, _turn: Turn, *, key: ShareKey, state_epoch: int, offset: int) -> Decision:
    """Let the group begin at this offset, unless it has begun before. The reply is the start offset.

    Raises Refused as `_existing`."""
    change = rules.resolve_start(_existing(shard, key, state_epoch), offset)
    return replace(_decision(shard, key, change, cause="resolve start"), reply=change.partition.start_offset)


def decide_alter_start(shard: ShareShard, _turn: Turn, *, key: ShareKey, state_epoch: int, offset: int) -> Decision:
    """Let the group begin anew at this offset, for a caller that has seen to it that the group is empty. A share
    partition that does not exist is made. The reply is the new state epoch: at least this one, and a new one.

    Raises Refused as `rules.alter_start`."""
    before = shard.find(key)
    change = rules.alter_start(before or SharePartition(state_epoch=state_epoch - 1), offset, state_epoch)
    return replace(_decision(shard, key, change, cause="alter offsets"), reply=change.partition.state_epoch)


def decide_move_log_start(shard: ShareShard, _turn: Turn, *, key: ShareKey, log_start_offset: int) -> Decision:
    """Follow the start of the log. An acquisition does that too; this is for a group that is not being read. No
    reply."""
    before = shard.find(key)
    if before is None:
        return Decision()
    return _decision(shard, key, rules.move_log_start(before, log_start_offset), cause="log start")


def described(shard: ShareShard, key: ShareKey) -> DescribedShare | None:
    """Return a share partition as it is on disk; None if it does not exist."""
    partition = shard.durable(key)
    if partition is None:
        return None
    return DescribedShare(
        start_offset=partition.start_offset,
        state_epoch=partition.state_epoch,
        leader_epoch=partition.leader_epoch,
        delivery_complete_count=partition.delivery_complete_count,
        held_count=partition.held_count,
        pending_count=partition.pending_count,
        letters_due=partition.letters_due,
    )


# Records


def decide_acquire(shard: ShareShard, _turn: Turn, *, key: ShareKey, command: Acquire) -> Decision:
    """Hand records that were read from the log to a member. The reply is an AcquireReply.

    The log is read before, from `SharePartition.first_available` on. The share partition may have changed meanwhile.
    Then records that are not available any more are left out, and the caller may read again.

    Raises Refused as `_existing` and `acquiring.acquire`."""
    before = _existing(shard, key, command.state_epoch)
    if not before.is_resolved:
        raise _fenced(key, before, command.state_epoch)
    member_id, terms = command.member_id, command.terms
    change, ranges = acquiring.acquire(
        before, member_id, command.read, terms, max_records=command.max_records, log=command.log
    )
    decision = _decision(shard, key, change, cause="acquire", lock_duration_ms=terms.lock_duration_ms)
    events = (_acquired(key.group_id, member_id, ranges), *decision.events) if ranges else decision.events
    waits_for_disk = change.is_stored or not _has_begun(shard.durable(key), command.state_epoch)
    return replace(decision, reply=AcquireReply(ranges, terms.lock_duration_ms, waits_for_disk), events=events)


def decide_acknowledge(shard: ShareShard, _turn: Turn, *, key: ShareKey, command: Acknowledge) -> Decision:
    """Give records of one partition the outcomes that a member sends, all of them or none. They are durable before the
    reply, which is None.

    Raises Refused as `_existing` and `rules.acknowledge`."""
    before = _existing(shard, key)
    member_id, batches, terms = command.member_id, command.batches, command.terms
    change = rules.acknowledge(before, member_id, batches, terms, allows_renewal=command.allows_renewal)
    decision = _decision(shard, key, change, cause="acknowledge", lock_duration_ms=terms.lock_duration_ms)
    count = sum(batch.last_offset - batch.first_offset + 1 for batch in batches)
    events = (RecordsAcknowledged(key.group_id, member_id, count), *decision.events) if count else ()
    return replace(decision, events=events)


def decide_acknowledge_in_transaction(
    shard: ShareShard, _turn: Turn, *, key: ShareKey, command: TxnAcknowledge
) -> Decision:
    """Let records of one partition wait for the end of a transaction that the share partition is in by then, all of
    them or none. They are durable before the reply, which is None.

    Raises Refused as `_existing` and `rules.acknowledge_in_transaction`."""
    member_id, batches = command.member_id, command.batches
    change = rules.acknowledge_in_transaction(_existing(shard, key), member_id, batches, command.transaction)
    decision = _decision(shard, key, change, cause="acknowledge in transaction")
    if not decision.records:
        return decision
    count = sum(batch.last_offset - batch.first_offset + 1 for batch in batches)
    return replace(decision, events=(RecordsPending(key.group_id, member_id, count), *decision.events))


def decide_marker(shard: ShareShard, _turn: Turn, *, key: ShareKey, marker: Marker) -> Decision:
    """Give the records their outcome that the transaction of the marker has acknowledged. Idempotent, and a success if
    there are none, or the share partition is gone. No reply.

    Raises Refused as `rules.settle`."""
    before = shard.find(key)
    if before is None or not before.pending:
        return Decision()
    change = rules.settle(before, marker)
    decision = _decision(shard, key, change, cause="transaction ended")
    if not decision.records:
        return decision
    count = before.pending_count - change.partition.pending_count
    settled = RecordsSettled(key.group_id, key.ordinal, count, marker.outcome)
    return replace(decision, events=(settled, *decision.events))


def decide_release(
    shard: ShareShard, _turn: Turn, *, member_id: str, holds: Iterable[tuple[ShareKey, Sequence[int]]]
) -> Decision:
    """Take back the records of a member in these acquisitions, because its session or its membership ended. No
    reply."""
    released = []
    for key, numbers in holds:
        before = shard.find(key)
        if before is not None:
            still_held = set(before.numbers_of(member_id)).intersection(numbers)
            change = rules.release_acquisitions(before, sorted(still_held))
            released.append(_decision(shard, key, change, cause="release"))
    return Decision(
        records=tuple(record for each in released for record in each.records),
        effects=tuple(effect for each in released for effect in each.effects),
        events=tuple(event for each in released for event in each.events),
    )


def decide_lock_due(shard: ShareShard, _turn: Turn, *, key: ShareKey, number: int) -> Decision:
    """Release the records that an acquisition still holds at its deadline. No change if it holds none any more."""
    before = shard.find(key)
    held = None if before is None else before.acquisitions.get(number)
    if before is None or held is None:
        return Decision()
    event = LockExpired(key.group_id, key.ordinal, held.member_id, held.held_count)
    decision = _decision(shard, key, rules.release_acquisitions(before, (number,)), cause="lock expired")
    return replace(decision, events=(event, *decision.events))


# Letters


def decide_end_letters(
    shard: ShareShard,
    _turn: Turn,
    *,
    key: ShareKey,
    state_epoch: int,
    ends: Sequence[tuple[int, LetterEnd]],
    append: Operation | None = None,
) -> Decision:
    """Archive records whose letters come to this end, each by its offset, together with the append of the letters that
    are written. No reply that counts.

    Raises Refused as `_existing` and `letters.end_letters`, and as the append: then nothing has changed."""
    change = end_letters(_existing(shard, key, state_epoch), ends)
    decision = _decision(shard, key, change, cause="letters")
    return decision if append is None else replace(decision, joins=(append,))


def decide_delay_letters(_shard: ShareShard, _turn: Turn, *, delayed: LettersDelayed) -> Decision:
    """Report that letters have to wait. No reply."""
    return Decision(events=(delayed,))


# Helpers


def _decision(
    shard: ShareShard, key: ShareKey, change: ShareChange, *, cause: str, lock_duration_ms: int = 0
) -> Decision:
    """Make the decision of a change. `lock_duration_ms` is for a change that may begin an acquisition."""
    if change.partition == shard.find(key):
        return Decision()
    changed = SharePartitionChanged(key, change.partition, is_stored=change.is_stored)
    effects: list[Effect] = [CancelTimer(_lock_name(key, number)) for number in change.ended]
    if change.begun:
        effects.append(_lock(shard.key, key, change.begun, lock_duration_ms))
    if change.made_available or change.has_moved:
        effects.append(SharesAvailable(*key))
    if change.partition.letters_due:
        effects.append(LettersDue(*key))
    return Decision(
        records=(Record(shard.key, changed, cause),),
        effects=tuple(effects),
        events=tuple(_archived(key, each) for each in change.archived),
    )


def _archived(key: ShareKey, found: Archived) -> RecordsArchived:
    return RecordsArchived(
        key.group_id, key.ordinal, found.first_offset, found.end_offset, found.reason, found.deliveries, found.letter
    )


class _LockDue(Struct, frozen=True, gc=False):
    """`decide_lock_due` of one acquisition. There may be a million, and a partial takes five times the memory."""

    key: ShareKey
    number: int

    def __call__(self, shard: ShareShard, turn: Turn) -> Decision:
        return decide_lock_due(shard, turn, key=self.key, number=self.number)


def _lock(shard: ShardKey, key: ShareKey, number: int, duration_ms: int) -> ArmTimer:
    # The member learns of its records with the answer.
    due = Operation(shard, _LockDue(key, number))
    return ArmTimer(_lock_name(key, number), duration_ms, due, since_answer=True)


def _lock_name(key: ShareKey, number: int) -> tuple[str, str, int, int]:
    return SHARE_LOCK, key.group_id, key.ordinal, number


def _existing(shard: ShareShard, key: ShareKey, state_epoch: int | None = None) -> SharePartition:
    """Return a share partition. Raises Refused: UNKNOWN_TOPIC_OR_PARTITION if it does not exist, FENCED_STATE_EPOCH if
    it has another state epoch."""
    partition = shard.find(key)
    if partition is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"the group {key.group_id!a:.300} does not read this partition: it is not assigned to a member, or was "
            "deleted; ask for the assignment again",
        )
    if state_epoch is not None and partition.state_epoch != state_epoch:
        raise _fenced(key, partition, state_epoch)
    return partition


def _has_begun(durable: SharePartition | None, state_epoch: int) -> bool:
    """Return True if the rows on disk already permit the holds of members. Otherwise a crash could move the start of
    the group, or return the records to a transaction."""
    return durable is not None and durable.state_epoch == state_epoch and durable.is_resolved and not durable.pending


def _fenced(key: ShareKey, partition: SharePartition, state_epoch: int) -> Refused:
    return Refused(
        ErrorCode.FENCED_STATE_EPOCH,
        f"the group {key.group_id!a:.300} reads this partition in state epoch {partition.state_epoch}, not "
        f"{state_epoch}: it began anew, or an administrator moved its start offset; fetch again",
    )


def _acquired(group_id: str, member_id: str, ranges: Iterable[AcquiredRange]) -> RecordsAcquired:
    counts = [(each.last_offset - each.first_offset + 1, each.delivery_count) for each in ranges]
    return RecordsAcquired(
        group_id,
        member_id,
        record_count=sum(count for count, _deliveries in counts),
        redelivered_count=sum(count for count, deliveries in counts if deliveries > 1),
    )
