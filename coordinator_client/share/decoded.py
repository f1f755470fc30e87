"""Batches of which a share consumer has taken some records: decoded once for all of its polls.

The server hands out parts of a batch, and sends it whole. So members that poll few records get it again with each poll.
Decoding all of it for one record would take longer than the rest of the poll.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from coordinator_api.v1 import log_pb2 as log
from coordinator_client.encodings import checked_batch
from coordinator_client.fetch_reply import WireBatch
from coordinator_client.values import Row, TopicPartition

KEPT_MAX: Final = 32
"""Largest number of batches that are kept."""
KEPT_BYTES_MAX: Final = 1 << 20
"""Largest size of their payloads together, as they were sent. The records take a multiple of it."""


class _Decoded(Struct, frozen=True):
    fields: log.RecordBatch
    payload: bytes
    offsets: Sequence[int]
    rows: list[Row]


class DecodedBatches:
    """The batches of one consumer, the one used longest ago first. For the application's thread."""

    def __init__(self) -> None:
        self._kept: dict[tuple[TopicPartition, int], _Decoded] = {}

    def placed(self, name: TopicPartition, batch: WireBatch, *, is_whole: bool) -> tuple[Sequence[int], list[Row]]:
        """Return the offsets of the records of a batch, ascending, and the records. `is_whole`: all of them were
        acquired, so the batch is not kept. Raises: CorruptBatch."""
        place = name, batch.fields.base_offset
        kept = self._kept.pop(place, None)
        if kept is None or kept.payload != bytes(batch.payload) or kept.fields != batch.fields:
            checked = checked_batch(*name, batch, start_offset=0, end_offset=None)
            offsets, rows = ((), []) if checked is None else checked.placed()
            kept = _Decoded(batch.fields, b"" if is_whole else bytes(batch.payload), offsets, rows)
        if not is_whole:
            self._kept[place] = kept
            self._forget_oldest()
        return kept.offsets, kept.rows

    def _forget_oldest(self) -> None:
        size = sum(len(each.payload) for each in self._kept.values())
        while size > KEPT_BYTES_MAX or len(self._kept) > KEPT_MAX:
            size -= len(self._kept.pop(next(iter(self._kept))).payload)
