"""Readers of a run: of committed records, of all records, and of everything raw, by both protocols."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random

from partition_log.state import Isolation
from tests.harness.kafka_reader import BYTES_MAX
from tests.harness.world import World
from tests.simulation.history import History, Read
from tests.simulation.kafka_clients import KafkaClients
from tests.simulation.removal import Removals
from tests.simulation.topics import Topics
from tests.simulation.translation import plain_entry


class Readers:
    """Reads partitions, and adds each read to the history."""

    def __init__(
        self,
        world: World,
        rng: Random,
        history: History,
        *,
        topics: Topics,
        removals: Removals,
        kafka: KafkaClients,
        is_of_kafka: Callable[[], bool],
        now: Callable[[], int],
    ) -> None:
        self._world = world
        self._rng = rng
        self._history = history
        self._topics = topics
        self._removals = removals
        self._kafka = kafka
        self._is_of_kafka = is_of_kafka
        self._now = now
        self.positions: defaultdict[str, int] = defaultdict(int)
        """The next offset of each partition."""
        self.is_calm = False
        """True once no read is cut short any more."""

    def read_one(self) -> None:
        """Read a partition in one of the three ways. Raises Refused while it is not served."""
        partition = self._rng.choice(self._topics.partitions)
        match self._rng.randrange(4):
            case 0:
                self.note(partition, "uncommitted")
            case 1:
                self.note(partition, "raw")
            case _:
                position, begin = self.positions[partition], self._removals.log_start(partition)
                if position < begin:
                    self._removals.check_out_of_range(partition, position)
                # Whose position went goes on where the log begins.
                read = self.note(partition, "committed", max(position, begin))
                self.positions[partition] = read.next_offset

    def note(self, partition: str, level: str, fetch_offset: int | None = None) -> Read:
        """Read from an offset, or from where the partition begins."""
        if fetch_offset is None:
            fetch_offset = self._removals.log_start(partition)
        read = self._fetch(partition, level, fetch_offset)
        self._history.reads.append(read)
        return read

    def _fetch(self, partition: str, level: str, fetch_offset: int) -> Read:
        isolation = Isolation.READ_COMMITTED if level == "committed" else Isolation.READ_UNCOMMITTED
        if level != "raw" and self._is_of_kafka():
            bytes_max = BYTES_MAX if self.is_calm else self._rng.choice((1, BYTES_MAX))
            is_committed = isolation is Isolation.READ_COMMITTED
            reading = self._kafka.reader.read(partition, fetch_offset, is_committed=is_committed, bytes_max=bytes_max)
        else:
            reading = self._world.read(partition, fetch_offset=fetch_offset, isolation=isolation, is_raw=level == "raw")
        return Read(
            self._now(),
            partition,
            level,
            fetch_offset,
            reading.next_offset,
            # Batches come whole.
            tuple(plain_entry(entry) for entry in reading.entries if entry.offset >= fetch_offset),
            reading.high_watermark,
            reading.last_stable_offset,
            reading.log_start_offset,
        )
