"""From the three fields of a reply to the exception a user catches."""

from __future__ import annotations

import pickle

import pytest

from coordinator_api.v1.log_pb2 import ProduceResult
from coordinator_client import errors
from coordinator_client.errors import Loss, class_of, definite_failure, failure, failure_of
from coordinator_client.producer.rules import AfterEnd, AfterSend, after_abort, after_commit, after_send, send_failure
from coordinator_protocol.errors import ErrorClass, ErrorCode
from coordinator_protocol.methods import Method

FAILURES = [what for what in ErrorClass if what is not ErrorClass.NONE]


def verdict(code: int, what: int = 0, message: str = "") -> ProduceResult:
    return ProduceResult(error_code=code, error_class=what, error_message=message)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        (ErrorClass.RETRY, errors.Retriable),
        (ErrorClass.REFRESH, errors.Retriable),
        (ErrorClass.ABORT, errors.Abortable),
        (ErrorClass.RECOVER, errors.Recoverable),
        (ErrorClass.REJOIN, errors.Recoverable),
        (ErrorClass.REJECTED, errors.Rejected),
        (ErrorClass.FENCED, errors.Fenced),
        (ErrorClass.MISCONFIGURED, errors.Misconfigured),
        (ErrorClass.UNKNOWN_OUTCOME, errors.OutcomeUnknown),
    ],
)
def test_a_code_this_client_does_not_know_is_treated_by_its_class(what: ErrorClass, kind: type[Exception]) -> None:
    error = failure_of(Method.PRODUCE, verdict(9_999, what, "from the future"))
    assert type(error) is kind
    assert (error.code, error.error_class) == (9_999, what)
    assert "a code this client does not know (9999): Produce: from the future - " in str(error)
    assert error.action


@pytest.mark.parametrize("method", [Method.END_TXN, Method.TXN_OFFSET_COMMIT, Method.PRODUCE])
@pytest.mark.parametrize("code", sorted(errors.TOPIC_GONE))
def test_a_topic_that_is_gone_is_no_call_to_repair(method: Method, code: ErrorCode) -> None:
    for what, kind, advice in (
        (ErrorClass.REJECTED, errors.Rejected, ("create what is missing", "abort the transaction, if one is open")),
        (ErrorClass.ABORT, errors.Abortable, ("create the topic if it is missing", "repeat the work in a new one")),
    ):
        error = failure_of(method, verdict(code, what, "it was deleted"))
        assert type(error) is kind
        assert all(words in error.action for words in advice)
        assert pickle.loads(pickle.dumps(error)).action == error.action
    assert failure(ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED, "").action == errors.Rejected.action


def test_success_is_no_error() -> None:
    assert failure_of(Method.PRODUCE, verdict(0)) is None


def test_an_unknown_code_of_class_none_is_a_success_with_a_remark() -> None:
    assert class_of(Method.PRODUCE, verdict(9_999)) is ErrorClass.NONE
    assert class_of(Method.PRODUCE, verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)) is ErrorClass.NONE


def test_a_known_failure_without_a_class_is_not_taken_for_a_success() -> None:
    assert class_of(Method.END_TXN, verdict(ErrorCode.PRODUCER_FENCED)) is ErrorClass.FENCED


@pytest.mark.parametrize(
    ("method", "code", "what"),
    [
        (Method.END_TXN, ErrorCode.PRODUCER_FENCED, ErrorClass.FENCED),
        (Method.END_TXN, 9_999, ErrorClass.UNKNOWN_OUTCOME),
        (Method.FETCH, 9_999, ErrorClass.RETRY),
    ],
)
def test_an_unknown_class_falls_back_on_the_clients_own_table(method: Method, code: int, what: ErrorClass) -> None:
    assert class_of(method, verdict(code, 77)) is what


def test_an_error_survives_pickling_with_everything_it_knows() -> None:
    error = failure(ErrorCode.REQUEST_TIMED_OUT, ErrorClass.UNKNOWN_OUTCOME, "no answer")
    error.may_have_committed, error.lost_attempts = True, 3
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is errors.OutcomeUnknown
    assert str(copy) == str(error)
    assert (copy.may_have_committed, copy.lost_attempts) == (True, 3)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("UNAVAILABLE", None),
        ("DEADLINE_EXCEEDED", None),
        ("CANCELLED", None),
        ("RESOURCE_EXHAUSTED", None),
        ("INTERNAL", None),
        ("UNKNOWN", None),
        ("UNAUTHENTICATED", errors.Misconfigured),
        ("PERMISSION_DENIED", errors.Misconfigured),
        ("UNIMPLEMENTED", errors.Misconfigured),
        ("INVALID_ARGUMENT", errors.Rejected),
    ],
)
def test_only_a_definite_status_is_a_failure(status: str, kind: type[Exception] | None) -> None:
    error = definite_failure(Method.PRODUCE, Loss(status, "detail"))
    assert (None if error is None else type(error)) is kind


@pytest.mark.parametrize("is_transactional", [True, False])
@pytest.mark.parametrize("what", FAILURES)
def test_every_failed_send_has_one_consequence(what: ErrorClass, is_transactional: bool) -> None:
    error = failure(ErrorCode.INVALID_RECORD, what, "why")
    after = after_send(error, is_transactional=is_transactional)
    seen = send_failure(error, is_transactional=is_transactional)
    assert isinstance(after, AfterSend)
    if is_transactional:
        assert after is not AfterSend.GO_ON, "a transaction with a hole never commits"
        assert not isinstance(seen, errors.Retriable | errors.OutcomeUnknown)
    else:
        assert after is not AfterSend.ABORT, "there is nothing to abort"
        assert not isinstance(seen, errors.Abortable)


@pytest.mark.parametrize("what", list(ErrorClass))
def test_every_end_has_one_consequence(what: ErrorClass) -> None:
    assert (after_commit(what) is AfterEnd.DONE) is (what is ErrorClass.NONE)
    assert (after_abort(what) is AfterEnd.DONE) is (what is ErrorClass.NONE)
    assert after_abort(what) is not AfterEnd.ABORT, "an abort that asks for an abort never ends (KAFKA-19250)"
