"""Produce: every batch of a request is appended or refused by itself.

A transactional batch and the membership of its partition in the transaction are one operation: the coordinator is asked
inside it, so nothing can come in between and no record can be left in a transaction that nobody ends (KIP-890). A plain
batch, which is in none, must come from no producer at all or from one without a transactional id: a partition may never
have heard that a producer is fenced, and only in a transaction is the coordinator asked.

Source: spec log-and-runtime 1.2 to 1.4; spec transactions 2.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from msgspec import Struct

from coordinator_protocol.batch import NO_PRODUCER_ID, BatchHeader, OffsetlessBatch
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.names import check_transactional_id
from coordinator_protocol.producer_ids import is_plain
from coordinator_runtime.checks import write_checked
from coordinator_runtime.decision import (
    CATALOG_KEY,
    CheckInTheWay,
    Decision,
    Operation,
    ProducerInTheWay,
    TransactionInTheWay,
    Turn,
    once_durable,
)
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import CallContext, Membership, PartitionName, TransactionVerifier
from coordinator_runtime.runtime import Runtime
from partition_log.batch_checks import BatchChecks
from partition_log.catalog.state import PlacedPartition
from partition_log.requests import ProduceRequest, ProduceResult
from partition_log.shard import Append, Appended, LogShard
from partition_log.state import NO_OFFSET

Place = Callable[[PartitionName], PlacedPartition]
"""Finds a partition that the caller may write. Raises Refused."""


class _Placed(Struct, frozen=True):
    """A batch that is good in itself, and where it goes."""

    placed: PlacedPartition
    header: BatchHeader
    offsetless: OffsetlessBatch
    check: Pending[None] | None = None
    """Of its payload, while that is under way; its error is the batch's refusal."""


class Appender:
    """Appends batches of clients."""

    def __init__(self, runtime: Runtime, verifier: TransactionVerifier, checks: BatchChecks) -> None:
        self._runtime = runtime
        self._verifier = verifier
        self._checks = checks

    def produce(self, request: ProduceRequest, context: CallContext, *, place: Place) -> Pending[list[ProduceResult]]:
        """One result per item, in the order sent, once everything that they rest on is durable.

        Raises Refused for the whole request, nothing appended: INVALID_REQUEST (transactional batches without an id, or
        others with one), INVALID_PRODUCER_ID_MAPPING (transactional batches of several producers)."""
        _check_transaction(request)
        found: list[PlacedPartition | Refused] = []
        for item in request.items:
            try:
                found.append(place(item.name))
            except Refused as refusal:
                found.append(refusal)
        named_twice = _named_twice(found) if len(found) > 1 else frozenset()
        good: list[_Placed] = []
        results: list[Pending[ProduceResult] | None] = []
        for item, placed in zip(request.items, found, strict=True):
            if isinstance(placed, Refused):
                refused = self._runtime.write(once_durable(CATALOG_KEY, placed), is_urgent=True)
                results.append(_held(refused, item.name))
                continue
            try:
                if placed.ref.ordinal in named_twice:
                    raise _several_batches()
                header = item.header
                if isinstance(header, Refused):
                    raise header
                offsetless, check = self._checks.take(
                    header, item.payload, crc=item.crc, validates_payload=placed.validates_payload
                )
                good.append(_Placed(placed, header, offsetless, check))
                results.append(None)
            except Refused as refusal:
                results.append(settled(ProduceResult(_name_of(placed), error=refusal)))
        written = self._write_in_order(good, request.transactional_id, context)
        if len(good) == len(results):
            return written
        return all_of([written, all_of([result for result in results if result is not None])]).map(
            lambda parts: _in_order(results, *parts)
        )

    def _write_in_order(
        self, batches: Sequence[_Placed], transactional_id: str | None, context: CallContext
    ) -> Pending[list[ProduceResult]]:
        """One operation for each producer, which nothing overtakes that the same producer sends later."""
        if not batches:
            return settled([])
        if transactional_id is not None:
            return self._write(batches, transactional_id, context, TransactionInTheWay(transactional_id))
        producers = dict.fromkeys([batch.header.producer_id for batch in batches])
        if len(producers) == 1:
            return self._write(batches, None, context, self._queue_of(batches))
        by_producer = [[batch for batch in batches if batch.header.producer_id == producer] for producer in producers]
        parts = all_of([self._write(those, None, context, self._queue_of(those)) for those in by_producer])

        def in_order(results: list[list[ProduceResult]]) -> list[ProduceResult]:
            each = {producer: iter(those) for producer, those in zip(producers, results, strict=True)}
            return [next(each[batch.header.producer_id]) for batch in batches]

        return parts.map(in_order)

    def _queue_of(self, batches: Sequence[_Placed]) -> Hashable | None:
        """Where batches of one producer outside of a transaction wait for their check, or behind others; None: nothing
        is in their way. Batches of no producer have no order that anybody could rely on."""
        producer_id = batches[0].header.producer_id
        key = ProducerInTheWay(producer_id)
        is_checked = all(batch.check is None for batch in batches)
        if is_checked and (producer_id == NO_PRODUCER_ID or not self._runtime.has_parked(key)):
            return None
        return key if producer_id != NO_PRODUCER_ID else CheckInTheWay(id(batches))

    def _write(
        self,
        batches: Sequence[_Placed],
        transactional_id: str | None,
        context: CallContext,
        park_key: Hashable | None,
    ) -> Pending[list[ProduceResult]]:
        """One operation for all of them, in which each is appended or refused by itself."""
        # Whoever serves can say that another shard does not.
        served = [batch.placed for batch in batches if self._runtime.table.is_serving(batch.placed.shard)]
        newcomers = frozenset([placed.ref.ordinal for placed in served])
        attempts = tuple([self._attempt(batch, transactional_id, newcomers, context) for batch in batches])
        together = Operation(
            served[0].shard if served else batches[0].placed.shard,
            lambda _shard, _turn: Decision(attempts=attempts, combine=list),
        )
        under_way = [batch.check.recover(_refused_by_itself) for batch in batches if batch.check is not None]
        check = all_of(under_way) if under_way else None
        written: Pending[list[Appended | CoordinatorError]] = write_checked(
            self._runtime, together, context, check=check, park_key=park_key
        )
        return written.recover(lambda error: [_known(error)] * len(batches)).map(
            lambda replies: [self._result(batch.placed, reply) for batch, reply in zip(batches, replies, strict=True)]
        )

    def _attempt(
        self, batch: _Placed, transactional_id: str | None, newcomers: frozenset[int], context: CallContext
    ) -> Operation:
        """Appends one batch. `newcomers`: the partitions of the request that serve as it arrives. The first that is not
        in the transaction takes all of them into it, because that is one record of the coordinator and not one for
        each. Its own partition is always among them: the call may wait, and be carried out when that serves again."""
        placed, header = batch.placed, batch.header
        ordinal = placed.ref.ordinal
        if ordinal not in newcomers:
            newcomers |= {ordinal}
        admission: Callable[[], Operation] | None = None
        if transactional_id is not None:
            membership = Membership(transactional_id, header.producer_id, header.producer_epoch)
            if context.client_txn_version == 1:
                admission = partial(self._verifier.verify, membership, ordinal)
            else:
                admission = partial(self._verifier.add, membership, newcomers)
        elif header.producer_id != NO_PRODUCER_ID and not is_plain(header.producer_id):
            admission = partial(self._verifier.check_plain, header.producer_id)
        append = Append(ordinal, header, batch.offsetless, admission)
        return Operation(placed.shard, partial(_decide, append, batch.check))

    def _result(self, placed: PlacedPartition, reply: Appended | CoordinatorError) -> ProduceResult:
        name = _name_of(placed)
        if isinstance(reply, Appended):
            return ProduceResult(name, reply.base_offset, reply.log_start_offset, reply.is_duplicate)
        return _refused(name, reply, partial(self._log_start_offset, placed))

    def _log_start_offset(self, placed: PlacedPartition) -> int:
        shard: LogShard | None = self._runtime.table.find(placed.shard)
        head = None if shard is None else shard.durable_head(placed.ref.ordinal)
        return 0 if head is None else head.log_start_offset


