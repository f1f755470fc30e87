"""Fetches ahead for all partitions of a consumer. Each partition is in at most one request at a time. Fetched records
wait, within bounds, until poll hands them out.

Records that poll may not return now never take buffer space from others. They belong to partitions that are paused,
leaving or not yet announced, or lie past the offsets up to which the application polls. They stay as long as there is
space. Once the buffer is full and a fetch for returnable records is wanted, they are evicted, and fetched again when
they may be returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.calls import FETCH, Deadlines, RetryingCall
from coordinator_client.consumer.config import RESETS
from coordinator_client.consumer.context import ConsumerContext
from coordinator_client.consumer.owned import BufferedBatch, OwnedPartition
from coordinator_client.encodings import ENCODINGS_READ
from coordinator_client.errors import (
    PASSING,
    TOPIC_GONE,
    CorruptBatch,
    TransactionError,
    class_of,
    failure,
    misconfigured,
)
from coordinator_client.fetch_reply import FetchReply, PartitionReply
from coordinator_client.groups.backoff import BACKOFF_MS_FIRST, Backoff
from coordinator_client.settings import SKIP, isolation_level
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.limits import MEBI
from coordinator_protocol.methods import Method

FLIGHTS_MAX: Final = 4
"""Maximum requests in flight: partitions that wait for records must not delay those that have some."""

PARTITION_BUFFER_BYTES: Final = MEBI
"""Bytes of a partition waiting for poll at which fetching from it stops."""

NEVER: Final = RESETS[-1]

SEEK_BEHIND: Final = (
    "seek() behind it, to next_offset, to go on without these records; or make the consumer with "
    "on_corrupt_batch='skip'."
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A partition in a request, with its moves and the requested offset."""

    partition: OwnedPartition
    moves: int
    fetch_offset: int

    @property
    def is_current(self) -> bool:
        return self.partition.is_held and self.partition.moves == self.moves

    @property
    def is_expected(self) -> bool:
        """True if the answer continues at the end of the buffer; records may have been evicted since."""
        return self.is_current and self.partition.fetch_offset == self.fetch_offset


