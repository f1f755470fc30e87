"""Producer ids and commit sequence numbers: the one shard that every transaction shares.

Producer ids come from durable blocks of 1,000: the end of a block is stored with or before the first use of one of its
ids, so a crash can skip ids but never give one twice (spec transactions 6). The commit sequence number counts decided
outcomes; it is stored with the decision that takes it.
"""

from __future__ import annotations

from typing import Final

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.decision import Coordinator, Decision, Record, ShardKey, Turn
from coordinator_runtime.timeline import Journal, TimelineMap
from txn_coordinator.records import CsnGiven, ProducerIdBlockTaken, ProducerIdGiven, UnownedMarkerWritten

COUNTERS: Final = ShardKey(Coordinator.COUNTERS, 0)
BLOCK_SIZE: Final = 1_000
PRODUCER_ID_MAX: Final = 2**63 - 1

_NEXT, _BLOCK_END, _CSN, _GIVEN = "next_producer_id", "block_end", "csn", "given"


class CountersShard:
    """Knows the next producer id and the last csn. `next_*` look; the returned records, once replayed, count."""

    def __init__(self, journal: Journal) -> None:
        self._values: TimelineMap[str, int] = TimelineMap(journal)

    def next_producer_id(self) -> tuple[int, tuple[Record, ...]]:
        """The next unused producer id, and the records that give it away.

        Raises Refused COORDINATOR_LOAD_IN_PROGRESS when 2^63 ids are used up, which Kafka's clients take as "not
        now"."""
        block_end = self._values.get(_BLOCK_END) or 0
        producer_id = self._values.get(_NEXT) or 0
        if producer_id < block_end:
            return producer_id, (Record(COUNTERS, ProducerIdGiven(producer_id)),)
        if block_end > PRODUCER_ID_MAX - BLOCK_SIZE:
            raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there are no unused producer ids left")
        block = Record(COUNTERS, ProducerIdBlockTaken(block_end + BLOCK_SIZE), cause="producer_id_block")
        return block_end, (block, Record(COUNTERS, ProducerIdGiven(block_end)))

    def next_csn(self) -> tuple[int, Record]:
        """The number for the next outcome, and the record that gives it."""
        csn = (self._values.get(_CSN) or 0) + 1
        return csn, Record(COUNTERS, CsnGiven(csn))

    def check_given(self, producer_id: int, csn: int) -> None:
        """Return only for numbers that may have been given away: what comes from the future would block those who get
        them. Raises Refused INVALID_REQUEST."""
        if producer_id >= (self._values.get(_NEXT) or 0):
            raise Refused(ErrorCode.INVALID_REQUEST, f"producer id {producer_id} was never given to a producer")
        if csn > (self._values.get(_CSN) or 0):
            raise Refused(ErrorCode.INVALID_REQUEST, f"csn {csn} was never given to an outcome")

    def durable_csn(self) -> int:
        """The number of the newest outcome that is on disk, 0 before the first."""
        return self._values.durable(_CSN) or 0

    @property
    def given_producer_ids(self) -> int:
        """Producer ids given away since this process started, as far as that is durable."""
        return self._values.durable(_GIVEN) or 0

    def replay(self, value: ProducerIdBlockTaken | ProducerIdGiven | CsnGiven | UnownedMarkerWritten) -> None:
        match value:
            case CsnGiven(csn=csn):
                self._values.put(_CSN, csn)
            case ProducerIdBlockTaken(next_unassigned_producer_id=block_end):
                # After a load the rest of the last block is skipped: which of its ids were used is not known.
                if _NEXT not in self._values:
                    self._values.put(_NEXT, block_end)
                self._values.put(_BLOCK_END, block_end)
            case ProducerIdGiven(producer_id=producer_id):
                self._values.put(_NEXT, producer_id + 1)
                self._values.put(_GIVEN, (self._values.get(_GIVEN) or 0) + 1)
            case UnownedMarkerWritten():
                pass  # For the history alone.

    def on_loaded(self, turn: Turn) -> Decision:
        return Decision()
