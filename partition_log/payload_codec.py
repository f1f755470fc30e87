"""Payloads of the encoding `records.v1`, which are protobuf messages."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from coordinator_api.v1 import log_pb2

RECORD_FIELD: Final = log_pb2.Records.RECORDS_FIELD_NUMBER
_parse_records: Final = log_pb2.Records.FromString


class NotRecords(Exception):
    """The bytes are no records of the encoding `records.v1`."""


def record_count_of(payload: bytes) -> int:
    """How many records an unpacked payload of the encoding `records.v1` holds. Raises NotRecords."""
    try:
        return len(_parse_records(payload).records)
    except DecodeError as error:
        raise NotRecords(str(error)) from error
