"""Exceptions of the SDK: one for each action that helps, chosen by the error class in the server's reply.

`TransactionError` is the base of every error. The class of an error says what to do, and `action` says it in a
sentence. The reaction of a loop that reads, transforms and writes, with the table in docs/tour.md ("When the loop meets
an exception"):

- Abortable, Recoverable, Retriable: `Consumer.rewind(batch)`, then go on with the same producer.
- OutcomeUnknown with `may_have_committed`: call `Producer.resolve_outcome`. True: go on. False: rewind and go on. If it
  raises again, end the process. Without `may_have_committed`: as Abortable.
- Fenced, Rejected, Misconfigured: end the process. Its successor goes on at the committed offsets.

`CommitFailed` and `RebalanceInProgress` come from `Consumer.commit` only, `AcknowledgementFailed` from share consumers.

A code says what happened, in Kafka's numbers. The class comes with the reply, so a code unknown to this client is still
treated by its class. Retriable errors are handled inside the SDK: one reaches a user only when the deadline of the call
has passed.

Source: docs/spec/design.md 6; docs/clients.md; KIP-588, KIP-691, KIP-1050.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from coordinator_client.values import TopicPartition
from coordinator_protocol.errors import ErrorClass, ErrorCode, Refused, error_class
from coordinator_protocol.methods import Method


class TransactionError(Exception):
    """Base class of every error that the SDK raises about a request: what happened, and what the caller can do."""

    action: str = "Read the reason; it says what to change."
    """Advice to the caller: one sentence per class, replaced by a more precise one where more is known."""

    def __init__(self, code: int, error_class: ErrorClass, reason: str) -> None:
        super().__init__(code, error_class, reason)
        self.code: int = known_code(code)
        """Kafka's error number; an `ErrorCode` if this client knows the number."""
        self.error_class: ErrorClass = error_class
        """Class of the error, as the server decided it: the one action that helps."""
        self.reason: str = reason
        """Description of what happened."""
        self.may_have_committed: bool = False
        """True if a commit was sent and its answer is not known, so the transaction may have committed."""
        self.lost_attempts: int = 0
        """Number of earlier attempts of the same request that got no answer; one of them may have taken effect."""

    def __str__(self) -> str:
        name = self.code.name if isinstance(self.code, ErrorCode) else "a code this client does not know"
        return f"{name} ({int(self.code)}): {self.reason} - {self.action}"


class Abortable(TransactionError):
    """The transaction is over and nothing of it is visible; the same producer can start the next one."""

    action = "The transaction is aborted: repeat its work in a new one with the same producer."


class Recoverable(TransactionError):
    """The producer's identity expired, although no newer producer exists. The transaction is aborted. The producer is
    usable: it asks for a new identity by itself."""

    action = "Repeat the work: the producer asks for a new identity by itself and goes on."


class Fenced(TransactionError):
    """A newer producer has the transactional id, or a newer consumer has the `group_instance_id`. The server refuses
    everything that this one still sends, and a fenced producer is closed."""

    action = "Stop this process: a newer one owns the transactional id."


class CommitFailed(TransactionError):
    """The offsets were not committed: this consumer is no longer a member of its group, or its partitions moved.
    Raised by `Consumer.commit`; in a transaction the same is Abortable.

    Records read since the last commit are read again, by this member or another.
    """

    action = "Go on with poll(): it joins the group again. What was read since the last commit is read again."


class RebalanceInProgress(TransactionError):
    """The offsets were not committed because the group is being rebalanced; the partitions may still belong to this
    member. Raised by `Consumer.commit`."""

    action = "Call poll() until the rebalance is over, then commit what is still assigned."


class AcknowledgementFailed(TransactionError):
    """Records of a share consumer were not acknowledged, because it does not hold them any more. Their lock or its
    membership ended, or their topic was deleted. `offsets` names them.

    If `error_class` is UNKNOWN_OUTCOME, an answer was lost, and they may be acknowledged.
    """

    action = "Go on with poll(): these records come again, here or elsewhere, until they are acknowledged."

    def __init__(self, code: int, error_class: ErrorClass, reason: str) -> None:
        super().__init__(code, error_class, reason)
        self.offsets: Mapping[TopicPartition, Sequence[int]] = {}
        """Offsets of the records by partition, ascending."""


class Rejected(TransactionError):
    """The request is wrong as it stands. Nothing was changed, and sending it again cannot help. A transaction in which
    it is raised is aborted; the producer is usable."""

    action = "Repair the call; sending it again cannot help."


