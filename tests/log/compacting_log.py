"""A log that is compacted, and a model of it that knows every record ever written.

The model says from the rules alone what may be missing. It asks nothing of the code that compacts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordinator_client.encodings import checked_batch
from coordinator_client.fetch_reply import parse_fetch_reply
from coordinator_protocol.batch import BatchHeader, Compression, Encoding
from coordinator_protocol.kafka_records import PlacedRecord
from coordinator_protocol.marker import Outcome
from coordinator_runtime.ports import PartitionName
from coordinator_server.grpc_front.wire.log.fetch_edge import FetchAnswer
from partition_log import codec
from partition_log.batches import batches
from partition_log.requests import ProduceResult
from partition_log.state import Isolation, PartitionConfig
from tests.harness.every_encoding import packed, payload_of_records
from tests.log.driven_log import (
    ABORT,
    COMMITTED,
    NO_PRODUCER,
    TOPIC,
    UNCOMMITTED,
    Batch,
    DrivenLog,
    Producer,
    transactional,
)
from txnctl.stopped.store_verify import verify_store

SHORT_STRETCHES = PartitionConfig(index_interval_batches=4, compaction_bytes_per_second=0)
COMPACT = {"cleanup_policy": "compact"}
DAY_MS = 24 * 3_600_000

Content = tuple[bytes | None, bytes | None]
"""Key and value."""


@dataclass
class Written:
    """A record as it was written."""

    content: Content
    producer_id: int
    fate: str = "committed"


@dataclass
class CompactingLog:
    """The log and its model."""

    driven: DrivenLog = field(default_factory=lambda: DrivenLog(config=SHORT_STRETCHES))
    records: dict[int, Written] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    end: int = 0
    retired_below: int = 0
    """Offset before which tombstones may be missing."""
    passes: list[tuple[int, int]] = field(default_factory=list)
    """Ends of finished passes, and their times."""

    def __post_init__(self) -> None:
        self.driven.create(config=COMPACT)

    def producer(self, producer_id: int) -> Producer:
        return transactional(producer_id, self.epochs.get(producer_id, 0)) if producer_id else NO_PRODUCER

    def write(
        self,
        contents: list[Content],
        *,
        producer_id: int = 0,
        encoding: Encoding = Encoding.RECORDS_V1,
        compression: Compression = Compression.NONE,
    ) -> None:
        """Append one batch, as a producer of its encoding writes it."""
        sequence = self.sequences.get(producer_id, 0)
        result = self.send(contents, producer_id=producer_id, encoding=encoding, compression=compression)
        assert result.error is None, result.error
        for content in contents:
            fate = "open" if producer_id else "committed"
            self.records[self.end] = Written(content, producer_id, fate)
            self.end += 1
        if producer_id:
            self.sequences[producer_id] = sequence + len(contents)

    def send(
        self,
        contents: list[Content],
        *,
        producer_id: int = 0,
        encoding: Encoding = Encoding.RECORDS_V1,
        compression: Compression = Compression.NONE,
    ) -> ProduceResult:
        """Append one batch and return the log's answer."""
        producer, sequence = self.producer(producer_id), self.sequences.get(producer_id, 0) if producer_id else -1
        placed: list[PlacedRecord] = [(at, 1_000, *content, ()) for at, content in enumerate(contents)]
        changes = {"encoding": encoding, "compression": compression}
        header = Batch(producer, sequence, len(contents), changes=changes).item(_NAME).header
        assert isinstance(header, BatchHeader)
        payload = packed(payload_of_records(placed, header), header)
        return self.driven.append(Batch(producer, sequence, len(contents), payload, changes=changes))

    def finish(self, producer_id: int, outcome: Outcome) -> None:
        """End the transaction of a producer."""
        self.driven.end(self.producer(producer_id), outcome)
        self.end += 1
        self.epochs[producer_id] = self.epochs.get(producer_id, 0) + 1
        self.sequences[producer_id] = 0
        for record in self.records.values():
            if record.fate == "open" and record.producer_id == producer_id:
                record.fate = "aborted" if outcome is ABORT else "committed"

    def compact(self, steps_max: int | None = None) -> None:
        """One round of compaction, which a crash may end."""
        before = self.driven.head().compaction
        if not self.driven.compact(steps_max):
            self.crash()
        self.note_pass(before.clean_to)

    def note_pass(self, clean_to: int) -> None:
        head, now_ms = self.driven.head(), self.driven.clock.wall_ms()
        retired = [end for end, ended_ms in self.passes if ended_ms <= now_ms - DAY_MS]
        self.retired_below = max([self.retired_below, *retired])
        if head.compaction.clean_to > clean_to:
            self.passes.append((head.compaction.clean_to, now_ms))

    def crash(self, kept_groups: int = 0) -> None:
        """A restart, which forgets all leases."""
        self.driven = self.driven.crash(min(kept_groups, self.driven.driver.undurable_groups))

    def restore(self) -> None:
        """A start from a backup of this moment."""
        self.driven = self.driven.restore(self.driven.backup())

    def hold(self, offset: int | None) -> None:
        """Hold the records from an offset on; None to hold none."""
        self.driven.leases.clear()
        if offset is not None:
            self.driven.leases[self.driven.ordinal()] = offset

    def key(self, offset: int) -> bytes:
        """The key of the row that ends at the offset."""
        return codec.log_key(self.driven.ordinal(), offset)

    def headers_to(self, end: int) -> list[BatchHeader]:
        """The headers of all batches before an offset."""
        return [header for header, _stored in batches(self.driven.store, self.driven.ordinal(), 0, end)]

    # Records that must be there

    def newest(self, end: int) -> dict[bytes, int]:
        """The newest offset of each key before an offset, of records that count."""
        return {
            written.content[0]: at
            for at, written in sorted(self.records.items())
            if at < end and written.fate == "committed" and written.content[0] is not None
        }

    def needed(self, start: int, *fates: str) -> list[tuple[int, Content]]:
        """Records that must be there from an offset on, whatever was compacted."""
        head = self.driven.head()
        newest = self.newest(head.compacted_to)
        return [
            (at, written.content)
            for at, written in sorted(self.records.items())
            if at >= start and written.fate in fates and (at >= head.compacted_to or self._is_needed(at, newest))
        ]

    def allowed(self, start: int, *fates: str) -> dict[int, Content]:
        """Records that may be there after a whole pass up to `clean_to`."""
        clean_to = self.driven.head().compaction.clean_to
        newest = self.newest(clean_to)
        return {
            at: written.content
            for at, written in self.records.items()
            if at >= start
            and written.fate in fates
            and (at >= clean_to or (written.fate != "aborted" and self._is_live(at, newest)))
        }

    def _is_live(self, at: int, newest: dict[bytes, int]) -> bool:
        key = self.records[at].content[0]
        return key is None or newest.get(key) == at

    def _is_needed(self, at: int, newest: dict[bytes, int]) -> bool:
        written = self.records[at]
        if written.fate == "aborted":
            return False
        is_tombstone = written.content[0] is not None and written.content[1] is None
        return self._is_live(at, newest) and not (is_tombstone and at < self.retired_below)

    # Records that readers see

    def seen(self, start: int, isolation: Isolation) -> list[tuple[int, Content]]:
        """Offset, key and value of every record that the SDK makes of what the server answers."""
        return list(self._seen(start, isolation))

    def _seen(self, start: int, isolation: Isolation) -> Iterator[tuple[int, Content]]:
        at = start
        while True:
            result = self.driven.read(fetch_offset=at, isolation=isolation, accepted_encodings=frozenset(Encoding))
            assert result.error is None, result.error
            for wire in parse_fetch_reply(FetchAnswer([result]).SerializeToString()).results[0].batches:
                batch = checked_batch(TOPIC, 0, wire, start_offset=at, end_offset=10**12)
                if batch is not None:
                    offsets, rows = batch.placed()
                    yield from ((offset, (row[0], row[1])) for offset, row in zip(offsets, rows, strict=True))
            if result.next_offset == at:
                return
            at = result.next_offset

    def check(self) -> None:
        """Compare what is there with the model, for both kinds of readers, and check the store."""
        head = self.driven.head()
        start, stable = head.log_start_offset, head.last_stable_offset
        for isolation, fates in ((COMMITTED, ["committed"]), (UNCOMMITTED, ["committed", "aborted", "open"])):
            bound = stable if isolation is COMMITTED else head.log_end_offset
            seen = self.seen(start, isolation)
            needed = [each for each in self.needed(start, *fates) if each[0] < bound]
            missing = [each for each in needed if each not in seen]
            assert not missing, f"missing {missing} of {needed}, seen {seen}, {head}"
            allowed = self.allowed(start, *fates)
            extra = [each for each in seen if allowed.get(each[0]) != each[1]]
            assert not extra, f"still there {extra}, {head}"
            assert [offset for offset, _ in seen] == sorted({offset for offset, _ in seen})
        assert head.log_end_offset == self.end
        self.check_counts()
        violated = {check.name: check.violations for check in verify_store(self.driven.store) if check.violations}
        # The transactions of these tests have no coordinator.
        violated.pop("outcomes", None)
        violated.pop("hanging", None)
        assert not violated, violated

    def check_counts(self) -> None:
        """Lag counts the records that are there."""
        head = self.driven.head()
        starts = (head.log_start_offset, head.compacted_to, head.last_stable_offset)
        for start in sorted({max(head.log_start_offset, start) for start in starts}):
            raw = len(self.seen(start, UNCOMMITTED))
            counted, _committed = self.driven.count(start)
            slack = max((header.hole_count for header in self.headers() if header.base_offset < start), default=0)
            assert raw <= counted <= raw + slack, (start, raw, counted)

    def headers(self) -> list[BatchHeader]:
        return [header for header, _stored in batches(self.driven.store, self.driven.ordinal(), 0)]

    def markers(self) -> list[int]:
        """Offsets of the markers that are left."""
        return [header.base_offset for header in self.headers() if header.is_control]


_NAME = PartitionName(TOPIC, b"", 0)
