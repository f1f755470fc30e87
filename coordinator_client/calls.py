"""Remote procedures as values, one retrying call with all its attempts, and the time for which a caller waits for it.

A call has no clock and no socket: time comes in, and the next action comes out. It ends in one of three ways: with a
reply, with a definite failure, or at its deadline. At the deadline it distinguishes two cases. Either the server said
each time that it changed nothing (Retriable), or an attempt was lost (OutcomeUnknown). Every attempt sends the same
message with the same request id, so the server recognises a request that it has already carried out.

A server that answers is asked again after 5 to 100 ms. A server that does not answer is asked less and less often, down
to once a second. A client that was never connected is not retried at all (`first_contact`).

Source: design 6 ("retries name themselves"); docs/clients.md (5 ms -> 100 ms, jittered); Kafka's
`reconnect.backoff.max.ms` (1,000); KAFKA-7763 (always a deadline).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from coordinator_api.v1 import admin_pb2 as admin
from coordinator_api.v1 import group_pb2 as group
from coordinator_api.v1 import log_pb2 as log
from coordinator_api.v1 import share_pb2 as share
from coordinator_api.v1 import transaction_pb2 as txn
from coordinator_api.v1.common_pb2 import RequestHeader
from coordinator_client.errors import (
    Loss,
    ReplyFields,
    TransactionError,
    class_of,
    definite_failure,
    failure,
    failure_of,
    first_failed,
    unreachable,
)
from coordinator_client.fetch_reply import parse_fetch_reply, parse_share_fetch_reply
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import METHODS, Method


class Request(Protocol):
    """A request message, with the header that all of them have."""

    @property
    def header(self) -> RequestHeader: ...
    def SerializeToString(self) -> bytes: ...


class Reply(ReplyFields, Protocol):
    """A reply message, with the fields that all of them have."""

    @property
    def throttle_ms(self) -> int: ...


RequestT = TypeVar("RequestT", bound=Request)
ReplyT = TypeVar("ReplyT", bound=Reply)


@dataclass(frozen=True, slots=True)
class Rpc(Generic[RequestT, ReplyT]):
    """One remote procedure, with the types of its request and reply."""

    method: Method
    service: str
    request_type: type[RequestT]
    parse: Callable[[bytes], ReplyT]
    is_bulk: bool = False
    """True if its answers are large. It is then a unary call beside the session, so that no small answer waits behind
    it."""

    @property
    def path(self) -> str:
        """Name of the procedure in gRPC."""
        return f"/coordinator_api.v1.{self.service}/{self.method}"

    @property
    def is_mutating(self) -> bool:
        """True if the outcome is unknown after a lost answer, so that only the same request under the same id may
        follow."""
        return not METHODS[self.method].is_repeatable


_TXN: Final = "TransactionService"
_LOG: Final = "LogService"
_ADMIN: Final = "AdminService"
_GROUP: Final = "GroupService"
_SHARE: Final = "ShareService"

FIND_COORDINATOR: Final = Rpc(
    Method.FIND_COORDINATOR, _TXN, txn.FindCoordinatorRequest, txn.FindCoordinatorResponse.FromString
)
INIT_PRODUCER_ID: Final = Rpc(
    Method.INIT_PRODUCER_ID, _TXN, txn.InitProducerIdRequest, txn.InitProducerIdResponse.FromString
)
PREPARE_TRANSACTION: Final = Rpc(
    Method.PREPARE_TRANSACTION, _TXN, txn.PrepareTransactionRequest, txn.PrepareTransactionResponse.FromString
)
TRANSACT: Final = Rpc(Method.TRANSACT, _TXN, txn.TransactRequest, txn.TransactResponse.FromString)
END_TXN: Final = Rpc(Method.END_TXN, _TXN, txn.EndTxnRequest, txn.EndTxnResponse.FromString)
DESCRIBE_TRANSACTIONS: Final = Rpc(
    Method.DESCRIBE_TRANSACTIONS, _TXN, txn.DescribeTransactionsRequest, txn.DescribeTransactionsResponse.FromString
)
LIST_TRANSACTIONS: Final = Rpc(
    Method.LIST_TRANSACTIONS, _TXN, txn.ListTransactionsRequest, txn.ListTransactionsResponse.FromString
)
JOIN_BATCH: Final = Rpc(Method.JOIN_BATCH, _TXN, txn.JoinBatchRequest, txn.JoinBatchResponse.FromString)
SEAL_MEMBER: Final = Rpc(Method.SEAL_MEMBER, _TXN, txn.SealMemberRequest, txn.SealMemberResponse.FromString)
COMMIT_BATCH: Final = Rpc(Method.COMMIT_BATCH, _TXN, txn.CommitBatchRequest, txn.CommitBatchResponse.FromString)
ABORT_BATCH: Final = Rpc(Method.ABORT_BATCH, _TXN, txn.AbortBatchRequest, txn.AbortBatchResponse.FromString)
DESCRIBE_SINKS: Final = Rpc(Method.DESCRIBE_SINKS, _TXN, txn.DescribeSinksRequest, txn.DescribeSinksResponse.FromString)
CREATE_TOPICS: Final = Rpc(Method.CREATE_TOPICS, _LOG, log.CreateTopicsRequest, log.CreateTopicsResponse.FromString)
DELETE_TOPICS: Final = Rpc(Method.DELETE_TOPICS, _LOG, log.DeleteTopicsRequest, log.DeleteTopicsResponse.FromString)
DESCRIBE_TOPICS: Final = Rpc(
    Method.DESCRIBE_TOPICS, _LOG, log.DescribeTopicsRequest, log.DescribeTopicsResponse.FromString
)
CREATE_PARTITIONS: Final = Rpc(
    Method.CREATE_PARTITIONS, _LOG, log.CreatePartitionsRequest, log.CreatePartitionsResponse.FromString
)
ALTER_TOPIC_CONFIGS: Final = Rpc(
    Method.ALTER_TOPIC_CONFIGS, _LOG, log.AlterTopicConfigsRequest, log.AlterTopicConfigsResponse.FromString
)
DESCRIBE_TOPIC_CONFIGS: Final = Rpc(
    Method.DESCRIBE_TOPIC_CONFIGS, _LOG, log.DescribeTopicConfigsRequest, log.DescribeTopicConfigsResponse.FromString
)
PRODUCE: Final = Rpc(Method.PRODUCE, _LOG, log.ProduceRequest, log.ProduceResponse.FromString)
FETCH: Final = Rpc(Method.FETCH, _LOG, log.FetchRequest, parse_fetch_reply, is_bulk=True)
LIST_OFFSETS: Final = Rpc(Method.LIST_OFFSETS, _LOG, log.ListOffsetsRequest, log.ListOffsetsResponse.FromString)
MEASURE_RECORDS: Final = Rpc(
    Method.MEASURE_RECORDS, _LOG, log.MeasureRecordsRequest, log.MeasureRecordsResponse.FromString
)
LIST_COMMITTED_TRANSACTIONS: Final = Rpc(
    Method.LIST_COMMITTED_TRANSACTIONS,
    _LOG,
    log.ListCommittedTransactionsRequest,
    log.ListCommittedTransactionsResponse.FromString,
)
COUNT_RECORDS: Final = Rpc(Method.COUNT_RECORDS, _LOG, log.CountRecordsRequest, log.CountRecordsResponse.FromString)
DESCRIBE_PRODUCERS: Final = Rpc(
    Method.DESCRIBE_PRODUCERS, _LOG, log.DescribeProducersRequest, log.DescribeProducersResponse.FromString
)
TAKE_SNAPSHOT: Final = Rpc(Method.TAKE_SNAPSHOT, _LOG, log.TakeSnapshotRequest, log.TakeSnapshotResponse.FromString)
RENEW_SNAPSHOT: Final = Rpc(Method.RENEW_SNAPSHOT, _LOG, log.RenewSnapshotRequest, log.RenewSnapshotResponse.FromString)
RELEASE_SNAPSHOT: Final = Rpc(
    Method.RELEASE_SNAPSHOT, _LOG, log.ReleaseSnapshotRequest, log.ReleaseSnapshotResponse.FromString
)
DELETE_RECORDS: Final = Rpc(Method.DELETE_RECORDS, _LOG, log.DeleteRecordsRequest, log.DeleteRecordsResponse.FromString)
ABORT_TRANSACTIONS: Final = Rpc(
    Method.ABORT_TRANSACTIONS, _ADMIN, admin.AbortTransactionsRequest, admin.AbortTransactionsResponse.FromString
)
FENCE_PRODUCERS: Final = Rpc(
    Method.FENCE_PRODUCERS, _ADMIN, admin.FenceProducersRequest, admin.FenceProducersResponse.FromString
)
EXPLAIN_PARTITION: Final = Rpc(
    Method.EXPLAIN_PARTITION, _ADMIN, admin.ExplainPartitionRequest, admin.ExplainPartitionResponse.FromString
)
LIST_HANGING_TRANSACTIONS: Final = Rpc(
    Method.LIST_HANGING_TRANSACTIONS,
    _ADMIN,
    admin.ListHangingTransactionsRequest,
    admin.ListHangingTransactionsResponse.FromString,
)
ABORT_HANGING_TRANSACTIONS: Final = Rpc(
    Method.ABORT_HANGING_TRANSACTIONS,
    _ADMIN,
    admin.AbortHangingTransactionsRequest,
    admin.AbortHangingTransactionsResponse.FromString,
)
DESCRIBE_LIMITS: Final = Rpc(
    Method.DESCRIBE_LIMITS, _ADMIN, admin.DescribeLimitsRequest, admin.DescribeLimitsResponse.FromString
)
LIST_SHARDS: Final = Rpc(Method.LIST_SHARDS, _ADMIN, admin.ListShardsRequest, admin.ListShardsResponse.FromString)
LOAD_SHARD: Final = Rpc(Method.LOAD_SHARD, _ADMIN, admin.LoadShardRequest, admin.LoadShardResponse.FromString)
CREATE_BACKUP: Final = Rpc(
    Method.CREATE_BACKUP, _ADMIN, admin.CreateBackupRequest, admin.CreateBackupResponse.FromString
)
LIST_BACKUPS: Final = Rpc(Method.LIST_BACKUPS, _ADMIN, admin.ListBackupsRequest, admin.ListBackupsResponse.FromString)
UNLOAD_SHARD: Final = Rpc(Method.UNLOAD_SHARD, _ADMIN, admin.UnloadShardRequest, admin.UnloadShardResponse.FromString)
CREATE_ACLS: Final = Rpc(Method.CREATE_ACLS, _ADMIN, admin.CreateAclsRequest, admin.CreateAclsResponse.FromString)
DELETE_ACLS: Final = Rpc(Method.DELETE_ACLS, _ADMIN, admin.DeleteAclsRequest, admin.DeleteAclsResponse.FromString)
DESCRIBE_ACLS: Final = Rpc(
    Method.DESCRIBE_ACLS, _ADMIN, admin.DescribeAclsRequest, admin.DescribeAclsResponse.FromString
)
CHECK_PERMISSION: Final = Rpc(
    Method.CHECK_PERMISSION, _ADMIN, admin.CheckPermissionRequest, admin.CheckPermissionResponse.FromString
)
LIST_PARTITIONS: Final = Rpc(
    Method.LIST_PARTITIONS, _ADMIN, admin.ListPartitionsRequest, admin.ListPartitionsResponse.FromString
)
DESCRIBE_RATES: Final = Rpc(
    Method.DESCRIBE_RATES, _ADMIN, admin.DescribeRatesRequest, admin.DescribeRatesResponse.FromString
)
LIST_EVENTS: Final = Rpc(Method.LIST_EVENTS, _ADMIN, admin.ListEventsRequest, admin.ListEventsResponse.FromString)
DESCRIBE_SERVER_CONFIG: Final = Rpc(
    Method.DESCRIBE_SERVER_CONFIG,
    _ADMIN,
    admin.DescribeServerConfigRequest,
    admin.DescribeServerConfigResponse.FromString,
)
DESCRIBE_QUOTAS: Final = Rpc(
    Method.DESCRIBE_QUOTAS, _ADMIN, admin.DescribeQuotasRequest, admin.DescribeQuotasResponse.FromString
)
LIST_SNAPSHOTS: Final = Rpc(
    Method.LIST_SNAPSHOTS, _ADMIN, admin.ListSnapshotsRequest, admin.ListSnapshotsResponse.FromString
)
JOIN_GROUP: Final = Rpc(Method.JOIN_GROUP, _GROUP, group.JoinGroupRequest, group.JoinGroupResponse.FromString)
SYNC_GROUP: Final = Rpc(Method.SYNC_GROUP, _GROUP, group.SyncGroupRequest, group.SyncGroupResponse.FromString)
HEARTBEAT: Final = Rpc(Method.HEARTBEAT, _GROUP, group.HeartbeatRequest, group.HeartbeatResponse.FromString)
LEAVE_GROUP: Final = Rpc(Method.LEAVE_GROUP, _GROUP, group.LeaveGroupRequest, group.LeaveGroupResponse.FromString)
CONSUMER_GROUP_HEARTBEAT: Final = Rpc(
    Method.CONSUMER_GROUP_HEARTBEAT,
    _GROUP,
    group.ConsumerGroupHeartbeatRequest,
    group.ConsumerGroupHeartbeatResponse.FromString,
)
CONSUMER_GROUP_DESCRIBE: Final = Rpc(
    Method.CONSUMER_GROUP_DESCRIBE,
    _GROUP,
    group.ConsumerGroupDescribeRequest,
    group.ConsumerGroupDescribeResponse.FromString,
)
SHARE_GROUP_HEARTBEAT: Final = Rpc(
    Method.SHARE_GROUP_HEARTBEAT,
    _GROUP,
    group.ShareGroupHeartbeatRequest,
    group.ShareGroupHeartbeatResponse.FromString,
)
STREAMS_GROUP_HEARTBEAT: Final = Rpc(
    Method.STREAMS_GROUP_HEARTBEAT,
    _GROUP,
    group.StreamsGroupHeartbeatRequest,
    group.StreamsGroupHeartbeatResponse.FromString,
)
STREAMS_GROUP_DESCRIBE: Final = Rpc(
    Method.STREAMS_GROUP_DESCRIBE,
    _GROUP,
    group.StreamsGroupDescribeRequest,
    group.StreamsGroupDescribeResponse.FromString,
)
SHARE_FETCH: Final = Rpc(Method.SHARE_FETCH, _SHARE, share.ShareFetchRequest, parse_share_fetch_reply, is_bulk=True)
SHARE_ACKNOWLEDGE: Final = Rpc(
    Method.SHARE_ACKNOWLEDGE, _SHARE, share.ShareAcknowledgeRequest, share.ShareAcknowledgeResponse.FromString
)
TXN_SHARE_ACKNOWLEDGE: Final = Rpc(
    Method.TXN_SHARE_ACKNOWLEDGE,
    _SHARE,
    share.TxnShareAcknowledgeRequest,
    share.TxnShareAcknowledgeResponse.FromString,
)
SHARE_GROUP_DESCRIBE: Final = Rpc(
    Method.SHARE_GROUP_DESCRIBE, _GROUP, group.ShareGroupDescribeRequest, group.ShareGroupDescribeResponse.FromString
)
DESCRIBE_GROUPS: Final = Rpc(
    Method.DESCRIBE_GROUPS, _GROUP, group.DescribeGroupsRequest, group.DescribeGroupsResponse.FromString
)
LIST_GROUPS: Final = Rpc(Method.LIST_GROUPS, _GROUP, group.ListGroupsRequest, group.ListGroupsResponse.FromString)
DELETE_GROUPS: Final = Rpc(
    Method.DELETE_GROUPS, _GROUP, group.DeleteGroupsRequest, group.DeleteGroupsResponse.FromString
)
OFFSET_COMMIT: Final = Rpc(
    Method.OFFSET_COMMIT, _GROUP, group.OffsetCommitRequest, group.OffsetCommitResponse.FromString
)
OFFSET_FETCH: Final = Rpc(Method.OFFSET_FETCH, _GROUP, group.OffsetFetchRequest, group.OffsetFetchResponse.FromString)
TXN_OFFSET_COMMIT: Final = Rpc(
    Method.TXN_OFFSET_COMMIT, _GROUP, group.TxnOffsetCommitRequest, group.TxnOffsetCommitResponse.FromString
)
OFFSET_DELETE: Final = Rpc(
    Method.OFFSET_DELETE, _GROUP, group.OffsetDeleteRequest, group.OffsetDeleteResponse.FromString
)
DESCRIBE_SHARE_GROUP_OFFSETS: Final = Rpc(
    Method.DESCRIBE_SHARE_GROUP_OFFSETS,
    _GROUP,
    group.DescribeShareGroupOffsetsRequest,
    group.DescribeShareGroupOffsetsResponse.FromString,
)
ALTER_SHARE_GROUP_OFFSETS: Final = Rpc(
    Method.ALTER_SHARE_GROUP_OFFSETS,
    _GROUP,
    group.AlterShareGroupOffsetsRequest,
    group.AlterShareGroupOffsetsResponse.FromString,
)
DELETE_SHARE_GROUP_OFFSETS: Final = Rpc(
    Method.DELETE_SHARE_GROUP_OFFSETS,
    _GROUP,
    group.DeleteShareGroupOffsetsRequest,
    group.DeleteShareGroupOffsetsResponse.FromString,
)
DESCRIBE_GROUP_CONFIGS: Final = Rpc(
    Method.DESCRIBE_GROUP_CONFIGS,
    _GROUP,
    group.DescribeGroupConfigsRequest,
    group.DescribeGroupConfigsResponse.FromString,
)
ALTER_GROUP_CONFIGS: Final = Rpc(
    Method.ALTER_GROUP_CONFIGS, _GROUP, group.AlterGroupConfigsRequest, group.AlterGroupConfigsResponse.FromString
)


PAUSE_MS_FIRST: Final = 5
PAUSE_MS_MAX: Final = 100
LOST_PAUSE_MS_MAX: Final = 1_000
_DOUBLINGS_MAX: Final = 10
LAST_TRY_MS: Final = 1_000
"""Margin before its deadline at which a call is made, even during a longer pause that the server asked for (ms). It is
long enough for an answer."""

_NO_ATTEMPT: Final = (ErrorCode.REQUEST_TIMED_OUT, "no attempt was made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Time limits of one call, and of one attempt of it."""

    total_ms: int
    """Longest time from the first attempt to the last answer (ms)."""

    attempt_ms: int = 30_000
    """Time after which an attempt without an answer counts as lost (ms). A value below the server's longest wait for a
    busy transaction (30 s by default) only costs attempts, because each one waits from the start."""

    attempts_max: int | None = None
    """Maximum number of attempts; 1 for requests that must be rebuilt after a lost answer. None = limited only by
    time."""


