"""Errors with Kafka's numbers, and the action that each one asks of the caller.

Two facts travel in every reply. The error code is Kafka's number, so that tools and people recognise it. The error
class is the one action that helps. The class is decided here, per method, by one table. So a client that meets an
unknown code still knows what to do.

Source: design 6; spec transactions 0 and 2; docs/clients.md; KIP-588, KIP-691, KIP-890, KIP-1050.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from coordinator_protocol.methods import Method, methods_with


class ErrorCode(IntEnum):
    """Kafka's error codes, with Kafka's names and numbers, as far as this product can meet them."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    SNAPSHOT_NOT_FOUND = 98
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_REGULAR_EXPRESSION = 128
    STREAMS_INVALID_TOPOLOGY = 130
    SHARE_SESSION_LIMIT_REACHED = 133


def error_name(code: int) -> str:
    """Return Kafka's name of a code, or the number if it has none here."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


class ErrorClass(IntEnum):
    """The one action that helps; the numbers are on the wire. `ErrorClass` in `common.proto` has the whole advice."""

    NONE = 0
    """Success."""
    RETRY = 1
    """Send the same request again after a pause; nothing was changed."""
    REFRESH = 2
    """Look the coordinator or the leader epoch up again, then send the same request again; nothing was changed."""
    ABORT = 3
    """Abort the transaction; the producer can go on with the next one."""
    RECOVER = 4
    """Call InitProducerId with the identity held, without an EndTxn first, then go on: no newer instance has it."""
    REJOIN = 5
    """Send a heartbeat or join the group again, then decide again what to do."""
    REJECTED = 6
    """The request is wrong as it stands; repeating it cannot help. Nothing was changed."""
    FENCED = 7
    """A newer instance has this identity, or an administrator took it away: stop this instance."""
    MISCONFIGURED = 8
    """Settings, versions, permissions or damaged data must be repaired first. Nothing was changed."""
    UNKNOWN_OUTCOME = 9
    """The request may or may not have taken effect: repeat it with the same request id, or query the state."""


class CoordinatorError(Exception):
    """Base of the two ways in which a request fails without being our bug."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code.name} ({int(self.code)}): {self.message}"

    def drop_frames(self) -> None:
        """Drop traceback, context and cause, before the error is kept or reported.

        Each frame refers to its caller's, up to those with the whole request, and one of them refers to the holder of
        the error."""
        self.__traceback__ = self.__context__ = self.__cause__ = None


class Refused(CoordinatorError):
    """The request was refused, and nothing was written for it.

    `message` has the reason and advice. Source: style 4.4 (a)."""

    throttle_ms: int | None = None
    """Pause before the caller should retry, if it is known better than usual."""


class Outdated(Refused):
    """Refusal of an identity whose epoch is over, although no newer instance has the transactional id.

    The server aborted its transaction, at its timeout say, or the producer itself has ended it. InitProducerId with the
    identity held returns the one to go on with, so the class is never FENCED. It is for the last identity before the
    current one, and only while no transaction is open. Earlier ones are fenced (`txn_coordinator.fencing`).

    Source: KIP-588 (Kafka never got its separate answer for a timeout); spec transactions 3.10."""


class NotInTransaction(Refused):
    """Refusal of a client of version 1 that writes to a partition or group which is not in its open transaction.

    The code is INVALID_TXN_STATE. Kafka has TRANSACTION_ABORTABLE for clients that know it (KIP-890)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)

    def __reduce__(self) -> tuple[type[NotInTransaction], tuple[str]]:
        return type(self), (self.message,)


class RenewalForbidden(Refused):
    """Refusal to renew the lock on a record of a share group that does not allow it. The record is still held.

    The code is INVALID_REQUEST, which tells an SDK so. Kafka has INVALID_RECORD_STATE, as for a lock that is over."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)

    def __reduce__(self) -> tuple[type[RenewalForbidden], tuple[str]]:
        return type(self), (self.message,)


