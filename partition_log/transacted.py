"""Batches of whole transactions: checked and placed once, then appended inside the decision on their outcome.

Source: design 6 (`Transact`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from coordinator_protocol.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_protocol.names import check_partition, check_topic_name
from coordinator_runtime.decision import CATALOG_KEY, Decision, Operation, Turn, once_durable
from coordinator_runtime.pending import Pending, all_of
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    ClientBatch,
    EndIdentity,
    Membership,
    PartitionName,
    PartitionRef,
    Permission,
    ResourceType,
    require,
    require_by_id,
)
from coordinator_runtime.store import Family, StoreReads, StoreUnreadable
from coordinator_runtime.store_readers import StoreReader
from coordinator_runtime.transact import NO_OFFSET, PartRefused, PlacedBatches
from partition_log import forgotten_rows
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.shard import CatalogShard
from partition_log.catalog.state import PlacedPartition
from partition_log.damage_watch import DamageWatch
from partition_log.partition_state import Append
from partition_log.shard import LogShard

_WRITING = (Permission.WRITE, ResourceType.TOPIC)


class BatchWrite(Struct, frozen=True):
    """The batches of one request for one partition. Implements `coordinator_runtime.ports.PartitionWrite`."""

    ordinal: int
    placed: PlacedPartition
    appends: list[Append]
    """Batches to append, in the order sent."""

    def append(self, coordinator_shard: int, marker: Marker | None) -> Operation:
        """Make the operation that appends the batches, with the marker right behind them if there is one. The reply is
        the offset of the transaction's first record in the partition."""
        return Operation(self.placed.shard, partial(self._decide_append, coordinator_shard, marker))

    def first_offset(self, identity: EndIdentity) -> Operation:
        """Make the operation that finds the first record of a transaction that has ended. The reply is None if the
        partition has forgotten the producer since, or never knew it."""
        return Operation(self.placed.shard, lambda log, _turn: log.decide_first_offset(self.ordinal, identity))

    def _decide_append(self, coordinator_shard: int, marker: Marker | None, log: LogShard, turn: Turn) -> Decision:
        try:
            return log.decide_append_all(self.appends, coordinator_shard, marker, turn)
        except Refused as refusal:
            raise PartRefused.naming(self.placed.ref, refusal) from refusal


def _remembered(key: bytes, rows: StoreReads) -> int:
    value = rows.get(Family.PRODUCERS, key)
    return NO_OFFSET if value is None else forgotten_rows.decode_remembered(key, value).first_offset


