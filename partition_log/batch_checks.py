"""Which batches of clients are taken: those that every reader of ours can decode.

The server looks, and changes nothing: what is stored is what was sent. Records are parsed by the library that readers
parse them with, which makes no Python object per record; Arrow is checked without Arrow. What may take longer than the
loop can spare (payloads that unpack to much, or hold many records) is checked in another process, where it costs nobody
else anything; meanwhile whatever the same producer sends next waits (`coordinator_runtime.checks`).

Source: design 6 ("the server validates and never transforms"); decision 22. Kafka's `LogValidator` answers
INVALID_RECORD likewise.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from coordinator_api.v1 import log_pb2
from coordinator_protocol.arrow_payload import NotArrow, arrow_record_count
from coordinator_protocol.batch import BatchHeader, Compression, Encoding, OffsetlessBatch, encode_client_batch
from coordinator_protocol.compression import NotUnpackable, unpack, unpack_into
from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.limits import KIBI, MEBI, Limits
from coordinator_protocol.wire import pieces
from coordinator_runtime.pending import Pending
from coordinator_runtime.worker import Worker, WorkerLost

UNPACKED_HERE_BYTES_MAX: Final = 64 * KIBI
"""A compressed payload that unpacks to more is checked elsewhere. To unpack and parse as much takes 0.1 ms, and 0.9 ms
if it is all empty records."""

PLAIN_HERE_BYTES_MAX: Final = MEBI
RECORDS_HERE_MAX: Final = 1 << 15
"""A payload without compression that is larger, or says that it holds more records, is checked elsewhere. Below, to
parse it takes 0.3 ms for records of 100 bytes, 1.5 ms for the smallest ones. How many there are, the batch says itself:
1 MiB of empty records that is called one record takes 40 ms before it is refused, and one record of as many empty
headers takes as long."""

RECORDS_MAX: Final = 1 << 20
"""A batch with more records is refused where they are too many to be parsed here: readers would choke on them."""

WAITING_BYTES_MAX: Final = 64 * MEBI
WAITING_BATCHES_MAX: Final = 10_000
"""Payloads that wait to be checked elsewhere. Beyond, batches that would join them are refused, retriably. Their number
counts too, because a damaged payload of ten bytes waits there as well, and its call takes a few KiB meanwhile."""

_PIECE_BYTES: Final = 256 * KIBI
"""What is parsed at once of a large payload: a parsed record takes up to forty times its bytes."""

_PLAIN: Final = Compression.NONE
_RECORDS: Final = Encoding.RECORDS_V1
"""By names of their own: to find a member in its class takes 0.1 us."""
_parse: Final = log_pb2.Records.FromString


class BatchChecks:
    """Looks at batches before they are appended: header and checksum, then the payload, here or by a worker."""

    def __init__(self, worker: Worker, limits: Limits) -> None:
        self._worker = worker
        self.limits = limits
        self._room = bytearray(UNPACKED_HERE_BYTES_MAX)
        self.waiting_bytes = 0
        """Of payloads that are being checked elsewhere."""
        self.waiting_batches = 0

    def take(
        self, header: BatchHeader, payload: bytes, *, crc: int | None, validates_payload: bool
    ) -> tuple[OffsetlessBatch, Pending[None] | None]:
        """The batch as it will be stored; and the check of its payload if that is under way, whose error is then the
        refusal of the batch.

        Raises Refused as `check_client_batch`, and for the payload: INVALID_RECORD; THROTTLING_QUOTA_EXCEEDED where too
        many wait for their check. A check that was lost with the worker is COORDINATOR_NOT_AVAILABLE: send it again."""
        offsetless = encode_client_batch(header, payload, crc=crc, batch_bytes_max=self.limits.batch_bytes_max)
        return offsetless, self._check(header, payload) if validates_payload else None

    def _check(self, header: BatchHeader, payload: bytes) -> Pending[None] | None:
        plain = payload
        if header.compression is not _PLAIN:
            if len(payload) > UNPACKED_HERE_BYTES_MAX:
                return self._check_elsewhere(header, payload)
            size = unpack_into(self._room, payload, header.compression)
            if size is None:
                # Too large for the room, or damaged. Which, is found out where it does not matter how large.
                return self._check_elsewhere(header, payload)
            plain = bytes(memoryview(self._room)[:size])
        elif header.record_count > RECORDS_HERE_MAX or len(payload) > PLAIN_HERE_BYTES_MAX:
            return self._check_elsewhere(header, payload)
        if header.encoding is _RECORDS:
            try:
                found = len(_parse(plain).records)
            except DecodeError as error:
                raise _unreadable(_no_records(error)) from error
            if found != header.record_count:
                raise _unreadable(_wrong_count(header.record_count, found))
        else:
            why = _why_unreadable_arrow(plain, header.record_count)
            if why:
                raise _unreadable(why)
        return None

    def _check_elsewhere(self, header: BatchHeader, payload: bytes) -> Pending[None]:
        size = len(payload)
        if self.waiting_bytes and (
            self.waiting_bytes + size > WAITING_BYTES_MAX or self.waiting_batches >= WAITING_BATCHES_MAX
        ):
            raise Refused(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many payloads wait to be checked; try again shortly"
            )
        self.waiting_bytes += size
        self.waiting_batches += 1
        argument = (int(header.encoding), int(header.compression), header.record_count, payload)
        found = self._worker.run(why_unreadable, argument)
        found.on_settled(lambda _found: self._checked(size))
        return found.recover(_lost).map(_judge)

    def _checked(self, size: int) -> None:
        self.waiting_bytes -= size
        self.waiting_batches -= 1


def why_unreadable(argument: tuple[int, int, int, bytes]) -> str | None:
    """Why a payload of this encoding, compression and record count cannot be read; None: it can. Takes about
    forty times `UNPACKED_BYTES_MAX` of memory at most, where a single record consists of empty headers. A function of a
    module, so that another process can run it."""
    encoding, compression, record_count, payload = argument
    if record_count > RECORDS_MAX:
        return f"the batch says that it holds {record_count} records, and a batch holds at most {RECORDS_MAX}"
    try:
        plain = unpack(payload, Compression(compression))
    except NotUnpackable as error:
        return str(error)
    if encoding != _RECORDS:
        return _why_unreadable_arrow(plain, record_count)
    found = 0
    try:
        for start, end in pieces(plain, _PIECE_BYTES):
            found += len(_parse(plain[start:end]).records)
            if found > record_count:
                return f"the batch says that it holds {record_count} records and holds more"
    except (DecodeError, ValueError) as error:
        return _no_records(error)
    return None if found == record_count else _wrong_count(record_count, found)


def _why_unreadable_arrow(plain: bytes, record_count: int) -> str | None:
    try:
        found = arrow_record_count(plain)
    except NotArrow as error:
        return f"its payload is no Arrow record batch of the agreed schema: {error}"
    return None if found == record_count else _wrong_count(record_count, found)


def _no_records(error: Exception) -> str:
    return f"its payload is no Records message ({error})"


def _wrong_count(record_count: int, found: int) -> str:
    return f"the batch says that it holds {record_count} records and holds {found}"


def _unreadable(why: str) -> Refused:
    return Refused(
        ErrorCode.INVALID_RECORD, f"no reader could read the batch: {why}; encode it as its header says, and send that"
    )


def _judge(why: str | None) -> None:
    if why:
        raise _unreadable(why)


def _lost(error: Exception) -> str | None:
    if isinstance(error, WorkerLost):
        raise Refused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the payload was not checked ({error}); send the batch again"
        ) from error
    raise error
