"""Transactions of one shard, by transactional id and by producer id, in live and in durable state.

Only a shard's `replay` changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.timeline import Journal, TimelineMap
from txn_coordinator.records import TransactionUnreadable
from txn_coordinator.state import IDLE, Identity, Transaction, TransactionState


class TransactionTable:
    """Lookups of transactions, and the question which of them may still act."""

    def __init__(self, journal: Journal, *, least_producer_id: int) -> None:
        self.by_id: TimelineMap[str, Transaction] = TimelineMap(journal)
        self.by_producer_id: TimelineMap[int, str] = TimelineMap(journal)
        """Transactional ids by producer id."""
        self._least_producer_id = least_producer_id
        """Producer ids below it belong to a lost incarnation; 0 if nothing was lost."""
        self.acting: Callable[[str], Transaction | None] = (
            self._in_this_incarnation if least_producer_id else self.by_id.get
        )
        """Returns the transaction of an id in live state, for callers that act for it; None if there is none."""
        self.unreadable: dict[str, TransactionUnreadable] = {}
        """Ids that a newer program stored. Each is treated as a failed shard: no operation changes it, and nothing of
        it is forgotten."""

    def check_readable(self, transactional_id: str) -> None:
        """Raise Refused KAFKA_STORAGE_ERROR for an id that only a newer program can go on with."""
        found = self.unreadable.get(transactional_id)
        if found is not None:
            raise Refused(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"transactional id {transactional_id!a:.300} is stored in state {found.state}, which only a newer"
                " server knows: start the version that wrote it, or a later one",
            )

    def readable(self, transactional_id: str) -> Transaction | None:
        """Return the transaction of an id in live state; None if there is none. Raises Refused as `check_readable`."""
        self.check_readable(transactional_id)
        return self.by_id.get(transactional_id)

    def durable(self, transactional_id: str) -> Transaction | None:
        return self.by_id.durable(transactional_id)

    def durable_transactions(self) -> Iterable[Transaction]:
        return (transaction for _, transaction in self.by_id.durable_items())

    def live_transactions(self) -> Iterable[Transaction]:
        return self.by_id.values()

    def owner_of(self, producer_id: int) -> Transaction | None:
        """Return the id whose transactions have this producer id in live state. Raises Refused as `check_readable`."""
        transactional_id = self.by_producer_id.get(producer_id)
        if transactional_id in self.unreadable:
            self.check_readable(transactional_id)
        return None if transactional_id is None else self.by_id.get(transactional_id)

    def owners_among(self, producer_ids: Set[int]) -> dict[int, Transaction]:
        """Return the owners of those producer ids that belong to this shard. Raises Refused as `check_readable`."""
        at_home = self.by_producer_id.keys() & producer_ids
        return {producer_id: owner for producer_id in at_home if (owner := self.owner_of(producer_id)) is not None}

    def durable_owner_of(self, producer_id: int) -> Transaction | None:
        """Return the id whose transactions have this producer id in durable state.

        The refusal of an unreadable id, as `check_readable`, does not name it, since not every caller may know it.
        """
        transactional_id = self.by_producer_id.durable(producer_id)
        if transactional_id in self.unreadable:
            raise Refused(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "the transactional id that has the producer id is stored in a state that only a newer server knows:"
                " start the version that wrote it, or a later one",
            )
        return None if transactional_id is None else self.by_id.durable(transactional_id)

    def open_touching(self, ordinals: frozenset[int]) -> list[Transaction]:
        """Return the open transactions with one of these partitions, in live state.

        Those that await an outside decision are left out. A commit of records that are deleted anyway does no harm,
        while an abort would break the promise.
        """
        return [
            transaction
            for transaction in self.by_id.values()
            if transaction.state is TransactionState.ONGOING
            and transaction.partitions & ordinals
            and not transaction.never_times_out
        ]

    def written_as(self, transactional_id: str, shown: Identity) -> Identity:
        """Return the identity under which the records of a transaction were written, given the identity of its
        client."""
        current = self.by_id.get(transactional_id)
        return shown if current is None or shown != current.client_identity else current.identity

    def _in_this_incarnation(self, transactional_id: str) -> Transaction | None:
        """Return the transaction of an id as `acting`, if the store has lost something.

        In the lost incarnation the id may have gone on, under epochs that would be given again here. So no client goes
        on with a producer id of that incarnation. A prepared or decided transaction ends first.

        Raises Refused CONCURRENT_TRANSACTIONS while its open transaction is being aborted.
        """
        found = self.by_id.get(transactional_id)
        if found is None or found.producer_id >= self._least_producer_id:
            return found
        if self.is_forsaken(found):
            raise Refused(
                ErrorCode.CONCURRENT_TRANSACTIONS,
                f"the transaction that {transactional_id!r} had open when the server lost data is being aborted; try "
                "again, then call InitProducerId",
            )
        return None if found.state in IDLE else found

    def is_forsaken(self, transaction: Transaction) -> bool:
        """Return True if a transaction is open, and part of its writes may be lost."""
        return (
            transaction.state is TransactionState.ONGOING
            and not transaction.is_closed
            and transaction.producer_id < self._least_producer_id
        )
