"""Checks of client batches before they are appended: every reader of ours must be able to decode them.

The server checks and changes nothing: batches are stored as they were sent. Records are parsed by the library that
readers use, which makes no Python object per record. Arrow is checked without Arrow. Payloads that unpack to much, or
hold many records, may take longer than the loop can spare. The worker, another process, checks those, where they delay
no other caller. Later batches of the same producer wait meanwhile (`coordinator_runtime.runtime`).

Source: design 6 ("the server validates and never transforms"); decision 22. Kafka's `LogValidator` also answers
INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import Final

from coordinator_protocol.arrow_payload import (
    NotArrow,
    arrow_buffers,
    arrow_record_count,
    placed_arrow_record_count,
)
from coordinator_protocol.batch import (
    ENCODINGS_WITH_DELTAS,
    BatchHeader,
    Compression,
    Encoding,
    ExamineBatch,
    OffsetlessBatch,
    covered_part,
    kafka_covered,
    misplaced_delta,
)
from coordinator_protocol.client_batch import encode_client_batch
from coordinator_protocol.compression import NotUnpackable, unpack_as, unpack_into, unpack_kafka
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.kafka_payload import TooManyItems, kafka_record_count, keyless_kafka_records
from coordinator_protocol.kafka_records import NotKafkaRecords
from coordinator_protocol.limits import KIBI, MEBI, Limits
from coordinator_protocol.wire import has_more_fields, open_field, pieces
from coordinator_runtime.decision import NotCommon
from coordinator_runtime.disk_guard import DiskGuard
from coordinator_runtime.features import KAFKA_BATCHES, Features
from coordinator_runtime.pending import Pending
from coordinator_runtime.worker import Worker, WorkerLost
from partition_log.codec import (
    RECORD_FIELD,
    NotRecords,
    examine_batch,
    lacks_a_key,
    offset_deltas_of,
    record_count_of,
)

UNPACKED_HERE_BYTES_MAX: Final = 64 * KIBI
"""Largest unpacked size of a compressed payload that is checked on the loop; the worker checks larger ones. To unpack
and parse as much takes 0.1 ms, and 0.9 ms if it is all empty records."""

PLAIN_HERE_BYTES_MAX: Final = MEBI
RECORDS_HERE_MAX: Final = 1 << 15
"""Largest size, and number of records, of a payload without compression that is checked on the loop. The worker checks
one that is larger, or that may hold more records, whatever its header says. To parse this much takes 0.2 ms for records
of 100 bytes, 1.5 ms for the smallest ones."""

FIELDS_MAX: Final = 1 << 17
"""Largest number of fields of a record, mostly headers; a record with more is refused. More cannot be parsed at once,
because a header of two bytes takes fifty times as many bytes in memory. As many of the smallest take 5 ms. The worker
checks a payload that may hold more."""

RECORDS_MAX: Final = 1 << 20
"""Largest number of records of a batch that the worker checks. A batch with more is refused, because readers would
choke on it."""

WAITING_BYTES_MAX: Final = 64 * MEBI
WAITING_BATCHES_MAX: Final = 10_000
"""Largest size and number of payloads that wait for the worker. Beyond either, batches that would join them are
refused, retriably. Their number counts too: even a damaged payload of ten bytes waits, and its call takes a few
KiB meanwhile."""

PIECE_BYTES: Final = 256 * KIBI
"""Size of the pieces in which a large payload is parsed, unless it is one record. A parsed record takes up to fifty
times its bytes. No record of this size has more than `FIELDS_MAX` fields."""

ITEMS_HERE_MAX: Final = 1 << 15
ITEMS_HERE_MAX_IN_PYTHON: Final = 1_024
"""Largest number of Kafka's records and their headers that are looked at on the loop: by the compiled function, and
without it. The worker looks at more. Either takes 0.5 ms, and without it the headers of as many take up to 2 ms. A
producer's usual batch of 16 KiB has fewer, unless its records are smaller than 16 bytes: the way to the worker and back
takes longer than the look."""

KEYS_HERE_MAX: Final = 1_024
"""Largest number of records whose keys are looked for on the loop, which takes up to 0.5 ms. The worker looks at
more. A store of Kafka Streams sends each changed key to its changelog at every commit, and the commit waits for it."""

ITEMS_EXPLAINED_MAX: Final = 1 << 17
"""Largest number of Kafka's records and headers in which the worker looks for the reason of a refusal by the compiled
function. As many take 0.15 s."""

_RECORD_BEGINS: Final = (b"\n", b"\x8a")
_HEADER_BEGINS: Final = (b'"', b"\xa2")
"""Possible first bytes of a record and of a header. A writer may use more than one byte for the tag."""

_PLAIN: Final = Compression.NONE
_RECORDS: Final = Encoding.RECORDS_V1
_KAFKA: Final = Encoding.KAFKA_V2
_OF_RECORDS: Final = (Encoding.RECORDS_V1, Encoding.RECORDS_V2)
"""Module-level aliases for the fast path: enum attribute lookup is slow on CPython 3.11."""


class CheckEnd(StrEnum):
    """Outcome of a check by the worker."""

    TAKEN = "taken"
    REFUSED = "refused"
    LOST = "lost"
    NO_ROOM = "no_room"


class KeylessRecords(Refused):
    """Refusal of a batch by a compacted topic, since records in it have no key. Source: KIP-467."""

    def __init__(self, places: tuple[int, ...]) -> None:
        super().__init__(
            ErrorCode.INVALID_RECORD,
            "a compacted topic takes no record without a key: give each record of the batch a key, and send it again",
        )
        self.places = places
        """Their places in the batch, from 0 on; empty for encodings other than Kafka's."""


