"""The ports that place what a Transact brings.

The transaction coordinator takes the request; the partition log and the group coordinator each place what is theirs,
once, and hand back what the decision joins. They meet here because they may not know each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Operation
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import (
    CallContext,
    ClientBatch,
    EndIdentity,
    GroupOffsets,
    GroupWrite,
    Membership,
    PartitionName,
    PartitionRef,
    PartitionWrite,
)

NO_OFFSET: Final = -1


class PartRefused(Refused):
    """What a Transact brings for one partition or one group is refused, and with it the whole request."""

    def __init__(self, part: PartitionRef | PartitionName | str, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.part = part
        """A partition as the request or as the catalog names it, or a group id."""

    @staticmethod
    def naming(part: PartitionRef | PartitionName | str, refusal: Refused) -> PartRefused:
        """The refusal, whose message does not say yet what it is about."""
        if isinstance(part, str):
            name = f"group {part!a}"
        else:
            name = f"partition {part.topic or f'topic_id {part.topic_id.hex()}'}-{part.partition}"
        return PartRefused(part, refusal.code, f"{name}: {refusal.message}")


class PlacedBatches(Struct, frozen=True):
    """The batches of a request, by partition."""

    targets: Sequence[PartitionRef | PartitionName]
    """The partition of each batch, as the answer calls it. A mere name: the partition does not exist."""
    partitions: Sequence[PartitionWrite]
    refusal: Operation | None = None
    """Refuses as the first batch that has no place, once it is durable that it has none, or because the disk has no
    room. A repetition is answered all the same."""
    check: Pending[list[None]] | None = None
    """The check of payloads, while it is under way. Its error is the refusal of the first batch that no reader could
    read."""


class TransactedPartitions(Protocol):
    """The partition log's part. Refusals name the partition."""

    def place(self, batches: Sequence[ClientBatch], membership: Membership, context: CallContext) -> PlacedBatches:
        """Raises Refused for a batch that no partition would take, and for one that the caller may not write."""

    def remembered_offset(self, ordinal: int, identity: EndIdentity) -> int:
        """Where the records of an ended transaction begin in a partition that has forgotten its producer, from durable
        state; -1 = there are none."""


class TransactedOffsets(Protocol):
    """The group coordinator's part. Refusals name the group."""

    def place(
        self, groups: Sequence[GroupOffsets], membership: Membership, context: CallContext
    ) -> Sequence[GroupWrite]:
        """Raises Refused for what no group would take, and for groups and topics that the caller may not use."""
