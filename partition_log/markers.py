"""The partition log as the transaction coordinator sees it."""

from __future__ import annotations

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_runtime.decision import CATALOG_KEY, Decision, Operation, Turn, once_durable
from partition_log.catalog.shard import CatalogShard
from partition_log.shard import LogShard


class PartitionMarkers:
    """The partitions' half of `coordinator_runtime.ports.MarkerPort`, and `PartitionSequences`."""

    def __init__(self, catalog: CatalogShard) -> None:
        self._catalog = catalog

    def partition_marker(self, ordinal: int, marker: Marker) -> Operation:
        """Ends the transaction in a partition. Idempotent by csn; success for a deleted partition, once the deletion is
        durable. Refuses as `rules.judge_marker`."""
        shard = self._catalog.shard_of(ordinal)
        if shard is None:
            return once_durable(CATALOG_KEY)

        def decide(log: LogShard, turn: Turn) -> Decision:
            return log.decide_marker(ordinal, marker, turn)

        return Operation(shard, decide)

    def partition_seal(self, ordinal: int, producer_id: int, producer_epoch: int) -> Operation:
        """Lets the producer's open transaction take no more records in a partition. Idempotent; success for a deleted
        partition."""
        shard = self._catalog.shard_of(ordinal)
        if shard is None:
            return once_durable(CATALOG_KEY)

        def decide(log: LogShard, _turn: Turn) -> Decision:
            return log.decide_seal(ordinal, producer_id, producer_epoch)

        return Operation(shard, decide)

    def check_last_sequence(self, ordinal: int, producer_id: int, producer_epoch: int, last_sequence: int) -> Operation:
        """Refuses with TRANSACTION_ABORTABLE unless the last record that this producer appended to the partition in
        this epoch, in the transaction that is open there, has this sequence number."""
        shard = self._catalog.shard_of(ordinal)
        if shard is None:
            deleted = "a partition of the transaction was deleted with its records; abort it"
            return once_durable(CATALOG_KEY, Refused(ErrorCode.TRANSACTION_ABORTABLE, deleted))

        def decide(log: LogShard, _turn: Turn) -> Decision:
            return log.decide_check_last_sequence(ordinal, producer_id, producer_epoch, last_sequence)

        return Operation(shard, decide)