class BatchChecks:
    """Checks batches before they are appended: header and checksum, then the payload, here or by the worker."""

    def __init__(
        self,
        worker: Worker,
        limits: Limits,
        disk: DiskGuard | None = None,
        examine: ExamineBatch = examine_batch,
        *,
        features: Features,
    ) -> None:
        self.worker = worker
        self.limits = limits
        self.disk = DiskGuard() if disk is None else disk
        """Guard of the disk, which refuses all batches while too little space is free."""
        self._features = features
        self._examine = examine
        self._items_max = ITEMS_HERE_MAX_IN_PYTHON if examine is examine_batch else ITEMS_HERE_MAX
        self._why_unreadable = partial(why_unreadable, examine=examine)
        self._room = bytearray(UNPACKED_HERE_BYTES_MAX)
        self.waiting_bytes = 0
        """Size of the payloads that the worker has not checked yet (bytes)."""
        self.waiting_batches = 0
        self.ended: dict[str, int] = dict.fromkeys(CheckEnd, 0)
        """Number of checks by the worker, by outcome."""

    def take(
        self,
        header: BatchHeader,
        payload: bytes,
        *,
        crc: int | None,
        validates_payload: bool,
        may_wait: bool = True,
        needs_keys: bool = False,
    ) -> tuple[OffsetlessBatch, Pending[None] | None]:
        """Return the batch as it will be stored, and the check of its payload if that is in progress. An error of the
        check is then the refusal of the batch. A check of the first of Kafka's batches in a store lasts until its
        feature is durable.

        Raises Refused as `check_client_batch`, and for the payload: INVALID_RECORD; THROTTLING_QUOTA_EXCEEDED if too
        many wait for their check. A check that was lost with the worker is COORDINATOR_NOT_AVAILABLE: the client must
        send the batch again. Raises NotCommon if the caller may not wait for a check. `needs_keys`: a record without a
        key is refused with INVALID_RECORD, too."""
        offsetless, check = self._take(header, payload, crc=crc, validates_payload=validates_payload, may_wait=may_wait)
        if needs_keys:
            check = self._check_keys(header, payload, check, is_counted=validates_payload, may_wait=may_wait)
        if header.encoding is not _KAFKA or self._features.has(KAFKA_BATCHES):
            return offsetless, check
        if not may_wait:
            raise NotCommon
        if check is None:
            return offsetless, self._features.begin(KAFKA_BATCHES)
        return offsetless, check.then(lambda _checked: self._features.begin(KAFKA_BATCHES))

    def _take(
        self, header: BatchHeader, payload: bytes, *, crc: int | None, validates_payload: bool, may_wait: bool
    ) -> tuple[OffsetlessBatch, Pending[None] | None]:
        is_counted = (
            validates_payload
            and header.compression is _PLAIN
            and (header.encoding is _KAFKA or (header.encoding is _RECORDS and len(payload) <= UNPACKED_HERE_BYTES_MAX))
        )
        offsetless, found = encode_client_batch(
            header,
            payload,
            crc=crc,
            batch_bytes_max=self.limits.batch_bytes_max,
            examine=self._examine,
            items_max=self._items_max if is_counted else 0,
        )
        if not validates_payload or found == header.record_count:
            return offsetless, None
        if header.encoding is _KAFKA:
            return offsetless, self._check_kafka(header, payload, offsetless, found, may_wait=may_wait)
        plain = payload
        if header.compression is not _PLAIN:
            is_small = len(payload) <= UNPACKED_HERE_BYTES_MAX
            size = unpack_into(self._room, payload, header.compression) if is_small else None
            if size is None:
                # The payload is too large for the buffer, or damaged. The worker finds out which, where the size does
                # not matter.
                return offsetless, self._check_by_worker(header, payload, may_wait=may_wait)
            plain = bytes(memoryview(self._room)[:size])
        elif header.record_count > RECORDS_HERE_MAX or len(payload) > PLAIN_HERE_BYTES_MAX:
            return offsetless, self._check_by_worker(header, payload, may_wait=may_wait)
        if header.encoding is _RECORDS:
            if len(plain) > UNPACKED_HERE_BYTES_MAX and _may_hold_many(plain):
                return offsetless, self._check_by_worker(header, payload, may_wait=may_wait)
            try:
                found = record_count_of(plain) if found is None else found
            except NotRecords as error:
                raise _unreadable(_no_records(error)) from error
        else:
            try:
                found = arrow_record_count(plain, headers_max=RECORDS_HERE_MAX)
            except NotArrow as error:
                raise _unreadable(_no_arrow(error)) from error
        if found is None:
            return offsetless, self._check_by_worker(header, payload, may_wait=may_wait)
        if found != header.record_count:
            raise _unreadable(_wrong_count(header.record_count, found))
        return offsetless, None

    def _check_keys(
        self, header: BatchHeader, payload: bytes, check: Pending[None] | None, *, is_counted: bool, may_wait: bool
    ) -> Pending[None] | None:
        """Check that every record has a key, after any other check. `is_counted`: the count of the header is right."""
        is_small = is_counted and header.record_count <= KEYS_HERE_MAX and len(payload) <= PLAIN_HERE_BYTES_MAX
        if check is None and is_small and header.compression is _PLAIN:
            keyless = keyless_records(unread(header, payload))
            if keyless is not None:
                raise KeylessRecords(keyless)
            return None
        if check is None:
            return self._check_by_worker(header, payload, may_wait=may_wait, look=keyless_records)
        return check.then(lambda _checked: self._check_by_worker(header, payload, may_wait=True, look=keyless_records))

    def _check_kafka(
        self, header: BatchHeader, payload: bytes, offsetless: OffsetlessBatch, found: int | None, *, may_wait: bool
    ) -> Pending[None] | None:
        """Check Kafka's records, which were not counted yet or are not as many as the header says."""
        if header.compression is not _PLAIN:
            plain = self._unpack_kafka_here(payload, header.compression)
            if plain is not None:
                _rest, _crc, found = self._examine(covered_part(offsetless), plain, self._items_max)
        if found is None:
            # There are many, or they are damaged. The worker finds out which.
            return self._check_by_worker(header, payload, may_wait=may_wait)
        if found != header.record_count:
            raise _unreadable(_wrong_count(header.record_count, found))
        return None

    def _unpack_kafka_here(self, payload: bytes, compression: Compression) -> bytes | None:
        """Return the payload unpacked if it is small; None if it is large or damaged."""
        if len(payload) > UNPACKED_HERE_BYTES_MAX:
            return None
        if compression is Compression.SNAPPY:
            try:
                return unpack_kafka(payload, compression, bytes_max=UNPACKED_HERE_BYTES_MAX)
            except NotUnpackable:
                return None
        size = unpack_into(self._room, payload, compression)
        return None if size is None else bytes(memoryview(self._room)[:size])

    def _check_by_worker(
        self, header: BatchHeader, payload: bytes, *, may_wait: bool, look: LookAtPayload | None = None
    ) -> Pending[None]:
        if not may_wait:
            raise NotCommon
        size = len(payload)
        if self.waiting_bytes and (
            self.waiting_bytes + size > WAITING_BYTES_MAX or self.waiting_batches >= WAITING_BATCHES_MAX
        ):
            self.ended[CheckEnd.NO_ROOM] += 1
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many payloads wait to be checked; try again shortly"
            )
        self.waiting_bytes += size
        self.waiting_batches += 1
        found = self.worker.run(look or self._why_unreadable, unread(header, payload))
        found.on_settled(lambda _found: self._checked(size))
        return found.recover(self._lost).map(self._judge)

    def _checked(self, size: int) -> None:
        self.waiting_bytes -= size
        self.waiting_batches -= 1

    def _judge(self, why: WhyRefused | None) -> None:
        self.ended[CheckEnd.TAKEN if why is None else CheckEnd.REFUSED] += 1
        if why is not None:
            raise _unreadable(why) if isinstance(why, str) else KeylessRecords(why)

    def _lost(self, error: Exception) -> WhyRefused | None:
        if isinstance(error, WorkerLost):
            self.ended[CheckEnd.LOST] += 1
            raise Refused(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the payload was not checked ({error}); send the batch again"
            ) from error
        raise error


