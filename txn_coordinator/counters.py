"""Producer ids and commit sequence numbers: the one shard that all transactions share.

Producer ids come from durable blocks of 1,000. The end of a block is stored with or before the first use of one of its
ids. So a crash can skip ids but never give one twice (spec transactions 6). Transactional ids and plain producers have
blocks of their own, because the number shows the kind. The commit sequence number counts decided outcomes, and is
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
    """Producer ids of one kind, and the keys of their counters."""

    first: int
    end: int
    next_producer_id: str
    block_end: str


_OF_TRANSACTIONS: Final = _Kind(0, PLAIN_PRODUCER_IDS_FROM, "next_producer_id", "block_end")
_PLAIN: Final = _Kind(PLAIN_PRODUCER_IDS_FROM, PRODUCER_ID_MAX + 1, "next_plain_producer_id", "plain_block_end")


def _kind_of(producer_id: int) -> _Kind:
    return _PLAIN if is_plain(producer_id) else _OF_TRANSACTIONS


class CountersShard:
    """Source of producer ids and csns. A request for the next one changes nothing: only the replay of its records
    does."""

    def __init__(self, journal: Journal, incarnation: Incarnation = FIRST) -> None:
        self._incarnation = incarnation
        self._least_csn = incarnation.least_csn
        """Csns up to this one may have been given by a lost incarnation of the store, so they are not given again."""
        self._values: TimelineMap[str, int] = TimelineMap(journal)

    def next_producer_id(self, records: list[Record]) -> int:
        """Return the next unused producer id for a transactional id, and add the records that give it to `records`.
        Call it once in an operation.

        Raises Refused COORDINATOR_LOAD_IN_PROGRESS if they are used up; Kafka's clients retry on that.
        """
        return self._next(_OF_TRANSACTIONS, records)

    def next_plain_producer_id(self, records: list[Record]) -> int:
        """Return the next unused producer id for a producer without a transactional id, as `next_producer_id`."""
        return self._next(_PLAIN, records)

    def unused_producer_ids(self) -> range:
        """Return the producer ids for transactional ids that are left of the current block, the next one first."""
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
        """First producer id of a transactional id that no lost incarnation can have given; 0 if none was lost."""
        return self._least(_OF_TRANSACTIONS)

    def _least(self, kind: _Kind) -> int:
        """Return the first producer id of this kind that no lost incarnation can have given."""
        return kind.first + self._incarnation.least_producer_id

    def next_csn(self) -> tuple[int, Record]:
        """Return the number for the next outcome, and the record that gives it."""
        csn = max(self._values.get(_CSN) or 0, self._least_csn) + 1
        return csn, Record(COUNTERS, CsnGiven(csn))

    def check_given(self, producer_id: int, csn: int) -> None:
        """Raise Refused INVALID_REQUEST unless these numbers may have been given. A number from the future would block
        its later owner."""
        if producer_id >= self._next_of(_kind_of(producer_id)):
            raise Refused(ErrorCode.INVALID_REQUEST, f"producer id {producer_id} was never given to a producer")
        if csn > (self._values.get(_CSN) or 0):
            raise Refused(ErrorCode.INVALID_REQUEST, f"csn {csn} was never given to an outcome")

    def check_incarnation(self, producer_id: int) -> None:
        """Raise Refused INVALID_REQUEST unless this incarnation may have given the producer id.

        No producer has an id of a lost incarnation any more, and an outcome that was decided there does not apply here.
        """
        if producer_id < self._least(_kind_of(producer_id)):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"producer id {producer_id} is of a line of the store that ended with a loss or a restore: what it had "
                "open here was aborted",
            )

    def check_plain(self, producer_id: int) -> None:
        """Raise Refused INVALID_TXN_STATE for a producer id that a transactional id has or had, in any incarnation of
        the store. Other producer ids are never fenced."""
        if not is_plain(producer_id) and producer_id < max(
            self._next_of(_OF_TRANSACTIONS), self._least(_OF_TRANSACTIONS)
        ):
            raise Refused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer id {producer_id} was given to a transactional id and appends in its transactions only: send "
                "the batch in one, or call InitProducerId without a transactional_id for the batches outside",
            )

    def durable_csn(self) -> int:
        """Return the number of the newest outcome on disk; 0 before the first."""
        return self._values.durable(_CSN) or 0

    @property
    def given_producer_ids(self) -> int:
        """Number of producer ids given since this process started, as far as that is durable."""
        return self._values.durable(_GIVEN) or 0

    def replay(self, value: ProducerIdBlockTaken | ProducerIdGiven | CsnGiven | UnownedMarkerWritten) -> None:
        match value:
            case CsnGiven(csn=csn):
                self._values.put(_CSN, csn)
            case ProducerIdBlockTaken(next_unassigned_producer_id=block_end):
                # After a load the rest of the last block is skipped, because its used ids are unknown.
                kind = _kind_of(block_end - 1)
                if kind.next_producer_id not in self._values:
                    self._values.put(kind.next_producer_id, block_end)
                self._values.put(kind.block_end, block_end)
            case ProducerIdGiven(producer_id=producer_id, count=count):
                self._values.put(_kind_of(producer_id).next_producer_id, producer_id + 1)
                self._values.put(_GIVEN, (self._values.get(_GIVEN) or 0) + count)
            case UnownedMarkerWritten():
                pass  # Only the history uses it.

    def on_loaded(self, turn: Turn) -> Decision:
        return Decision()