class CorruptBatch(Rejected):
    """A batch of the log cannot be read: its stored bytes are damaged, or its payload does not match its header.
    Fetching it again does not help, but the batches after it can be read."""

    action = (
        "Restore the partition from a copy; or do without these records: go on at next_offset, or let the reader do so "
        "with on_corrupt_batch='skip'."
    )

    def __init__(self, code: int, reason: str, *, topic: str, partition: int, offset: int, next_offset: int) -> None:
        super().__init__(code, ErrorClass.REJECTED, reason)
        self.topic: str = topic
        self.partition: int = partition
        self.offset: int = offset
        """First offset that cannot be read."""
        self.next_offset: int = next_offset
        """First offset after the damaged batch: the position to continue from without these records."""

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles exceptions to pass them between processes.
        place = {"topic": self.topic, "partition": self.partition, "offset": self.offset}
        return _corrupt_batch, (self.code, self.reason, {**place, "next_offset": self.next_offset})


def _corrupt_batch(code: int, reason: str, place: dict[str, Any]) -> CorruptBatch:
    return CorruptBatch(code, reason, **place)


class Misconfigured(TransactionError):
    """Settings, versions or permissions do not fit. A producer is closed after one from `init` or from a commit; the
    open transaction is then aborted at its timeout, or by the next producer of the id."""

    action = "Change the configuration or the permissions, then start again."


class OutcomeUnknown(TransactionError):
    """The request may or may not have taken effect: no answer came before the deadline.

    Do not repeat the work blindly. After a commit, `Producer.resolve_outcome` asks again under the same request id and
    says whether the transaction committed. A process that starts again with the same transactional id fences the old
    producer and aborts any transaction that is still open.
    """

    action = "Do not send the work again before you know: call resolve_outcome(), or read the topic as read_committed."


class Retriable(TransactionError):
    """The server could not do it now and changed nothing. Raised only once the deadline of the call has passed. A
    transaction in which it is raised is aborted; the producer is usable."""

    action = "Nothing was changed: try again later, or with a longer deadline."


class Unreachable(Retriable):
    """This client was never connected to the server, so nothing was sent. A client with a longer `wait_ms` waits for
    its server."""

    action = "Start the server or correct the address, then try again; a client with a longer wait_ms= waits for it."


@dataclass(frozen=True, slots=True)
class Loss:
    """The reason why a request has no answer: the gRPC name of the status, and its details."""

    status: str
    detail: str
    is_without_effect: bool = False
    """True if the request certainly had no effect: it never left this process, or the server closed its session in
    order without answering it."""
    is_never_connected: bool = False
    """True if the client was never connected to the server."""
    is_final: bool = False
    """True if no other attempt may follow."""

    def __str__(self) -> str:
        return f"{self.status}: {self.detail}" if self.detail else self.status


class ReplyFields(Protocol):
    """The fields in which every reply, and every item of a reply, says whether it succeeded."""

    @property
    def error_code(self) -> int: ...
    @property
    def error_class(self) -> int: ...
    @property
    def error_message(self) -> str: ...


_BY_CLASS: Final = MappingProxyType(
    {
        ErrorClass.RETRY: Retriable,
        ErrorClass.REFRESH: Retriable,
        ErrorClass.ABORT: Abortable,
        ErrorClass.RECOVER: Recoverable,
        ErrorClass.REJOIN: Recoverable,
        ErrorClass.REJECTED: Rejected,
        ErrorClass.FENCED: Fenced,
        ErrorClass.MISCONFIGURED: Misconfigured,
        ErrorClass.UNKNOWN_OUTCOME: OutcomeUnknown,
    }
)