Unread = tuple[int, int, int, int, bytes]
"""Encoding, compression, record count, last offset delta and payload: plain values, for another process."""


WhyRefused = str | tuple[int, ...]
"""Reason for a refusal of a payload: words, or the places of records without a key."""

LookAtPayload = Callable[[Unread], WhyRefused | None]
"""Function that returns the reason for a refusal of a payload; None if there is none."""


def unread(header: BatchHeader, payload: bytes) -> Unread:
    """Return the argument of `why_unreadable` for a batch."""
    return (int(header.encoding), int(header.compression), header.record_count, header.last_offset_delta, payload)


def why_unreadable(argument: Unread, examine: ExamineBatch = examine_batch) -> str | None:
    """Return the reason why a payload cannot be read as its header says; None if it can. The check stops at the first
    record too many. It takes at most a few times `UNPACKED_BYTES_MAX` of memory. A module-level function, so that
    another process can run it. `examine` counts Kafka's records."""
    encoding, compression, record_count, last_offset_delta, payload = argument
    if record_count > RECORDS_MAX:
        return f"the batch says that it holds {record_count} records, and a batch holds at most {RECORDS_MAX}"
    try:
        plain = unpack_as(Encoding(encoding), payload, Compression(compression))
    except NotUnpackable as error:
        return str(error)
    if encoding == _KAFKA:
        return _why_no_kafka_records(plain, record_count, last_offset_delta, examine)
    deltas_end = last_offset_delta if encoding in ENCODINGS_WITH_DELTAS else None
    if encoding in _OF_RECORDS:
        return _why_no_records(plain, record_count, deltas_end)
    try:
        found = arrow_record_count(plain) if deltas_end is None else placed_arrow_record_count(plain, deltas_end)
    except NotArrow as error:
        return _no_arrow(error)
    return None if found == record_count else _wrong_count(record_count, found)


