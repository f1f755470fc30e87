"""Requests as bytes that kio writes, and responses as kio reads them."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
import uuid
from typing import Any

from kio.serial import entity_reader
from kio.static.primitive import i32Timedelta

from coordinator_server.kafka_front.uuids import ZERO_UUID
from tests.harness.kio_messages import encoded, kio_class


def request_bytes(api_key: int, version: int, request: Any) -> memoryview:
    """Return kio's encoding of a request of ours, with the fields that the version has."""
    return memoryview(encoded(_message(kio_class(api_key, version, is_request=True), request)))


def response_of(api_key: int, version: int, body: bytes) -> Any:
    """Return the response that is all of these bytes, as kio decodes it."""
    response, size = entity_reader(kio_class(api_key, version, is_request=False))(memoryview(body), 0)
    assert size == len(body)
    return response


def _message(kind: Any, ours: Any) -> Any:
    return kind(**{field.name: _value(field, ours) for field in dataclasses.fields(kind)})


def _value(field: Any, ours: Any) -> Any:
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type == "timedelta_i32":
        return i32Timedelta.parse(datetime.timedelta(milliseconds=getattr(ours, f"{field.name}_ms")))
    value = getattr(ours, field.name)
    if kafka_type == "uuid":
        return None if value == ZERO_UUID else uuid.UUID(bytes=value)
    if kafka_type == "records":
        return None if value is None else bytes(value)
    if kafka_type is not None:
        return value
    (kind,) = (each for each in typing.get_args(field.type) or (field.type,) if each not in (..., types.NoneType))
    return tuple(_message(kind, item) for item in value) if isinstance(value, tuple) else _message(kind, value)
