"""A readable topic: batches that a test laid down, and the part of them that readers see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1.common_pb2 import ISOLATION_LEVEL_READ_COMMITTED
from coordinator_client.encodings import BatchStamp, header_of, write_batch
from coordinator_client.values import Row
from coordinator_protocol.batch import BatchHeader, Compression, Encoding, batch_crc
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.marker import Marker, Outcome, encode_marker_payload
from coordinator_protocol.methods import Method
from tests.client.fake_server import refuse
from tests.client.world import Held, World
from tests.harness.compaction import arrow_payload, kafka_payload, records_payload

WRITER = 42


@dataclass
class FakePartition:
    """Batches in order; `hidden` are the base offsets of those that were aborted."""

    batches: list[log.RecordBatch] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)
    """Base offsets of batches that the server itself cannot read."""
    last_stable_offset: int | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list)
    """Leader epochs with their first offsets; none: this server knows of none."""

    def epoch_before(self, offset: int) -> int:
        return max(epoch for epoch, start in self.epochs if start < offset)

    def lose(self, offset: int, epoch: int) -> None:
        """Go on from an earlier offset, in another leader epoch."""
        self.batches = [batch for batch in self.batches if batch.base_offset < offset]
        self.epochs.append((epoch, offset))

    def diverging(self, epoch: int, offset: int) -> log.EpochEnd | None:
        """Return the point where the line of a reader left this one."""
        ends = [start for later, start in self.epochs if later > epoch]
        end = min([*ends, self.end])
        return log.EpochEnd(epoch=epoch, end_offset=end) if offset > end else None

    def diverging_from(self, asked: log.FetchPartition) -> log.EpochEnd | None:
        """Return the point where the line of the asking reader left this one."""
        read = asked.HasField("last_read_epoch") and self.diverging(asked.last_read_epoch, asked.fetch_offset)
        return read or (self.diverging(asked.end_epoch, asked.end_offset) if asked.HasField("end_epoch") else None)

    @property
    def end(self) -> int:
        return behind(self.batches[-1]) if self.batches else 0


def behind(batch: log.RecordBatch) -> int:
    """The offset behind a batch."""
    return batch.base_offset + batch.record_count + batch.hole_count


_PAYLOADS: Final[Mapping[Encoding, Callable[[list[tuple[int, log.Record]]], bytes]]] = {
    Encoding.RECORDS_V2: records_payload,
    Encoding.ARROW_V2: arrow_payload,
    Encoding.KAFKA_V2: kafka_payload,
}


class FakeLog:
    """One topic, "t", whose partitions a test fills and a reader fetches."""

    def __init__(self, world: World, *, partition_count: int = 2) -> None:
        world.server.topics["t"] = partition_count
        world.server.handle(Method.FETCH, self.fetch)
        self._world = world
        self._held: list[tuple[log.FetchRequest, Held]] = []
        world.server.handle(Method.LIST_OFFSETS, self.list_offsets)
        self.partitions = [FakePartition() for _ in range(partition_count)]
        self.batches_per_fetch = 2

    def append(
        self,
        partition: int,
        *values: bytes,
        encoding: Encoding = Encoding.RECORDS_V1,
        compression: Compression = Compression.NONE,
        is_aborted: bool = False,
    ) -> None:
        """Lay a batch of these values down."""
        rows: list[Row] = [(None, value, 1_000 + number, ()) for number, value in enumerate(values)]
        stamp = BatchStamp(producer_id=WRITER, producer_epoch=0, base_sequence=0, is_transactional=True)
        batch = log.RecordBatch()
        write_batch(batch, rows, encoding=encoding, compression=compression, stamp=stamp)
        self._add(partition, batch, is_hidden=is_aborted)

    def append_compacted(
        self,
        partition: int,
        values: Mapping[int, bytes],
        *,
        last_delta: int,
        encoding: Encoding = Encoding.RECORDS_V2,
    ) -> None:
        """Lay down what compaction left of a batch: values by their place in it."""
        records = [(delta, log.Record(value=value, timestamp_ms=1_000)) for delta, value in values.items()]
        payload = _PAYLOADS[encoding](records)
        batch = log.RecordBatch(
            record_count=len(values),
            hole_count=last_delta + 1 - len(values),
            encoding=log.Encoding.ValueType(encoding),
            payload=payload,
        )
        batch.crc32c = batch_crc(header_of(batch), batch.payload)
        self._add(partition, batch, is_hidden=False)

    def append_unreadable(self, partition: int, count: int = 1) -> None:
        """Lay down a batch with a wrong payload, which its writer did not check."""
        batch = log.RecordBatch(record_count=count, encoding=log.ENCODING_RECORDS_V1, payload=b"garbage")
        batch.crc32c = batch_crc(header_of(batch), batch.payload)
        self._add(partition, batch, is_hidden=False)

    def end_transaction(self, partition: int, *, committed: bool) -> None:
        """Lay a marker down."""
        outcome = Outcome.COMMIT if committed else Outcome.ABORT
        marker = Marker(
            producer_id=WRITER,
            txn_epoch=0,
            next_epoch=1,
            coordinator_shard=9,
            coordinator_epoch=1,
            outcome=outcome,
            csn=5,
        )
        header = BatchHeader(
            base_offset=0,
            record_count=1,
            base_timestamp_ms=2_000,
            max_timestamp_ms=2_000,
            producer_id=WRITER,
            producer_epoch=0,
            encoding=Encoding.CONTROL,
            is_transactional=True,
            is_control=True,
        )
        payload = encode_marker_payload(marker, 0)
        batch = log.RecordBatch(
            record_count=1,
            base_timestamp_ms=2_000,
            max_timestamp_ms=2_000,
            producer_id=WRITER,
            producer_epoch=0,
            base_sequence=-1,
            is_transactional=True,
            is_control=True,
            marker=log.ControlMarker(
                committed=committed, txn_epoch=0, next_epoch=1, coordinator_epoch=1, csn=5, coordinator_shard=9
            ),
            crc32c=batch_crc(header, payload),
            payload=payload,
        )
        self._add(partition, batch, is_hidden=True)

    def list_offsets(self, request: log.ListOffsetsRequest) -> log.ListOffsetsResponse:
        reply = log.ListOffsetsResponse()
        is_committed = request.isolation_level == ISOLATION_LEVEL_READ_COMMITTED
        for query in request.partitions:
            result = reply.results.add(topic=query.topic, partition=query.partition)
            why = self._world.server.why_gone("t", query.topic_id, query.partition)
            if why:
                refuse(result, Method.LIST_OFFSETS, why)
                continue
            result.topic_id = self._world.server.id_of("t")
            result.offset = 0 if query.timestamp_ms == -2 else self._visible_end(query.partition, is_committed)
        return reply

    def delete(self) -> None:
        """Delete the topic, under the fetches that wait."""
        self._world.server.delete_topic("t")
        self._answer_held()

    def make(self, partition_count: int) -> None:
        """Make the topic again: another one of the same name, with nothing in it."""
        self._world.server.topics["t"] = partition_count
        self.partitions = [FakePartition() for _ in range(partition_count)]

    def hold_fetches(self) -> None:
        """Answer fetches that find nothing after their wait, or when something comes."""
        self._world.server.handle(Method.FETCH, self._fetch_or_hold)

    def _fetch_or_hold(self, request: log.FetchRequest) -> log.FetchResponse | Held:
        reply = self.fetch(request)
        is_idle = all(
            not result.error_code and result.next_offset == asked.fetch_offset
            for asked, result in zip(request.partitions, reply.results, strict=True)
        )
        if not is_idle:
            return reply
        held = Held()
        self._held.append((request, held))
        self._world.call_after(request.max_wait_ms, lambda: held.give(self.fetch(request)))
        return held

    def fetch(self, request: log.FetchRequest) -> log.FetchResponse:
        reply = log.FetchResponse()
        is_committed = request.isolation_level == ISOLATION_LEVEL_READ_COMMITTED
        left = self.batches_per_fetch
        for asked in request.partitions:
            result = reply.results.add(topic=asked.topic, partition=asked.partition, next_offset=asked.fetch_offset)
            why = self._world.server.why_gone("t", asked.topic_id, asked.partition)
            if why:
                refuse(result, Method.FETCH, why)
                continue
            result.topic_id = self._world.server.id_of("t")
            partition = self.partitions[asked.partition]
            result.high_watermark = partition.end
            result.last_stable_offset = self._visible_end(asked.partition, True)
            diverging = partition.diverging_from(asked)
            if diverging is not None:
                refuse(result, Method.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE, "it went another way")
                result.diverging.CopyFrom(diverging)
                continue
            if asked.fetch_offset > partition.end:
                refuse(result, Method.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE, "beyond the end")
                continue
            end = self._visible_end(asked.partition, is_committed)
            bound = min(end, asked.end_offset) if asked.HasField("end_offset") else end
            for batch in partition.batches:
                after = behind(batch)
                if after <= asked.fetch_offset or batch.base_offset >= bound or not left:
                    continue
                if batch.base_offset in partition.damaged:
                    if result.next_offset == asked.fetch_offset:
                        refuse(result, Method.FETCH, ErrorCode.CORRUPT_MESSAGE, f"damaged at {batch.base_offset}")
                        result.next_offset = after
                    break
                is_hidden = batch.base_offset in partition.hidden and not request.raw
                if is_hidden and is_committed:
                    result.aborted_records_hidden += 0 if batch.is_control else batch.record_count
                    result.control_records_hidden += batch.is_control
                elif not batch.is_control or request.raw:
                    result.batches.append(batch)
                    left -= 1
                result.next_offset = after
            if partition.epochs and result.next_offset > asked.fetch_offset:
                result.last_read_epoch = partition.epoch_before(result.next_offset)
        return reply

    def _visible_end(self, partition: int, is_committed: bool) -> int:
        found = self.partitions[partition]
        return found.last_stable_offset if is_committed and found.last_stable_offset is not None else found.end

    def lay_down(self, number: int, batch: log.RecordBatch) -> None:
        """Lay this batch down, with the checksum that it has now."""
        batch.crc32c = batch_crc(header_of(batch), batch.payload)
        self._add(number, batch, is_hidden=False)

    def _add(self, number: int, batch: log.RecordBatch, *, is_hidden: bool) -> None:
        partition = self.partitions[number]
        batch.base_offset = partition.end
        if partition.epochs:
            batch.leader_epoch = partition.epochs[-1][0]
        partition.batches.append(batch)
        if is_hidden:
            partition.hidden.add(batch.base_offset)
        self._answer_held()

    def _answer_held(self) -> None:
        held, self._held = self._held, []
        for request, answer in held:
            answer.give(self.fetch(request))
