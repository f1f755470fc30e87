"""Use cases of records: produce, fetch, deletion, producers. `positions` and `ranges` have those of positions and
ranges.

Names are resolved in the live catalog, because a partition may be written as soon as its creation is staged: its
records become durable after it. Reads then look at durable state only. A refusal because of a name waits until the
present state of the catalog is durable. "There is no such topic" may rest on a deletion that a crash would take back.

Every batch of a Produce is appended or refused by itself. A transactional batch and the membership of its partition in
the transaction are one operation, inside which the coordinator is asked. So nothing can come in between, and every
record belongs to a transaction that will end (KIP-890). A plain batch, outside of transactions, must come from no
producer at all or from one without a transactional id. A partition may not know that a producer is fenced, and the
coordinator checks that only in transactions.

Source: spec log-and-runtime 1.2 to 1.4; spec transactions 2.9.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from coordinator_protocol.batch import NO_PRODUCER_ID, BatchHeader, Encoding, OffsetlessBatch
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.hashing import MEMBER_PREFIX, coordinator_key
from coordinator_protocol.names import check_partition, check_partitions, check_transactional_id
from coordinator_protocol.producers import is_plain
from coordinator_runtime.checked_writes import write_checked
from coordinator_runtime.decision import (
    CATALOG_KEY,
    CheckInTheWay,
    ConnectionInTheWay,
    Decision,
    Operation,
    ProducerInTheWay,
    TransactionInTheWay,
    Turn,
    once_durable,
)
from coordinator_runtime.disk_guard import DiskGuard
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import (
    NO_LEASES,
    Authorizer,
    CallContext,
    Membership,
    OffsetLeases,
    PartitionName,
    Permission,
    ResourceType,
    TransactionVerifier,
    denial,
    require,
    require_by_id,
)
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.store import Store
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.shard import CatalogShard, unresolved
from partition_log.catalog.state import PlacedPartition
from partition_log.fetch import Fetcher
from partition_log.partition_state import Append, Appended
from partition_log.records import RemovalCause
from partition_log.requests import (
    DeleteRecords,
    DeleteRecordsResult,
    DescribeProducers,
    Fetch,
    FetchResult,
    PartitionStanding,
    Produce,
    ProduceResult,
    ProducersDescription,
    RecordsToDelete,
)
from partition_log.shard import LogShard
from partition_log.state import NO_OFFSET, MovedLogStart, PartitionHead


class _Result(Protocol):
    @property
    def error(self) -> CoordinatorError | None: ...


ResultT = TypeVar("ResultT", bound=_Result)


class _Accepted(Struct, frozen=True):
    """A batch that is valid in itself, and its destination."""

    index: int
    """Index in the request."""
    placed: PlacedPartition
    header: BatchHeader
    offsetless: OffsetlessBatch
    check: Pending[None] | None
    """Check of its payload, while that is in progress. An error of the check is the batch's refusal."""


