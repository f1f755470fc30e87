"""Producer ids and commit sequence numbers: the one shard that every transaction shares.

Producer ids come from durable blocks of 1,000: the end of a block is stored with or before the first use of one of its
ids, so a crash can skip ids but never give one twice (spec transactions 6). Transactional ids and plain producers have
blocks of their own, because the number says whose it is. The commit sequence number counts decided outcomes; it is
stored with the decision that takes it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.producers import PLAIN_PRODUCER_IDS_FROM, PRODUCER_ID_MAX, is_plain
from coordinator_runtime.decision import Coordinator, Decision, Record, ShardKey, Turn
from coordinator_runtime.incarnation import FIRST, Incarnation
from coordinator_runtime.timeline import Journal, TimelineMap
from txn_coordinator.records import CsnGiven, ProducerIdBlockTaken, ProducerIdGiven, UnownedMarkerWritten

COUNTERS: Final = ShardKey(Coordinator.COUNTERS, 0)
BLOCK_SIZE: Final = 1_000

_CSN, _GIVEN = "csn", "given"


class _Kind(NamedTuple):
    """Producer ids of one kind, and where the counters keep how far they were given."""

    first: int
    end: int
    next_producer_id: str
    block_end: str


_OF_TRANSACTIONS: Final = _Kind(0, PLAIN_PRODUCER_IDS_FROM, "next_producer_id", "block_end")
_PLAIN: Final = _Kind(PLAIN_PRODUCER_IDS_FROM, PRODUCER_ID_MAX + 1, "next_plain_producer_id", "plain_block_end")


def _kind_of(producer_id: int) -> _Kind:
    return _PLAIN if is_plain(producer_id) else _OF_TRANSACTIONS


class CountersShard:
    """Knows the next producer id and the last csn. To ask for the next one changes nothing: the records that give it
    away, once replayed, count."""

    def __init__(self, journal: Journal, incarnation: Incarnation = FIRST) -> None:
        self._incarnation = incarnation
        self._least_csn = incarnation.least_csn
        """What a lost incarnation of the store gave away is not given again, though nobody knows how far that came."""
        self._values: TimelineMap[str, int] = TimelineMap(journal)

    def next_producer_id(self, records: list[Record]) -> int:
        """The next unused producer id for a transactional id; what gives it away is added to `records`. To be asked
        once in an operation.

        Raises Refused COORDINATOR_LOAD_IN_PROGRESS when they are used up, which Kafka's clients take as "not now"."""
        return self._next(_OF_TRANSACTIONS, records)

    def next_plain_producer_id(self, records: list[Record]) -> int:
        """The next unused producer id for a producer without a transactional id, as `next_producer_id`."""
        return self._next(_PLAIN, records)

    def unused_producer_ids(self) -> range:
        """The producer ids for transactional ids that are left of the present block, the next one first."""
        return self._unused(_OF_TRANSACTIONS)

    def _unused(self, kind: _Kind) -> range:
        least = self._least(kind)
        return range(max(self._next_of(kind), least), max(self._values.get(kind.block_end) or kind.first, least))

    def _next(self, kind: _Kind, records: list[Record]) -> int:
        assert not records, "one decision needs at most one producer id"
        unused = self._unused(kind)
        producer_id, block_end = unused.start, unused.stop
        if not unused:
            if block_end > kind.end - BLOCK_SIZE:
                raise Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there are no unused producer ids left")
            block = ProducerIdBlockTaken(block_end + BLOCK_SIZE)
            records.append(Record(COUNTERS, block, cause="producer_id_block"))
            producer_id = block_end
        records.append(Record(COUNTERS, ProducerIdGiven(producer_id)))
        return producer_id

    def _next_of(self, kind: _Kind) -> int:
        return self._values.get(kind.next_producer_id) or kind.first

    @property
    def least_producer_id(self) -> int:
        """The first producer id of a transactional id that no lost incarnation can have given; 0: there is no lost
        incarnation."""
        return self._least(_OF_TRANSACTIONS)

    def _least(self, kind: _Kind) -> int:
        """The first producer id of this kind that no lost incarnation can have given."""
        return kind.first + self._incarnation.least_producer_id

    def next_csn(self) -> tuple[int, Record]:
        """The number for the next outcome, and the record that gives it."""
        csn = max(self._values.get(_CSN) or 0, self._least_csn) + 1
        return csn, Record(COUNTERS, CsnGiven(csn))

    def check_given(self, producer_id: int, csn: int) -> None:
        """Return only for numbers that may have been given away: what comes from the future would block those who get
        them. Raises Refused INVALID_REQUEST."""
        if producer_id >= self._next_of(_kind_of(producer_id)):
            raise Refused(ErrorCode.INVALID_REQUEST, f"producer id {producer_id} was never given to a producer")
        if csn > (self._values.get(_CSN) or 0):
            raise Refused(ErrorCode.INVALID_REQUEST, f"csn {csn} was never given to an outcome")

    def check_line(self, producer_id: int) -> None:
        """Return only for a producer id that this incarnation may have given. Nobody has one of a lost incarnation any
        more, and what was decided there for it is not so here. Raises Refused INVALID_REQUEST."""
        if producer_id < self._least(_kind_of(producer_id)):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"producer id {producer_id} is of a line of the store that ended with a loss or a restore: what it had "
                "open here was aborted",
            )

    def check_plain(self, producer_id: int) -> None:
        """Return only for a producer id that no transactional id has or ever had, in no incarnation of the store, so
        that no fence concerns it. Raises Refused INVALID_TXN_STATE."""
        if not is_plain(producer_id) and producer_id < max(
            self._next_of(_OF_TRANSACTIONS), self._least(_OF_TRANSACTIONS)
        ):
            raise Refused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer id {producer_id} was given to a transactional id and appends in its transactions only: send "
                "the batch in one, or call InitProducerId without a transactional_id for the batches outside",
            )

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
                kind = _kind_of(block_end - 1)
                if kind.next_producer_id not in self._values:
                    self._values.put(kind.next_producer_id, block_end)
                self._values.put(kind.block_end, block_end)
            case ProducerIdGiven(producer_id=producer_id, count=count):
                self._values.put(_kind_of(producer_id).next_producer_id, producer_id + 1)
                self._values.put(_GIVEN, (self._values.get(_GIVEN) or 0) + count)
            case UnownedMarkerWritten():
                pass  # For the history alone.

    def on_loaded(self, turn: Turn) -> Decision:
        return Decision()
