"""Partitions of a consumer: their positions, and the fetched records that were not handed out yet.

A partition is *held* from its assignment until it is dropped. It is *leaving* while it is being revoked: then it hands
out no more records, but offsets of those handed out may still be committed. A dropped partition never comes back. One
that is assigned again is a new object, so that no old answer can be mistaken for its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator_client.encodings import checked_batch
from coordinator_client.errors import rejected
from coordinator_client.fetch_reply import WireBatch
from coordinator_client.reading.reader import ReadRecord
from coordinator_client.values import OffsetAndMetadata, Row, TopicPartition
from coordinator_protocol.errors import ErrorCode


@dataclass(slots=True, eq=False)
class BufferedBatch:
    """A fetched batch, and how much of it was handed out."""

    message: WireBatch
    next_offset: int
    """Offset of the first record that was not handed out."""
    end_offset: int
    """Next offset after the batch."""
    after: int
    """Position of the partition once all of the batch was handed out; lies after hidden records too."""
    epoch: int | None
    """Leader epoch of the batch; None if the server did not say."""
    epoch_after: int | None
    """Leader epoch of the last offset before `after`."""
    placed: tuple[Sequence[int], list[Row]] | None = None
    """Offsets of the records, and the records. Decoded when the first of them is needed, in the thread that needs
    it."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the buffer that the batch takes."""
        return len(self.message.payload)


