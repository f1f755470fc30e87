"""Use cases of offsets: one method each, with a Pending reply.

Names are resolved in the live catalog, because offsets of a topic may be committed as soon as its creation is staged.
They become durable after it. A refusal because of a name waits until the catalog is durable as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from coordinator_protocol.errors import Refused
from coordinator_protocol.names import check_group_id, check_transactional_id
from coordinator_runtime.decision import (
    CATALOG_KEY,
    Decision,
    Operation,
    ShardRouter,
    TransactionInTheWay,
    Turn,
    once_durable,
)
from coordinator_runtime.pending import Pending, all_of, settled
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    GroupVerifier,
    OutcomeNumber,
    PartitionName,
    Permission,
    ResourceType,
    TopicCatalog,
    require,
    require_by_id,
)
from coordinator_runtime.runtime import Runtime
from group_coordinator.committed.decisions import (
    check_fetch,
    check_identity,
    check_names,
    check_offsets,
    check_retention,
    decide_commit,
    decide_delete,
    decide_fetch_stable,
    decide_txn_commit,
    read_durable,
    waiting_for,
)
from group_coordinator.committed.requests import (
    FetchedGroup,
    FetchedOffset,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Placed,
    Results,
    TxnOffsetCommit,
)
from group_coordinator.committed.state import PendingCommit
from group_coordinator.shard import GroupShard

ReplyT = TypeVar("ReplyT")

_WAIT_FOR_CATALOG: Final = once_durable(CATALOG_KEY)
"""Joined to decisions that rest on the catalog: their answers wait until the catalog is durable as it was then."""


class Placing:
    """Resolver of partition names in the live catalog, for callers with permission."""

    def __init__(self, catalog: TopicCatalog, authorizer: Authorizer) -> None:
        self._catalog = catalog
        self._authorizer = authorizer

    def place(self, names: Iterable[PartitionName], permission: Permission, context: CallContext) -> tuple[Placed, ...]:
        """Return for each name, in order, the partition or the refusal to use it."""
        return tuple([self._place_one(name, permission, context) for name in names])

    def _place_one(self, name: PartitionName, permission: Permission, context: CallContext) -> Placed:
        # The permission is checked by name first, so that an unauthorized caller does not learn if a topic exists.
        try:
            if name.topic:
                require(self._authorizer, context, permission, ResourceType.TOPIC, name.topic)
            ref = self._catalog.resolve(*name)
            if not name.topic:
                require_by_id(self._authorizer, context, permission, ref.topic, name.topic_id)
        except Refused as refusal:
            return refusal
        return ref


class OffsetService:
    """Use cases of offsets. Each checks the caller's permission and the command before it asks the group.

    A failed check raises Refused for the whole request. Replies come when everything they rest on is durable.
    """

    def __init__(
        self,
        runtime: Runtime,
        router: ShardRouter,
        *,
        catalog: TopicCatalog,
        verifier: GroupVerifier,
        authorizer: Authorizer,
    ) -> None:
        self._runtime = runtime
        self._router = router
        self._placing = Placing(catalog, authorizer)
        self._verifier = verifier
        self._authorizer = authorizer

    def commit(self, commit: OffsetCommit, context: CallContext) -> Pending[Results]:
        """Commit offsets at once. All offsets that are not refused become durable together.

        Raises Refused for the whole request: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, as
        `decisions.check_offsets`, `decisions.check_retention` and `decisions.decide_commit`.
        """
        require(self._authorizer, context, Permission.READ, ResourceType.GROUP, commit.group_id)
        check_group_id(commit.group_id)
        check_offsets(commit.offsets)
        check_retention(commit.retention_time_ms)
        placed = self._placing.place([named.name for named in commit.offsets], Permission.READ, context)
        decide = _waiting_for_catalog(placed, lambda shard, turn: decide_commit(shard, commit, placed, turn))
        return self._runtime.write(Operation(self._router.shard_key(commit.group_id), decide), context)

    def commit_in_transaction(self, commit: TxnOffsetCommit, context: CallContext) -> Pending[Results]:
        """Hold offsets until their transaction ends.

        The same operation adds the group to the transaction, or for clients of version 1 checks that it is in it. So no
        marker can miss the offsets (spec transactions 2.5).

        Raises Refused for the whole request: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED,
        INVALID_GROUP_ID, as `decisions.check_offsets`, `decisions.check_identity`, `GroupVerifier` and
        `decisions.decide_txn_commit`.
        """
        membership, group_id = commit.membership, commit.group_id
        transactional_id = membership.transactional_id

        def ask() -> None:
            require(self._authorizer, context, Permission.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            require(self._authorizer, context, Permission.READ, ResourceType.GROUP, group_id)

        ask()
        check_transactional_id(transactional_id)
        check_group_id(group_id)
        check_offsets(commit.offsets)
        check_identity(membership)
        names = [named.name for named in commit.offsets]
        placed = self._placing.place(names, Permission.READ, context)
        refusals = tuple(each for each in placed if isinstance(each, Refused))
        if len(refusals) == len(placed):
            # No offset is left to commit, so the transaction is not touched.
            return self._when_catalog_durable(refusals)

        def hold(last: OutcomeNumber) -> Decision:
            # Resolved again, since the call may have waited: a topic deleted meanwhile must get no offsets.
            now_placed = self._placing.place(names, Permission.READ, context)
            decide = _waiting_for_catalog(
                now_placed, lambda shard, turn: decide_txn_commit(shard, commit, now_placed, last, turn)
            )
            return Decision(joins=(Operation(self._router.shard_key(group_id), decide),))

        verify = self._verifier.verify_group if context.client_txn_version == 1 else self._verifier.add_group
        operation = verify(membership, group_id, hold)
        park_key = TransactionInTheWay(transactional_id)
        return self._runtime.write(operation, context, park_key=park_key, ask_again=ask)

    def fetch(
        self, fetches: Sequence[OffsetFetch], context: CallContext, *, require_stable: bool
    ) -> Pending[list[FetchedGroup]]:
        """Return the offsets of each group, or its refusal. With `require_stable` they include all earlier writes;
        without, only those durable at this moment."""
        return all_of([self._fetch_group(fetch, context, require_stable=require_stable) for fetch in fetches])

    def _fetch_group(self, fetch: OffsetFetch, context: CallContext, *, require_stable: bool) -> Pending[FetchedGroup]:
        try:
            require(self._authorizer, context, Permission.DESCRIBE, ResourceType.GROUP, fetch.group_id)
            check_group_id(fetch.group_id)
            placed = None
            if fetch.names is not None:
                check_names(fetch.names)
                placed = self._placing.place(fetch.names, Permission.DESCRIBE, context)
            read = self._read_stable if require_stable else self._read_durable
            found = read(fetch, placed, context)
        except Refused as refusal:
            return settled(FetchedGroup(fetch.group_id, refusal=refusal))

        visible = partial(self._visible, fetch, context)
        fetched = found.map(lambda offsets: FetchedGroup(fetch.group_id, visible(offsets)))
        return fetched.answer_error(lambda error: FetchedGroup(fetch.group_id, refusal=error))

    def _read_stable(
        self, fetch: OffsetFetch, placed: Sequence[Placed] | None, context: CallContext
    ) -> Pending[tuple[FetchedOffset, ...]]:
        decide = _waiting_for_catalog(placed or (), lambda shard, _turn: decide_fetch_stable(shard, fetch, placed))
        return self._runtime.write(Operation(self._router.shard_key(fetch.group_id), decide), context)

    def _read_durable(
        self, fetch: OffsetFetch, placed: Sequence[Placed] | None, context: CallContext
    ) -> Pending[tuple[FetchedOffset, ...]]:
        key = self._router.shard_key(fetch.group_id)
        shard: GroupShard = self._runtime.shard(key)
        try:
            check_fetch(shard, fetch)
        except Refused as refusal:
            return self._runtime.write(once_durable(key, refusal), context)
        offsets = read_durable(shard, fetch, placed)
        if any(isinstance(each, Refused) for each in placed or ()):
            return self._when_catalog_durable(offsets)
        return settled(offsets)

    def _visible(
        self, fetch: OffsetFetch, context: CallContext, offsets: tuple[FetchedOffset, ...]
    ) -> tuple[FetchedOffset, ...]:
        """Remove topics that the caller may not see, unless it named them: then it gets a refusal.

        In the list of blocking transactions, ids that the caller may not see are left empty.
        """
        may_see = partial(self._authorizer.is_allowed, context, Permission.DESCRIBE)
        if fetch.names is None:
            offsets = tuple(each for each in offsets if may_see(ResourceType.TOPIC, each.name.topic))
        if not any(each.blocking for each in offsets):
            return offsets

        def seen(pending: PendingCommit) -> PendingCommit:
            is_seen = may_see(ResourceType.TRANSACTIONAL_ID, pending.transactional_id)
            return pending if is_seen else replace(pending, transactional_id="")

        return tuple(
            waiting_for(each, tuple((producer, seen(pending)) for producer, pending in each.blocking))
            if each.blocking
            else each
            for each in offsets
        )

    def delete(self, command: OffsetDelete, context: CallContext) -> Pending[Results]:
        """Delete offsets of a group.

        Raises Refused for the whole request: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, as `decisions.check_names`
        and `decisions.decide_delete`.
        """
        group_id = command.group_id
        require(self._authorizer, context, Permission.DELETE, ResourceType.GROUP, group_id)
        check_group_id(group_id)
        check_names(command.names)
        placed = self._placing.place(command.names, Permission.READ, context)
        decide = _waiting_for_catalog(placed, lambda shard, _turn: decide_delete(shard, group_id, placed))
        return self._runtime.write(Operation(self._router.shard_key(group_id), decide), context)

    def _when_catalog_durable(self, reply: ReplyT) -> Pending[ReplyT]:
        return self._runtime.write(once_durable(CATALOG_KEY, reply), is_urgent=True)


def _waiting_for_catalog(
    placed: Sequence[Placed], decide: Callable[[GroupShard, Turn], Decision]
) -> Callable[[GroupShard, Turn], Decision]:
    """Return the decision, with a wait for the durable catalog if it refuses names."""
    if not any(isinstance(each, Refused) for each in placed):
        return decide

    def decide_and_wait(shard: GroupShard, turn: Turn) -> Decision:
        decision = decide(shard, turn)
        return replace(decision, joins=(*decision.joins, _WAIT_FOR_CATALOG))

    return decide_and_wait
