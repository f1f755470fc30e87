"""The error table: every method and code has exactly one class, and the classes keep the promises they make."""

from __future__ import annotations

import itertools
import pickle
import re
from collections import Counter
from pathlib import Path

import pytest

from coordinator_api.v1 import common_pb2
from coordinator_protocol import errors
from coordinator_protocol.errors import (
    CoordinatorError,
    ErrorClass,
    ErrorCode,
    Outdated,
    Refused,
    UnknownOutcome,
    class_of,
    error_class,
)
from coordinator_protocol.methods import METHODS, Method

PROTO = Path(__file__).resolve().parent.parent.parent / "proto"
EVERY_PAIR = tuple(itertools.product(Method, ErrorCode))
MUTATING = tuple(method for method, rule in METHODS.items() if not rule.is_repeatable)
ENDS_TRANSACTIONS = (
    Method.ABORT_HANGING_TRANSACTIONS,
    Method.ABORT_TRANSACTIONS,
    Method.FENCE_PRODUCERS,
    Method.INIT_PRODUCER_ID,
    Method.WRITE_TXN_MARKERS,
)
OUTCOME_UNKNOWN = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


def test_every_method_and_code_has_a_class() -> None:
    for method, code in EVERY_PAIR:
        assert isinstance(error_class(method, code), ErrorClass)


def test_no_code_has_two_default_classes_and_no_pair_two_exceptions() -> None:
    defaults = Counter(code for codes in errors._DEFAULT_CODES.values() for code in codes)
    assert defaults == Counter(ErrorCode)
    exceptions = Counter(
        (method, code) for methods, codes, _ in errors._EXCEPTIONS for method in methods for code in codes
    )
    assert [pair for pair, times in exceptions.items() if times > 1] == []


def test_every_exception_changes_the_default() -> None:
    idle = [pair for pair, chosen in errors._OVERRIDES.items() if errors._DEFAULT[pair[1]] is chosen]
    assert idle == []