ABORTED_BY_SERVER: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Codes that, with the class RECOVER or ABORT, mean that the server aborted the transaction, for example at its
timeout. This client speaks version 2, so it need not initialise again. Its abort is answered with the next identity,
unless a newer producer has taken the id."""

NOTHING_CHANGED: Final = frozenset({ErrorClass.RETRY, ErrorClass.REFRESH})
"""Error classes after which the server has certainly not carried the request out."""

TOPIC_GONE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
"""Codes for a topic or partition that does not exist, or was replaced by another of the same name. The client's
metadata of the topic is out of date."""

_TOPIC_GONE_ACTIONS: Final = MappingProxyType(
    {
        ErrorClass.REJECTED: (
            "Check the name and the number of the partition, and create what is missing. If the topic was deleted or "
            "made anew meanwhile, what was written to it is gone: abort the transaction, if one is open, and do its "
            "work again in a new one."
        ),
        ErrorClass.ABORT: (
            "The transaction is aborted, because a topic of it is not there or was made anew: create the topic if it "
            "is missing, then repeat the work in a new one with the same producer."
        ),
    }
)

PASSING: Final = NOTHING_CHANGED | {ErrorClass.UNKNOWN_OUTCOME}
"""Error classes after which the call is retried; they reach the caller only at its deadline."""

_CLASSES: Final = frozenset(ErrorClass)
_CODES: Final = frozenset(ErrorCode)

# The server refused these before it looked at the request, so the answer is definite. After every other status it is
# unknown whether the request was carried out. That includes INTERNAL, which both a broken stream and a defect of the
# server cause.
_DEFINITE_STATUS: Final = MappingProxyType(
    {
        "UNAUTHENTICATED": (ErrorClass.MISCONFIGURED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        "PERMISSION_DENIED": (ErrorClass.MISCONFIGURED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        "UNIMPLEMENTED": (ErrorClass.MISCONFIGURED, ErrorCode.UNSUPPORTED_VERSION),
        "INVALID_ARGUMENT": (ErrorClass.REJECTED, ErrorCode.INVALID_REQUEST),
        "FAILED_PRECONDITION": (ErrorClass.REJECTED, ErrorCode.INVALID_REQUEST),
        "NOT_FOUND": (ErrorClass.REJECTED, ErrorCode.INVALID_REQUEST),
        "ALREADY_EXISTS": (ErrorClass.REJECTED, ErrorCode.INVALID_REQUEST),
        "OUT_OF_RANGE": (ErrorClass.REJECTED, ErrorCode.INVALID_REQUEST),
    }
)


def known_code(code: int) -> int:
    """Return the code as an `ErrorCode` if this client knows it, else the plain number."""
    return ErrorCode(code) if code in _CODES else code


def class_of(method: Method, verdict: ReplyFields) -> ErrorClass:
    """Return the error class of a reply; `ErrorClass.NONE` = it succeeded.

    The class in the reply decides. If this client does not know that class, its own table gives the class for the code.
    The same holds for an error code without a class, which must not be taken for a success.
    """
    code = verdict.error_code
    if not code:
        return ErrorClass.NONE
    number = verdict.error_class
    if number in _CLASSES and (number != ErrorClass.NONE or code not in _CODES):
        return ErrorClass(number)
    return error_class(method, ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR)


def first_failed(reply: ReplyFields, items: Iterable[ReplyFields]) -> ReplyFields:
    """Return the part that decides a reply with items: the reply itself if it failed, else its first failed item, else
    the reply."""
    return reply if reply.error_code else next((item for item in items if item.error_code), reply)


def failure(code: int, error_class: ErrorClass, reason: str) -> TransactionError:
    """Return the exception for a code and a class."""
    error = _BY_CLASS[error_class](code, error_class, reason)
    if code in TOPIC_GONE:
        error.action = _TOPIC_GONE_ACTIONS.get(error_class, error.action)
    return error


def failure_of(method: Method, verdict: ReplyFields) -> TransactionError | None:
    """Return the exception that a reply stands for; None if the reply succeeded."""
    if not verdict.error_code:
        return None
    what = class_of(method, verdict)
    if what is ErrorClass.RECOVER and verdict.error_code in ABORTED_BY_SERVER:
        what = ErrorClass.ABORT
    if what is ErrorClass.NONE:
        return None
    return failure(verdict.error_code, what, f"{method}: {verdict.error_message or 'the server gave no reason'}")


def definite_failure(method: Method, loss: Loss) -> TransactionError | None:
    """Return the exception for a status after which the request was certainly not carried out; None if that is
    unknown."""
    found = _DEFINITE_STATUS.get(loss.status)
    if found is None:
        return None
    what, code = found
    return failure(code, what, f"{method}: the server answered {loss}")


def unreachable(loss: Loss) -> Unreachable:
    """Return the exception for a client that was never connected."""
    return Unreachable(ErrorCode.NETWORK_EXCEPTION, ErrorClass.RETRY, loss.detail)


def check_here(check: Callable[[str], None], name: str, method: Method = Method.PRODUCE) -> None:
    """Check a name before anything is sent.

    Raises: the refusal of `check`, as the exception that `method` stands for.
    """
    try:
        check(name)
    except Refused as why:
        what = error_class(method, why.code)
        if what is not ErrorClass.MISCONFIGURED:
            what = ErrorClass.REJECTED
        raise failure(why.code, what, why.message) from None


def rejected(code: ErrorCode, reason: str) -> Rejected:
    """Return the exception for a wrong call that this client noticed itself."""
    return Rejected(code, ErrorClass.REJECTED, reason)


def corrupt(reason: str) -> Rejected:
    """Return the exception for stored bytes that differ from those written."""
    return rejected(ErrorCode.CORRUPT_MESSAGE, reason)


def wrong_setting(name: str, found: object, rule: str) -> Misconfigured:
    """Return the exception for a setting with an impossible value."""
    return misconfigured(ErrorCode.INVALID_CONFIG, f"{name} is {found!r} and {rule}")


def wrong_argument(name: str, found: object, rule: str) -> Rejected:
    """Return the exception for an argument with an impossible value."""
    return rejected(ErrorCode.INVALID_REQUEST, f"{name} is {found!r} and {rule}")


def misconfigured(code: ErrorCode, reason: str) -> Misconfigured:
    """Return the exception for a wrong setting that this client noticed itself."""
    return Misconfigured(code, ErrorClass.MISCONFIGURED, reason)
