"""Answers to Fetch, parsed without copying payloads: small fields become messages, payloads stay in the received bytes.

Protobuf would copy every payload twice, out of the answer and out of the message. A view costs nothing, but keeps its
whole answer in memory. Code that keeps payloads for long must copy them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError
from msgspec import Struct

from coordinator_api.v1 import log_pb2 as log
from coordinator_protocol.wire import Buffer, bytes_field, split

Payload: TypeAlias = Buffer

_RESULTS: Final = bytes_field(log.FetchResponse.RESULTS_FIELD_NUMBER)
_BATCHES: Final = bytes_field(log.FetchResult.BATCHES_FIELD_NUMBER)
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


def parse_fetch_reply(body: Buffer) -> FetchReply:
    """Return the answer, with payloads that are views of `body`. Raises: DecodeError if the bytes are not a
    FetchResponse."""
    try:
        rest, results = split(body, 0, len(body), _RESULTS)
        fields = log.FetchResponse.FromString(rest)
        return FetchReply(
            fields.error_code,
            fields.error_class,
            fields.error_message,
            fields.throttle_ms,
            [_partition(body, start, end) for start, end in results],
        )
    except ValueError as error:
        raise DecodeError(f"{len(body)} bytes came that are no FetchResponse: {error}") from error


def _partition(body: Buffer, start: int, end: int) -> PartitionReply:
    rest, batches = split(body, start, end, _BATCHES)
    view = memoryview(body)
    return PartitionReply(log.FetchResult.FromString(rest), [_batch(body, view, *place) for place in batches])


def _batch(body: Buffer, view: memoryview, start: int, end: int) -> WireBatch:
    rest, payloads = split(body, start, end, _PAYLOAD)
    # If a field is repeated, the last one counts.
    payload_start, payload_end = payloads[-1] if payloads else (0, 0)
    return WireBatch(log.RecordBatch.FromString(rest), view[payload_start:payload_end])
