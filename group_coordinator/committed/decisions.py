"""Decisions on offsets: commit, pending commit, settling by a marker, fetch, delete.

Pure checks and the interfaces for transactions and topics are at the end. Source: spec groups 4; spec transactions 2.5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence, Set
from functools import partial
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_protocol.marker import Marker, Outcome
from coordinator_protocol.names import check_partitions, check_topic_name
from coordinator_runtime.decision import Decision, Effect, Operation, Record, ShardRouter, Turn
from coordinator_runtime.ports import Committer, Membership, NamedOffset, OutcomeNumber, PartitionName, PartitionRef
from group_coordinator.committed.offsets import Offsets
from group_coordinator.committed.requests import (
    FetchedOffset,
    OffsetCommit,
    OffsetFetch,
    Placed,
    Results,
    TxnOffsetCommit,
)
from group_coordinator.committed.state import (
    CommittingProducer,
    GroupAdministered,
    Offset,
    OffsetCommitted,
    OffsetForgotten,
    PendingCommit,
    PendingOffsetForgotten,
    PendingOffsetHeld,
)
from group_coordinator.events import GroupCreated, GroupRemoved, OffsetsCommitted, OffsetsDeleted, OffsetsSettled
from group_coordinator.shard import GroupShard
from group_coordinator.state import Group, GroupKind, PartitionKey

DELETE_OFFSETS_CAUSE = "delete_offsets"


def decide_commit(shard: GroupShard, commit: OffsetCommit, placed: Sequence[Placed], turn: Turn) -> Decision:
    """Decide OffsetCommit. The reply is Results. Refuses the whole request as `Group.check_commit`."""
    group_id = commit.group_id
    effects = _check_commit(shard, group_id, commit.committer, placed, is_transactional=False)
    results, accepted = _judged(shard, commit.offsets, placed)
    retention_ms = commit.retention_time_ms
    expire_ms = None if retention_ms is None else turn.now_ms + retention_ms
    position = shard.part(Offsets).next_position
    records = [
        Record(shard.key, OffsetCommitted(group_id, key, _offset(named, turn.now_ms, expire_ms, position)))
        for key, named in accepted
    ]
    return Decision(
        reply=results,
        records=tuple(records),
        effects=effects,
        events=_committed(shard, group_id, len(records), is_transactional=False),
    )


def decide_txn_commit(
    shard: GroupShard,
    commit: TxnOffsetCommit,
    placed: Sequence[Placed],
    last: OutcomeNumber,
    turn: Turn,
    *,
    marker: Marker | None = None,
) -> Decision:
    """Decide TxnOffsetCommit, once the group is in the transaction. The reply is Results.

    If `marker` is given, it ends the transaction in the same step. Refuses the whole request as `Group.check_commit`.
    """
    group_id, membership = commit.group_id, commit.membership
    _check_commit(shard, group_id, commit.committer, placed, is_transactional=True)
    results, accepted = _judged(shard, commit.offsets, placed)
    producer, part = CommittingProducer(membership.producer_id, membership.producer_epoch), shard.part(Offsets)
    brought = [(key, _offset(named, turn.now_ms, None, part.next_position)) for key, named in accepted]
    joins: tuple[Operation, ...] = ()
    settled: tuple[object, ...] = ()
    values: list[OffsetCommitted | PendingOffsetHeld]
    if marker is None or part.of(group_id).pending_of(producer):
        name = membership.transactional_id
        values = [
            PendingOffsetHeld(group_id, producer, key, PendingCommit(offset, name, last)) for key, offset in brought
        ]
        if marker is not None:
            joins = (Operation(shard.key, partial(decide_marker, group_id=group_id, marker=marker)),)
    elif marker.outcome is Outcome.ABORT or not brought:
        return Decision(reply=results)
    else:
        # Nothing is pending yet, so these offsets can be committed without being held first.
        values = [OffsetCommitted(group_id, key, offset) for key, offset in brought]
        settled = (OffsetsSettled(group_id, len(brought), marker.outcome),)
    return Decision(
        reply=results,
        records=tuple(Record(shard.key, value) for value in values),
        joins=joins,
        events=(*_committed(shard, group_id, len(brought), is_transactional=True), *settled),
    )


def decide_marker(shard: GroupShard, _turn: Turn, *, group_id: str, marker: Marker) -> Decision:
    """Settle the pending offsets of the transaction that the marker ends. Idempotent, and a success if there are none.

    It has no reply, since it is joined to the end of the transaction. Raises Refused INVALID_TXN_STATE for a marker of
    another coordinator shard than that of the transactional id; no correct coordinator sends one.
    """
    offsets = shard.part(Offsets).of(group_id)
    producer = CommittingProducer(marker.producer_id, marker.txn_epoch)
    records: list[Record] = []
    settled_count = 0
    for partition, pending in offsets.pending_of(producer):
        if pending.after.coordinator_shard != marker.coordinator_shard:
            raise _of_another_shard(pending, marker)
        if pending.after.csn >= marker.csn:
            continue
        settled_count += 1
        if marker.outcome is Outcome.COMMIT and is_installed(offsets.committed.get(partition), pending.offset):
            records.append(Record(shard.key, OffsetCommitted(group_id, partition, pending.offset)))
        records.append(Record(shard.key, PendingOffsetForgotten(group_id, producer, partition)))
    if not records:
        return Decision()
    return Decision(records=tuple(records), events=(OffsetsSettled(group_id, settled_count, marker.outcome),))


def _of_another_shard(pending: PendingCommit, marker: Marker) -> Refused:
    return Refused(
        ErrorCode.INVALID_TXN_STATE,
        f"marker {marker.csn} of coordinator shard {marker.coordinator_shard} (producer {marker.producer_id}, epoch "
        f"{marker.txn_epoch}) cannot end the transaction of {pending.transactional_id!a:.100}, which belongs to shard "
        f"{pending.after.coordinator_shard}. This is a defect of the coordinator",
    )


def decide_fetch_stable(shard: GroupShard, fetch: OffsetFetch, placed: Sequence[Placed] | None) -> Decision:
    """Decide OffsetFetch with `require_stable`, from the live state; the answer waits until that is durable.

    The reply is a tuple of FetchedOffset. Refuses as `Group.check_fetch`.
    """
    check_fetch(shard, fetch)
    offsets = shard.part(Offsets).of(fetch.group_id)

    def read(name: PartitionName, partition: PartitionKey) -> FetchedOffset:
        blocking = tuple(offsets.blocking(partition))
        if blocking:
            return waiting_for(FetchedOffset(name), blocking)
        return FetchedOffset(name, offsets.committed.get(partition))

    if placed is None:
        return Decision(reply=_read_all(shard, offsets.partitions(), read))
    return Decision(reply=_read_named(fetch, placed, read))


def read_durable(shard: GroupShard, fetch: OffsetFetch, placed: Sequence[Placed] | None) -> tuple[FetchedOffset, ...]:
    """Return the committed offsets on disk, for OffsetFetch without `require_stable`. Pending offsets are ignored."""
    committed = shard.part(Offsets).of(fetch.group_id).committed

    def read(name: PartitionName, partition: PartitionKey) -> FetchedOffset:
        return FetchedOffset(name, committed.durable(partition))

    if placed is None:
        return _read_all(shard, [partition for partition, _offset in committed.durable_items()], read)
    return _read_named(fetch, placed, read)


def check_fetch(shard: GroupShard, fetch: OffsetFetch) -> None:
    """Refuse as `Group.check_fetch`. A group that does not exist has no offsets, which is no error."""
    group = shard.group(fetch.group_id)
    if group is not None:
        group.check_fetch(fetch.committer)


def decide_delete(shard: GroupShard, group_id: str, placed: Sequence[Placed]) -> Decision:
    """Decide OffsetDelete. The reply is Results. Refuses the whole request: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    group = shard.group(group_id)
    if group is None:
        raise unknown_group(group_id)
    group.check_offset_delete()
    results = tuple(_why_kept(group, each) for each in placed)
    doomed = [
        (ref.topic_id, ref.partition)
        for ref, result in zip(placed, results, strict=True)
        if result is None and isinstance(ref, PartitionRef)
    ]
    records = forget(shard, group_id, doomed)
    if not records:
        return Decision(reply=results)
    administered = Record(shard.key, GroupAdministered(group_id), cause=DELETE_OFFSETS_CAUSE)
    return Decision(
        reply=results,
        records=(*records, administered),
        events=_deleted(shard, group_id, set(doomed), is_asked_for=True),
    )