class RetryingCall(Generic[RequestT, ReplyT]):
    """One logical request: its next attempt is due or in flight, or it is over."""

    __slots__ = (
        "_accepted",
        "_cause",
        "_deadlines",
        "_ends_ms",
        "_items",
        "_started_ms",
        "attempt_ends_ms",
        "attempts",
        "due_ms",
        "lost",
        "request",
        "rpc",
        "slot_ms",
    )

    def __init__(
        self,
        rpc: Rpc[RequestT, ReplyT],
        request: RequestT,
        *,
        deadlines: Deadlines,
        now_ms: int,
        items: Callable[[ReplyT], Iterable[ReplyFields]] | None = None,
        accepted: frozenset[ErrorCode] = frozenset(),
    ) -> None:
        """Make the first attempt due now.

        `items` returns the parts of a reply that succeed or fail individually. The first failed one decides for the
        whole reply, which suits requests that are repeated as a whole. `accepted`: codes that are a valid answer for
        this caller, not a failure.
        """
        self.rpc = rpc
        self.request = request
        self.attempts = 0
        self.lost = 0
        """Number of attempts after which it is unknown if the request was carried out."""
        self._items = items
        self._accepted = accepted
        self.due_ms: int | None = now_ms
        """Time at which the next attempt may start (ms); None while one is in flight."""
        self.slot_ms: float | None = None
        """Slot that `Throttle` gave to the due attempt, behind other waiting calls (ms); None = it need not wait."""
        self._started_ms = now_ms
        self._ends_ms = now_ms + deadlines.total_ms
        self._deadlines = deadlines
        self.attempt_ends_ms = 0
        """Time by which the attempt in flight should have been answered, or reported lost (ms)."""
        self._cause: tuple[int, str] = _NO_ATTEMPT

    def hold(self, until_ms: int) -> None:
        """Postpone the due attempt until then, but not beyond `LAST_TRY_MS` before the deadline."""
        assert self.due_ms is not None, "what is in flight cannot be put off"
        self.due_ms = max(self.due_ms, min(until_ms, self._ends_ms - LAST_TRY_MS))

    def begin_attempt(self, now_ms: int) -> int:
        """Start an attempt; return the time that it may take (ms)."""
        assert self.due_ms is not None, "one attempt at a time"
        timeout_ms = max(1, min(self._deadlines.attempt_ms, self._ends_ms - now_ms))
        self.attempts += 1
        self.due_ms = self.slot_ms = None
        self.attempt_ends_ms = now_ms + timeout_ms
        return timeout_ms

    def on_answer(self, answer: ReplyT | Loss, *, now_ms: int, jitter: float) -> ReplyT | TransactionError | None:
        """Return the reply or the failure that ends the call; None = another attempt is due later."""
        if isinstance(answer, Loss):
            return self._after_loss(answer, now_ms, jitter)
        verdict = answer if self._items is None else self.verdict_of(answer)
        if not verdict.error_code or verdict.error_code in self._accepted:
            return answer
        match class_of(self.rpc.method, verdict):
            case ErrorClass.UNKNOWN_OUTCOME:
                self.lost += 1
            case ErrorClass.RETRY | ErrorClass.REFRESH:
                # One server serves every key, and the transport looks for it.
                pass
            case _:
                error = failure_of(self.rpc.method, verdict)
                if error is None:
                    return answer
                error.lost_attempts = self.lost
                return error
        self._cause = (verdict.error_code, verdict.error_message or "the server gave no reason")
        return self._again(now_ms, jitter, answer.throttle_ms)

    def verdict_of(self, reply: ReplyT) -> ReplyFields:
        """Return the part of the reply that decides the request."""
        return reply if self._items is None else first_failed(reply, self._items(reply))

    def repeat(
        self, request: RequestT, cause: ReplyFields, *, now_ms: int, jitter: float, throttle_ms: int = 0
    ) -> TransactionError | None:
        """Continue with `request`, the part of the last one that `cause` says must be sent again. Return None, or the
        failure to give up with.

        The new request has its own request id; the deadline, the pauses and the count of lost attempts are kept.
        """
        self.request = request
        if class_of(self.rpc.method, cause) is ErrorClass.UNKNOWN_OUTCOME:
            self.lost += 1
        self._cause = (cause.error_code, cause.error_message or "the server gave no reason")
        return self._again(now_ms, jitter, throttle_ms)

    def _after_loss(self, loss: Loss, now_ms: int, jitter: float) -> TransactionError | None:
        if loss.is_final:
            return unreachable(loss)
        definite = definite_failure(self.rpc.method, loss)
        if definite is not None:
            definite.lost_attempts = self.lost
            return definite
        if self.rpc.is_mutating and not loss.is_without_effect:
            self.lost += 1
        timed_out = loss.status == "DEADLINE_EXCEEDED"
        self._cause = (ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.NETWORK_EXCEPTION, str(loss))
        end = self._again(now_ms, jitter, 0, pause_ms_max=LOST_PAUSE_MS_MAX)
        return unreachable(loss) if end is not None and loss.is_never_connected else end

    def _again(
        self, now_ms: int, jitter: float, throttle_ms: int, *, pause_ms_max: int = PAUSE_MS_MAX
    ) -> TransactionError | None:
        longest_ms = min(pause_ms_max, PAUSE_MS_FIRST << min(self.attempts - 1, _DOUBLINGS_MAX))
        due_ms = now_ms + max(1, throttle_ms, round(longest_ms * (1 + jitter) / 2))
        if due_ms >= self._ends_ms or self.attempts == self._deadlines.attempts_max:
            return self._given_up(now_ms)
        self.due_ms = due_ms
        return None

    def _given_up(self, now_ms: int) -> TransactionError:
        code, text = self._cause
        reason = (
            f"{self.rpc.method}: no definite answer within {now_ms - self._started_ms} ms "
            f"and {self.attempts} attempts; the last one ended with: {text}"
        )
        error = failure(code, ErrorClass.UNKNOWN_OUTCOME if self.lost else ErrorClass.RETRY, reason)
        error.lost_attempts = self.lost
        return error


