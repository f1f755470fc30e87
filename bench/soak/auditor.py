"""Reader that counts all committed records while they are written, before retention removes them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from bench.soak.ledger import PARTITIONS, Seen
from bench.soak.work import COPIES, ORDERS
from coordinator_client import Consumer, TopicPartition

_POLL_MS: Final = 500
_RECORDS_MAX: Final = 5_000


class Auditor:
    """A reader of both topics, in a thread of its own."""

    def __init__(self, endpoint: str) -> None:
        self.seen = {ORDERS: Seen(), COPIES: Seen()}
        self.counts = {ORDERS: 0, COPIES: 0}
        """Number of records by topic."""
        self.failure: Exception | None = None
        self._endpoint = endpoint
        self._wanted: tuple[str, ...] = ()
        self._has_all = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._guarded, daemon=True)
        self._thread.start()

    def read_all(self, *topics: str) -> None:
        """Return when all records are counted that are committed in these topics by now. Raises the error that stopped
        the reader."""
        self._has_all.clear()
        self._wanted = topics
        while self._thread.is_alive() and not self._has_all.wait(1):
            pass
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """End at once."""
        self._is_over.set()
        self._thread.join()

    def _guarded(self) -> None:
        try:
            self._read()
        except Exception as failure:  # noqa: BLE001  raised where it is waited for
            self.failure = failure
            self._has_all.set()

    def _read(self) -> None:
        places = [TopicPartition(topic, partition) for topic in self.seen for partition in range(PARTITIONS)]
        with Consumer(
            self._endpoint, auto_offset_reset="none", max_poll_records=_RECORDS_MAX, wait_ms=None
        ) as consumer:
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
            ends: Mapping[TopicPartition, int] | None = None
            while not self._is_over.is_set():
                for record in consumer.poll(timeout_ms=_POLL_MS):
                    producer, number, _ = (record.value or b"").split(b" ", 2)
                    self.seen[record.topic].note(int(producer), int(number), record.partition)
                    self.counts[record.topic] += 1
                if self._wanted and ends is None:
                    ends = consumer.end_offsets([place for place in places if place.topic in self._wanted])
                if ends is not None and all(consumer.position(place) >= end for place, end in ends.items()):
                    self._wanted, ends = (), None
                    self._has_all.set()
