"""A partition's live state: the part of it that has keys of its own. Its positions are the shard's, by ordinal."""

from __future__ import annotations

from coordinator_runtime.timeline import Journal, TimelineMap
from partition_log.state import OpenTransaction, ProducerEntry


class Partition:
    """Producers, and which of their transactions are open."""

    __slots__ = ("first_offsets", "ongoing", "producers")

    def __init__(self, journal: Journal) -> None:
        self.producers: TimelineMap[int, ProducerEntry] = TimelineMap(journal)
        self.ongoing: TimelineMap[int, OpenTransaction] = TimelineMap(journal, keys_ascend=True)
        """Open transactions by first offset, ascending: the first one is what the last stable offset waits for."""
        self.first_offsets = self.ongoing.keys()
        """Of the open transactions, live and in that order, by a name of its own: every operation looks there."""

    def put(self, producer_id: int, producer: ProducerEntry) -> None:
        """Set what is known of a producer. Only `replay` calls this."""
        before = self.producers.get(producer_id)
        was_open = None if before is None else before.open_transaction
        is_open = producer.open_transaction
        if was_open is not is_open:
            if is_open is None:
                assert was_open is not None
                self.ongoing.remove(was_open.first_offset)
            elif was_open is None:
                self.ongoing.put(is_open.first_offset, is_open)
        self.producers.put(producer_id, producer)

    def first_unstable_without(self, opened: OpenTransaction | None) -> int | None:
        """Where the oldest transaction begins that is open, this one left out; None = there is none."""
        for first_offset in self.first_offsets:
            if opened is None or first_offset != opened.first_offset:
                return first_offset
        return None