def decide_forget_topic(shard: GroupShard, _turn: Turn, *, topic_id: bytes) -> Decision:
    """Drop every offset of a topic that is being deleted.

    It looks at every group: topics are deleted rarely, and an index by topic would burden every commit.
    """
    records: list[Record] = []
    events: list[object] = []
    for group_id in shard.part(Offsets).group_ids():
        doomed = [key for key in shard.part(Offsets).of(group_id).partitions() if key[0] == topic_id]
        if doomed:
            records.extend(forget(shard, group_id, doomed))
            events.extend(_deleted(shard, group_id, set(doomed), is_asked_for=False))
    return Decision(records=tuple(records), events=tuple(events))


def _deleted(shard: GroupShard, group_id: str, doomed: Set[PartitionKey], *, is_asked_for: bool) -> tuple[object, ...]:
    deleted = OffsetsDeleted(group_id, len(doomed))
    if group_id in shard.groups or not shard.part(Offsets).of(group_id).partitions() <= doomed:
        return (deleted,)
    # The group only had offsets, and these were the last.
    return deleted, GroupRemoved(group_id, GroupKind.CLASSIC, is_deleted=is_asked_for)


def forget(shard: GroupShard, group_id: str, partitions: Collection[PartitionKey]) -> tuple[Record, ...]:
    """Return the records that drop all offsets of a group in these partitions. Pending ones too: the marker of a
    transaction must not restore a deleted offset (spec groups 4.6)."""
    offsets = shard.part(Offsets).of(group_id)
    records: list[Record] = []
    for partition in sorted(set(partitions)):
        if partition in offsets.committed:
            records.append(Record(shard.key, OffsetForgotten(group_id, partition)))
        records.extend(
            Record(shard.key, PendingOffsetForgotten(group_id, producer, partition))
            for producer, _pending in offsets.blocking(partition)
        )
    return tuple(records)