def keyless_records(argument: Unread) -> tuple[int, ...] | None:
    """Return the places of the records without a key, which a compacted topic refuses. They are empty for encodings
    other than Kafka's, whose clients ask for no places. None if there is no such record, or the payload cannot be read.
    A module-level function, so that another process can run it."""
    encoding, compression, _record_count, _last_offset_delta, payload = argument
    try:
        plain = unpack_as(Encoding(encoding), payload, Compression(compression))
        if encoding == _KAFKA:
            return keyless_kafka_records(plain) or None
        if encoding in _OF_RECORDS:
            is_keyless = any(lacks_a_key(piece) for piece in record_pieces(plain))
        else:
            is_keyless = arrow_buffers(plain, has_deltas=encoding in ENCODINGS_WITH_DELTAS).null_counts[0] > 0
    except (NotUnpackable, NotKafkaRecords, NotRecords, NotArrow, ValueError):
        return None
    return () if is_keyless else None


def _why_no_records(plain: bytes, record_count: int, deltas_end: int | None) -> str | None:
    """Return the reason why a payload is no valid sequence of records. `deltas_end`: last offset delta of the batch, if
    each record carries its own."""
    found, behind = 0, -1
    try:
        for start, end in pieces(plain, PIECE_BYTES):
            if end - start > PIECE_BYTES:
                number, content = open_field(plain, start)
                if number == RECORD_FIELD and has_more_fields(plain, content, end, FIELDS_MAX):
                    return f"its record {found} has more than {FIELDS_MAX} fields, headers among them"
            found += record_count_of(plain[start:end])
            if deltas_end is not None:
                deltas = offset_deltas_of(plain[start:end])
                wrong = misplaced_delta(deltas, deltas_end, behind=behind)
                if wrong is not None:
                    return f"its records do not lie in ascending places up to {deltas_end}, one is at {wrong}"
                behind = deltas[-1] if deltas else behind
            if found > record_count:
                return f"the batch says that it holds {record_count} records and holds more"
    except (NotRecords, ValueError) as error:
        return _no_records(error)
    return None if found == record_count else _wrong_count(record_count, found)


