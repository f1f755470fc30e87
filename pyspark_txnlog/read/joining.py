"""Columns of many Arrow payloads, joined by the compiled function where it is installed.

It looks through the payloads and copies what is wanted of them, in a fraction of the time that Arrow takes to open each
and to join their columns. Where anything is unusual it says that it cannot; then Arrow does it, and finds what is
wrong. The columns are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from coordinator_client.encodings import FetchedBatch
from coordinator_protocol.batch import Encoding

JOINABLE: Final = ("key", "value", "timestamp_ms")
"""The columns that the compiled function knows, in its order."""

_TYPES: Final = (pa.binary(), pa.binary(), pa.int64())

JoinArrow: TypeAlias = Callable[[Sequence[FetchedBatch], Sequence[str]], "dict[str, pa.Array] | None"]
"""Joins those of the `JOINABLE` columns that are named, of what lies in the range of each batch. None: it cannot."""


def fastest_join_arrow() -> JoinArrow | None:
    """The compiled function; None where none is installed that the SDK knows."""
    try:
        from coordinator_client.transport.native_channel import compiled_join_arrow
    except ImportError:
        return None

    def join(batches: Sequence[FetchedBatch], names: Sequence[str]) -> dict[str, pa.Array] | None:
        asked = [_asked(batch) for batch in batches]
        key, value, times = (name in names for name in JOINABLE)
        made = compiled_join_arrow(asked, (key, value, times))
        if made is None:
            return None
        held, columns = made
        whole, row_count = pa.py_buffer(held), sum(end - start for _, _, start, end in asked)
        wanted = [(name, kind) for name, kind in zip(JOINABLE, _TYPES, strict=True) if name in names]
        return {
            name: pa.Array.from_buffers(kind, row_count, _buffers(whole, present, offsets, data), null_count)
            for (name, kind), (null_count, present, offsets, data) in zip(wanted, columns, strict=True)
        }

    return join


def is_joinable(batch: FetchedBatch) -> bool:
    """Whether the batch is of those that may be joined unopened: Arrow, and no compacted one."""
    header = batch.header
    return header.encoding is Encoding.ARROW_V1 and not header.hole_count


def _asked(batch: FetchedBatch) -> tuple[memoryview, int, int, int]:
    header = batch.header
    start = batch.first_offset - header.base_offset
    return memoryview(batch.content), header.record_count, start, batch.end_offset - header.base_offset


_Place: TypeAlias = tuple[int, int]
"""Where a buffer begins in the joined bytes, and its size."""


def _buffers(whole: pa.Buffer, present: _Place | None, offsets: _Place | None, data: _Place) -> list[pa.Buffer | None]:
    bits = None if present is None else whole.slice(*present)
    numbers = [] if offsets is None else [whole.slice(*offsets)]
    return [bits, *numbers, whole.slice(*data)]