def unknown_group(group_id: str) -> Refused:
    return Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!a}; look for its name in ListGroups")


def _check_commit(
    shard: GroupShard, group_id: str, committer: Committer, placed: Sequence[Placed], *, is_transactional: bool
) -> tuple[Effect, ...]:
    group = shard.group(group_id)
    if group is None:
        check_without_group(group_id, committer, is_transactional=is_transactional)
        return ()
    partitions = [(ref.topic_id, ref.partition) for ref in placed if isinstance(ref, PartitionRef)]
    group.check_commit(committer, partitions, is_transactional=is_transactional)
    return shard.commit_effects(group, committer)


def _committed(shard: GroupShard, group_id: str, offset_count: int, *, is_transactional: bool) -> tuple[object, ...]:
    if not offset_count:
        return ()
    committed = OffsetsCommitted(group_id, offset_count, is_transactional=is_transactional)
    if shard.group(group_id) is None:
        return GroupCreated(group_id, GroupKind.CLASSIC), committed
    return (committed,)


def _judged(
    shard: GroupShard, offsets: Sequence[NamedOffset], placed: Sequence[Placed]
) -> tuple[Results, list[tuple[PartitionKey, NamedOffset]]]:
    """Return the result for each offset, and the accepted offsets."""
    results: list[Refused | None] = []
    accepted: list[tuple[PartitionKey, NamedOffset]] = []
    for named, ref in zip(offsets, placed, strict=True):
        if isinstance(ref, Refused):
            results.append(ref)
            continue
        refusal = check_metadata(named.metadata, shard.config.offset_metadata_length_max)
        results.append(refusal)
        if refusal is None:
            accepted.append(((ref.topic_id, ref.partition), named))
    return tuple(results), accepted


def _why_kept(group: Group, placed: Placed) -> Refused | None:
    """Return the refusal to delete an offset; None if it can be deleted."""
    if isinstance(placed, Refused):
        return placed
    if not group.is_subscribed_to(placed.topic):
        return None
    return Refused(
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        f"members of group {group.group_id!a} read topic {placed.topic}, and would start anew without its offsets: end "
        "their subscription first",
    )


def _read_named(
    fetch: OffsetFetch, placed: Sequence[Placed], read: Callable[[PartitionName, PartitionKey], FetchedOffset]
) -> tuple[FetchedOffset, ...]:
    assert fetch.names is not None, "what was placed was named"
    return tuple(
        FetchedOffset(name, refusal=ref)
        if isinstance(ref, Refused)
        else read(PartitionName(ref.topic, ref.topic_id, ref.partition), (ref.topic_id, ref.partition))
        for name, ref in zip(fetch.names, placed, strict=True)
    )


def _read_all(
    shard: GroupShard,
    partitions: Iterable[PartitionKey],
    read: Callable[[PartitionName, PartitionKey], FetchedOffset],
) -> tuple[FetchedOffset, ...]:
    """Return the offsets of a group, by topic and partition. A topic whose deletion is not on disk yet has no name any
    more, and is left out."""
    named = [
        (PartitionName(shape.topic, topic_id, number), (topic_id, number))
        for topic_id, number in partitions
        if (shape := shard.topics.shape_of_id(topic_id)) is not None
    ]
    return tuple(read(name, partition) for name, partition in sorted(named))


def _offset(named: NamedOffset, now_ms: int, expire_ms: int | None, position: int) -> Offset:
    return Offset(named.committed_offset, named.leader_epoch, named.metadata, now_ms, expire_ms, position)


