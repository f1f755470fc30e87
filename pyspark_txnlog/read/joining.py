"""Columns of many Arrow payloads, joined by a compiled function if it is installed.

The function copies the needed columns out of the payloads, in a fraction of the time that Arrow takes to open and join
them. It declines anything unusual. Then Arrow does the work, and finds any error. The resulting
columns are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from coordinator_client.encodings import FetchedBatch
from coordinator_protocol.batch import Encoding

JOINABLE: Final = ("key", "value", "timestamp_ms")
"""Columns that the compiled function supports, in its order."""

_TYPES: Final = (pa.binary(), pa.binary(), pa.int64())

JoinArrow: TypeAlias = Callable[[Sequence[FetchedBatch], Sequence[str]], "dict[str, pa.Array] | None"]
"""Joins the named ones of the `JOINABLE` columns, within the range of each batch. Returns None if it cannot."""


def fastest_join_arrow() -> JoinArrow | None:
    """Return the compiled function; None if the SDK finds none."""
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
    """True if the batch may be joined unopened: it is in Arrow and was not compacted."""
    header = batch.header
    return header.encoding is Encoding.ARROW_V1 and not header.hole_count


def _asked(batch: FetchedBatch) -> tuple[memoryview, int, int, int]:
    header = batch.header
    start = batch.first_offset - header.base_offset
    return memoryview(batch.content), header.record_count, start, batch.end_offset - header.base_offset


_Place: TypeAlias = tuple[int, int]
"""Start of a buffer in the joined bytes, and its size."""


def _buffers(whole: pa.Buffer, present: _Place | None, offsets: _Place | None, data: _Place) -> list[pa.Buffer | None]:
    bits = None if present is None else whole.slice(*present)
    numbers = [] if offsets is None else [whole.slice(*offsets)]
    return [bits, *numbers, whole.slice(*data)]