CUT_OFF_CLOSE_MS: Final = 1_000
"""Time for which a closing client keeps trying once the server does not answer (ms). The server notices the silence
itself."""


class Patience:
    """A deadline that is shortened once the server stops answering, which a lost attempt or silence shows."""

    __slots__ = ("_cut_off_ms", "ends_ms", "limit_ms")

    def __init__(self, ends_ms: int, limit_ms: int, cut_off_ms: int | None = None) -> None:
        """Set the deadline. `limit_ms` is the whole time, for messages. `cut_off_ms` is the longest wait once the
        server does not answer; None = no shorter wait."""
        self.ends_ms = ends_ms
        self.limit_ms = limit_ms
        self._cut_off_ms = cut_off_ms

    def until_ms(self, now_ms: int, *, is_cut_off: bool, heard_ms: int | None = None) -> int:
        """Return the time at which to give up, as things stand (ms). `heard_ms`: time of the server's last answer (see
        `Pulse`); None = silence is not judged."""
        if self._cut_off_ms is not None and heard_ms is not None and heard_ms + self._cut_off_ms <= now_ms:
            self.ends_ms, self.limit_ms = min(self.ends_ms, now_ms), min(self.limit_ms, self._cut_off_ms)
            self._cut_off_ms = None
        elif self._cut_off_ms is not None and is_cut_off:
            self.ends_ms = min(self.ends_ms, now_ms + self._cut_off_ms)
            self.limit_ms = min(self.limit_ms, self._cut_off_ms)
            self._cut_off_ms = None
        if self._cut_off_ms is not None and heard_ms is not None:
            return min(self.ends_ms, heard_ms + self._cut_off_ms)
        return self.ends_ms


def timed_out(what: str, timeout_ms: int) -> TransactionError:
    """Return the failure of a call that the server did not answer in time."""
    error = failure(
        ErrorCode.REQUEST_TIMED_OUT, ErrorClass.RETRY, f"{what} did not come to an end within {timeout_ms} ms"
    )
    error.action = "Try again, or with a longer timeout_ms."
    return error