@dataclass(slots=True, eq=False)
class OwnedPartition:
    """One partition of this consumer."""

    name: TopicPartition
    topic_id: bytes
    """Id of the topic; empty if unknown. Once it is known, only the topic with this id is read, never a later one of
    the same name."""
    is_held: bool = True
    is_leaving: bool = False
    is_announced: bool = True
    """True if the listener was called for it; until then no records are handed out."""
    is_paused: bool = False
    position: int | None = None
    """Offset of the next record to hand out; None until it was looked up."""
    reset: str | None = None
    """Source for the lookup of the position: `earliest`, `latest`, or None = the committed offset."""
    retry_at_ms: int = 0
    """Time before which nothing is requested for it, because it waits after a temporary failure."""
    problem: Exception | None = None
    """Reason why the partition cannot continue; the next poll raises it."""
    is_gone: bool = False
    """True if the server said that the topic does not exist, or has another id by now."""
    is_remade: bool = False
    """True if another topic was seen under the same name."""
    committed: OffsetAndMetadata | None = None
    """Committed offset, as far as this consumer knows."""
    moves: int = 0
    """Counter of position changes from outside, by which results for an old position are recognised."""
    epoch: int | None = None
    """Leader epoch of the last offset before the position; None = not known."""
    fetch_offset: int = 0
    fetch_epoch: int | None = None
    """Leader epoch of the last offset before `fetch_offset`; None = not known."""
    is_asking: bool = False
    """True if a request for the partition is in flight."""
    empty_to: int = 0
    """Offset before which there is nothing to hand out, according to records that were evicted."""
    handed_to: int = 0
    """Offset before which the application may already have the records; its next call decides."""
    is_evicted: bool = False
    """True if records were evicted and not fetched again, which waits until poll may return them."""
    buffer: deque[BufferedBatch] = field(default_factory=deque)

    @property
    def hands_out(self) -> bool:
        """True if poll may return its records."""
        return bool(self.buffer) and self.is_announced and not (self.is_paused or self.is_leaving)

    @property
    def is_idle(self) -> bool:
        """True if a request may be sent for the partition, once `retry_at_ms` has passed."""
        return not (self.is_asking or self.is_leaving) and self.problem is None

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait for poll, without batches that the application may have."""
        return sum(batch.size_bytes for batch in self.buffer if batch.end_offset > self.handed_to)

    def has_reached(self, offset: int) -> bool:
        """Return True if there is nothing left to hand out before this offset."""
        if self.buffer:
            return self.buffer[0].next_offset >= offset
        return self.position is not None and max(self.position, self.empty_to) >= offset

    def evict(self) -> None:
        """Forget the records that wait for poll, and fetch them again later. The position stays."""
        assert self.position is not None, "only what has a position is fetched"
        if not self.buffer:
            return
        self.empty_to, self.is_evicted = self.buffer[0].next_offset, True
        self.buffer.clear()
        self.fetch_offset, self.fetch_epoch = self.position, self.epoch
        # A problem after the evicted records will be found again.
        self.problem = None

    def move_to(self, offset: int, epoch: int | None = None) -> None:
        """Continue from this offset, and forget fetched records and pending requests. `epoch`: leader epoch of the last
        offset before it."""
        self.position = self.fetch_offset = offset
        self.epoch = self.fetch_epoch = epoch
        self._forget()

    def go_on_at(self, offset: int, epoch: int | None) -> None:
        """Note that everything up to here was fetched, so there is nothing more to hand out before it. `epoch`: leader
        epoch of the last offset before it."""
        self.fetch_offset, self.fetch_epoch = max(self.fetch_offset, offset), epoch
        if self.buffer:
            self.buffer[-1].after, self.buffer[-1].epoch_after = self.fetch_offset, epoch
        else:
            self.position, self.epoch = self.fetch_offset, epoch

    @property
    def is_in_hands(self) -> bool:
        """True if the application may have records that the position does not count."""
        return self.position is not None and self.handed_to > self.position

    def go_back(self, end_offset: int, epoch: int | None) -> None:
        """Note that the records fetched from `end_offset` on have been lost since. `epoch`: leader epoch of the last
        offset before it. Records that were not handed out are fetched again."""
        assert self.position is not None, "only what has a position is fetched"
        if self.position > end_offset:
            self.move_to(end_offset, epoch)
        else:
            self.move_to(self.position, self.epoch)

    def look_up(self, reset: str | None) -> None:
        """Have the position looked up again."""
        self.position, self.reset = None, reset
        self._forget()

    def drop(self) -> None:
        """Note that the partition no longer belongs to this consumer."""
        self.is_held, self.is_leaving = False, True
        self._forget()

    def _forget(self) -> None:
        self.moves += 1
        self.empty_to, self.is_evicted = 0, False
        self.buffer.clear()
        self.is_asking = False
        self.problem = None


@dataclass(frozen=True, slots=True)
class Slice:
    """Records of one batch that poll hands out: from `first_offset` up to, but not including, `end_offset`. There are
    fewer records than offsets, or none, if the batch has holes."""

    partition: OwnedPartition
    batch: BufferedBatch
    moves: int
    """Value of `moves` of the partition when the records were handed out."""
    first_offset: int
    end_offset: int
    epoch_before: int | None
    """Leader epoch of the last offset before these records."""

    @property
    def is_current(self) -> bool:
        """True if the partition is still held, and was not moved since."""
        return self.partition.is_held and self.partition.moves == self.moves

    @property
    def after(self) -> int:
        """Position of the partition after these records."""
        return self.batch.after if self.end_offset == self.batch.end_offset else self.end_offset

    @property
    def epoch_after(self) -> int | None:
        """Leader epoch of the last offset before `after`."""
        return self.batch.epoch_after if self.end_offset == self.batch.end_offset else self.batch.epoch

    def records(self) -> list[ReadRecord]:
        """Return the records. Raises: CorruptBatch."""
        topic, number = self.partition.name
        batch = self.batch
        if batch.placed is None:
            checked = checked_batch(topic, number, batch.message, start_offset=0, end_offset=None)
            batch.placed = ((), []) if checked is None else checked.placed()
        offsets, rows = batch.placed
        start, end = bisect_left(offsets, self.first_offset), bisect_left(offsets, self.end_offset)
        return [
            ReadRecord(topic, number, offset, timestamp_ms, key, value, headers)
            for offset, (key, value, timestamp_ms, headers) in zip(offsets[start:end], rows[start:end], strict=True)
        ]

    def holds(self, record: ReadRecord) -> bool:
        """Return True if the record is one of these."""
        is_there = self.first_offset <= record.offset < self.end_offset
        return is_there and (record.topic, record.partition) == self.partition.name


class OwnedPartitions:
    """The partitions of a consumer by name."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, OwnedPartition] = {}
        self.is_manual = False
        """True if the partitions were given by the application instead of a group."""
        self.until: Mapping[TopicPartition, int] | None = None
        """Offsets before which the application polls, as of its last poll; None = without a limit."""
        self.version = 0
        """Counter of assignment changes."""

    def __iter__(self) -> Iterator[OwnedPartition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._partitions

    def names(self) -> frozenset[TopicPartition]:
        """Return the names of all."""
        return frozenset(TopicPartition(*name) for name in self._partitions)

    def topic_ids(self) -> dict[TopicPartition, bytes]:
        """Return the topic id of each."""
        return {name: partition.topic_id for name, partition in self._partitions.items()}

    def get(self, name: TopicPartition) -> OwnedPartition:
        """Return one partition. Raises: Rejected if it is not assigned to this consumer."""
        found = self._partitions.get(name)
        if found is None:
            topic, number = name
            raise rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic}-{number} is not assigned to this consumer; what is, says assignment()",
            )
        return found

    def add(self, topic_ids: Mapping[TopicPartition, bytes], *, is_announced: bool) -> None:
        """Add these partitions, which must not be there yet."""
        for name, topic_id in topic_ids.items():
            assert name not in self._partitions, f"{name} was assigned twice"
            self._partitions[name] = OwnedPartition(name, topic_id, is_announced=is_announced)
        self.version += 1

    def renew(self, names: Iterable[TopicPartition]) -> None:
        """Read these partitions from the topic that has their name now, if their own topic is gone. Records already
        handed out still belong to the old topic."""
        for name in names:
            former = self._partitions[name]
            if former.is_gone and former.topic_id:
                former.drop()
                self._partitions[name] = OwnedPartition(name, b"", is_paused=former.is_paused)
                self.version += 1

    def to_move(self, name: TopicPartition) -> OwnedPartition:
        """Return a partition that the application moves. Unless a group assigns the partitions, a partition whose topic
        is gone then belongs to the topic that has the name now. Raises: as `get`."""
        found = self.get(name)
        if self.is_manual:
            self.renew([name])
            found = self.get(name)
        return found

    @property
    def gone_topics(self) -> frozenset[str]:
        """Topics of partitions that the server does not find."""
        return frozenset(partition.name.topic for partition in self if partition.is_gone)

    def note_topics(self, topic_ids: Mapping[str, bytes]) -> bool:
        """Note the current id of each topic. Return True if a partition belongs to a topic that was recreated."""
        for partition in self:
            topic_id = topic_ids.get(partition.name.topic)
            if partition.topic_id and topic_id and topic_id != partition.topic_id:
                partition.is_remade = True
        return any(partition.is_remade for partition in self)

    def leave(self, names: Collection[TopicPartition]) -> None:
        """Stop handing out records of these."""
        for name in names:
            self._partitions[name].is_leaving = True

    def drop(self, names: Iterable[TopicPartition]) -> None:
        """Drop these partitions."""
        for name in names:
            self._partitions.pop(name).drop()
        self.version += 1

    def announce(self, names: Iterable[TopicPartition]) -> None:
        """Allow records of these partitions to be handed out, if they are still there."""
        for name in names:
            if name in self._partitions:
                self._partitions[name].is_announced = True

    def announced(self, names: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that were announced to the listener."""
        return frozenset(name for name in names if self._partitions[name].is_announced)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions that differ from the committed offsets. Partitions of deleted topics are left out:
        nothing can be committed there."""
        found = {}
        for name, partition in self._partitions.items():
            position = None if partition.is_gone else partition.position
            if position is not None and (partition.committed is None or partition.committed.offset != position):
                found[name] = OffsetAndMetadata(position, leader_epoch=partition.epoch)
        return found

    def has_reached(self, cut: Mapping[TopicPartition, int]) -> bool:
        """Return True if there is nothing left to hand out before these offsets. Raises: Rejected if one of the
        partitions is not assigned to this consumer any more."""
        found = [(self.get(name), offset) for name, offset in cut.items()]
        return all(partition.has_reached(offset) for partition, offset in found)

    def is_past(self, partition: OwnedPartition) -> bool:
        """Return True if the application polls up to offsets that this partition has reached."""
        return self.until is not None and partition.has_reached(self.until.get(partition.name, 0))

    def is_open(self, partition: OwnedPartition) -> bool:
        """Return True if poll may return records of a partition, once there are some."""
        is_kept_back = partition.is_paused or partition.is_leaving or not partition.is_announced
        return not is_kept_back and not self.is_past(partition)

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes that wait for poll."""
        return sum(partition.buffered_bytes for partition in self if partition.buffer)

    def can_make_room(self, bytes_max: int) -> bool:
        """Return True if fewer bytes than this would wait after evicting the records that poll may not return now."""
        return sum(each.buffered_bytes for each in self if each.buffer and self.is_open(each)) < bytes_max

    def make_room(self, bytes_max: int) -> None:
        """Evict records that poll may not return now, until fewer bytes than this wait."""
        left = self.buffered_bytes
        for partition in self:
            if left < bytes_max:
                return
            if partition.buffer and not self.is_open(partition):
                left -= partition.buffered_bytes
                partition.evict()

    def peek(self, records_max: int, until: Mapping[TopicPartition, int] | None = None) -> list[Slice]:
        """Return the records that poll hands out next, in the order of each partition. `until`: only records before
        these offsets, and of these partitions. Positions stay; `accept` moves them once the application has the
        records."""
        slices: list[Slice] = []
        left = records_max
        for partition in self:
            partition.handed_to = 0
            if left > 0 and partition.hands_out:
                found = _peek(partition, left, None if until is None else until.get(partition.name, 0))
                left -= sum(each.end_offset - each.first_offset for each in found)
                slices += found
        return slices

    def accept(self, slices: Iterable[Slice]) -> None:
        """Move the positions past the records that were handed out. Partitions that were moved meanwhile are left as
        they are. Accepting the same records again changes nothing."""
        handed: dict[OwnedPartition, list[Slice]] = {}
        for each in slices:
            if each.is_current:
                handed.setdefault(each.partition, []).append(each)
        for partition, parts in handed.items():
            partition.handed_to = 0
            if partition.position is not None and partition.position < parts[-1].after:
                _accept(partition, parts)
                # Partitions take turns: one that was served goes to the end of the queue.
                self._partitions[partition.name] = self._partitions.pop(partition.name)


def _peek(partition: OwnedPartition, records_max: int, until: int | None) -> list[Slice]:
    slices: list[Slice] = []
    epoch = partition.epoch
    for batch in partition.buffer:
        first = batch.next_offset
        end = min(batch.end_offset, first + records_max)
        if until is not None:
            end = min(end, until)
        if end <= first:
            break
        slices.append(found := Slice(partition, batch, partition.moves, first, end, epoch))
        partition.handed_to = end
        epoch = found.epoch_after
        records_max -= end - first
        if end < batch.end_offset:
            break
    return slices


def _accept(partition: OwnedPartition, parts: Sequence[Slice]) -> None:
    """Release the handed-out records of one partition."""
    buffer = partition.buffer
    for each in parts:
        if not buffer or buffer[0] is not each.batch:
            # The waiting records were evicted since, and are fetched again from the application's position.
            partition.move_to(parts[-1].after, parts[-1].epoch_after)
            return
        partition.position, partition.epoch = each.after, each.epoch_after
        each.batch.next_offset = each.end_offset
        if each.end_offset == each.batch.end_offset:
            buffer.popleft()