def test_success_is_the_class_of_no_error_and_of_a_duplicate_batch_only() -> None:
    done = {(method, code) for method, code in EVERY_PAIR if error_class(method, code) is ErrorClass.NONE}
    duplicate = (Method.PRODUCE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert done == {(method, ErrorCode.NONE) for method in Method} | {duplicate}


def test_an_abort_is_never_answered_with_abort() -> None:
    # KAFKA-19250: a client that follows such advice aborts for ever.
    for method, code in itertools.product(ENDS_TRANSACTIONS, ErrorCode):
        assert error_class(method, code) is not ErrorClass.ABORT, (method, code)
    advised = {code for code in ErrorCode if error_class(Method.END_TXN, code) is ErrorClass.ABORT}
    assert advised == {ErrorCode.TRANSACTION_ABORTABLE}


def test_an_outdated_identity_is_never_fenced_and_nothing_else_changes() -> None:
    for method, code in EVERY_PAIR:
        what = error_class(method, code)
        assert class_of(method, Refused(code, "why")) is what
        assert class_of(method, UnknownOutcome("why", code)) is what
        assert class_of(method, Outdated(code, "why")) is (ErrorClass.RECOVER if what is ErrorClass.FENCED else what)


def test_abort_is_advised_only_where_a_transaction_may_be_open() -> None:
    advising = {method for method, code in EVERY_PAIR if error_class(method, code) is ErrorClass.ABORT}
    assert advising == {
        Method.ADD_PARTITIONS_TO_TXN,
        Method.ADD_OFFSETS_TO_TXN,
        Method.TXN_OFFSET_COMMIT,
        Method.TXN_SHARE_ACKNOWLEDGE,
        Method.PRODUCE,
        Method.TRANSACT,
        Method.PREPARE_TRANSACTION,
        Method.END_TXN,
        Method.SEAL_MEMBER,
        Method.COMMIT_BATCH,
    }


@pytest.mark.parametrize("code", OUTCOME_UNKNOWN)
def test_a_failed_write_has_an_unknown_outcome_and_a_failed_read_is_repeated(code: ErrorCode) -> None:
    for method in Method:
        expected = ErrorClass.UNKNOWN_OUTCOME if method in MUTATING else ErrorClass.RETRY
        assert error_class(method, code) is expected, method


def test_only_a_failed_write_has_an_unknown_outcome() -> None:
    unknown = {code for method, code in EVERY_PAIR if error_class(method, code) is ErrorClass.UNKNOWN_OUTCOME}
    assert unknown == set(OUTCOME_UNKNOWN)


def test_membership_is_renewed_only_on_the_word_of_a_group() -> None:
    asked_of_transactions = (Method.PRODUCE, Method.TRANSACT, Method.TXN_OFFSET_COMMIT, Method.ADD_OFFSETS_TO_TXN)
    for method, code in itertools.product(asked_of_transactions, ErrorCode):
        if error_class(method, code) is ErrorClass.REJOIN:
            assert code in {
                ErrorCode.MEMBER_ID_REQUIRED,
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            }


@pytest.mark.parametrize(
    ("method", "code", "expected"),
    [
        # The coordinator knows which one is newer; a partition does not.
        (Method.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorClass.ABORT),
        (Method.END_TXN, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorClass.FENCED),
        (Method.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorClass.FENCED),
        (Method.TXN_OFFSET_COMMIT, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorClass.FENCED),
        (Method.PRODUCE, ErrorCode.PRODUCER_FENCED, ErrorClass.FENCED),
        (Method.INIT_PRODUCER_ID, ErrorCode.PRODUCER_FENCED, ErrorClass.FENCED),
        # A wrong step is a bug of the caller; an id that expired is not.
        (Method.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_TXN_STATE, ErrorClass.REJECTED),
        (Method.END_TXN, ErrorCode.INVALID_TXN_STATE, ErrorClass.REJECTED),
        (Method.END_TXN, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorClass.RECOVER),
        (Method.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorClass.RECOVER),
        # Busy, loading, full: wait. Elsewhere: look again.
        (Method.END_TXN, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorClass.RETRY),
        (Method.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorClass.RETRY),
        (Method.PRODUCE, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorClass.RETRY),
        (Method.OFFSET_FETCH, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorClass.RETRY),
        (Method.END_TXN, ErrorCode.NOT_COORDINATOR, ErrorClass.REFRESH),
        (Method.JOIN_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorClass.REFRESH),
        # Settings, permissions, versions.
        (Method.INIT_PRODUCER_ID, ErrorCode.INVALID_TRANSACTION_TIMEOUT, ErrorClass.MISCONFIGURED),
        (Method.INIT_PRODUCER_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorClass.MISCONFIGURED),
        (Method.INIT_PRODUCER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorClass.MISCONFIGURED),
        (Method.PRODUCE, ErrorCode.INVALID_REQUEST, ErrorClass.REJECTED),
        (Method.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE, ErrorClass.REJECTED),
        # Errors that end one transaction but not its producer.
        (Method.PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorClass.ABORT),
        (Method.PRODUCE, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorClass.ABORT),
        (Method.ADD_PARTITIONS_TO_TXN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorClass.ABORT),
        (Method.ADD_PARTITIONS_TO_TXN, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorClass.ABORT),
        (Method.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, ErrorClass.ABORT),
        (Method.TXN_OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID, ErrorClass.ABORT),
        # The same codes asked of the group itself.
        (Method.OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, ErrorClass.REJOIN),
        (Method.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, ErrorClass.REJOIN),
        (Method.CONSUMER_GROUP_HEARTBEAT, ErrorCode.FENCED_MEMBER_EPOCH, ErrorClass.REJOIN),
        (Method.CONSUMER_GROUP_HEARTBEAT, ErrorCode.UNRELEASED_INSTANCE_ID, ErrorClass.RETRY),
        (Method.CONSUMER_GROUP_HEARTBEAT, ErrorCode.GROUP_ID_NOT_FOUND, ErrorClass.REJOIN),
        (Method.DELETE_GROUPS, ErrorCode.GROUP_ID_NOT_FOUND, ErrorClass.REJECTED),
        (Method.JOIN_GROUP, ErrorCode.FENCED_INSTANCE_ID, ErrorClass.FENCED),
        # Damage on the way can be repaired by sending again, damage on the disk cannot.
        (Method.PRODUCE, ErrorCode.CORRUPT_MESSAGE, ErrorClass.RETRY),
        (Method.FETCH, ErrorCode.CORRUPT_MESSAGE, ErrorClass.REJECTED),
        (Method.WRITE_TXN_MARKERS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorClass.REJECTED),
        (Method.WRITE_TXN_MARKERS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorClass.REFRESH),
        (Method.ABORT_HANGING_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorClass.REJECTED),
        (Method.ABORT_HANGING_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorClass.REFRESH),
        (Method.WRITE_TXN_MARKERS, ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorClass.FENCED),
        (Method.TRANSACT, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorClass.REJECTED),
    ],
)
def test_the_class_is_the_action_that_helps(method: Method, code: ErrorCode, expected: ErrorClass) -> None:
    assert error_class(method, code) is expected


def test_the_codes_on_the_wire_are_ours_by_name_and_number() -> None:
    ours = {f"ERROR_CODE_{code.name}": int(code) for code in ErrorCode}
    assert dict(common_pb2.ErrorCode.items()) == ours


def test_the_classes_on_the_wire_are_ours_by_name_and_number() -> None:
    ours = {f"ERROR_CLASS_{one.name}": int(one) for one in ErrorClass}
    assert dict(common_pb2.ErrorClass.items()) == ours


def test_every_remote_procedure_has_its_row_in_the_table() -> None:
    declared = {
        name
        for path in (PROTO / "coordinator_api" / "v1").glob("*.proto")
        for name in re.findall(r"^\s*rpc (\w+)", path.read_text(), re.MULTILINE)
    }
    assert "EndTxn" in declared
    assert declared <= {method.value for method in Method}


def test_a_refusal_tells_code_and_reason() -> None:
    refusal = Refused(ErrorCode.PRODUCER_FENCED, "epoch 3 is older than 4; stop")
    assert (refusal.code, refusal.message) == (ErrorCode.PRODUCER_FENCED, "epoch 3 is older than 4; stop")
    assert str(refusal) == "PRODUCER_FENCED (90): epoch 3 is older than 4; stop"


def test_an_unknown_outcome_is_no_refusal_and_says_timed_out() -> None:
    unknown = UnknownOutcome("the flush failed; ask again")
    assert unknown.code is ErrorCode.REQUEST_TIMED_OUT
    assert not isinstance(unknown, Refused)


@pytest.mark.parametrize("error", [Refused(ErrorCode.INVALID_REQUEST, "no"), UnknownOutcome("who knows")])
def test_an_error_survives_the_way_to_another_process(error: CoordinatorError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.code, copy.message, str(copy)) == (type(error), error.code, error.message, str(error))
