"""Port of share groups to the logs of dead-letter topics. The partition log implements it.

Share groups decide on letters, and know no encodings. The log reads records out of batches, and makes batches of
letters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from coordinator_protocol.batch import BatchHeader
from coordinator_protocol.kafka_records import PlacedRecord
from coordinator_protocol.wire import Buffer
from coordinator_runtime.decision import Operation
from coordinator_runtime.pending import Pending


class PlacedLetters(NamedTuple):
    """Letters that fit into one batch of a partition of the dead-letter topic."""

    taken: int
    """Number of the letters in the batch, from the first on. 0 if the first one is too large by itself."""
    append: Operation | None
    """Appends the batch; None without letters. Refused if the partition is not served, or was deleted."""


class DeadLetterLog(Protocol):
    """Reads records that get a letter, and places letters."""

    def records_at(
        self, batch: tuple[BatchHeader, Buffer], offsets: Collection[int]
    ) -> Pending[Mapping[int, PlacedRecord]]:
        """Return the records of a stored batch at these offsets. An offset without a record is left out, and so are all
        if the payload cannot be read. Large batches are read off the loop.

        Errors: WorkerLost."""

    def place(self, topic: str, number: int, letters: Sequence[PlacedRecord], now_ms: int) -> PlacedLetters:
        """Place letters for records of the partition with this number. Letters from one partition are in one.

        Raises Refused: UNKNOWN_TOPIC_OR_PARTITION, and if there is no room on the disk."""
