"""Administration of transactions: abort open ones, fence producers, end hanging ones.

Aborting and fencing go through the coordinator of the id, with the same steps as a timeout or a newer instance. So
nothing is left hanging, and the history has the cause `admin`. A transaction that hangs nevertheless has no
coordinator.

Source: spec transactions 2.8 (forced termination by id, KIP-618, KIP-939).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Final

from coordinator_protocol.acls import CLUSTER_NAME
from coordinator_protocol.errors import CoordinatorError, ErrorCode, Refused
from coordinator_protocol.names import check_partition, check_transactional_id
from coordinator_runtime.decision import (
    CATALOG_KEY,
    Coordinator,
    Operation,
    ShardKey,
    TransactionInTheWay,
    once_durable,
)
from coordinator_runtime.pending import Pending, all_of, failed, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionName,
    PartitionRef,
    Permission,
    ResourceType,
    TopicCatalog,
    require,
)
from coordinator_runtime.runtime import Runtime
from txn_coordinator.hanging import Hanging, HangingTransactions
from txn_coordinator.rules.administering import Acted, Asked, FenceBegun, fence_operation
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import Transaction, TransactionState

IDS_MAX: Final = 1_000
"""Largest number of ids that one request acts on."""

_WRITING: Final = (Permission.WRITE, ResourceType.TRANSACTIONAL_ID)

PARTICIPANTS_MAX: Final = 10_000
"""Largest number of partitions and groups in all transactions that one request aborts by prefix or age. It is the limit
of one transaction, so the request delays other calls no longer than one such transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selection of ids; all given conditions must hold."""

    transactional_ids: Sequence[str] = ()
    prefix: str = ""
    older_than_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ActResult:
    """Result for one id: the change, or with a dry run the intended change."""

    transactional_id: str
    acted: Acted | None = None
    age_ms: int | None = None
    """Age of the aborted transaction when the request came; None if none was open."""
    error: CoordinatorError | None = None


@dataclass(frozen=True, slots=True)
class ActResults:
    """Results of a request, and the number of selected ids that remain."""

    results: Sequence[ActResult]
    remaining: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortHanging:
    """Selection of hanging transactions to end."""

    partition: PartitionName
    producer_id: int | None = None
    """None for all producers of the partition."""
    producer_epoch: int | None = None
    """None for all epochs of the producer."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """Transaction that no owner will end, in a partition that has a name."""

    ref: PartitionRef
    hanging: Hanging
    age_ms: int


class TransactionAdministration:
    """Use cases of an administrator. Every id is changed or refused on its own; durable when answered."""

    def __init__(
        self,
        runtime: Runtime,
        shard_of_id: Callable[[str], ShardKey],
        *,
        hanging: HangingTransactions,
        catalog: TopicCatalog,
        authorizer: Authorizer,
    ) -> None:
        self._runtime = runtime
        self._shard_of_id = shard_of_id
        self._hanging = hanging
        self._catalog = catalog
        self._authorizer = authorizer

    def abort(self, selection: Selection, context: CallContext, *, dry_run: bool) -> Pending[ActResults]:
        """Abort open transactions. Raises Refused INVALID_REQUEST for an invalid selection."""
        ids, remaining = self._select(selection, context, only_open=True)

        def act(transactional_id: str) -> Pending[Acted]:
            asked = self._asked(transactional_id, selection, context, dry_run=dry_run)
            return self._runtime.write(
                Operation(
                    self._shard_of_id(transactional_id),
                    lambda shard, turn: shard.interventions.decide_abort(transactional_id, asked, turn),
                ),
                context,
                is_urgent=True,
            )

        return self._act_on(ids, act, context).map(lambda results: ActResults(results, remaining))

    def fence(self, selection: Selection, context: CallContext, *, dry_run: bool) -> Pending[ActResults]:
        """Fence the producers that hold these ids, and abort their open transactions.

        Raises Refused INVALID_REQUEST for an invalid selection, or one of too many ids: fenced ones would be selected
        again.
        """
        ids, remaining = self._select(selection, context, only_open=selection.older_than_ms is not None)
        if remaining:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{len(ids) + remaining} transactional ids are selected, which is more than can be fenced at once; "
                "choose a longer prefix",
            )

        def act(transactional_id: str) -> Pending[Acted]:
            asked = self._asked(transactional_id, selection, context, dry_run=dry_run)
            operation = fence_operation(
                self._shard_of_id(transactional_id), transactional_id, asked, may_abort_and_fence=True
            )
            return self._fence(operation, transactional_id, context)

        return self._act_on(ids, act, context).map(ActResults)

    def _asked(self, transactional_id: str, selection: Selection, context: CallContext, *, dry_run: bool) -> Asked:
        """Return the options of a request on one id.

        Ending a transaction that awaits an outside decision means deciding it. That needs the permission to take part
        in such decisions, or to alter the server.
        """
        may = partial(self._authorizer.is_allowed, context)
        may_break_promise = may(Permission.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, transactional_id) or may(
            Permission.ALTER, ResourceType.CLUSTER, CLUSTER_NAME
        )
        return Asked(dry_run, selection.older_than_ms, may_break_promise)

    def _fence(
        self, operation: Operation, transactional_id: str, context: CallContext, *, is_continued: bool = False
    ) -> Pending[Acted]:
        ask = partial(require, self._authorizer, context, *_WRITING, transactional_id)

        def after(reply: Acted | FenceBegun) -> Pending[Acted]:
            if isinstance(reply, Acted):
                return settled(reply)
            ask()
            again = fence_operation(operation.shard, transactional_id, Asked(), begun=reply.acted)
            return self._fence(again, transactional_id, context, is_continued=True)

        written: Pending[Acted | FenceBegun] = self._runtime.write(
            operation,
            context,
            park_key=TransactionInTheWay(transactional_id),
            is_continued=is_continued,
            ask_again=ask,
        )
        return written.then(after)

    def _act_on(
        self, ids: Sequence[str], act: Callable[[str], Pending[Acted]], context: CallContext
    ) -> Pending[list[ActResult]]:
        now_ms = self._runtime.clock.wall_ms()

        def one(transactional_id: str) -> Pending[ActResult]:
            def done(acted: Acted) -> ActResult:
                before = acted.before
                is_open = before.state is TransactionState.ONGOING
                return ActResult(transactional_id, acted, before.age_ms(now_ms) if is_open else None)

            def refused(error: Exception) -> ActResult:
                if not isinstance(error, CoordinatorError):
                    raise error
                return ActResult(transactional_id, error=error)

            try:
                check_transactional_id(transactional_id)
                require(self._authorizer, context, *_WRITING, transactional_id)
                pending = act(transactional_id)
            except Refused as refusal:
                pending = failed(refusal)
            return pending.map(done, refused)

        return all_of([one(transactional_id) for transactional_id in ids])

    def list_hanging(self, context: CallContext) -> Pending[list[HangingTransaction]]:
        """Return all transactions that no owner will end, by topic, partition and offset. Refuses while a shard of
        transactional ids does not serve."""
        require(self._authorizer, context, Permission.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        now_ms = self._runtime.clock.wall_ms()
        return self._hanging.find().map(lambda found: self._named(found, now_ms))

    def abort_hanging(self, command: AbortHanging, context: CallContext) -> Pending[list[HangingTransaction]]:
        """End hanging transactions of one partition. Returns them, or with a dry run those that it would end.

        Raises Refused, or refuses the reply, INVALID_TXN_STATE if there are none.
        """
        require(self._authorizer, context, Permission.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        check_partition(*command.partition)
        now_ms = self._runtime.clock.wall_ms()
        try:
            ordinal = self._catalog.resolve(*command.partition).ordinal
        except Refused as refusal:
            return self._runtime.write(once_durable(CATALOG_KEY, refusal), is_urgent=True)
        aborted = self._hanging.abort(
            ordinal, command.producer_id, context, dry_run=command.dry_run, producer_epoch=command.producer_epoch
        )
        return aborted.map(lambda found: self._named(found, now_ms))

    def _named(self, found: Sequence[Hanging], now_ms: int) -> list[HangingTransaction]:
        """Return the findings by topic, partition and offset. Topics under deletion are left out: their transactions go
        with them."""
        named = [
            HangingTransaction(ref, each, max(0, now_ms - (each.opened.started_ms or now_ms)))
            for each in found
            if (ref := self._catalog.by_ordinal(each.opened.ordinal)) is not None
        ]
        return sorted(named, key=lambda each: (each.ref.topic, each.ref.partition, each.hanging.opened.first_offset))

    def _select(self, selection: Selection, context: CallContext, *, only_open: bool) -> tuple[list[str], int]:
        _check(selection)
        if selection.transactional_ids:
            return list(selection.transactional_ids), 0
        matching = self._matching(selection, context, only_open=only_open)
        # The oldest first.
        found = sorted(matching, key=attrgetter("start_ms", "transactional_id"))
        taken: list[str] = []
        participants = 0
        for transaction in found[:IDS_MAX]:
            participants += transaction.participant_count
            if participants > PARTICIPANTS_MAX and taken:
                break
            taken.append(transaction.transactional_id)
        return taken, len(found) - len(taken)

    def _matching(self, selection: Selection, context: CallContext, *, only_open: bool) -> Iterator[Transaction]:
        may_write, now_ms = self._authorizer.is_allowed, self._runtime.clock.wall_ms()
        shards: list[TransactionShard] = self._runtime.table.listable(Coordinator.TRANSACTIONS)
        for shard in shards:
            for each in shard.table.live_transactions():
                is_open = each.state is TransactionState.ONGOING
                if (
                    each.transactional_id.startswith(selection.prefix)
                    and (is_open or not only_open)
                    and not (is_open and each.never_times_out)
                    and (selection.older_than_ms is None or now_ms - each.start_ms > selection.older_than_ms)
                    and may_write(context, *_WRITING, each.transactional_id)
                ):
                    yield each


def _check(selection: Selection) -> None:
    """Raise Refused INVALID_REQUEST for an invalid selection."""
    ids = selection.transactional_ids
    if not ids and not selection.prefix and selection.older_than_ms is None:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "nothing is selected: name transactional ids, a prefix of them, or an age"
        )
    if ids and selection.prefix:
        raise Refused(ErrorCode.INVALID_REQUEST, "ids and a prefix are given: name one of them")
    if len(ids) > IDS_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{len(ids)} ids are named and at most {IDS_MAX} are allowed")
    if len(set(ids)) < len(ids):
        raise Refused(ErrorCode.INVALID_REQUEST, "an id is named twice; name it once")
    if selection.older_than_ms is not None and selection.older_than_ms < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, f"older_than_ms is {selection.older_than_ms} and must not be negative")
