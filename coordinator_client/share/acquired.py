"""Records that a share consumer has acquired, and what the application chose for each.

An *acquisition* is what one ShareFetch acquired in one partition. A record names the acquisition that it came with. So
a record whose lock has ended is never taken for a later delivery of the same record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, overload

from coordinator_client.errors import CorruptBatch, TransactionError
from coordinator_client.fetch_reply import WireBatch
from coordinator_client.share.decoded import DecodedBatches
from coordinator_client.values import Headers, TopicPartition, TransactionAcknowledgements


class AcknowledgeType(IntEnum):
    """Outcome of one delivery of a record: Kafka's `AcknowledgeType`, with its numbers."""

    ACCEPT = 1
    """The record was processed. It is never delivered again."""
    RELEASE = 2
    """The record was not processed, and may be delivered again, here or elsewhere."""
    REJECT = 3
    """The record cannot be processed. It is not delivered again; a group with a dead-letter topic copies it there."""
    RENEW = 4
    """The record is still being processed: it is held for another lock duration. The group must allow it
    (`share_renew_acknowledge_enable`)."""


OF_TRANSACTIONS: Final = frozenset({AcknowledgeType.ACCEPT, AcknowledgeType.REJECT})
"""Outcomes that a transaction can give."""

GAP: Final = 0
"""Outcome of an offset without a record."""


class ShareRecord(NamedTuple):
    """A record that this consumer holds until it is acknowledged, or its lock ends."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    delivery_count: int
    """Number of deliveries of the record, with this one. After a restart of the server it may be lower."""
    acquisition: int = 0
    """Number of the acquisition in this consumer."""


class AcquiredOffsets(NamedTuple):
    """Consecutive offsets that were acquired, both included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class HeldRecords:
    """Acquisition: the records of one partition that one ShareFetch acquired."""

    __slots__ = (
        "_batches",
        "_is_decoded",
        "choices",
        "corrupt",
        "expires_ms",
        "gaps",
        "lost_because",
        "name",
        "number",
        "open",
        "ranges",
        "records",
        "renewed",
        "topic_id",
        "transacted",
        "unreadable",
    )

    def __init__(
        self,
        number: int,
        name: TopicPartition,
        topic_id: bytes,
        ranges: Sequence[AcquiredOffsets],
        batches: Sequence[WireBatch],
        *,
        expires_ms: int,
    ) -> None:
        """Note what was acquired. `expires_ms`: end of its lock by the clock of this client."""
        self.number = number
        self.name = name
        self.topic_id = topic_id
        self.ranges = ranges
        self.expires_ms = expires_ms
        self.choices: dict[int, AcknowledgeType] = {}
        """Outcomes that the application chose, by offset. Written in its thread, one at a time."""
        self.open: set[int] = set()
        """Offsets of records that the application may still acknowledge; known once decoded."""
        self.renewed: set[int] = set()
        """Offsets among them whose lock was renewed: only the application ends their delivery."""
        self.transacted: dict[int, AcknowledgeType] = {}
        """Outcomes that a transaction gives, by offset; forgotten with the next poll."""
        self.records: list[ShareRecord] = []
        self.gaps: list[int] = []
        """Acquired offsets without a record."""
        self.unreadable: list[int] = []
        """Acquired offsets whose records cannot be read."""
        self.corrupt: list[CorruptBatch] = []
        """Errors of the batches that cannot be read."""
        self.lost_because: TransactionError | None = None
        """Reason why the member holds none of the records any more; None if it holds those that are open."""
        self._batches = batches
        self._is_decoded = False

    def decode(self, decoded: DecodedBatches) -> None:
        """Decode the records, in the thread that needs them. A repetition does nothing."""
        if self._is_decoded:
            return
        # All is computed anew after an interruption.
        records: list[ShareRecord] = []
        corrupt: list[CorruptBatch] = []
        for batch in self._batches:
            try:
                records += self._records_of(batch, decoded)
            except CorruptBatch as error:
                corrupt.append(error)
        found = {record.offset for record in records}
        left = [offset for offset in self._offsets() if offset not in found] if len(found) < self._count else []
        self.unreadable = [offset for offset in left if _is_in(offset, corrupt)]
        self.gaps = [offset for offset in left if not _is_in(offset, corrupt)]
        self.records, self.corrupt, self.open = records, corrupt, found
        self._is_decoded = True
        self._batches = ()

    @property
    def _count(self) -> int:
        return sum(each.last_offset - each.first_offset + 1 for each in self.ranges)

    def _offsets(self) -> Iterator[int]:
        for each in self.ranges:
            yield from range(each.first_offset, each.last_offset + 1)

    def covers(self, offset: int) -> bool:
        """Return True if the offset was acquired."""
        return any(each.first_offset <= offset <= each.last_offset for each in self.ranges)

    def may_choose(self, offset: int, outcome: AcknowledgeType) -> bool:
        """Return True if the application may choose this outcome. Records of a transaction can only be released."""
        return offset in self.open or (outcome is AcknowledgeType.RELEASE and offset in self.transacted)

    def hand_over(self) -> None:
        """Let a transaction acknowledge the open records, unless they are released or renewed."""
        chosen = {offset: self.choices.get(offset, AcknowledgeType.ACCEPT) for offset in self.open}
        given = {offset: outcome for offset, outcome in chosen.items() if outcome in OF_TRANSACTIONS}
        self.transacted = self.transacted | given
        self.open = self.open - given.keys()
        self.choices = {offset: outcome for offset, outcome in self.choices.items() if offset not in given}

    def _records_of(self, batch: WireBatch, decoded: DecodedBatches) -> list[ShareRecord]:
        """Return the acquired records of a batch. Raises: CorruptBatch."""
        topic, partition = self.name
        fields = batch.fields
        if fields.is_control:
            return []
        last_offset = fields.base_offset + fields.record_count + fields.hole_count - 1
        is_whole = any(
            each.first_offset <= fields.base_offset and last_offset <= each.last_offset for each in self.ranges
        )
        offsets, rows = decoded.placed(self.name, batch, is_whole=is_whole)
        found: list[ShareRecord] = []
        for each in self.ranges:
            start, end = bisect_left(offsets, each.first_offset), bisect_left(offsets, each.last_offset + 1)
            found += [
                ShareRecord(
                    topic, partition, offset, timestamp_ms, key, value, headers, each.delivery_count, self.number
                )
                for offset, (key, value, timestamp_ms, headers) in zip(offsets[start:end], rows[start:end], strict=True)
            ]
        return found


def _is_in(offset: int, corrupt: Iterable[CorruptBatch]) -> bool:
    return any(error.offset <= offset < error.next_offset for error in corrupt)


class ShareRecords(Sequence[ShareRecord]):
    """The records of one poll; those of one partition are together and in order. Falsy if empty."""

    __slots__ = ("_records", "acquisitions", "for_transaction")

    def __init__(
        self,
        acquisitions: Sequence[HeldRecords] = (),
        for_transaction: Callable[[ShareRecords], TransactionAcknowledgements] | None = None,
    ) -> None:
        self.acquisitions = acquisitions
        """Acquisitions of the records; not for applications."""
        self.for_transaction = for_transaction
        """Hands the records to a transaction; None if there are none. Not for applications."""
        self._records = [record for each in acquisitions for record in each.records]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ShareRecord]:
        return iter(self._records)

    @overload
    def __getitem__(self, index: int) -> ShareRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ShareRecord]: ...
    def __getitem__(self, index: int | slice) -> ShareRecord | Sequence[ShareRecord]:
        return self._records[index]

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Partitions that have records here."""
        return frozenset(each.name for each in self.acquisitions if each.records)
