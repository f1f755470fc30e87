"""The numbers of one server: what is counted when it happens, and what is looked up when somebody asks.

Everything here runs on the loop thread. `transactions` and `calls` are told of events; `take` adds what only a look at
the live server can tell (positions of partitions, sizes, ages) and copies it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from coordinator_protocol.errors import ErrorCode, Method
from coordinator_protocol.marker import Outcome
from coordinator_server.metrics.instruments import AGES_SECONDS, SECONDS, SIZES, Counts, Distribution
from partition_log.events import PartitionGrew, RecordsRead
from txn_coordinator.events import TransactionExpired, TransactionStepped
from txn_coordinator.state import PREPARED, Transaction, TransactionState

_FENCING_CAUSES = {"fence": "newer_init", "timeout": "timeout", "topic_deleted": "topic_deleted", "admin": "admin"}
"""What an abort by the server means for the producer that had the transaction."""


class TransactionNumbers:
    """Transactions, as their steps become durable."""

    def __init__(self) -> None:
        self.by_state = Counts()
        self.known_ids = 0
        self.inits = Counts()
        self.rotations = 0
        self.expirations = 0
        self.completed = Counts()
        self.fenced = Counts()
        self.markers = Counts()
        self.open_to_end = Distribution(AGES_SECONDS)
        self.end_to_complete = Distribution(SECONDS)
        self.participants = Distribution(SIZES)
        self._open_since_ms: dict[str, int] = {}
        self._prepared_since_ms: dict[str, int] = {}

    def load(self, transactions: Iterable[Transaction]) -> None:
        """Begin with what the store held."""
        for transaction in transactions:
            self._enter(transaction)

    def stepped(self, event: TransactionStepped) -> None:
        before, after = event.before, event.after
        if before is not None:
            self._leave(before)
        self._enter(after)
        if after.state is TransactionState.EMPTY:
            self._initialised(before, after)
        elif after.state in PREPARED:
            self._prepared(before, after)
        elif after.state is not TransactionState.ONGOING:
            self._completed(before, after)
        if before is not None and before.producer_id != after.producer_id:
            self.rotations += 1

    def expired(self, event: TransactionExpired) -> None:
        self._leave(event.before)
        self.expirations += 1

    def oldest_open_seconds(self, now_ms: int) -> float:
        return _oldest_seconds(self._open_since_ms, now_ms)

    def oldest_prepared_seconds(self, now_ms: int) -> float:
        return _oldest_seconds(self._prepared_since_ms, now_ms)

    def _enter(self, transaction: Transaction) -> None:
        self.by_state.add((transaction.state.api_name,))
        self.known_ids += 1
        if transaction.state is TransactionState.ONGOING:
            self._open_since_ms[transaction.transactional_id] = transaction.start_ms
        elif transaction.state in PREPARED:
            self._prepared_since_ms[transaction.transactional_id] = transaction.last_update_ms

    def _leave(self, transaction: Transaction) -> None:
        self.by_state.add((transaction.state.api_name,), -1)
        self.known_ids -= 1
        self._open_since_ms.pop(transaction.transactional_id, None)
        self._prepared_since_ms.pop(transaction.transactional_id, None)

    def _initialised(self, before: Transaction | None, after: Transaction) -> None:
        if before is None:
            result = "new"
        elif before.producer_id != after.producer_id:
            result = "rotate"
        else:
            result = "reuse" if before.producer_epoch == after.producer_epoch else "bump"
        self.inits.add((result,))

    def _prepared(self, before: Transaction | None, after: Transaction) -> None:
        self.participants.observe(after.participant_count)
        if before is not None and before.state is TransactionState.ONGOING:
            self.open_to_end.observe((after.last_update_ms - after.start_ms) / 1000, (_outcome(after),))
        if after.cause in _FENCING_CAUSES:
            self.fenced.add((_FENCING_CAUSES[after.cause],))

    def _completed(self, before: Transaction | None, after: Transaction) -> None:
        outcome = _outcome(after)
        self.completed.add((outcome, after.cause))
        if before is not None:
            self.markers.add((outcome,), len(before.partitions))
            self.end_to_complete.observe((after.last_update_ms - before.last_update_ms) / 1000, (outcome,))


class LogNumbers:
    """Partitions, as their appends become durable and as they are read."""

    def __init__(self) -> None:
        self.appended_records = Counts()
        self.appended_bytes = Counts()
        self.read_records = Counts()

    def grew(self, topic: str, event: PartitionGrew) -> None:
        labels = (topic, "data" if event.outcome is None else "control")
        self.appended_records.add(labels, event.record_count)
        self.appended_bytes.add(labels, event.size_bytes)

    def read(self, event: RecordsRead) -> None:
        topic, isolation = event.topic, event.isolation.name.lower()
        self.read_records.add((topic, isolation, "served"), event.served)
        self.read_records.add((topic, isolation, "aborted_skipped"), event.aborted_hidden)
        self.read_records.add((topic, isolation, "control_skipped"), event.control_hidden)


class CallNumbers:
    """Calls, as they are answered."""

    def __init__(self) -> None:
        self.requests = Counts()
        self.errors = Counts()
        self.seconds = Distribution(SECONDS)
        self.rejected = Counts()

    def answered(self, method: Method, elapsed_us: int, response: Message) -> None:
        self.requests.add((method.value,))
        self.seconds.observe(elapsed_us / 1_000_000, (method.value,))
        for code in error_codes(response):
            self.errors.add((method.value, error_name(code)))
            if code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                self.rejected.add(("overload",))
            elif code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self.rejected.add(("stopping",))

    def epoch_refusals(self) -> int:
        """Requests to the coordinator that came with an epoch that is over."""
        return sum(
            int(number)
            for (_method, error), number in self.errors.copy().items()
            if error == ErrorCode.PRODUCER_FENCED.name
        )

    def zombie_batches(self) -> int:
        """Batches refused by a partition because their epoch is over."""
        return self.errors.get((Method.PRODUCE.value, ErrorCode.INVALID_PRODUCER_EPOCH.name))


def error_codes(response: Message) -> Iterator[int]:
    """Codes of a response and of its items, without the zeros."""
    items, has_own = _error_fields(response.DESCRIPTOR)
    if has_own and (code := response.error_code):  # type: ignore[attr-defined]  # asked the descriptor
        yield code
    for name in items:
        for item in getattr(response, name):
            if item.error_code:
                yield item.error_code


@cache
def _error_fields(descriptor: Descriptor) -> tuple[tuple[str, ...], bool]:
    """Which repeated fields of a response hold items with an error code, and whether it has one itself."""
    items = tuple(
        field.name
        for field in descriptor.fields
        if field.message_type is not None and "error_code" in field.message_type.fields_by_name
    )
    return items, "error_code" in descriptor.fields_by_name


def error_name(code: int) -> str:
    """Kafka's name of a code; the number for one that has none here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _outcome(transaction: Transaction) -> str:
    return "commit" if transaction.outcome is Outcome.COMMIT else "abort"


def _oldest_seconds(since_ms: dict[str, int], now_ms: int) -> float:
    return max(0, now_ms - min(since_ms.values())) / 1000 if since_ms else 0.0