_NAMED_MAX: Final = 3
"""Number of transactions that a message names; the answer has all of them."""


def check_without_group(group_id: str, committer: Committer, *, is_transactional: bool) -> None:
    """Raise Refused unless the committer may commit to a group that does not exist.

    It must claim no membership; the commit then makes a group that only has offsets (spec groups 4.2, 4.4).
    """
    if committer.generation_or_epoch >= 0:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.GROUP_ID_NOT_FOUND,
            f"there is no group {group_id!a}, so nobody is in its generation {committer.generation_or_epoch}: join it "
            "first, or commit without a generation",
        )


def check_names(names: Sequence[PartitionName]) -> None:
    """Raise Refused for the whole request unless it may name these partitions.

    INVALID_REQUEST if an entry names no partition, or if one is named twice, since it is unclear which entry applies.
    INVALID_TOPIC_EXCEPTION for a name that no topic can have.
    """
    check_partitions(names)
    for topic in {name.topic for name in names if name.topic}:
        check_topic_name(topic, reserved_allowed=True)


def check_offsets(offsets: Sequence[NamedOffset]) -> None:
    """Raise Refused for the whole request unless it may commit these offsets: as `check_names`, and INVALID_REQUEST for
    a negative offset."""
    check_names([named.name for named in offsets])
    for named in offsets:
        if named.committed_offset < 0:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"offset {named.committed_offset} of partition {named.name.partition} of topic "
                f"{named.name.topic!a:.80}: offsets start at 0",
            )


def check_retention(retention_time_ms: int | None) -> None:
    """Raise Refused INVALID_REQUEST for a negative time."""
    if retention_time_ms is not None and retention_time_ms < 0:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"retention_time_ms is {retention_time_ms}: give a time, or leave it out for the server's retention",
        )


def check_identity(membership: Membership) -> None:
    """Raise Refused INVALID_REQUEST for values that can never be the identity of a producer."""
    producer_id, producer_epoch = membership.producer_id, membership.producer_epoch
    if producer_id < 0 or not 0 <= producer_epoch <= EPOCH_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"producer id {producer_id} with epoch {producer_epoch} is no identity; use what InitProducerId answered",
        )


def check_metadata(metadata: str, length_max: int) -> Refused | None:
    """Return the refusal if the metadata is too long, else None. Counted in characters, as in Kafka (spec groups
    4.1)."""
    if len(metadata) <= length_max:
        return None
    return Refused(
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        f"the metadata has {len(metadata)} characters and at most {length_max} are allowed; shorten it",
    )


def is_installed(current: Offset | None, settled: Offset) -> bool:
    """Return True if the offset of a committed transaction becomes the visible one.

    It does not if a later commit is already there, regardless of the order of the markers (spec groups 4.5).
    """
    return current is None or current.position <= settled.position


def is_expired(offset: Offset, *, base_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Return True if the offset has expired. `base_ms` is the time from which its group counts the retention (spec
    groups 4.7)."""
    if offset.expire_timestamp_ms is not None:
        return now_ms >= offset.expire_timestamp_ms
    return now_ms - base_ms >= retention_ms


def waiting_for(offset: FetchedOffset, blocking: tuple[tuple[CommittingProducer, PendingCommit], ...]) -> FetchedOffset:
    """Return the answer for an offset that a consumer must wait for (KIP-447).

    It names the blocking transactions and the commands that end them. An empty transactional id is not named.
    """
    named = ", ".join(
        f"{f'{pending.transactional_id!a:.100}' if pending.transactional_id else 'somebody else'} (producer id "
        f"{producer.producer_id}, offset {pending.offset.committed_offset})"
        for producer, pending in blocking[:_NAMED_MAX]
    )
    more = f" and {len(blocking) - _NAMED_MAX} more" if len(blocking) > _NAMED_MAX else ""
    refusal = Refused(
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        f"an offset waits for the outcome of the transaction of {named}{more}; ask again once it has ended. If it "
        "hangs, `txnctl explain` tells why, and `txnctl abort` ends it",
    )
    return replace(offset, refusal=refusal, blocking=blocking)


class GroupMarkers:
    """Markers for groups. Implements `coordinator_runtime.participants.GroupParticipant`."""

    def __init__(self, router: ShardRouter) -> None:
        self._router = router

    def group_marker(self, group: str, marker: Marker) -> Operation:
        """Return the operation that settles the transaction's pending offsets of a group. Idempotent by csn; a success
        for a group that is gone."""
        return Operation(self._router.shard_key(group), partial(decide_marker, group_id=group, marker=marker))