def _why_no_kafka_records(plain: bytes, record_count: int, last_offset_delta: int, examine: ExamineBatch) -> str | None:
    items_max = None
    if examine is not examine_batch:
        _rest, _crc, counted = examine(kafka_covered(record_count, last_offset_delta), plain, len(plain))
        if counted is not None:
            return None if counted == record_count else _wrong_count(record_count, counted)
        items_max = ITEMS_EXPLAINED_MAX
    try:
        found = kafka_record_count(plain, last_offset_delta, records_max=record_count, items_max=items_max)
    except TooManyItems:
        return (
            f"its payload has no records of Kafka's format, behind the first {ITEMS_EXPLAINED_MAX} records and headers"
        )
    except NotKafkaRecords as error:
        return f"its payload has no records of Kafka's format ({error})"
    if found > record_count:
        return f"the batch says that it holds {record_count} records and holds more"
    return None if found == record_count else _wrong_count(record_count, found)


def record_pieces(plain: bytes) -> Iterator[bytes]:
    """Yield the payload of a message `Records` in pieces that can be parsed one by one.

    Raises: NotRecords, ValueError if the bytes are no such message, after all pieces before."""
    if len(plain) <= PIECE_BYTES:
        # Not cut, because only protobuf itself reads groups, an old way to write a message.
        yield plain
        return
    for start, end in pieces(plain, PIECE_BYTES):
        if end - start > PIECE_BYTES:
            number, content = open_field(plain, start)
            if number == RECORD_FIELD and has_more_fields(plain, content, end, FIELDS_MAX):
                raise NotRecords(f"a record has more than {FIELDS_MAX} fields")
        yield plain[start:end]


def _may_hold_many(plain: bytes) -> bool:
    """True if there may be too many records or headers to be parsed on the loop: too many bytes could be their first
    ones. Other bytes may be equal by chance, quotation marks above all. Then the worker checks the payload
    unnecessarily."""
    return _has_more_of(_RECORD_BEGINS, plain, RECORDS_HERE_MAX) or _has_more_of(_HEADER_BEGINS, plain, FIELDS_MAX)


def _has_more_of(firsts: tuple[bytes, ...], plain: bytes, count_max: int) -> bool:
    """True if there are more of these bytes. The count of each stops behind `count_max`. `replace` jumps from one to
    the next, while `bytes.count` looks at every byte and takes ten times as long."""
    return sum(len(plain) - len(plain.replace(first, b"", count_max + 1)) for first in firsts) > count_max


def _no_records(error: Exception) -> str:
    return f"its payload is no Records message ({error})"


def _no_arrow(error: NotArrow) -> str:
    return f"its payload is no Arrow record batch of the agreed schema: {error}"


def _wrong_count(record_count: int, found: int | None) -> str:
    return f"the batch says that it holds {record_count} records and holds {found}"


def _unreadable(why: str) -> Refused:
    return Refused(
        ErrorCode.INVALID_RECORD,
        f"no reader could read the batch: {why}; encode it as its header says, and send that",
    )
