"""The codecs agree with kio, which has its own from the same definitions: every message in every version."""

from __future__ import annotations

import functools
import random
import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_server.kafka_front.api_definition import ApiDefinition
from coordinator_server.kafka_front.messages.tables import API_DEFINITIONS
from tests.harness.kio_messages import encoded, kio_class, random_message

BY_API = pytest.mark.parametrize("api", API_DEFINITIONS.values(), ids=lambda api: api.name)


@BY_API
@given(seed=st.integers(0, 2**32 - 1))
def test_a_request_is_read_as_it_was_written(api: ApiDefinition, seed: int) -> None:
    decode = api.decoder()
    for version in range(api.version_min, api.version_max + 1):
        twins = random_message(kio_class(api.key, version, is_request=True), random.Random(seed))
        found = decode(memoryview(encoded(twins.kio)), version)
        assert plain(found, twins.ours) == twins.ours


@BY_API
@given(seed=st.integers(0, 2**32 - 1))
def test_a_response_is_written_as_others_write_it(api: ApiDefinition, seed: int) -> None:
    encode = api.encoder()
    ours = getattr(__import__(api.response_module, fromlist=["x"]), f"{api.name}Response")
    for version in range(api.version_min, api.version_max + 1):
        twins = random_message(kio_class(api.key, version, is_request=False), random.Random(seed))
        pieces = encode(struct_of(ours, twins.ours), version)
        assert b"".join(pieces) == encoded(twins.kio)


def plain(value: Any, like: Any) -> Any:
    """Return the fields that are expected, by their names in kio, and arrays of them."""
    if isinstance(like, Mapping) and value is not None:
        return {name: plain(getattr(value, own_name(type(value), name)), each) for name, each in like.items()}
    if isinstance(value, tuple):
        return tuple(plain(*both) for both in zip(value, like, strict=True))
    return bytes(value) if isinstance(value, memoryview) else value


def struct_of(kind: Any, value: Any) -> Any:
    """Return a value of ours for what kio's has: a struct, an array of structs, or the same."""
    if isinstance(value, Mapping):
        types = field_types(kind)
        own = {own_name(kind, name): each for name, each in value.items()}
        return kind(**{name: struct_of(types[name], each) for name, each in own.items()})
    return [struct_of(kind, each) for each in value] if isinstance(value, tuple) else value


@functools.cache
def field_types(kind: Any) -> Mapping[str, Any]:
    """Return the type of each field; of an array that of its items, and without the null."""
    return {field.name: inner_type(field.type) for field in msgspec.structs.fields(kind)}


def inner_type(kind: Any) -> Any:
    structs = [each for each in typing.get_args(kind) if each is not types.NoneType]
    return inner_type(structs[0]) if structs else kind


@functools.cache
def own_name(kind: Any, name: str) -> str:
    """Return the name of a field of ours. Kio leaves the unit of a duration out."""
    names = {field.name for field in msgspec.structs.fields(kind)}
    return next(each for each in (name, f"{name}_ms") if each in names)
