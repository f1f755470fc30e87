"""Ports that place the content of a Transact.

The transaction coordinator takes the request. The partition log and the group coordinator each place their part, once,
and return the operations that the decision joins. The ports are here because those packages do not import each other.
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
    GroupAcknowledgements,
    GroupOffsets,
    GroupWrite,
    Membership,
    PartitionName,
    PartitionRef,
    PartitionWrite,
    ShareWrite,
)

NO_OFFSET: Final = -1


class PartRefused(Refused):
    """The part of a Transact for one partition or one group is refused, and with it the whole request."""

    def __init__(self, part: PartitionRef | PartitionName | str, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.part = part
        """A partition as the request or the catalog names it, or a group id."""

    @staticmethod
    def naming(part: PartitionRef | PartitionName | str, refusal: Refused) -> PartRefused:
        """Return the refusal with the name of the part in its message."""
        if isinstance(part, str):
            name = f"group {part!a}"
        else:
            name = f"partition {part.topic or f'topic_id {part.topic_id.hex()}'}-{part.partition}"
        return PartRefused(part, refusal.code, f"{name}: {refusal.message}")


class PlacedBatches(Struct, frozen=True):
    """Batches of a request, by partition."""

    targets: Sequence[PartitionRef | PartitionName]
    """Partition of each batch, as the answer names it. A PartitionName says that the partition does not exist."""
    partitions: Sequence[PartitionWrite]
    refusal: Operation | None = None
    """Operation that refuses because of the first batch without a partition, once that is durable, or because the disk
    is nearly full. A repetition is still answered."""
    check: Pending[list[None]] | None = None
    """Check of the payloads, if one is in progress. Its error is the refusal of the first batch that no reader could
    decode."""


class TransactedPartitions(Protocol):
    """The partition log's part. Refusals name the partition."""

    def place(self, batches: Sequence[ClientBatch], membership: Membership, context: CallContext) -> PlacedBatches:
        """Place the batches. Raises Refused for a batch that no partition would take, or that the caller may not
        write."""

    def remembered_offset(self, ordinal: int, identity: EndIdentity) -> Pending[int]:
        """Return the first offset of an ended transaction in a partition that has forgotten its producer, from durable
        state.

        -1 if there are no records, or if damage keeps the store from finding them."""


class TransactedOffsets(Protocol):
    """The group coordinator's part. Refusals name the group."""

    def place(
        self, groups: Sequence[GroupOffsets], membership: Membership, context: CallContext
    ) -> Sequence[GroupWrite]:
        """Place the offsets. Raises Refused for offsets that no group would take, and for groups and topics that the
        caller may not use."""


class TransactedShares(Protocol):
    """The part of share groups. Refusals name the group."""

    def place(
        self, groups: Sequence[GroupAcknowledgements], membership: Membership, context: CallContext
    ) -> Sequence[ShareWrite]:
        """Place the acknowledgements. Raises Refused for those that no share partition would take, and for groups that
        the caller may not use. Topics are refused by the operation, because the catalog may change until then."""
