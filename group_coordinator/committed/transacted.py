"""Offsets of a `Transact` request: checked once, then held inside the decision on the outcome.

Source: design 6 (`Transact`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_protocol.marker import Marker
from coordinator_protocol.names import check_group_id
from coordinator_runtime.decision import CATALOG_KEY, Decision, Operation, ShardKey, ShardRouter, Turn, once_durable
from coordinator_runtime.ports import (
    Authorizer,
    CallContext,
    GroupOffsets,
    Membership,
    OutcomeNumber,
    Permission,
    ResourceType,
    TopicCatalog,
    require,
)
from coordinator_runtime.transact import PartRefused
from group_coordinator.committed.decisions import check_offsets, decide_txn_commit
from group_coordinator.committed.requests import Placed, TxnOffsetCommit
from group_coordinator.committed.service import Placing
from group_coordinator.shard import GroupShard


class OffsetsWrite:
    """Offsets of one request for one group. Implements `coordinator_runtime.ports.GroupWrite`."""

    __slots__ = ("_commit", "_place", "_shard", "group_id")

    def __init__(self, shard: ShardKey, commit: TxnOffsetCommit, place: Callable[[], Sequence[Placed]]) -> None:
        self._shard = shard
        self._commit = commit
        self._place = place
        self.group_id = commit.group_id

    def hold(self, last: OutcomeNumber, marker: Marker | None) -> Operation:
        """Return the operation that holds the offsets until a marker with a greater csn settles them. If `marker` is
        given, it settles them in the same operation."""
        return Operation(self._shard, partial(self._decide, last, marker))

    def _decide(self, last: OutcomeNumber, marker: Marker | None, shard: GroupShard, turn: Turn) -> Decision:
        try:
            # Resolved here and not earlier, since the call may have waited: a topic deleted meanwhile must get no
            # offsets.
            placed = self._place()
            missing = next((each for each in placed if isinstance(each, Refused)), None)
            if missing is not None:
                return Decision(joins=(once_durable(CATALOG_KEY, PartRefused.naming(self.group_id, missing)),))
            decision = decide_txn_commit(shard, self._commit, placed, last, turn, marker=marker)
            refusal = next((each for each in decision.reply if each is not None), None)
            if refusal is not None:
                raise refusal
        except Refused as refusal:
            raise PartRefused.naming(self.group_id, refusal) from refusal
        # The operation that joins this one has its own reply.
        return replace(decision, reply=None)


class TransactedGroups:
    """Implements `coordinator_runtime.transact.TransactedOffsets`."""

    def __init__(self, router: ShardRouter, catalog: TopicCatalog, authorizer: Authorizer) -> None:
        self._router = router
        self._placing = Placing(catalog, authorizer)
        self._authorizer = authorizer

    def place(
        self, groups: Sequence[GroupOffsets], membership: Membership, context: CallContext
    ) -> Sequence[OffsetsWrite]:
        """Return the offset writes of a request, one per group.

        Raises Refused: GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID, INVALID_REQUEST, and as `check_offsets`.
        """
        writes: dict[str, OffsetsWrite] = {}
        for brought in groups:
            group_id = brought.group_id
            try:
                check_group_id(group_id)
                require(self._authorizer, context, Permission.READ, ResourceType.GROUP, group_id)
                check_offsets(brought.offsets)
                if group_id in writes:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"group {group_id!a} is named twice; name it once")
            except Refused as refusal:
                raise PartRefused(group_id, refusal.code, refusal.message) from refusal
            commit = TxnOffsetCommit(group_id, brought.committer, brought.offsets, membership)
            names = [named.name for named in commit.offsets]
            place = partial(self._placing.place, names, Permission.READ, context)
            writes[group_id] = OffsetsWrite(self._router.shard_key(group_id), commit, place)
        return list(writes.values())
