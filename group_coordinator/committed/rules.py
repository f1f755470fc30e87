"""Every decision about offsets that needs no more than values.

Source: spec groups 4; spec transactions 2.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import EPOCH_MAX
from coordinator_protocol.names import check_partitions, check_topic_name
from coordinator_runtime.ports import Committer, Membership, NamedOffset, PartitionName
from group_coordinator.committed.state import Offset, PendingOffset, Producer

_NAMED_MAX: Final = 3
"""Transactions that a message names; the answer has all of them."""


def check_without_group(group_id: str, committer: Committer, *, is_transactional: bool) -> None:
    """May an offset be committed to a group that does not exist? Only by who claims no membership: that makes a group
    that has nothing but offsets (spec groups 4.2, 4.4)."""
    if committer.generation_or_epoch >= 0:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION if is_transactional else ErrorCode.GROUP_ID_NOT_FOUND,
            f"there is no group {group_id!a}, so nobody is in its generation {committer.generation_or_epoch}: join it "
            "first, or commit without a generation",
        )


def check_names(names: Sequence[PartitionName]) -> None:
    """Return only if a request may name these partitions.

    Raises Refused for the whole request: INVALID_REQUEST for what names no partition, or one twice, because nobody can
    say which of the two was meant; INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    check_partitions(names)
    for topic in {name.topic for name in names if name.topic}:
        check_topic_name(topic, reserved_allowed=True)


def check_offsets(offsets: Sequence[NamedOffset]) -> None:
    """Return only if a request may bring these offsets. Raises Refused for the whole request: as `check_names`, and
    INVALID_REQUEST for a negative offset."""
    check_names([named.name for named in offsets])
    for named in offsets:
        if named.committed_offset < 0:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"offset {named.committed_offset} of partition {named.name.partition} of topic "
                f"{named.name.topic!a:.80}: offsets start at 0",
            )


def check_retention(retention_time_ms: int | None) -> None:
    """Raises Refused INVALID_REQUEST for a negative time."""
    if retention_time_ms is not None and retention_time_ms < 0:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"retention_time_ms is {retention_time_ms}: give a time, or leave it out for the server's retention",
        )


def check_identity(membership: Membership) -> None:
    """Raises Refused INVALID_REQUEST for what can never be the identity of a producer."""
    producer_id, producer_epoch = membership.producer_id, membership.producer_epoch
    if producer_id < 0 or not 0 <= producer_epoch <= EPOCH_MAX:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"producer id {producer_id} with epoch {producer_epoch} is no identity; use what InitProducerId answered",
        )


def check_metadata(metadata: str, length_max: int) -> Refused | None:
    """Why the metadata is too long, if it is. In characters, as Kafka counts (spec groups 4.1)."""
    if len(metadata) <= length_max:
        return None
    return Refused(
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        f"the metadata has {len(metadata)} characters and at most {length_max} are allowed; shorten it",
    )


def is_installed(current: Offset | None, settled: Offset) -> bool:
    """Does the offset of a transaction that commits become the one that everybody sees? Not when a later commit is
    there already, whenever its marker came (spec groups 4.5)."""
    return current is None or current.position <= settled.position


def is_expired(offset: Offset, *, base_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Is it time to forget the offset? `base_ms`: from when its group lets the retention count (spec groups 4.7)."""
    if offset.expire_timestamp_ms is not None:
        return now_ms >= offset.expire_timestamp_ms
    return now_ms - base_ms >= retention_ms


def unstable(blocking: Sequence[tuple[Producer, PendingOffset]]) -> Refused:
    """Why a consumer must wait for an offset (KIP-447), with the transactions that it waits for and what ends them."""
    named = ", ".join(
        f"{pending.transactional_id!a:.100} (producer id {producer.producer_id}, offset "
        f"{pending.offset.committed_offset})"
        for producer, pending in blocking[:_NAMED_MAX]
    )
    more = f" and {len(blocking) - _NAMED_MAX} more" if len(blocking) > _NAMED_MAX else ""
    return Refused(
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        f"an offset waits for the outcome of the transaction of {named}{more}; ask again once it has ended. If it "
        "hangs, `txnctl explain` tells why, and `txnctl abort` ends it",
    )
