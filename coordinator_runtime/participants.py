"""Ports of the participants of transactions: partitions, groups with offsets, and share partitions.

The transaction coordinator places the end of a transaction in each of them. `coordinator_core.assembly` builds the port
from the parts of the partition log and of the group coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import Decision, Operation
from coordinator_runtime.ports import Membership, OpenInPartition, OutcomeNumber


class ShareKey(NamedTuple):
    """Name of a share partition: a group, and the ordinal of a partition."""

    group_id: str
    ordinal: int


class GroupParticipant(Protocol):
    """The part of the marker port for groups with offsets."""

    def group_marker(self, group: str, marker: Marker) -> Operation:
        """Return an operation that settles the transaction's pending offsets of a group. Idempotent by csn."""


class ShareParticipant(Protocol):
    """The part of the marker port for share partitions."""

    def share_marker(self, share: ShareKey, marker: Marker) -> Operation:
        """Return an operation that settles the records of a share partition that the transaction has acknowledged.
        Idempotent by csn; success for a share partition that is gone."""


class MarkerPort(GroupParticipant, ShareParticipant, Protocol):
    """Places the end of a transaction in its participants."""

    def partition_marker(self, ordinal: int, marker: Marker) -> Operation:
        """Return an operation that ends the transaction in a partition. Idempotent by csn; success for a deleted
        partition."""

    def partition_seal(self, ordinal: int, producer_id: int, producer_epoch: int) -> Operation:
        """Return an operation that stops the producer's open transaction from adding records to a partition.

        The transaction awaits an outside decision. Idempotent; success for a deleted partition, and for one without
        records of the transaction."""


class PendingShares(Protocol):
    """Question to share partitions for finding hanging transactions."""

    def all_pending(self) -> Sequence[OpenInPartition]:
        """Return the transactions with acknowledgements that wait for a marker, of all share partitions, from live
        state. `OpenInPartition.group_id` names the group."""


class ShareVerifier(Protocol):
    """Check that the group coordinator makes with the transaction coordinator before it keeps acknowledgements of a
    transaction.

    It is joined into its operation, so nothing can happen in between."""

    def add_shares(
        self,
        membership: Membership,
        shares: frozenset[ShareKey],
        then: Callable[[OutcomeNumber], Decision],
        *,
        verified_group: str | None,
    ) -> Operation:
        """Return an operation that adds share partitions to the transaction, and then does what `then` decides.

        `then` gets the number of the last outcome of the transactional id: a marker that may settle what is
        acknowledged now has a greater number.

        A client of version 1 must have added the group before (AddOffsetsToTxn): `verified_group`. For one of version
        2, None, it opens the transaction if none is open. It refuses as AddOffsetsToTxn does, with the data plane's
        codes."""