class ConsumerFetches:
    """Keeps the buffers of one consumer filled."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._flying: dict[int, Sequence[_Asked]] = {}
        """Partitions in each request in flight, by flight number, oldest first."""
        self._backoff = Backoff(context.random_source)

    def advance(self, now_ms: int) -> None:
        """Send a Fetch for the partitions that want one."""
        # A request that waits for the end of a pause would be outdated by then.
        wanted = self._wanted(now_ms) if now_ms >= self._paused_ms else []
        if not wanted:
            return
        if len(self._flying) >= FLIGHTS_MAX:
            # The oldest request has waited longest without records; its partitions go into the new one.
            oldest = next(iter(self._flying))
            self._context.flights.cancel(oldest)
            self._free(self._flying.pop(oldest))
            wanted = self._wanted(now_ms)
        asked = [_Asked(partition, partition.moves, partition.fetch_offset) for partition in wanted]
        for partition in wanted:
            partition.is_asking = True
        config = self._context.config
        wait_ms = config.request_timeout_ms + config.fetch_wait_ms
        call = RetryingCall(
            FETCH, self._request(wanted), deadlines=Deadlines(total_ms=wait_ms, attempt_ms=wait_ms), now_ms=now_ms
        )
        number = self._context.flights.start(call, lambda end, at_ms: self._ended(number, end, at_ms))
        self._flying[number] = asked

    def wake_ms(self) -> int | None:
        """Return the time at which a partition may be fetched again after a failure or a pause. If the buffer is full
        of records that poll may return, the next poll continues instead."""
        paused_ms = self._paused_ms
        return min((max(partition.retry_at_ms, paused_ms) for partition in self._wanting()), default=None)

    @property
    def _paused_ms(self) -> int:
        """End of the server's pause for Fetch (ms)."""
        return self._context.flights.throttle.until_ms(Method.FETCH)

    def _wanted(self, now_ms: int) -> list[OwnedPartition]:
        """Return the partitions to fetch from now, and free buffer space for them."""
        assignment = self._context.assignment
        wanted = [partition for partition in self._wanting() if partition.retry_at_ms <= now_ms]
        if wanted:
            assignment.make_room(self._context.config.buffer_bytes)
        # The first partitions may use up the bytes of the answer.
        return sorted(wanted, key=lambda partition: not assignment.is_open(partition))

    def _wanting(self) -> list[OwnedPartition]:
        """Return the partitions for which there is buffer space. Until the buffer is full, these are all that can be
        fetched ahead. After that, they are those whose records poll may return, if others can be evicted."""
        assignment, bytes_max = self._context.assignment, self._context.config.buffer_bytes
        wanting = [partition for partition in assignment if self._wants(partition)]
        if not wanting or assignment.buffered_bytes < bytes_max:
            return wanting
        if not assignment.can_make_room(bytes_max):
            return []
        return [partition for partition in wanting if assignment.is_open(partition)]

    def _wants(self, partition: OwnedPartition) -> bool:
        return (
            partition.position is not None
            and partition.is_idle
            and not partition.is_paused
            and partition.buffered_bytes < PARTITION_BUFFER_BYTES
            and (not partition.is_evicted or self._context.assignment.is_open(partition))
        )

    def _request(self, partitions: Sequence[OwnedPartition]) -> log.FetchRequest:
        config = self._context.config
        request = log.FetchRequest(
            header=self._context.header(),
            isolation_level=isolation_level(config.isolation),
            max_wait_ms=config.fetch_wait_ms,
            max_bytes=config.fetch_bytes,
            accepted_encodings=ENCODINGS_READ,
        )
        for partition in partitions:
            request.partitions.add(
                topic=partition.name.topic,
                topic_id=partition.topic_id,
                partition=partition.name.partition,
                fetch_offset=partition.fetch_offset,
                last_read_epoch=partition.fetch_epoch,
            )
        return request

    def _free(self, asked: Sequence[_Asked]) -> None:
        for each in asked:
            if each.is_current:
                each.partition.is_asking = False

    def _ended(self, number: int, end: FetchReply | TransactionError, now_ms: int) -> None:
        asked = self._flying.pop(number)
        self._free(asked)
        if isinstance(end, FetchReply):
            self._backoff.reset()
            if len(end.results) == len(asked):
                for each, result in zip(asked, end.results, strict=True):
                    if each.is_expected:
                        self._take(each.partition, result, now_ms)
                return
            answered = f"Fetch: {len(asked)} partitions were asked for and {len(end.results)} answered"
            end = misconfigured(ErrorCode.UNSUPPORTED_VERSION, answered)
        pause_ms = self._backoff.next_ms()
        for each in asked:
            if each.is_current:
                each.partition.retry_at_ms = now_ms + pause_ms
                each.partition.problem = None if end.error_class in PASSING else end

    def _take(self, partition: OwnedPartition, result: PartitionReply, now_ms: int) -> None:
        what = class_of(Method.FETCH, result.fields)
        if what is not ErrorClass.NONE:
            self._refused(partition, result, what, now_ms)
            return
        self._context.accepted(Method.FETCH, partition)
        self._context.found(partition)
        partition.is_evicted = False
        partition.topic_id = partition.topic_id or result.fields.topic_id
        for batch in result.batches:
            fields = batch.fields
            end_offset = fields.base_offset + fields.record_count + fields.hole_count
            first = max(fields.base_offset, partition.fetch_offset)
            if first < end_offset:
                # The batch may wait long, and must not keep the rest of the answer in memory.
                epoch = fields.leader_epoch if fields.HasField("leader_epoch") else None
                partition.buffer.append(BufferedBatch(batch.kept(), first, end_offset, end_offset, epoch, epoch))
                partition.fetch_offset, partition.fetch_epoch = end_offset, epoch
        end = result.fields
        epoch = end.last_read_epoch if end.HasField("last_read_epoch") else partition.fetch_epoch
        partition.go_on_at(end.next_offset, epoch)

    def _refused(self, partition: OwnedPartition, result: PartitionReply, what: ErrorClass, now_ms: int) -> None:
        reset = self._context.config.auto_offset_reset
        topic, number = partition.name
        place = f"{topic}-{number} at offset {partition.fetch_offset}"
        fields = result.fields
        error = failure(fields.error_code, what, f"{Method.FETCH} {place}: {fields.error_message}")
        if fields.HasField("diverging") and partition.is_in_hands:
            # The right position depends on the records that the application has: its next call reports them.
            partition.retry_at_ms = now_ms + BACKOFF_MS_FIRST
            return
        if fields.HasField("diverging") and reset != NEVER:
            # Whatever the policy, Kafka's consumer also goes back to the offset at which the logs diverged (KIP-320).
            # From there on everything is new to it.
            epoch = fields.diverging.epoch
            partition.go_back(fields.diverging.end_offset, epoch if epoch >= 0 else None)
            return
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE and reset != NEVER:
            partition.look_up(reset)
            return
        if error.code == ErrorCode.CORRUPT_MESSAGE and fields.next_offset > partition.fetch_offset:
            self._corrupt(partition, error, fields.next_offset)
            return
        partition.retry_at_ms = now_ms + BACKOFF_MS_FIRST
        self._context.refused(Method.FETCH, partition, error, now_ms)
        if what in PASSING:
            return
        if error.code in TOPIC_GONE:
            self._context.gone(partition, error, now_ms)
            return
        if fields.HasField("diverging"):
            error.action = (
                f"Undo what was made of the records from offset {fields.diverging.end_offset} on, then seek() there;"
                " or set auto_offset_reset to earliest or latest, to go back there without being asked."
            )
        elif error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            error.action = "seek() to an offset that exists, or set auto_offset_reset to earliest or latest."
        partition.problem = error

    def _corrupt(self, partition: OwnedPartition, why: TransactionError, next_offset: int) -> None:
        """Note that nothing can be read from the fetch offset up to `next_offset`. Poll raises that once it has handed
        out the records fetched before."""
        topic, number = partition.name
        error = CorruptBatch(
            why.code,
            why.reason,
            topic=topic,
            partition=number,
            offset=partition.fetch_offset,
            next_offset=next_offset,
        )
        if self._context.config.on_corrupt_batch == SKIP:
            self._context.skipped.add(error)
            # The leader epoch of the last corrupt record is unknown.
            partition.go_on_at(next_offset, None)
            return
        error.action = SEEK_BEHIND
        partition.problem = error
