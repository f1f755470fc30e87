"""Answers to Fetch and ShareFetch, parsed without copying payloads: small fields become messages, payloads stay in the
received bytes.

Protobuf would copy every payload twice, out of the answer and out of the message. A view costs nothing, but keeps its
whole answer in memory. Code that keeps payloads for long must copy them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import Struct

from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import share_pb2 as share
from coordinator_protocol.wire import Buffer, bytes_field, split

Payload: TypeAlias = Buffer

_RESULTS: Final = bytes_field(log.FetchResponse.RESULTS_FIELD_NUMBER)
_BATCHES: Final = bytes_field(log.FetchResult.BATCHES_FIELD_NUMBER)
_SHARE_RESULTS: Final = bytes_field(share.ShareFetchResponse.RESULTS_FIELD_NUMBER)
_SHARE_BATCHES: Final = bytes_field(share.ShareFetchResult.BATCHES_FIELD_NUMBER)
_PAYLOAD: Final = bytes_field(log.RecordBatch.PAYLOAD_FIELD_NUMBER)


class WireBatch(Struct, frozen=True):
    """A received batch, unverified."""

    fields: log.RecordBatch
    """All fields except the payload."""
    payload: Payload

    def kept(self) -> WireBatch:
        """Return a copy with its own payload, which keeps nothing else in memory."""
        return WireBatch(self.fields, bytes(self.payload))


class PartitionReply(Struct, frozen=True):
    """The part of an answer for one partition."""

    fields: log.FetchResult
    """All fields except the batches."""
    batches: Sequence[WireBatch]


@dataclass(slots=True)
class FetchReply:
    """A parsed `FetchResponse`."""

    error_code: int = 0
    error_class: int = 0
    error_message: str = ""
    throttle_ms: int = 0
    results: list[PartitionReply] = field(default_factory=list)


class SharePartitionReply(Struct, frozen=True):
    """The part of an answer to ShareFetch for one partition."""

    fields: share.ShareFetchResult
    """All fields except the batches."""
    batches: Sequence[WireBatch]


@dataclass(slots=True)
class ShareRecordsReply:
    """A parsed `ShareFetchResponse`."""

    error_code: int = 0
    error_class: int = 0
    error_message: str = ""
    throttle_ms: int = 0
    lock_duration_ms: int = 0
    results: list[SharePartitionReply] = field(default_factory=list)


ReplyT = TypeVar("ReplyT", bound=Message)
ResultT = TypeVar("ResultT", bound=Message)


def parse_fetch_reply(body: Buffer) -> FetchReply:
    """Return the answer, with payloads that are views of `body`. Raises: DecodeError if the bytes are not a
    FetchResponse."""
    fields, results = _parsed(body, log.FetchResponse, _RESULTS, log.FetchResult, _BATCHES)
    return FetchReply(
        fields.error_code,
        fields.error_class,
        fields.error_message,
        fields.throttle_ms,
        [PartitionReply(result, batches) for result, batches in results],
    )


def parse_share_fetch_reply(body: Buffer) -> ShareRecordsReply:
    """Return the answer, with payloads that are views of `body`. Raises: DecodeError if the bytes are not a
    ShareFetchResponse."""
    fields, results = _parsed(body, share.ShareFetchResponse, _SHARE_RESULTS, share.ShareFetchResult, _SHARE_BATCHES)
    return ShareRecordsReply(
        fields.error_code,
        fields.error_class,
        fields.error_message,
        fields.throttle_ms,
        fields.lock_duration_ms,
        [SharePartitionReply(result, batches) for result, batches in results],
    )


def _parsed(
    body: Buffer, reply_type: type[ReplyT], results: bytes, result_type: type[ResultT], batches: bytes
) -> tuple[ReplyT, list[tuple[ResultT, list[WireBatch]]]]:
    """Return the reply without its results, and each result without its batches beside these. `results` and `batches`
    are their fields."""
    try:
        rest, places = split(body, 0, len(body), results)
        return reply_type.FromString(rest), [_partition(body, place, result_type, batches) for place in places]
    except ValueError as error:
        raise DecodeError(f"{len(body)} bytes came that are no {reply_type.DESCRIPTOR.name}: {error}") from error


def _partition(
    body: Buffer, place: tuple[int, int], result_type: type[ResultT], batches: bytes
) -> tuple[ResultT, list[WireBatch]]:
    rest, found = split(body, *place, batches)
    view = memoryview(body)
    return result_type.FromString(rest), [_batch(body, view, *each) for each in found]


def _batch(body: Buffer, view: memoryview, start: int, end: int) -> WireBatch:
    rest, payloads = split(body, start, end, _PAYLOAD)
    # If a field is repeated, the last one counts.
    payload_start, payload_end = payloads[-1] if payloads else (0, 0)
    return WireBatch(log.RecordBatch.FromString(rest), view[payload_start:payload_end])