class TransactedBatches:
    """Implements `coordinator_runtime.transact.TransactedPartitions`."""

    def __init__(
        self,
        reader: StoreReader,
        catalog: CatalogShard,
        authorizer: Authorizer,
        checks: BatchChecks,
        damage: DamageWatch,
    ) -> None:
        self._checks = checks
        self._reader = reader
        self._damage = damage
        self._catalog = catalog
        self._authorizer = authorizer
        self._batches_max = checks.limits.partitions_per_transaction_max

    def place(self, batches: Sequence[ClientBatch], membership: Membership, context: CallContext) -> PlacedBatches:
        """Place batches in their partitions. Raises Refused for a batch that no partition would take, and for one that
        the caller may not write. Raises Refused INVALID_REQUEST for more batches than a transaction may have
        partitions."""
        if len(batches) > self._batches_max:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"the request has {len(batches)} batches and at most {self._batches_max} are allowed: put more records "
                "into each, or send some with Produce before",
            )
        targets: list[PartitionRef | PartitionName] = []
        writes: dict[int, BatchWrite] = {}
        missing: Refused | None = None
        checks: list[Pending[None]] = []
        for batch in batches:
            placed = self._catalog.find(*batch.name)
            if placed is None:
                why = self._why_nowhere(batch.name, context)
                missing = missing or why
                targets.append(batch.name)
                continue
            ref = placed.ref
            self._check_writable(batch.name, ref.topic, context)
            append, check = self._append(batch, placed, membership)
            if check is not None:
                checks.append(check)
            writes.setdefault(ref.ordinal, BatchWrite(ref.ordinal, placed, [])).appends.append(append)
            targets.append(ref)
        if missing is None and batches and self._checks.disk.refusal is not None:
            missing = self._checks.disk.refuse()
        refusal = None if missing is None else once_durable(CATALOG_KEY, missing)
        return PlacedBatches(targets, list(writes.values()), refusal, all_of(checks) if checks else None)

    def remembered_offset(self, ordinal: int, identity: EndIdentity) -> Pending[int]:
        """Return the first offset of an ended transaction in a partition that has forgotten its producer. Return -1 if
        there are no records, or if damage keeps the store from answering: the outcome itself is not in doubt."""
        key = forgotten_rows.remembered_key(ordinal, identity)
        return self._reader.read(partial(_remembered, key)).recover(partial(self._without_it, ordinal))

    def _without_it(self, ordinal: int, error: Exception) -> int:
        if not isinstance(error, StoreUnreadable):
            raise error
        ref = self._catalog.by_ordinal(ordinal)
        if ref is not None:
            self._damage.met(ref, error)
        return NO_OFFSET

    def _why_nowhere(self, name: PartitionName, context: CallContext) -> Refused:
        """Return the refusal for a batch without a partition. It is not raised at once, because the answer to a
        repetition may name a partition that no longer exists. Raises Refused for a name that no partition ever had, and
        for a topic that the caller may not write."""
        try:
            check_partition(*name)
            # The permission is checked before the existence, so that a caller that may not see a topic does not learn
            # of it.
            if name.topic:
                self._check_writable(name, name.topic, context)
                check_topic_name(name.topic)
        except Refused as refusal:
            raise PartRefused(name, refusal.code, refusal.message) from refusal
        return PartRefused.naming(name, self._catalog.refusal(*name))

    def _check_writable(self, name: PartitionName, topic: str, context: CallContext) -> None:
        try:
            if name.topic:
                require(self._authorizer, context, *_WRITING, topic)
            else:
                require_by_id(self._authorizer, context, Permission.WRITE, topic, name.topic_id)
        except Refused as refusal:
            raise PartRefused(name, refusal.code, refusal.message) from refusal

    def _append(
        self, batch: ClientBatch, placed: PlacedPartition, membership: Membership
    ) -> tuple[Append, Pending[None] | None]:
        """Return the batch, ready for the log, and the check of its payload if that is in progress. Raises Refused."""
        ref = placed.ref
        try:
            header = in_transaction(batch.header, membership.producer_id, membership.producer_epoch)
            offsetless, check = self._checks.take(
                header,
                batch.payload,
                crc=batch.crc,
                validates_payload=placed.validates_payload,
                needs_keys=placed.needs_keys,
            )
        except Refused as refusal:
            raise PartRefused.naming(ref, refusal) from refusal
        if check is not None:
            check = check.recover(partial(_fail_of_partition, ref))
        append = Append(
            ref.ordinal,
            header,
            offsetless,
            is_admitted=True,
            timestamp_after_max_ms=placed.timestamp_after_max_ms,
            batch_bytes_max=placed.batch_bytes_max,
        )
        return append, check


def in_transaction(header: BatchHeader | Refused, producer_id: int, producer_epoch: int) -> BatchHeader:
    """Return the header of a batch, completed with the values that it may leave to the request. Raises Refused."""
    if isinstance(header, Refused):
        raise header
    named = (header.producer_id, header.producer_epoch)
    if named == (producer_id, producer_epoch) and header.is_transactional:
        return header
    if named not in ((NO_PRODUCER_ID, NO_PRODUCER_EPOCH), (producer_id, producer_epoch)):
        raise Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"the batch names producer id {header.producer_id} with epoch {header.producer_epoch}, and the request "
            f"{producer_id} with {producer_epoch}: leave it out, or name the same",
        )
    return replace(header, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True)


def _fail_of_partition(ref: PartitionRef, error: Exception) -> NoReturn:
    raise PartRefused.naming(ref, error) if isinstance(error, Refused) else error
