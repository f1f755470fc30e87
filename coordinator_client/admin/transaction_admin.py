"""Administration of transactions: list, describe and explain them, and end them as their coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_client.asking import BlockingAsker
from coordinator_client.calls import (
    ABORT_BATCH,
    ABORT_HANGING_TRANSACTIONS,
    ABORT_TRANSACTIONS,
    DESCRIBE_SINKS,
    DESCRIBE_TRANSACTIONS,
    EXPLAIN_PARTITION,
    FENCE_PRODUCERS,
    LIST_HANGING_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
from coordinator_client.descriptions.transactions import (
    PartitionExplanation,
    TransactionDescription,
    partition_explanation,
    transaction_description,
)
from coordinator_client.errors import TransactionError, check_here, failure_of, rejected
from coordinator_client.settings import duration_ms
from coordinator_client.values import Identity, TopicPartition
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_protocol.names import check_topic_name, check_transactional_id

_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """One transactional id, as `Admin.list_transactions` returns it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    start_ms: int
    """Time at which the transaction was opened (Unix ms); -1 = none was opened since the last InitProducerId."""
    age_ms: int | None
    """Time since the transaction opened (ms), by the server's clock; None = none is open or being ended."""
    two_phase: bool
    """True if the open transaction waits for an outside decision and never times out."""
    prepared_ms: int | None
    """Time at which the transaction was prepared (Unix ms); None if it was not prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTransaction:
    """Result of `Admin.abort_transactions` or `Admin.fence_producers` for one transactional id."""

    transactional_id: str
    state: str
    """State before the call; empty if it was refused."""
    fenced: Identity | None
    """Identity that is fenced from now on; None if the call was refused."""
    age_ms: int | None
    """Age of the aborted transaction (ms); None = none was open."""
    partition_count: int
    """Number of partitions in which it was open."""
    refusal: TransactionError | None
    """Reason why nothing was done for this id; None if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingListing:
    """A transaction that is open in a partition, or in what a share group knows of it, and that no transactional id
    owns."""

    partition: TopicPartition
    identity: Identity
    start_offset: int
    """Offset of its first record, which committed readers do not pass; or of the first that it acknowledged."""
    start_ms: int
    age_ms: int
    reason: str
    """Reason why nothing ends it: unknown_producer, not_open, other_epoch or not_a_member."""
    transactional_id: str
    """Id that has its producer id but not this transaction; empty if there is none."""
    group_id: str
    """Share group whose records it acknowledged there; empty if it has records of its own in the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkMemberListing:
    """A transaction that is part of a batch of a sink, and not complete."""

    transactional_id: str
    identity: Identity
    batch_id: int
    attempt: str
    state: str
    """open, sealed, committing or given_up."""
    partition_count: int
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkListing:
    """A sink: a name under which an engine writes numbered batches, each exactly once."""

    name: str
    run_id: str
    fenced_run_ids: tuple[str, ...]
    """Earlier runs that are fenced, the newest last, as far as they are remembered."""
    batch_id: int
    """Batch that members join, or joined last."""
    last_batch_id: int
    """Newest committed batch; -1 = none."""
    last_csn: int
    """Commit sequence number of its outcome."""
    is_completing: bool
    """True while markers of its decision are missing."""
    transaction_timeout_ms: int
    idle_ms: int
    """Time since the last activity (ms)."""
    members: tuple[SinkMemberListing, ...]
    """Members that are not complete, in the order in which they joined."""


class TransactionCalls:
    """Administrator calls about transactions; users create an `Admin`."""

    _asker: BlockingAsker

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        older_than_ms: int | None = None,
        pattern: str = "",
    ) -> list[TransactionListing]:
        """Return the transactional ids that match every filter, sorted by id. A filter that is not given matches all.

        The state is one of `states`, and the producer id one of `producer_ids`. A transaction has been open for longer
        than `older_than_ms`. The whole id matches the regular expression `pattern`.

        Raises: Rejected (INVALID_REGULAR_EXPRESSION; INVALID_REQUEST for a state that does not exist).
        """
        if older_than_ms is not None:
            duration_ms("older_than_ms", older_than_ms)
        request = txn.ListTransactionsRequest(
            header=self._asker.header(),
            state_filters=states,
            producer_id_filters=producer_ids,
            duration_ms=older_than_ms,
            transactional_id_pattern=pattern,
        )
        reply = await self._asker.ask(LIST_TRANSACTIONS, request)
        if reply.unknown_state_filters:
            raise rejected(
                ErrorCode.INVALID_REQUEST,
                f"there is no state {', '.join(reply.unknown_state_filters)}: the states are {', '.join(_STATES)}",
            )
        return list(map(transaction_listing, reply.transactions))

    async def describe_transaction(self, transactional_id: str, *, history_limit: int = 0) -> TransactionDescription:
        """Return the coordinator's description of this id, with at most `history_limit` of its last steps.

        Raises: Rejected (TRANSACTIONAL_ID_NOT_FOUND; INVALID_REQUEST for more than 100 steps).
        """
        check_here(check_transactional_id, transactional_id, Method.DESCRIBE_TRANSACTIONS)
        request = txn.DescribeTransactionsRequest(
            header=self._asker.header(), transactional_ids=[transactional_id], history_limit=history_limit
        )
        reply = await self._asker.ask(DESCRIBE_TRANSACTIONS, request, items=lambda reply: reply.transactions)
        (found,) = reply.transactions
        return transaction_description(found)

    async def explain_partition(self, topic: str, partition: int, *, history_limit: int = 1) -> PartitionExplanation:
        """Explain why committed readers of a partition do not advance. The answer names the oldest open transaction
        there, its owner with at most `history_limit` of its last steps, and the next event.

        Raises: Rejected (UNKNOWN_TOPIC_OR_PARTITION; INVALID_REQUEST for more than 100 steps); Misconfigured
        (TOPIC_AUTHORIZATION_FAILED).
        """
        check_here(check_topic_name, topic, Method.EXPLAIN_PARTITION)
        request = admin.ExplainPartitionRequest(
            header=self._asker.header(), topic=topic, partition=partition, history_limit=history_limit
        )
        return partition_explanation(await self._asker.ask(EXPLAIN_PARTITION, request))

    async def abort_transactions(
        self,
        transactional_ids: Sequence[str] = (),
        *,
        prefix: str = "",
        older_than_ms: int | None = None,
        dry_run: bool = False,
    ) -> list[EndedTransaction]:
        """Abort open transactions as their coordinator, and return what was done for each id. The identity that held a
        transaction is fenced. Its producer goes on with the next transaction.

        Give at least one selection. An id must match all: it is one of `transactional_ids`, or begins with `prefix`,
        and its transaction has been open for longer than `older_than_ms`. Only ids that are named are aborted while
        they wait for an outside decision. `dry_run`: return what would be done, and change nothing.

        A refused id does not fail the call; its `refusal` has the reason. Raises: Rejected (INVALID_REQUEST without a
        selection, or for both ids and a prefix); Misconfigured.
        """
        selector = _selector(transactional_ids, prefix, older_than_ms)
        ended: list[EndedTransaction] = []
        while True:
            request = admin.AbortTransactionsRequest(header=self._asker.mutation(), selector=selector, dry_run=dry_run)
            reply = await self._asker.ask(ABORT_TRANSACTIONS, request)
            ended += map(_ended, reply.results)
            if not reply.remaining or dry_run or not reply.results:
                return ended

    async def fence_producers(
        self,
        transactional_ids: Sequence[str] = (),
        *,
        prefix: str = "",
        older_than_ms: int | None = None,
        dry_run: bool = False,
    ) -> list[EndedTransaction]:
        """Fence the producers of transactional ids until they initialise again, and abort what they have open. Return
        what was done for each id. The selection is that of `abort_transactions`, and includes ids without an open
        transaction.

        Raises: Rejected (INVALID_REQUEST without a selection, for both ids and a prefix, or for more ids than one
        request can fence); Misconfigured.
        """
        selector = _selector(transactional_ids, prefix, older_than_ms)
        request = admin.FenceProducersRequest(header=self._asker.mutation(), selector=selector, dry_run=dry_run)
        return [*map(_ended, (await self._asker.ask(FENCE_PRODUCERS, request)).results)]

    async def list_hanging_transactions(self) -> list[HangingListing]:
        """Return the transactions that neither a client nor the server ends: they are open in a partition, and no
        transactional id owns them. There should be none.

        Raises: Misconfigured (CLUSTER_AUTHORIZATION_FAILED).
        """
        request = admin.ListHangingTransactionsRequest(header=self._asker.header())
        return [*map(_hanging, (await self._asker.ask(LIST_HANGING_TRANSACTIONS, request)).transactions)]

    async def abort_hanging_transactions(
        self, topic: str, partition: int, *, producer_id: int | None = None, dry_run: bool = False
    ) -> list[HangingListing]:
        """Abort the hanging transactions of a partition, and return them. `producer_id`: only that of this producer.
        `dry_run`: return what would be aborted, and change nothing.

        Raises: Rejected (INVALID_TXN_STATE if nothing hangs there, or a transactional id owns it; then use
        `abort_transactions`); Misconfigured (CLUSTER_AUTHORIZATION_FAILED).
        """
        check_here(check_topic_name, topic, Method.ABORT_HANGING_TRANSACTIONS)
        request = admin.AbortHangingTransactionsRequest(
            header=self._asker.mutation(), topic=topic, partition=partition, producer_id=producer_id, dry_run=dry_run
        )
        return [*map(_hanging, (await self._asker.ask(ABORT_HANGING_TRANSACTIONS, request)).aborted)]

    async def describe_sinks(self, names: Sequence[str] = ()) -> list[SinkListing]:
        """Return these sinks, or all that the caller may describe.

        Raises: Rejected if one does not exist.
        """
        request = txn.DescribeSinksRequest(header=self._asker.header(), sinks=names)
        reply = await self._asker.ask(DESCRIBE_SINKS, request, items=lambda reply: reply.sinks)
        return [*map(_sink, reply.sinks)]

    async def abort_sink(self, name: str) -> int:
        """Give up every undecided member of a sink, sealed or not, of every run, and return their number. Decided
        members stay decided. A query that still runs writes its batch again."""
        request = txn.AbortBatchRequest(header=self._asker.header(), sink=name, every_run=True)
        return (await self._asker.ask(ABORT_BATCH, request)).member_count


def _selector(transactional_ids: Sequence[str], prefix: str, older_than_ms: int | None) -> admin.TransactionSelector:
    """Return a selection. Raises: Rejected or TypeError for a wrong one."""
    if isinstance(transactional_ids, str):
        raise TypeError(f"transactional_ids must be a list of texts, as in [{transactional_ids!r}], not a text")
    for each in transactional_ids:
        check_here(check_transactional_id, each, Method.ABORT_TRANSACTIONS)
    if older_than_ms is not None:
        duration_ms("older_than_ms", older_than_ms)
    return admin.TransactionSelector(
        transactional_ids=transactional_ids, transactional_id_prefix=prefix, older_than_ms=older_than_ms
    )


def _ended(result: admin.TransactionActResult) -> EndedTransaction:
    is_refused = result.error_code != 0
    return EndedTransaction(
        transactional_id=result.transactional_id,
        state=result.state,
        fenced=None if is_refused else Identity(result.fenced_producer_id, result.fenced_producer_epoch),
        age_ms=result.age_ms if result.HasField("age_ms") else None,
        partition_count=result.partition_count,
        refusal=failure_of(Method.ABORT_TRANSACTIONS, result) if is_refused else None,
    )


def _hanging(found: admin.HangingTransaction) -> HangingListing:
    return HangingListing(
        partition=TopicPartition(found.topic, found.partition),
        identity=Identity(found.producer_id, found.producer_epoch),
        start_offset=found.start_offset,
        start_ms=found.start_ms,
        age_ms=found.age_ms,
        reason=found.reason,
        transactional_id=found.transactional_id,
        group_id=found.group_id,
    )


def _sink(found: txn.SinkDescription) -> SinkListing:
    return SinkListing(
        name=found.sink,
        run_id=found.run_id,
        fenced_run_ids=tuple(found.fenced_run_ids),
        batch_id=found.batch_id,
        last_batch_id=found.last_batch_id,
        last_csn=found.last_csn,
        is_completing=found.completing,
        transaction_timeout_ms=found.transaction_timeout_ms,
        idle_ms=found.idle_ms,
        members=tuple(
            SinkMemberListing(
                transactional_id=each.transactional_id,
                identity=Identity(each.producer_id, each.producer_epoch),
                batch_id=each.batch_id,
                attempt=each.attempt,
                state=each.state,
                partition_count=each.partition_count,
                age_ms=each.age_ms,
            )
            for each in found.members
        ),
    )


def transaction_listing(found: txn.TransactionListing) -> TransactionListing:
    """Return one transactional id of a list."""
    return TransactionListing(
        transactional_id=found.transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=found.state,
        start_ms=found.start_ms,
        age_ms=found.age_ms if found.HasField("age_ms") else None,
        two_phase=found.two_phase,
        prepared_ms=found.prepared_ms if found.HasField("prepared_ms") else None,
    )