def _check_transaction(request: ProduceRequest) -> None:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        check_transactional_id(transactional_id)
    producer_ids = set()
    for item in request.items:
        header = item.header
        if isinstance(header, Refused):
            continue
        if header.is_transactional is not (transactional_id is not None):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "a batch is transactional and the request names no transactional_id: name it"
                if header.is_transactional
                else "the request names a transactional_id and a batch is not transactional, so the transaction would "
                "not cover it: mark it, or send it without the id",
            )
        producer_ids.add(header.producer_id)
    if transactional_id is not None and len(producer_ids) > 1:
        raise Refused(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"one request carries transactional batches of {len(producer_ids)} producers; a transactional id has one",
        )


def _decide(append: Append, check: Pending[None] | None, shard: LogShard, turn: Turn) -> Decision:
    if check is not None:
        check.result()
    return shard.decide_append(append, turn)


def _held(refused: Pending[ProduceResult], name: PartitionName) -> Pending[ProduceResult]:
    return refused.recover(lambda error: ProduceResult(name, error=_known(error)))


def _refused_by_itself(_error: Exception) -> None:
    """A payload that cannot be read is its own batch's affair, and is told there."""


def _known(error: Exception) -> CoordinatorError:
    """The error as part of a result. A defect stays the error of the reply; the dispatcher logs it."""
    if not isinstance(error, CoordinatorError):
        raise error
    return error


def _in_order(
    results: Sequence[Pending[ProduceResult] | None], written: Sequence[ProduceResult], others: Sequence[ProduceResult]
) -> list[ProduceResult]:
    """The results of all items: None stands for the next one that was written."""
    next_written, next_other = iter(written), iter(others)
    return [next(next_written if result is None else next_other) for result in results]


def _refused(name: PartitionName, error: CoordinatorError, log_start_offset: Callable[[], int] | None) -> ProduceResult:
    if error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return ProduceResult(name, base_offset=NO_OFFSET, is_duplicate=True, error=error)
    if error.code is ErrorCode.UNKNOWN_PRODUCER_ID and log_start_offset is not None:
        return ProduceResult(name, log_start_offset=log_start_offset(), error=error)
    return ProduceResult(name, error=error)


def _name_of(placed: PlacedPartition) -> PartitionName:
    ref = placed.ref
    return PartitionName(ref.topic, ref.topic_id, ref.partition)


def _named_twice(found: Sequence[PlacedPartition | Refused]) -> frozenset[int]:
    """Ordinals that several items of a request stand for, by name or by id."""
    ordinals = [placed.ref.ordinal for placed in found if isinstance(placed, PlacedPartition)]
    if len(set(ordinals)) == len(ordinals):
        return frozenset()
    return frozenset(ordinal for ordinal, times in Counter(ordinals).items() if times > 1)


def _several_batches() -> Refused:
    return Refused(
        ErrorCode.INVALID_REQUEST, "the request has several batches for this partition, none was appended: send one"
    )