class LogService:
    """Reads and writes of records."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        catalog: CatalogShard,
        *,
        verifier: TransactionVerifier,
        authorizer: Authorizer,
        checks: BatchChecks,
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._catalog = catalog
        self._verifier = verifier
        self._authorizer = authorizer
        self._checks = checks
        self.fetcher = Fetcher(runtime, store)
        self.leases: OffsetLeases = NO_LEASES
        """Receives the log start that is due after a request to delete records."""

    def produce(self, command: Produce, context: CallContext) -> Pending[list[ProduceResult]]:
        """Append batches and return one result per batch, in the order sent, durable when answered. The first batch
        that opens its transaction in a partition adds all partitions of the request to the transaction. That includes
        partitions whose batch is then refused.

        Raises Refused for the whole request, with nothing appended:

        - TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        - INVALID_REQUEST: an invalid partition name, transactional batches without an id, or others with one
        - INVALID_PRODUCER_ID_MAPPING: transactional batches of several producers"""
        self._check_transaction(command, context)
        found: list[PlacedPartition | Refused] = []
        batch_counts: dict[int, int] = {}
        for batch in command.batches:
            placed = self.find(Permission.WRITE, context, batch.name)
            found.append(placed)
            if not isinstance(placed, Refused):
                batch_counts[placed.ref.ordinal] = batch_counts.get(placed.ref.ordinal, 0) + 1
        refused: dict[int, ProduceResult] = {}
        by_producer: dict[int, list[_Accepted]] = {}
        for index, (batch, placed) in enumerate(zip(command.batches, found, strict=True)):
            if isinstance(placed, Refused):
                refused[index] = ProduceResult(batch.name, error=placed)
                continue
            try:
                if batch_counts[placed.ref.ordinal] > 1:
                    raise _several_batches()
                header = batch.header
                if isinstance(header, Refused):
                    raise header
                offsetless, check = self._checks.take(
                    header,
                    batch.payload,
                    crc=batch.crc,
                    validates_payload=placed.validates_payload,
                    needs_keys=placed.needs_keys,
                )
            except Refused as refusal:
                refused[index] = ProduceResult(placed.name, error=refusal)
            else:
                accepted = _Accepted(index, placed, header, offsetless, check)
                by_producer.setdefault(header.producer_id, []).append(accepted)
        if len(by_producer) == 1 and not refused:
            (batches,) = by_producer.values()
            return self._append(batches, command.transactional_id, context)
        parts = [self._append(batches, command.transactional_id, context) for batches in by_producer.values()]
        written = all_of(parts).map(partial(_in_order, by_producer.values(), refused))
        if any(isinstance(placed, Refused) for placed in found):
            return written.then(self.when_catalog_durable)
        return written

    def _append(
        self, batches: Sequence[_Accepted], transactional_id: str | None, context: CallContext
    ) -> Pending[list[ProduceResult]]:
        """Append the batches of one producer, each by itself, in one operation. Batches that the same producer sends
        later do not overtake it."""
        served = self._runtime.table.served
        shard = batches[0].placed.shard
        # The partitions that serve. The first batch that is not in the transaction adds all of them to it: the
        # coordinator then needs one record instead of one for each.
        ordinals: set[int] = set()
        for batch in reversed(batches):
            if batch.placed.shard in served:
                shard = batch.placed.shard
                ordinals.add(batch.placed.ref.ordinal)
        appends: list[Operation] = []
        checks: list[Pending[None]] = []
        for batch in batches:
            admission, refuse_if_open = self._questions(batch, transactional_id, ordinals, context)
            append = Append(
                batch.placed.ref.ordinal,
                batch.header,
                batch.offsetless,
                admission,
                refuse_if_open,
                timestamp_after_max_ms=batch.placed.timestamp_after_max_ms,
                batch_bytes_max=batch.placed.batch_bytes_max,
            )
            decide: Callable[[LogShard, Turn], Decision] = partial(LogShard.decide_append, append=append)
            if batch.check is not None:
                decide = partial(_decide_checked, batch.check, decide)
                checks.append(batch.check.recover(_refused_by_itself))
            if self._checks.disk.refusal is not None:
                decide = partial(_decide_without_room, self._checks.disk, decide)
            appends.append(Operation(batch.placed.shard, decide))
        operation = appends[0]
        if len(appends) > 1:
            together = Decision(attempts=tuple(appends), combine=list)
            operation = Operation(shard, lambda _shard, _turn: together)
        park_key: Hashable | None
        if transactional_id is None:
            park_key = self._queue_of(batches, context, is_checked=not checks)
        else:
            park_key = TransactionInTheWay(transactional_id)
        ask = partial(self._ask_again, batches, transactional_id, context)
        written: Pending[Any]
        if checks:
            check = all_of(checks)
            written = write_checked(self._runtime, operation, context, check=check, park_key=park_key, ask_again=ask)
        else:
            written = self._runtime.write(operation, context, park_key=park_key, ask_again=ask)
        results = partial(self._results, batches)
        return written.map(results, results)

    def _ask_again(self, batches: Sequence[_Accepted], transactional_id: str | None, context: CallContext) -> None:
        """Repeat the permission checks of `produce`. Raises Refused for all batches."""
        if transactional_id is not None:
            owner = coordinator_key(transactional_id)
            require(self._authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, owner)
        for topic in {batch.placed.ref.topic for batch in batches}:
            require(self._authorizer, context, Permission.WRITE, ResourceType.TOPIC, topic)

    def _questions(
        self, batch: _Accepted, transactional_id: str | None, ordinals: set[int], context: CallContext
    ) -> tuple[Callable[[], Operation] | None, Callable[[Refused], Operation] | None]:
        """Return the factories of the operations that ask the coordinator about a batch: `Append.admission` and
        `Append.refuse_if_open`."""
        header, ordinal = batch.header, batch.placed.ref.ordinal
        if transactional_id is None:
            if header.producer_id == NO_PRODUCER_ID or is_plain(header.producer_id):
                return None, None
            return partial(self._verifier.check_plain, header.producer_id), None
        membership = Membership(transactional_id, header.producer_id, header.producer_epoch)
        refuse_if_open = partial(self._verifier.refuse_if_open, membership, ordinal)
        if context.client_txn_version == 1:
            return partial(self._verifier.verify, membership, ordinal), refuse_if_open
        # Its own partition is always included: the call may wait, and be carried out when that partition serves again.
        return partial(self._verifier.add, membership, frozenset({*ordinals, ordinal})), refuse_if_open

    def _queue_of(self, batches: Sequence[_Accepted], context: CallContext, *, is_checked: bool) -> Hashable | None:
        """Return the queue in which batches outside of transactions wait for their check, or behind others; None if
        nothing blocks them. Batches of one producer stay in order. So do those that a client of Kafka sends on one
        connection without a producer. Otherwise such batches have no order to rely on."""
        header = batches[0].header
        key: Hashable
        if header.producer_id != NO_PRODUCER_ID:
            key = ProducerInTheWay(header.producer_id)
        elif header.encoding is Encoding.KAFKA_V2:
            key = ConnectionInTheWay(context.connection)
        else:
            return None if is_checked else CheckInTheWay(id(batches))
        return None if is_checked and key not in self._runtime.parking.queues else key

    def _results(
        self, batches: Sequence[_Accepted], replies: Appended | Exception | Sequence[Appended | Exception]
    ) -> list[ProduceResult]:
        """Return the result of each batch. A single reply is that of the only batch, or the refusal of all of them.
        Raises errors that are not meant for callers."""
        if isinstance(replies, Appended | Exception):
            replies = [replies] * len(batches)
        results = []
        for batch, reply in zip(batches, replies, strict=True):
            name = batch.placed.name
            if isinstance(reply, Appended):
                results.append(ProduceResult(name, reply.base_offset, reply.log_start_offset, reply.is_duplicate))
            elif not isinstance(reply, CoordinatorError):
                raise reply
            elif reply.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                results.append(ProduceResult(name, base_offset=NO_OFFSET, is_duplicate=True, error=reply))
            elif reply.code is ErrorCode.UNKNOWN_PRODUCER_ID:
                shard: LogShard | None = self._runtime.table.find(batch.placed.shard)
                head = None if shard is None else shard.durable_head(batch.placed.ref.ordinal)
                log_start_offset = 0 if head is None else head.log_start_offset
                results.append(ProduceResult(name, log_start_offset=log_start_offset, error=reply))
            else:
                results.append(ProduceResult(name, error=reply))
        return results

    def fetch(self, command: Fetch, context: CallContext) -> Pending[list[FetchResult]]:
        """Read batches and return one result per partition, in the order asked. Waits as long as the request says.

        Raises Refused INVALID_REQUEST for an invalid partition name, and as `Fetcher.fetch`; the Pending may be refused
        likewise."""
        found: list[PlacedPartition | Refused] = []
        is_any_refused = False
        for item in command.items:
            placed = self.find(Permission.READ, context, item.name)
            is_any_refused |= isinstance(placed, Refused)
            found.append(placed)
        fetched = self.fetcher.fetch(command, found, context.connection)
        if not fetched.is_settled:
            fetched = fetched.map(partial(self._still_readable, context))
        return fetched.then(self.when_catalog_durable) if is_any_refused else fetched

    def _still_readable(self, context: CallContext, results: list[FetchResult]) -> list[FetchResult]:
        """Return the results of a fetch that has waited, with a refusal where the caller may no longer read."""
        may = self._authorizer.is_allowed
        return [
            result
            if result.error is not None or may(context, Permission.READ, ResourceType.TOPIC, result.name.topic)
            else FetchResult(
                result.name,
                result.next_offset,
                error=denial(self._authorizer, context, Permission.READ, ResourceType.TOPIC, result.name.topic),
            )
            for result in results
        ]

    def delete_records(self, command: DeleteRecords, context: CallContext) -> Pending[list[DeleteRecordsResult]]:
        """Delete the records of partitions before an offset, each partition by itself; durable when answered. The rows
        are removed from the store afterwards (`removal`).

        Raises Refused INVALID_REQUEST for an invalid partition name, and for a partition that is named twice."""
        check_partitions([wanted.name for wanted in command.partitions])
        deleted = all_of([self._delete_records(wanted, context) for wanted in command.partitions])
        return deleted.then(self.when_catalog_durable)

    def _delete_records(self, wanted: RecordsToDelete, context: CallContext) -> Pending[DeleteRecordsResult]:
        placed = self.find(Permission.DELETE, context, wanted.name)
        if isinstance(placed, Refused):
            return settled(DeleteRecordsResult(wanted.name, error=placed))
        moved = self._runtime.write(
            Operation(
                placed.shard,
                lambda log, _turn: log.decide_move_log_start(placed.ref.ordinal, wanted.offset, RemovalCause.REQUEST),
            ),
            context,
            is_urgent=True,
        )

        def result(moved: MovedLogStart) -> DeleteRecordsResult:
            self.leases.note_due(placed.ref.ordinal, moved.due_offset)
            return DeleteRecordsResult(placed.name, moved.log_start_offset, moved.held_back)

        return moved.map(result).answer_error(lambda error: DeleteRecordsResult(placed.name, error=error))

    def describe_producers(
        self, command: DescribeProducers, context: CallContext
    ) -> Pending[list[ProducersDescription]]:
        """Return the producers that partitions remember, from durable state, in the order asked.

        Raises Refused INVALID_REQUEST for an invalid partition name, and for a partition that is named twice."""
        check_partitions(command.names)
        results = [self._describe_producers(name, context) for name in command.names]
        return self.when_catalog_durable(results)

    def _describe_producers(self, name: PartitionName, context: CallContext) -> ProducersDescription:
        found = self.find_readable(Permission.READ, context, name)
        if isinstance(found, Refused):
            return ProducersDescription(name, error=found)
        placed, _head = found
        shard: LogShard = self._runtime.shard(placed.shard)
        return ProducersDescription(name, tuple(shard.durable_producers(placed.ref.ordinal)))

    def standing(self, name: PartitionName, context: CallContext) -> PartitionStanding | Refused:
        """Return the durable state of a partition, or the refusal. The refusal may rest on the present state of the
        catalog, so the answer must wait until that is durable.

        Raises Refused INVALID_REQUEST for an invalid partition name."""
        found = self.find_readable(Permission.DESCRIBE, context, name)
        if isinstance(found, Refused):
            return found
        placed, head = found
        shard: LogShard = self._runtime.shard(placed.shard)
        return PartitionStanding(placed.ref, head, shard.durable_oldest_open(placed.ref.ordinal))

    def find(self, permission: Permission, context: CallContext, name: PartitionName) -> PlacedPartition | Refused:
        """Return the partition of this name, or the refusal if the caller lacks the permission or it does not exist.

        Raises Refused INVALID_REQUEST for an invalid partition name: that refuses the whole request."""
        placed = self._catalog.find(*name)
        topic = name.topic
        if placed is None:
            check_partition(*name)
        elif not topic:
            try:
                require_by_id(self._authorizer, context, permission, placed.ref.topic, name.topic_id)
            except Refused as refusal:
                return refusal
        # The permission is checked before the existence, so that a caller that may not see a topic does not learn of
        # it.
        if topic and not self._authorizer.is_allowed(context, permission, ResourceType.TOPIC, topic):
            return denial(self._authorizer, context, permission, ResourceType.TOPIC, topic)
        return self._catalog.refusal(*name) if placed is None else placed

    def find_readable(
        self, permission: Permission, context: CallContext, name: PartitionName
    ) -> tuple[PlacedPartition, PartitionHead] | Refused:
        """Return the partition as `find` finds it, with its durable positions."""
        placed = self.find(permission, context, name)
        if isinstance(placed, Refused):
            return placed
        try:
            shard: LogShard = self._runtime.shard(placed.shard)
        except Refused as refusal:
            return refusal
        head = shard.durable_head(placed.ref.ordinal)
        return unresolved(placed.ref.topic) if head is None else (placed, head)

    def _check_transaction(self, command: Produce, context: CallContext) -> None:
        """Return only if the caller may write in the transaction. The request names a transactional id
        if its batches are transactional, and otherwise none. Raises Refused."""
        transactional_id = command.transactional_id
        if transactional_id is not None:
            is_member = transactional_id.startswith(MEMBER_PREFIX)
            # A caller that may write to a sink may write as any member of its batches.
            owner = coordinator_key(transactional_id) if is_member else transactional_id
            require(self._authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, owner)
            if not is_member:
                check_transactional_id(transactional_id)
        producer_ids = set()
        for batch in command.batches:
            header = batch.header
            if isinstance(header, Refused):
                continue
            if header.is_transactional is not (transactional_id is not None):
                raise Refused(
                    ErrorCode.INVALID_REQUEST,
                    "a batch is transactional and the request names no transactional_id: name it"
                    if header.is_transactional
                    else "the request names a transactional_id and a batch is not transactional, so the transaction "
                    "would not cover it: mark it, or send it without the id",
                )
            producer_ids.add(header.producer_id)
        if transactional_id is not None and len(producer_ids) > 1:
            raise Refused(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"one request carries transactional batches of {len(producer_ids)} producers; a transactional id has "
                "one",
            )

    def when_catalog_durable(self, results: list[ResultT]) -> Pending[list[ResultT]]:
        """Return the results. If one of them is an error, which may rest on the catalog, they wait until that is on
        disk."""
        if not any(result.error for result in results):
            return settled(results)
        return self._runtime.write(once_durable(CATALOG_KEY, results), is_urgent=True)


def _several_batches() -> Refused:
    return Refused(
        ErrorCode.INVALID_REQUEST, "the request has several batches for this partition, none was appended: send one"
    )


def _decide_checked(
    check: Pending[None], decide: Callable[[LogShard, Turn], Decision], shard: LogShard, turn: Turn
) -> Decision:
    check.result()
    return decide(shard, turn)


def _decide_without_room(
    disk: DiskGuard, decide: Callable[[LogShard, Turn], Decision], shard: LogShard, turn: Turn
) -> Decision:
    """Refuse a batch that would be appended. A duplicate is answered even without space, because its records are in the
    log. A fenced producer gets that error first."""
    decision = decide(shard, turn)
    if not decision.records or disk.refusal is None:
        return decision
    return Decision(joins=(*decision.joins, once_durable(shard.key, disk.refuse())))


def _refused_by_itself(_error: Exception) -> None:
    """Ignore the error: a payload that cannot be read refuses its own batch, and is reported there."""


def _in_order(
    groups: Iterable[Sequence[_Accepted]],
    refused: Mapping[int, ProduceResult],
    parts: Iterable[Sequence[ProduceResult]],
) -> list[ProduceResult]:
    """Return the results of all batches in the order of the request, from the earlier refusals and the results of each
    group."""
    by_index = dict(refused)
    for batches, results in zip(groups, parts, strict=True):
        by_index.update(zip((batch.index for batch in batches), results, strict=True))
    return [by_index[index] for index in range(len(by_index))]
