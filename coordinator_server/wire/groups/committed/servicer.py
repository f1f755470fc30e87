"""The offset methods of GroupService on the wire: map in, call the use case, map out. Decisions are elsewhere."""

from __future__ import annotations

from coordinator_api.v1 import group_pb2
from coordinator_protocol.errors import Method
from coordinator_runtime.pending import Pending
from coordinator_runtime.ports import CallContext
from coordinator_server.wire.groups.committed import edge
from group_coordinator.committed.service import OffsetService


class OffsetServicer:
    """One method per RPC; errors of a whole call are raised or carried by the Pending, and answered by the
    dispatcher."""

    def __init__(self, offsets: OffsetService) -> None:
        self._offsets = offsets

    def OffsetCommit(
        self, request: group_pb2.OffsetCommitRequest, context: CallContext
    ) -> Pending[group_pb2.OffsetCommitResponse]:
        commit = edge.offset_commit(request)
        names = [named.name for named in commit.offsets]
        return edge.answer_each(
            Method.OFFSET_COMMIT,
            group_pb2.OffsetCommitResponse,
            names,
            lambda: self._offsets.commit(commit, context),
        )

    def TxnOffsetCommit(
        self, request: group_pb2.TxnOffsetCommitRequest, context: CallContext
    ) -> Pending[group_pb2.TxnOffsetCommitResponse]:
        commit = edge.txn_offset_commit(request)
        names = [named.name for named in commit.offsets]
        return edge.answer_each(
            Method.TXN_OFFSET_COMMIT,
            group_pb2.TxnOffsetCommitResponse,
            names,
            lambda: self._offsets.commit_in_transaction(commit, context),
        )

    def OffsetFetch(
        self, request: group_pb2.OffsetFetchRequest, context: CallContext
    ) -> Pending[group_pb2.OffsetFetchResponse]:
        fetches = edge.offset_fetches(request)
        fetched = self._offsets.fetch(fetches, context, require_stable=request.require_stable)
        return fetched.map(edge.fetch_response)

    def OffsetDelete(
        self, request: group_pb2.OffsetDeleteRequest, context: CallContext
    ) -> Pending[group_pb2.OffsetDeleteResponse]:
        names = edge.deleted_names(request)
        return edge.answer_each(
            Method.OFFSET_DELETE,
            group_pb2.OffsetDeleteResponse,
            names,
            lambda: self._offsets.delete(request.group_id, names, context),
        )
