"""Batches of whole transactions: checked and placed once, then appended inside the decision on their outcome.

Source: design 6 (`Transact`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NoReturn

from coordinator_api.v1 import log_pb2
from coordinator_protocol.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    check_client_batch,
    encode_batch,
    stored_crc,
)
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import Limits
from coordinator_protocol.marker import Marker, Outcome
from coordinator_runtime.authorization import require
from coordinator_runtime.decision import Decision, Operation, Turn
from coordinator_runtime.edge import partition_name
from coordinator_runtime.ports import Authorizer, CallContext, Membership, PartitionName, Permission, ResourceType
from coordinator_runtime.store import Family, Store
from coordinator_runtime.transact import NO_OFFSET, PlacedBatches
from partition_log import codec
from partition_log.catalog.directory import TopicDirectory
from partition_log.catalog.state import CATALOG_KEY, PlacedPartition
from partition_log.edge import client_header
from partition_log.shard import Append, LogShard

_OFFSET_END = 2**64 - 1


class BatchWrite:
    """The batches of one request for one partition. Implements `coordinator_runtime.ports.PartitionWrite`."""

    __slots__ = ("_appends", "_name", "_shard", "ordinal")

    def __init__(self, placed: PlacedPartition) -> None:
        self.ordinal = placed.ref.ordinal
        self._shard = placed.shard
        self._name = f"{placed.ref.topic}-{placed.ref.partition}"
        self._appends: list[Append] = []

    def add(self, append: Append) -> None:
        """One more batch, behind the others."""
        self._appends.append(append)

    def append(self) -> Operation:
        """Appends them; the reply is the offset of the transaction's first record in the partition."""
        return Operation(self._shard, self._decide_append)

    def append_and_end(self, marker: Marker) -> Operation:
        """The same, and the marker behind them."""
        return Operation(self._shard, partial(self._decide_append_and_end, marker))

    def _decide_append(self, log: LogShard, turn: Turn) -> Decision:
        try:
            return log.decide_append_all(self._appends, turn)
        except Refused as refusal:
            raise _of_partition(self._name, refusal) from refusal

    def _decide_append_and_end(self, marker: Marker, log: LogShard, turn: Turn) -> Decision:
        try:
            return log.decide_append_and_end(self._appends, marker, turn)
        except Refused as refusal:
            raise _of_partition(self._name, refusal) from refusal


class TransactedBatches:
    """Implements `coordinator_runtime.transact.TransactedPartitions`."""

    def __init__(self, store: Store, directory: TopicDirectory, authorizer: Authorizer, limits: Limits) -> None:
        self._store = store
        self._directory = directory
        self._authorizer = authorizer
        self._batch_bytes_max = limits.batch_bytes_max

    def place(
        self, batches: Iterable[log_pb2.PartitionBatch], membership: Membership, context: CallContext
    ) -> PlacedBatches:
        """Raises Refused for a batch that no partition would take, and for one that the caller may not write."""
        names: list[PartitionName] = []
        places: list[int] = []
        writes: list[BatchWrite] = []
        place_of: dict[int, int] = {}
        missing: Refused | None = None
        for item in batches:
            name = partition_name(item.topic, item.topic_id, item.partition)
            placed = self._placed(name, context)
            if isinstance(placed, Refused):
                missing = missing or placed
                names.append(name)
                places.append(NO_OFFSET)
                continue
            ref = placed.ref
            place = place_of.setdefault(ref.ordinal, len(writes))
            if place == len(writes):
                writes.append(BatchWrite(placed))
            writes[place].add(self._append(item.batch, placed, membership))
            names.append(PartitionName(ref.topic, ref.topic_id, ref.partition))
            places.append(place)
        refusal = None if missing is None else Operation(CATALOG_KEY, partial(_refuse, missing))
        return PlacedBatches(names, places, writes, refusal)

    def first_offset(self, ordinal: int, producer_id: int, outcome: Outcome, csn: int) -> int:
        """Where the records of an ended transaction begin in a partition, from its outcomes; -1 = there are none."""
        start = codec.outcome_key(ordinal, outcome, producer_id, 0)
        end = codec.outcome_key(ordinal, outcome, producer_id, _OFFSET_END)
        for key, value in self._store.scan_backwards(Family.OUTCOMES, start, end):
            ended = codec.decode_outcome(key, value)
            if ended.csn <= csn:
                return ended.first_offset if ended.csn == csn else NO_OFFSET
        return NO_OFFSET

    def _placed(self, name: PartitionName, context: CallContext) -> PlacedPartition | Refused:
        """Where the partition is, or why it is nowhere: the answer to a repetition has room for that."""
        # Asked by name first, so that who may not see a topic does not learn whether it exists.
        if name.topic:
            require(self._authorizer, context, Permission.WRITE, ResourceType.TOPIC, name.topic)
        try:
            placed = self._directory.place(*name)
        except Refused as refusal:
            shown = name.topic or f"topic_id {name.topic_id.hex()}"
            return _of_partition(f"{shown}-{name.partition}", refusal)
        if not name.topic:
            require(self._authorizer, context, Permission.WRITE, ResourceType.TOPIC, placed.ref.topic)
        return placed

    def _append(self, batch: log_pb2.RecordBatch, placed: PlacedPartition, membership: Membership) -> Append:
        """The batch in stored form, its checksum computed once."""
        try:
            header = client_header(batch)
            identity = (header.producer_id, header.producer_epoch)
            if identity != (membership.producer_id, membership.producer_epoch) or not header.is_transactional:
                header = _of_transaction(header, membership)
            payload = batch.payload
            check_client_batch(header, payload, crc=None, batch_bytes_max=self._batch_bytes_max)
            encoded = encode_batch(header, payload)
            if batch.HasField("crc32c") and batch.crc32c != stored_crc(encoded):
                raise Refused(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the batch came with checksum {batch.crc32c:#010x}, which its bytes do not have; send it again",
                )
        except Refused as refusal:
            raise _of_partition(f"{placed.ref.topic}-{placed.ref.partition}", refusal) from refusal
        return Append(placed.ref.ordinal, header, encoded, is_admitted=True)


def _of_transaction(header: BatchHeader, membership: Membership) -> BatchHeader:
    """The header with what it may leave to the request."""
    named = (header.producer_id, header.producer_epoch)
    if named not in ((NO_PRODUCER_ID, NO_PRODUCER_EPOCH), (membership.producer_id, membership.producer_epoch)):
        raise Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"the batch names producer id {header.producer_id} with epoch {header.producer_epoch}, and the request "
            f"{membership.producer_id} with {membership.producer_epoch}: leave it out, or name the same",
        )
    return replace(
        header,
        producer_id=membership.producer_id,
        producer_epoch=membership.producer_epoch,
        is_transactional=True,
    )


def _of_partition(name: str, refusal: Refused) -> Refused:
    return Refused(refusal.code, f"partition {name}: {refusal.message}")


def _refuse(refusal: Refused, _catalog: object, _turn: Turn) -> NoReturn:
    raise refusal