class UnknownOutcome(CoordinatorError):
    """The change may or may not be durable; the caller must repeat it under the same identity, or ask.

    Source: style 4.4 (b).
    """

    def __init__(self, message: str, code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        super().__init__(code, message)

    def __reduce__(self) -> tuple[type[UnknownOutcome], tuple[str, ErrorCode]]:
        return type(self), (self.message, self.code)


_MUTATING: Final = methods_with(lambda rule: not rule.is_repeatable)
_WITHIN_TRANSACTION: Final = methods_with(lambda rule: rule.is_within_transaction)
_BY_MEMBERS: Final = methods_with(lambda rule: rule.is_for_members)

_C = ErrorCode

_DEFAULT_CODES: Final[Mapping[ErrorClass, tuple[ErrorCode, ...]]] = MappingProxyType(
    {
        ErrorClass.NONE: (_C.NONE,),
        ErrorClass.RETRY: (
            _C.UNKNOWN_SERVER_ERROR,
            _C.REQUEST_TIMED_OUT,
            _C.NETWORK_EXCEPTION,
            _C.COORDINATOR_LOAD_IN_PROGRESS,
            _C.NOT_ENOUGH_REPLICAS,
            _C.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            _C.CONCURRENT_TRANSACTIONS,
            _C.UNKNOWN_LEADER_EPOCH,
            _C.OFFSET_NOT_AVAILABLE,
            _C.UNSTABLE_OFFSET_COMMIT,
            _C.THROTTLING_QUOTA_EXCEEDED,
            _C.UNRELEASED_INSTANCE_ID,
            _C.SHARE_SESSION_LIMIT_REACHED,
        ),
        ErrorClass.REFRESH: (
            _C.LEADER_NOT_AVAILABLE,
            _C.NOT_LEADER_OR_FOLLOWER,
            _C.COORDINATOR_NOT_AVAILABLE,
            _C.NOT_COORDINATOR,
            _C.FENCED_LEADER_EPOCH,
        ),
        ErrorClass.ABORT: (),
        ErrorClass.RECOVER: (_C.INVALID_PRODUCER_ID_MAPPING, _C.UNKNOWN_PRODUCER_ID),
        ErrorClass.REJOIN: (
            _C.ILLEGAL_GENERATION,
            _C.UNKNOWN_MEMBER_ID,
            _C.REBALANCE_IN_PROGRESS,
            _C.MEMBER_ID_REQUIRED,
            _C.FENCED_MEMBER_EPOCH,
            _C.STALE_MEMBER_EPOCH,
            _C.SHARE_SESSION_NOT_FOUND,
            _C.INVALID_SHARE_SESSION_EPOCH,
        ),
        ErrorClass.REJECTED: (
            _C.OFFSET_OUT_OF_RANGE,
            _C.CORRUPT_MESSAGE,
            _C.UNKNOWN_TOPIC_OR_PARTITION,
            _C.INVALID_FETCH_SIZE,
            _C.MESSAGE_TOO_LARGE,
            _C.OFFSET_METADATA_TOO_LARGE,
            _C.INVALID_TOPIC_EXCEPTION,
            _C.RECORD_LIST_TOO_LARGE,
            _C.INVALID_GROUP_ID,
            _C.INVALID_COMMIT_OFFSET_SIZE,
            _C.INVALID_TIMESTAMP,
            _C.TOPIC_ALREADY_EXISTS,
            _C.INVALID_PARTITIONS,
            _C.INVALID_REQUEST,
            _C.POLICY_VIOLATION,
            _C.OUT_OF_ORDER_SEQUENCE_NUMBER,
            _C.DUPLICATE_SEQUENCE_NUMBER,
            _C.INVALID_TXN_STATE,
            _C.OPERATION_NOT_ATTEMPTED,
            _C.NON_EMPTY_GROUP,
            _C.GROUP_ID_NOT_FOUND,
            _C.GROUP_SUBSCRIBED_TO_TOPIC,
            _C.INVALID_RECORD,
            _C.SNAPSHOT_NOT_FOUND,
            _C.UNKNOWN_TOPIC_ID,
            _C.INCONSISTENT_TOPIC_ID,
            _C.TRANSACTIONAL_ID_NOT_FOUND,
            _C.TRANSACTION_ABORTABLE,
            _C.INVALID_RECORD_STATE,
            _C.INVALID_REGULAR_EXPRESSION,
        ),
        ErrorClass.FENCED: (
            _C.INVALID_PRODUCER_EPOCH,
            _C.TRANSACTION_COORDINATOR_FENCED,
            _C.FENCED_INSTANCE_ID,
            _C.PRODUCER_FENCED,
            _C.FENCED_STATE_EPOCH,
        ),
        ErrorClass.MISCONFIGURED: (
            _C.INCONSISTENT_GROUP_PROTOCOL,
            _C.INVALID_SESSION_TIMEOUT,
            _C.TOPIC_AUTHORIZATION_FAILED,
            _C.GROUP_AUTHORIZATION_FAILED,
            _C.CLUSTER_AUTHORIZATION_FAILED,
            _C.UNSUPPORTED_VERSION,
            _C.INVALID_CONFIG,
            _C.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            _C.INVALID_TRANSACTION_TIMEOUT,
            # Data stored for the caller cannot be read, and was not changed: an operator must repair it. In Kafka the
            # partition may move to another disk meanwhile; here it stays in its place, so a retry is useless.
            _C.KAFKA_STORAGE_ERROR,
            _C.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            _C.UNSUPPORTED_COMPRESSION_TYPE,
            _C.GROUP_MAX_SIZE_REACHED,
            _C.UNSUPPORTED_ASSIGNOR,
            _C.STREAMS_INVALID_TOPOLOGY,
        ),
        ErrorClass.UNKNOWN_OUTCOME: (),
    }
)

_Rule = tuple[Iterable[Method], Iterable[ErrorCode], ErrorClass]

_EXCEPTIONS: Final[tuple[_Rule, ...]] = (
    # A lost or failed write: it may have happened, so the advice is to ask, not to retry blindly.
    (
        _MUTATING,
        (
            _C.UNKNOWN_SERVER_ERROR,
            _C.REQUEST_TIMED_OUT,
            _C.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ),
        ErrorClass.UNKNOWN_OUTCOME,
    ),
    # Errors that spoil one transaction but not its producer. The topic went away, the membership that the offsets rest
    # on is over, a batch in front of this one failed, or the producer's state expired in this partition.
    (
        _WITHIN_TRANSACTION,
        (
            _C.UNKNOWN_TOPIC_OR_PARTITION,
            _C.UNKNOWN_TOPIC_ID,
            _C.INCONSISTENT_TOPIC_ID,
            _C.ILLEGAL_GENERATION,
            _C.UNKNOWN_MEMBER_ID,
            _C.REBALANCE_IN_PROGRESS,
            _C.FENCED_INSTANCE_ID,
            _C.FENCED_MEMBER_EPOCH,
            _C.STALE_MEMBER_EPOCH,
            _C.OUT_OF_ORDER_SEQUENCE_NUMBER,
            _C.OPERATION_NOT_ATTEMPTED,
            _C.UNKNOWN_PRODUCER_ID,
            _C.TRANSACTION_ABORTABLE,
        ),
        ErrorClass.ABORT,
    ),
    # The lock on a record has expired, or the group is gone: another worker gets the records, so the results must go.
    (
        (Method.TXN_SHARE_ACKNOWLEDGE, Method.TRANSACT),
        (_C.INVALID_RECORD_STATE, _C.GROUP_ID_NOT_FOUND),
        ErrorClass.ABORT,
    ),
    (
        (Method.END_TXN, Method.PREPARE_TRANSACTION, Method.SEAL_MEMBER, Method.COMMIT_BATCH),
        (_C.TRANSACTION_ABORTABLE,),
        ErrorClass.ABORT,
    ),
    # KIP-588: a partition cannot know whether the newer epoch is a rival or the producer's own timed-out transaction,
    # so it sends the abortable 47. The coordinator, asked by the abort, knows and sends 90 if there is a rival.
    ((Method.PRODUCE, Method.TRANSACT), (_C.INVALID_PRODUCER_EPOCH,), ErrorClass.ABORT),
    # The records are in the log, at an offset that is no longer cached. Success with an unknown offset is the truth,
    # and any other advice makes clients append them again (spec log-and-runtime 1.3, step 5). Only for Produce: a
    # Transact that answers 46 was refused as a whole.
    ((Method.PRODUCE,), (_C.DUPLICATE_SEQUENCE_NUMBER,), ErrorClass.NONE),
    # The bytes were damaged between the checksum and us, and the client still holds good ones. In Fetch the stored
    # bytes are damaged, and fetching them again cannot help.
    ((Method.PRODUCE, Method.TRANSACT), (_C.CORRUPT_MESSAGE,), ErrorClass.RETRY),
    # A member whose group is gone or of another kind joins again. For an administrator, the request is wrong.
    (_BY_MEMBERS, (_C.GROUP_ID_NOT_FOUND,), ErrorClass.REJOIN),
)

_DEFAULT: Final[Mapping[ErrorCode, ErrorClass]] = MappingProxyType(
    {code: error_class for error_class, codes in _DEFAULT_CODES.items() for code in codes}
)

_OVERRIDES: Final[Mapping[tuple[Method, ErrorCode], ErrorClass]] = MappingProxyType(
    {(method, code): error_class for methods, codes, error_class in _EXCEPTIONS for method in methods for code in codes}
)


def error_class(method: Method, code: ErrorCode) -> ErrorClass:
    """Return the one action that helps after `code` from `method`; defined for every pair.

    Source: design 6 ("one committed table"), spec transactions 0, docs/clients.md.
    """
    return _OVERRIDES.get((method, code), _DEFAULT[code])


def class_of(method: Method, error: CoordinatorError) -> ErrorClass:
    """Return the one action that helps after `error` from `method`: that of its code, except for an outdated
    identity."""
    what = error_class(method, error.code)
    return ErrorClass.RECOVER if what is ErrorClass.FENCED and isinstance(error, Outdated) else what
