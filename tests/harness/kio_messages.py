"""Messages of kio, a library of others with codecs from the same definitions: random ones, and how ours compare."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import random
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import TZAware, i32Timedelta, i64Timedelta

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_CHARACTERS: Final = "abcXYZ019-._é\u20ac\U0001f600\0"
_ERROR_CODES: Final = tuple(ErrorCode)
_SIZES: Final = (0, 1, 2, 3, 7, 20, 125, 126, 127, 128, 200)
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclasses.dataclass(frozen=True, slots=True)
class Twins:
    """One value twice."""

    kio: Any
    ours: Any
    """Value for a field of ours; a structure as a mapping from its fields."""


@functools.cache
def kio_class(api_key: int, version: int, *, is_request: bool) -> Any:
    """Return kio's class of a message."""
    kind = EntityType.request if is_request else EntityType.response
    module = load_payload_module(api_key, version, kind)  # type: ignore[arg-type]
    return next(
        each
        for each in vars(module).values()
        if dataclasses.is_dataclass(each) and getattr(each, "__type__", None) is kind
    )


def encoded(message: Any) -> bytes:
    """Return kio's encoding."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def random_message(kind: Any, chance: random.Random) -> Twins:
    """Return a message of one of kio's classes, and the fields of ours by name."""
    fields = {name: make(chance) for name, make in _makers(kind).items()}
    return Twins(
        kind(**{name: twins.kio for name, twins in fields.items()}),
        {name: twins.ours for name, twins in fields.items()},
    )


@functools.cache
def _makers(kind: Any) -> Mapping[str, Callable[[random.Random], Twins]]:
    return {field.name: _maker(field) for field in dataclasses.fields(kind)}


def _maker(field: Any) -> Callable[[random.Random], Twins]:
    """Return what makes values of a field: its default sometimes, null sometimes where it may be."""
    options = typing.get_args(field.type) if isinstance(field.type, types.UnionType) else (field.type,)
    is_nullable = types.NoneType in options
    (one,) = (each for each in options if each is not types.NoneType)
    if typing.get_origin(one) is tuple:
        item = typing.get_args(one)[0]
        make = _array_maker(_one_maker(item, field.metadata.get("kafka_type")))
    else:
        make = _one_maker(one, field.metadata.get("kafka_type"))
    # An optional uuid is one of zeros, and a tagged field cannot be null on the wire but where that is its default.
    if not is_nullable or field.metadata.get("kafka_type") in ("uuid", "datetime_i64") or "tag" in field.metadata:
        return make
    return lambda chance: Twins(None, None) if chance.random() < 0.2 else make(chance)


def _array_maker(make: Callable[[random.Random], Twins]) -> Callable[[random.Random], Twins]:
    def made(chance: random.Random) -> Twins:
        count = 130 if chance.random() < 0.002 else chance.choice((0, 1, 1, 2, 3))
        items = [make(chance) for _ in range(count)]
        return Twins(tuple(item.kio for item in items), tuple(item.ours for item in items))

    return made


def _one_maker(kind: Any, kafka_type: str | None) -> Callable[[random.Random], Twins]:
    if kafka_type is None:
        return functools.partial(random_message, kind)
    return _PRIMITIVES[kafka_type]


def _integer(bits: int, chance: random.Random, *, is_signed: bool = True) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return chance.choice((low, high, 0, 1, chance.randint(low, high), chance.randint(0, 100)))


def _same(make: Callable[[random.Random], Any]) -> Callable[[random.Random], Twins]:
    def made(chance: random.Random) -> Twins:
        value = make(chance)
        return Twins(value, value)

    return made


def _text(chance: random.Random) -> str:
    start = chance.randrange(len(_CHARACTERS))
    return (_CHARACTERS * 20)[start : start + chance.choice(_SIZES)]


def _id(chance: random.Random) -> Twins:
    raw = chance.choice((bytes(16), chance.randbytes(16)))
    return Twins(uuid.UUID(bytes=raw) if any(raw) else None, raw)


def _error_code(chance: random.Random) -> Twins:
    code = chance.choice(_ERROR_CODES)
    return Twins(code, code.value)


def _duration(kind: Any, bits: int) -> Callable[[random.Random], Twins]:
    def made(chance: random.Random) -> Twins:
        # Beyond this kio's own conversion to milliseconds is not exact.
        value = _integer(min(bits, 40), chance)
        return Twins(kind.parse(datetime.timedelta(milliseconds=value)), value)

    return made


def _instant(chance: random.Random) -> Twins:
    value = 1_000 * chance.randint(0, 1 << 31)
    return Twins(TZAware.parse(_EPOCH + datetime.timedelta(milliseconds=value)), value)


_PRIMITIVES: Final[Mapping[str, Callable[[random.Random], Twins]]] = {
    **{name: _same(functools.partial(_integer, bits)) for name, bits in _BITS.items()},
    "uint16": _same(functools.partial(_integer, 16, is_signed=False)),
    "bool": _same(lambda chance: chance.random() < 0.5),
    "string": _same(_text),
    "bytes": _same(lambda chance: chance.randbytes(chance.choice(_SIZES))),
    "records": _same(lambda chance: chance.randbytes(chance.choice((*_SIZES, 5_000)))),
    "float64": _same(lambda chance: chance.choice((0.0, -1.5, chance.random()))),
    "uuid": _id,
    "error_code": _error_code,
    "timedelta_i32": _duration(i32Timedelta, 32),
    "timedelta_i64": _duration(i64Timedelta, 64),
    "datetime_i64": _instant,
}
