"""Sender of batches: it fills the requests, and processes each batch's result.

A request holds one batch for each of several partitions, and each is accepted or refused individually. Batches that
must be retried go unchanged into a smaller request; the server recognises them by producer and sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import share_pb2 as share
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.calls import (
    DESCRIBE_TOPICS,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    TXN_SHARE_ACKNOWLEDGE,
    Deadlines,
    RetryingCall,
)
from coordinator_client.consumer.commits import fill_topics
from coordinator_client.errors import PASSING, TransactionError, class_of, failure, misconfigured
from coordinator_client.flights import Flights
from coordinator_client.producer.batching import Accumulator, BatchFormat, SealedBatch
from coordinator_client.random_source import RandomSource
from coordinator_client.share.acknowledgements import fill
from coordinator_client.values import (
    NO_GENERATION,
    Identity,
    TopicPartitionCount,
    TransactionAcknowledgements,
    TransactionOffsets,
)
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method

REQUESTS_IN_FLIGHT_MAX: Final = 5

_ProduceCall = RetryingCall[log.ProduceRequest, log.ProduceResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorePlan:
    """Settings of one producer, checked and complete."""

    transactional_id: str | None
    """Transactional id; None = a plain idempotent producer."""
    transaction_timeout_ms: int
    two_phase_commit: bool
    """True if transactions wait for an outside decision, without a timeout."""
    client_id: str
    batch_format: BatchFormat
    deadlines: Deadlines
    buffer_bytes_max: int
    """Number of waiting bytes at which a shell sends before it takes more."""
    metadata_max_age_ms: int
    """Age at which the known topics are looked up again, because they may have more partitions (ms)."""
    transact_bytes: int
    """Maximum size of a transaction that is sent as one Transact (bytes); 0 = never."""


class Sender:
    """Sends the batches of one producer. Permanent failures are passed to `on_failed`: the error and its batch, None
    for offsets."""

    def __init__(
        self,
        plan: CorePlan,
        *,
        flights: Flights,
        random_source: RandomSource,
        on_failed: Callable[[TransactionError, SealedBatch | None], None],
    ) -> None:
        self.waiting = Accumulator(plan.batch_format)
        self.offsets: deque[TransactionOffsets] = deque()
        """Offsets of consumers that commit with the transaction and were not sent yet."""
        self.acknowledgements: deque[TransactionAcknowledgements] = deque()
        """Records of share consumers that the transaction acknowledges and that were not sent yet."""
        self.transacted: list[SealedBatch] = []
        """Batches of the last Transact, in its order."""
        self.traceparent = ""
        """Context of the trace of the open transaction; empty = it is not traced."""
        self.requests_in_flight = 0
        self.refresh_ms: int | None = None
        """Time of the next lookup of the known topics; None if no topic is known yet."""
        self.refresh_flight: int | None = None
        """Flight number of the last such lookup, for which no caller waits."""
        self._plan = plan
        self._flights = flights
        self._random_source = random_source
        self._on_failed = on_failed

    @property
    def is_drained(self) -> bool:
        """True if every cut batch, all offsets and all acknowledgements are answered."""
        return not self.requests_in_flight and not self.has_ready

    @property
    def makes_no_room(self) -> bool:
        """True if no answer is awaited that would free buffer space. Everything that waits is in open batches, or is
        offsets, which may wait for the commit."""
        return not self.requests_in_flight and not self.waiting.ready

    @property
    def fits_one_request(self) -> bool:
        """True if everything that was not sent can go with the commit, in one Transact. All batches must be cut."""
        bytes_max = self._plan.transact_bytes
        if bytes_max <= 0 or not self.waiting.fits_one_request(bytes_max):
            return False
        groups = [
            *(each.metadata.group_id for each in self.offsets),
            *(each.group_id for each in self.acknowledgements),
        ]
        return len(set(groups)) == len(groups)

    @property
    def has_ready(self) -> bool:
        """True if there is something to send."""
        return bool(self.waiting.ready or self.offsets or self.acknowledgements)

    def send_ready(self, identity: Identity, now_ms: int) -> None:
        """Send the offsets and acknowledgements, and as many batches as may be in flight."""
        while self.offsets:
            self._send_offsets(self.offsets.popleft(), identity, now_ms)
        while self.acknowledgements:
            self._send_acknowledgements(self.acknowledgements.popleft(), identity, now_ms)
        while self.waiting.ready and self.requests_in_flight < REQUESTS_IN_FLIGHT_MAX:
            request = self._request(())
            batches = self.waiting.take(identity, request.batches)
            call: _ProduceCall = RetryingCall(PRODUCE, request, deadlines=self._plan.deadlines, now_ms=now_ms)
            self._fly(call, batches)

    def transact(self, identity: Identity) -> txn.TransactRequest:
        """Return everything that waits as one Transact. Call `drop` once it is answered."""
        assert self._plan.transactional_id is not None, "only transactions are committed"
        # Fields are set one by one: keyword arguments take twice as long.
        request = txn.TransactRequest()
        header = request.header
        header.client_id, header.request_id = self._plan.client_id, self._random_source.request_id()
        if self.traceparent:
            header.traceparent = self.traceparent
        request.transactional_id = self._plan.transactional_id
        request.producer_id, request.producer_epoch = identity
        request.committed = True
        self.transacted = self.waiting.take(identity, request.batches)
        while self.offsets:
            fill_offsets(request.groups.add(), self.offsets.popleft())
        while self.acknowledgements:
            fill_acknowledgements(request.shares.add(), self.acknowledgements.popleft())
        return request

    def note_offsets(self, reply: txn.TransactResponse) -> None:
        """Note the places of the batches of the last Transact. The answer has the place of a partition's first record
        in the transaction, which is not in the batch if earlier ones were sent."""
        for batch, result in zip(self.transacted, reply.results, strict=False):
            if batch.base_sequence == 0:
                batch.place.base_offset = result.first_offset
        self.transacted = []

    def describe(self, topic: str, on_end: Callable[[TransactionError | None], None], now_ms: int) -> None:
        """Look up the partitions of a topic, and take records for it once they are known; `on_end` is then called."""
        header = RequestHeader(client_id=self._plan.client_id)
        call = RetryingCall(
            DESCRIBE_TOPICS,
            log.DescribeTopicsRequest(header=header, topics=[log.TopicName(name=topic)]),
            deadlines=self._plan.deadlines,
            now_ms=now_ms,
            items=lambda reply: reply.topics,
        )

        def ended(end: log.DescribeTopicsResponse | TransactionError, _: int) -> None:
            if isinstance(end, TransactionError):
                on_end(end)
                return
            (found,) = end.topics
            self._learn(found, first=self._random_source.fraction())
            if self.refresh_ms is None:
                self.refresh_ms = now_ms + self._plan.metadata_max_age_ms
            on_end(None)

        self._flights.start(call, ended)

    def refresh(self, now_ms: int) -> None:
        """Look up all known topics again in the background, because they may have more partitions.

        A failed lookup is repeated later. A deleted topic is noticed by its next batch. A recreated topic is forgotten,
        so that the next record goes to the new topic and is not refused for having the old id.
        """
        self.refresh_ms = now_ms + self._plan.metadata_max_age_ms
        names = [log.TopicName(name=topic) for topic in self.waiting.writers]
        request = log.DescribeTopicsRequest(header=RequestHeader(client_id=self._plan.client_id), topics=names)
        once = replace(self._plan.deadlines, attempts_max=1)
        call = RetryingCall(DESCRIBE_TOPICS, request, deadlines=once, now_ms=now_ms)

        def ended(end: log.DescribeTopicsResponse | TransactionError, _: int) -> None:
            for found in () if isinstance(end, TransactionError) else end.topics:
                known = self.waiting.writers.get(found.name)
                if found.error_code or known is None:
                    continue
                if known.topic.topic_id == found.topic_id:
                    self._learn(found, first=0)
                else:
                    self.waiting.forget(found.name)

        if names:
            self.refresh_flight = self._flights.start(call, ended)

    def _learn(self, found: log.TopicDescription, *, first: float) -> None:
        count = TopicPartitionCount(name=found.name, topic_id=found.topic_id, partition_count=len(found.partitions))
        self.waiting.learn(count, first=first)

    def drop(self) -> None:
        """Forget all records and requests; the flights must be cancelled as well."""
        self.waiting.drop()
        self.offsets.clear()
        self.acknowledgements.clear()
        self.requests_in_flight = 0

    def _fly(self, call: _ProduceCall, batches: Sequence[SealedBatch]) -> None:
        self.requests_in_flight += 1
        self._flights.start(call, lambda end, now_ms: self._ended(call, batches, end, now_ms))

    def _send_offsets(self, offsets: TransactionOffsets, identity: Identity, now_ms: int) -> None:
        request = txn_offset_commit_request(self._plan, self.header(), identity, offsets)
        call = RetryingCall(
            TXN_OFFSET_COMMIT,
            request,
            deadlines=self._plan.deadlines,
            now_ms=now_ms,
            items=lambda reply: reply.results,
        )

        def ended(end: group.TxnOffsetCommitResponse | TransactionError, _: int) -> None:
            self.requests_in_flight -= 1
            if isinstance(end, TransactionError):
                self._on_failed(end, None)

        self.requests_in_flight += 1
        self._flights.start(call, ended)

    def _send_acknowledgements(self, acks: TransactionAcknowledgements, identity: Identity, now_ms: int) -> None:
        request = txn_share_acknowledge_request(self._plan, self.header(), identity, acks)
        call = RetryingCall(TXN_SHARE_ACKNOWLEDGE, request, deadlines=self._plan.deadlines, now_ms=now_ms)

        def ended(end: share.TxnShareAcknowledgeResponse | TransactionError, _: int) -> None:
            self.requests_in_flight -= 1
            if isinstance(end, TransactionError):
                self._on_failed(end, None)

        self.requests_in_flight += 1
        self._flights.start(call, ended)

    def header(self) -> RequestHeader:
        """Return the header of a new request."""
        header = RequestHeader(client_id=self._plan.client_id, request_id=self._random_source.request_id())
        if self.traceparent:
            header.traceparent = self.traceparent
        return header

    def _request(self, batches: Sequence[SealedBatch]) -> log.ProduceRequest:
        request = log.ProduceRequest(
            header=self.header(),
            transactional_id=self._plan.transactional_id,
        )
        for batch in batches:
            request.batches.append(batch.message)
        return request

    def _ended(
        self,
        call: _ProduceCall,
        batches: Sequence[SealedBatch],
        end: log.ProduceResponse | TransactionError,
        now_ms: int,
    ) -> None:
        self.requests_in_flight -= 1
        if isinstance(end, log.ProduceResponse):
            if len(end.results) == len(batches):
                self._fail(self._sort(call, batches, end, now_ms), call)
                return
            answered = f"Produce: {len(batches)} batches were sent and {len(end.results)} answered"
            end = misconfigured(ErrorCode.UNSUPPORTED_VERSION, answered)
        self._fail([(batch, end) for batch in batches], call)

    def _sort(
        self, call: _ProduceCall, batches: Sequence[SealedBatch], reply: log.ProduceResponse, now_ms: int
    ) -> list[tuple[SealedBatch, TransactionError]]:
        """Forget the batches that are in the log, resend those that must be retried, and return the permanently failed
        ones."""
        again: list[SealedBatch] = []
        failed: list[tuple[SealedBatch, TransactionError]] = []
        cause: log.ProduceResult | None = None
        for batch, result in zip(batches, reply.results, strict=True):
            what = class_of(Method.PRODUCE, result)
            if what is ErrorClass.NONE:
                batch.place.base_offset = result.base_offset
                self.waiting.settle(batch)
            elif what in PASSING:
                again.append(batch)
                cause = cause or result
            else:
                place = f"{batch.queue.topic.name}-{batch.queue.partition}"
                reason = f"{Method.PRODUCE} {place}: {result.error_message or 'the server gave no reason'}"
                failed.append((batch, failure(result.error_code, what, reason)))
        if cause is not None:
            jitter = self._random_source.fraction()
            pause_ms = reply.throttle_ms
            error = call.repeat(self._request(again), cause, now_ms=now_ms, jitter=jitter, throttle_ms=pause_ms)
            if error is None:
                self._fly(call, again)
            else:
                failed += [(batch, error) for batch in again]
        return failed

    def _fail(self, failed: Sequence[tuple[SealedBatch, TransactionError]], call: _ProduceCall) -> None:
        # All batches are settled before the first is reported: a report may end the transaction and drop everything.
        for batch, _ in failed:
            self.waiting.settle(batch)
        for batch, error in failed:
            error.lost_attempts = call.lost
            self._on_failed(error, batch)


def txn_offset_commit_request(
    plan: CorePlan, header: RequestHeader, identity: Identity, offsets: TransactionOffsets
) -> group.TxnOffsetCommitRequest:
    """Return the request that adds a consumer's offsets to the open transaction."""
    assert plan.transactional_id is not None, "only transactions take offsets"
    request = group.TxnOffsetCommitRequest(
        header=header,
        transactional_id=plan.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )
    fill_offsets(request, offsets)
    return request


