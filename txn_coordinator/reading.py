"""Queries about transactional ids: location, description, listing.

Answers show durable state, and only as far as the caller may see it. A member of a sink's batch is visible to callers
that may describe the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.hashing import coordinator_key
from coordinator_protocol.names import check_group_id, check_transactional_id
from coordinator_runtime.decision import Coordinator, ShardRouter
from coordinator_runtime.patterns import Pattern
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    PartitionRef,
    Permission,
    ResourceType,
    TopicCatalog,
    require,
)
from coordinator_runtime.runtime import Runtime
from coordinator_runtime.stepping import in_steps
from coordinator_runtime.store_readers import StoreReader
from txn_coordinator.history import TransactionHistory, check_history_limit
from txn_coordinator.marker_sender import MarkerSender
from txn_coordinator.requests import Description, KeyType, Listing, Located, TransactionFilter
from txn_coordinator.shard import TransactionShard
from txn_coordinator.state import OPEN, Transaction, TransactionState

IDS_WITH_HISTORY_MAX: Final = 100
"""Largest number of ids whose history one call may ask for."""
LISTED_MAX: Final = 1_000
"""Largest limit of a list of ids."""
SKIPPED_MAX: Final = 100_000
IDS_PER_STEP: Final = 200
"""Number of ids that one turn of the loop looks at for a list with a limit: about 1 ms."""


class TransactionReader:
    """Use cases that change nothing."""

    def __init__(
        self,
        runtime: Runtime,
        reader: StoreReader,
        router: ShardRouter,
        *,
        sender: MarkerSender,
        catalog: TopicCatalog,
        authorizer: Authorizer,
    ) -> None:
        self._runtime = runtime
        self._shard_key = router.shard_key
        self._sender = sender
        self._catalog = catalog
        self._authorizer = authorizer
        self._history = TransactionHistory(runtime, reader, router.shard_key)

    def locate(self, key_type: int, keys: Sequence[str], context: CallContext) -> list[Located]:
        """Return the shard of each key; one bad key does not fail the others. Both coordinators number their shards
        alike, so the key alone determines it (spec groups 10.1)."""
        return [self._locate(key_type, key, context) for key in keys]

    def _locate(self, key_type: int, key: str, context: CallContext) -> Located:
        try:
            if key_type == KeyType.GROUP:
                check_group_id(key)
                require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, key)
            elif key_type == KeyType.TRANSACTION:
                owner = coordinator_key(key)
                check_transactional_id(owner)
                require(self._authorizer, context, Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID, owner)
            else:
                text = f"key_type is {key_type}; ask for a group or a transactional id"
                raise Refused(ErrorCode.INVALID_REQUEST, text)
        except Refused as refusal:
            return Located(key, error=refusal)
        return Located(key, self._shard_key(key).number)

    def describe(
        self, transactional_ids: Sequence[str], context: CallContext, *, history_limit: int = 0
    ) -> Pending[list[Description]]:
        """Describe each id, in the given order, with at most `history_limit` of its last steps.

        Raises Refused INVALID_REQUEST for an impossible history limit, or a history of too many ids.
        """
        check_history_limit(history_limit)
        if history_limit and len(transactional_ids) > IDS_WITH_HISTORY_MAX:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"the history of {len(transactional_ids)} ids is asked for; ask for {IDS_WITH_HISTORY_MAX} at a time",
            )
        described = [self._describe(transactional_id, context) for transactional_id in transactional_ids]
        if not history_limit:
            return settled(described)
        return all_of([self._with_history(each, history_limit) for each in described])

    def _describe(self, transactional_id: str, context: CallContext) -> Description:
        now_ms = self._runtime.clock.wall_ms()
        try:
            owner = coordinator_key(transactional_id)
            require(self._authorizer, context, Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID, owner)
            check_transactional_id(owner)
            shard: TransactionShard = self._runtime.shard(self._shard_key(transactional_id))
            shard.table.check_readable(transactional_id)
            transaction = shard.table.durable(transactional_id)
            if transaction is None:
                raise Refused(
                    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
                    f"transactional id {transactional_id!a} has never been initialised",
                )
        except Refused as refusal:
            return Description(transactional_id, now_ms, refusal)
        return self._described(transaction, now_ms, context)

    def _described(self, transaction: Transaction, now_ms: int, context: CallContext) -> Description:
        may = self._authorizer.is_allowed
        return Description(
            transactional_id=transaction.transactional_id,
            now_ms=now_ms,
            error=None,
            transaction=transaction,
            partitions=self._visible_partitions(transaction, context),
            groups=[
                group
                for group in sorted(transaction.groups)
                if may(context, Permission.DESCRIBE, ResourceType.GROUP, group)
            ],
            shares=[
                (share.group_id, ref)
                for share in sorted(transaction.shares)
                if may(context, Permission.DESCRIBE, ResourceType.GROUP, share.group_id)
                for ref in self._named([share.ordinal], context)
            ],
        )

    def describe_as_seen(
        self, transaction: Transaction, context: CallContext, *, history_limit: int
    ) -> Pending[Description]:
        """Describe a durable state that was just read, of an id that the caller may describe. Includes at most
        `history_limit` of the steps that led to it."""
        described = self._described(transaction, self._runtime.clock.wall_ms(), context)
        if not history_limit:
            return settled(described)
        steps = self._history.last_steps(transaction.transactional_id, history_limit, until=transaction)
        return steps.map(lambda history: replace(described, history=history))

    def _visible_partitions(self, transaction: Transaction, context: CallContext) -> list[PartitionRef]:
        waiting = self._sender.waiting_partitions(transaction.transactional_id, transaction.csn)
        ordinals = transaction.partitions if waiting is None else transaction.partitions & waiting
        return self._named(ordinals, context)

    def _named(self, ordinals: Iterable[int], context: CallContext) -> list[PartitionRef]:
        """Return the partitions that have a name and that the caller may see."""
        named = [found for ordinal in ordinals if (found := self._catalog.by_ordinal(ordinal)) is not None]
        may_describe = self._authorizer.is_allowed
        return [ref for ref in named if may_describe(context, Permission.DESCRIBE, ResourceType.TOPIC, ref.topic)]

    def _with_history(self, description: Description, limit: int) -> Pending[Description]:
        """Add the last steps, of a known id or of one that is no longer known."""
        error = description.error
        if error is not None and error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return settled(description)
        steps = self._history.last_steps(description.transactional_id, limit)
        return steps.map(lambda history: replace(description, history=history))

    def list(self, wanted: TransactionFilter, context: CallContext) -> Listing:
        """Return the durable transactions that match, sorted by id. Raises Refused: INVALID_REGULAR_EXPRESSION,
        COORDINATOR_LOAD_IN_PROGRESS while a shard is being loaded."""
        now_ms = self._runtime.clock.wall_ms()
        matches = self._matcher(wanted, now_ms, context)
        shards: list[TransactionShard] = self._runtime.table.listable(Coordinator.TRANSACTIONS)
        found = [each for shard in shards for each in shard.table.durable_transactions() if matches(each)]
        return Listing(sorted(found, key=attrgetter("transactional_id")), _unknown_states(wanted), now_ms)

    def list_limited(self, wanted: TransactionFilter, context: CallContext) -> Pending[Listing]:
        """Return the durable transactions that match, from `skip` on and up to `limit` of them, the longest open one
        first. Many ids are looked at in several turns of the loop: an id that changes meanwhile is listed as it was or
        as it is.

        Raises Refused as `list`, and INVALID_REQUEST for a limit or skip out of its range.
        """
        if not (0 < wanted.limit <= LISTED_MAX and 0 <= wanted.skip <= SKIPPED_MAX):
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"limit is {wanted.limit} and skip {wanted.skip}: the first is from 1 to {LISTED_MAX}, the second from "
                f"0 to {SKIPPED_MAX}",
            )
        now_ms = self._runtime.clock.wall_ms()
        matches = self._matcher(wanted, now_ms, context)
        shards: list[TransactionShard] = self._runtime.table.listable(Coordinator.TRANSACTIONS)
        return in_steps(self._runtime, _listing(shards, wanted, matches, now_ms))

    def _matcher(self, wanted: TransactionFilter, now_ms: int, context: CallContext) -> Callable[[Transaction], bool]:
        """Return the condition of a list. Raises Refused INVALID_REGULAR_EXPRESSION."""
        may = self._authorizer.is_allowed
        may_describe = partial(may, context, Permission.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
        states = {state for state in TransactionState if state.api_name in wanted.states}
        matches_id = _id_matcher(wanted.id_pattern)

        def matches(transaction: Transaction) -> bool:
            # A completed transaction keeps its start time, but is not open any more.
            is_open = transaction.state in OPEN
            return (
                (not wanted.states or transaction.state in states)
                and (not wanted.producer_ids or transaction.producer_id in wanted.producer_ids)
                and (
                    wanted.open_longer_than_ms < 0
                    or (is_open and now_ms - transaction.start_ms > wanted.open_longer_than_ms)
                )
                and matches_id(transaction.transactional_id)
                and may_describe(coordinator_key(transaction.transactional_id))
            )

        return matches


def _unknown_states(wanted: TransactionFilter) -> list[str]:
    known = {state.api_name for state in TransactionState}
    return [name for name in wanted.states if name not in known and name != "Dead"]


def _listing(
    shards: Sequence[TransactionShard],
    wanted: TransactionFilter,
    matches: Callable[[Transaction], bool],
    now_ms: int,
) -> Generator[None, None, Listing]:
    """Look at the ids of shards in steps."""
    runs: list[list[Transaction]] = []
    needed, matching, looked_at = wanted.skip + wanted.limit, 0, 0
    for shard in shards:
        ids = list(shard.table.durable_transactions())
        for first in range(0, len(ids), IDS_PER_STEP):
            some = ids[first : first + IDS_PER_STEP]
            found = [each for each in some if matches(each)]
            matching += len(found)
            runs.append(sorted(found, key=_oldest_first)[:needed])
            looked_at += len(some)
            if looked_at >= IDS_PER_STEP:
                looked_at = 0
                yield
    shown: list[Transaction] = []
    for place, each in enumerate(islice(merge(*runs, key=_oldest_first), needed)):
        if place >= wanted.skip:
            shown.append(each)
        if place % IDS_PER_STEP == IDS_PER_STEP - 1:
            yield
    return Listing(shown, _unknown_states(wanted), now_ms, matching)


def _oldest_first(transaction: Transaction) -> tuple[bool, int, str]:
    is_over = transaction.state not in OPEN
    return is_over, 0 if is_over else transaction.start_ms, transaction.transactional_id


def _id_matcher(pattern: str) -> Callable[[str], bool]:
    if not pattern:
        return lambda _transactional_id: True
    return Pattern(pattern).matches
