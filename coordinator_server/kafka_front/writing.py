"""Shared parts of the encoders: lengths, texts, records, tagged fields, refusals.

An encoder hands pieces to `add`. Small ones are joined at the end, and records stay views.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from coordinator_server.kafka_front.reading import STRING_BYTES_MAX

T = TypeVar("T")
Piece: TypeAlias = bytes | memoryview
Records: TypeAlias = Piece | Sequence[Piece]
"""Record batches: in one piece, or in several that follow each other."""
Add: TypeAlias = Callable[[Piece], object]
Encode: TypeAlias = Callable[[Add, T], None]
COUNTS: Final = tuple(bytes([number + 1]) for number in range(127))
"""Compact lengths and counts of one byte."""
_NUMBERS_OFTEN: Final = 4
count: Final = struct.Struct(">i").pack
_SHORT: Final = struct.Struct(">h").pack


def write_whole(name: str, encoders: Mapping[int, Encode[T]], value: T, version: int) -> list[Piece]:
    """Return the body in one piece. Raises ValueError."""
    pieces: list[bytes] = []
    _write(name, encoders[version], value, version, pieces.append)  # type: ignore[arg-type]
    return [b"".join(pieces)]


def write_pieces(name: str, encoders: Mapping[int, Encode[T]], value: T, version: int) -> list[Piece]:
    """Return the body in pieces, views being records. Raises ValueError."""
    pieces: list[Piece] = []
    _write(name, encoders[version], value, version, pieces.append)
    joined: list[Piece] = []
    small: list[bytes] = []
    for piece in pieces:
        if type(piece) is memoryview:
            if small:
                joined.append(b"".join(small))
                small = []
            joined.append(piece)
        else:
            small.append(piece)
    if small:
        joined.append(b"".join(small))
    return joined


def _write(name: str, encode: Encode[T], value: T, version: int, add: Add) -> None:
    try:
        encode(add, value)
    except (struct.error, ValueError) as error:
        raise ValueError(f"{name} version {version}: {error}") from error


def varint(value: int) -> bytes:
    """Return an unsigned integer in groups of 7 bits, the lowest first."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80,)) + varint(value >> 7)


def string(text: str, name: str) -> bytes:
    """Return a text with a length of 16 bits."""
    raw = text.encode()
    if len(raw) > STRING_BYTES_MAX:
        raise _too_long(name, len(raw))
    return _SHORT(len(raw)) + raw


def long_string(raw: bytes, name: str) -> bytes:
    """Return an encoded text with a length of variable size."""
    if len(raw) > STRING_BYTES_MAX:
        raise _too_long(name, len(raw))
    return varint(len(raw) + 1) + raw


def data(raw: bytes) -> bytes:
    """Return bytes with a length of 32 bits."""
    return count(len(raw)) + raw


def long_bytes(raw: bytes, _name: str) -> bytes:
    """Return bytes with a length of variable size."""
    return varint(len(raw) + 1) + raw


def packer(code: str) -> Callable[[Sequence[int]], bytes]:
    """Return a function that packs numbers in this format of the struct module, without their count."""
    formats = tuple(struct.Struct(f">{number}{code}").pack for number in range(_NUMBERS_OFTEN))

    def packed(numbers: Sequence[int]) -> bytes:
        size = len(numbers)
        return formats[size](*numbers) if size < _NUMBERS_OFTEN else struct.pack(f">{size}{code}", *numbers)

    return packed


def records(add: Add, held: Records | None) -> None:
    """Add records with a length of 32 bits."""
    if held is None:
        add(b"\xff\xff\xff\xff")
        return
    views = _views(held)
    add(count(sum(view.nbytes for view in views)))
    for view in views:
        add(view)


def compact_records(add: Add, held: Records | None) -> None:
    """Add records with a length of variable size."""
    if isinstance(held, memoryview):
        add(varint(held.nbytes + 1))
        add(held)
        return
    if held is None:
        add(b"\0")
        return
    views = _views(held)
    add(varint(sum(view.nbytes for view in views) + 1))
    for view in views:
        add(view)


def _views(held: Records) -> Sequence[memoryview]:
    pieces = (held,) if isinstance(held, (bytes, memoryview)) else held
    return [piece if isinstance(piece, memoryview) else memoryview(piece) for piece in pieces]


def tagged(tag: int, parts: Sequence[Piece]) -> bytes:
    """Return a tagged field."""
    content = b"".join(parts)
    return varint(tag) + varint(len(content)) + content


def tag_section(fields: Sequence[bytes]) -> bytes:
    """Return the tagged fields of a structure."""
    return varint(len(fields)) + b"".join(fields)


def not_in_version(name: str) -> ValueError:
    """Return the error of a value for a field that the version lacks."""
    return ValueError(f"there is no field {name} for a value")


def null_in_version(name: str) -> ValueError:
    """Return the error of None in a field that cannot be null in the version."""
    return ValueError(f"{name} cannot be null")


def _too_long(name: str, size: int) -> ValueError:
    return ValueError(f"{name} has {size} bytes, more than {STRING_BYTES_MAX}")