def txn_share_acknowledge_request(
    plan: CorePlan, header: RequestHeader, identity: Identity, acks: TransactionAcknowledgements
) -> share.TxnShareAcknowledgeRequest:
    """Return the request that acknowledges records of a share group in the open transaction."""
    assert plan.transactional_id is not None, "only transactions take acknowledgements"
    request = share.TxnShareAcknowledgeRequest(
        header=header,
        transactional_id=plan.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )
    fill_acknowledgements(request, acks)
    return request


def fill_acknowledgements(
    request: share.TxnShareAcknowledgeRequest | txn.TransactShares, acks: TransactionAcknowledgements
) -> None:
    """Fill in the acknowledgements, and the member that gives them."""
    request.group_id, request.member_id, request.member_epoch = acks.group_id, acks.member_id, acks.member_epoch
    for name, types in acks.types.items():
        topic_id = acks.topic_ids[name]
        fill(request.partitions.add(topic=name.topic, topic_id=topic_id, partition=name.partition), types)


def fill_offsets(request: group.TxnOffsetCommitRequest | txn.TransactOffsets, offsets: TransactionOffsets) -> None:
    """Fill in the offsets, and the member that commits them."""
    member = offsets.metadata
    request.group_id, request.member_id = member.group_id, member.member_id
    if member.generation != NO_GENERATION:
        request.generation_id_or_member_epoch = member.generation
    if member.group_instance_id is not None:
        request.group_instance_id = member.group_instance_id
    fill_topics(request.topics, offsets.offsets, offsets.topic_ids)
