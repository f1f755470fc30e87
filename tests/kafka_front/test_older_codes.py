"""Error codes by version: a client gets no code that its version of an API does not know."""

from __future__ import annotations

import pytest

from coordinator_protocol.errors import ErrorCode, NotInTransaction, Refused, UnknownOutcome
from coordinator_server.kafka_front.apis import APIS, ApiKey
from coordinator_server.kafka_front.errors import code_for

CODE = ErrorCode
TABLE = (
    # API, versions, code of the core, code of the answer
    (ApiKey.INIT_PRODUCER_ID, range(4), CODE.PRODUCER_FENCED, CODE.INVALID_PRODUCER_EPOCH),
    (ApiKey.INIT_PRODUCER_ID, range(4, 6), CODE.PRODUCER_FENCED, CODE.PRODUCER_FENCED),
    (ApiKey.ADD_PARTITIONS_TO_TXN, range(2), CODE.PRODUCER_FENCED, CODE.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_PARTITIONS_TO_TXN, range(2, 4), CODE.PRODUCER_FENCED, CODE.PRODUCER_FENCED),
    (ApiKey.ADD_OFFSETS_TO_TXN, range(2), CODE.PRODUCER_FENCED, CODE.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_OFFSETS_TO_TXN, range(2, 5), CODE.PRODUCER_FENCED, CODE.PRODUCER_FENCED),
    (ApiKey.END_TXN, range(2), CODE.PRODUCER_FENCED, CODE.INVALID_PRODUCER_EPOCH),
    (ApiKey.END_TXN, range(2, 6), CODE.PRODUCER_FENCED, CODE.PRODUCER_FENCED),
    (ApiKey.TXN_OFFSET_COMMIT, range(6), CODE.PRODUCER_FENCED, CODE.INVALID_PRODUCER_EPOCH),
    (ApiKey.PRODUCE, range(3, 14), CODE.PRODUCER_FENCED, CODE.INVALID_PRODUCER_EPOCH),
    (ApiKey.INIT_PRODUCER_ID, range(5), CODE.TRANSACTION_ABORTABLE, CODE.INVALID_TXN_STATE),
    (ApiKey.INIT_PRODUCER_ID, range(5, 6), CODE.TRANSACTION_ABORTABLE, CODE.TRANSACTION_ABORTABLE),
    (ApiKey.ADD_PARTITIONS_TO_TXN, range(4), CODE.TRANSACTION_ABORTABLE, CODE.INVALID_TXN_STATE),
    (ApiKey.ADD_OFFSETS_TO_TXN, range(4), CODE.TRANSACTION_ABORTABLE, CODE.INVALID_TXN_STATE),
    (ApiKey.ADD_OFFSETS_TO_TXN, range(4, 5), CODE.TRANSACTION_ABORTABLE, CODE.TRANSACTION_ABORTABLE),
    (ApiKey.END_TXN, range(4), CODE.TRANSACTION_ABORTABLE, CODE.INVALID_TXN_STATE),
    (ApiKey.END_TXN, range(4, 6), CODE.TRANSACTION_ABORTABLE, CODE.TRANSACTION_ABORTABLE),
    (ApiKey.TXN_OFFSET_COMMIT, range(4), CODE.TRANSACTION_ABORTABLE, CODE.INVALID_TXN_STATE),
    (ApiKey.TXN_OFFSET_COMMIT, range(4, 6), CODE.TRANSACTION_ABORTABLE, CODE.TRANSACTION_ABORTABLE),
    (ApiKey.PRODUCE, range(3, 11), CODE.TRANSACTION_ABORTABLE, CODE.INVALID_TXN_STATE),
    (ApiKey.PRODUCE, range(11, 14), CODE.TRANSACTION_ABORTABLE, CODE.TRANSACTION_ABORTABLE),
    (ApiKey.PRODUCE, range(3, 12), CODE.CONCURRENT_TRANSACTIONS, CODE.NOT_ENOUGH_REPLICAS),
    (ApiKey.PRODUCE, range(12, 14), CODE.CONCURRENT_TRANSACTIONS, CODE.CONCURRENT_TRANSACTIONS),
    (ApiKey.PRODUCE, range(3, 14), CODE.COORDINATOR_LOAD_IN_PROGRESS, CODE.NOT_ENOUGH_REPLICAS),
    (ApiKey.PRODUCE, range(3, 14), CODE.NOT_COORDINATOR, CODE.NOT_ENOUGH_REPLICAS),
    (ApiKey.PRODUCE, range(3, 14), CODE.THROTTLING_QUOTA_EXCEEDED, CODE.NOT_ENOUGH_REPLICAS),
    (ApiKey.PRODUCE, range(3, 14), CODE.NOT_LEADER_OR_FOLLOWER, CODE.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.FETCH, range(4, 19), CODE.COORDINATOR_LOAD_IN_PROGRESS, CODE.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.LIST_OFFSETS, range(1, 12), CODE.COORDINATOR_NOT_AVAILABLE, CODE.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, range(2, 5), CODE.COORDINATOR_NOT_AVAILABLE, CODE.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.DELETE_RECORDS, range(3), CODE.THROTTLING_QUOTA_EXCEEDED, CODE.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.TXN_OFFSET_COMMIT, range(2), CODE.COORDINATOR_LOAD_IN_PROGRESS, CODE.COORDINATOR_NOT_AVAILABLE),
    (ApiKey.TXN_OFFSET_COMMIT, range(2, 6), CODE.COORDINATOR_LOAD_IN_PROGRESS, CODE.COORDINATOR_LOAD_IN_PROGRESS),
    (ApiKey.OFFSET_COMMIT, range(2, 9), CODE.GROUP_ID_NOT_FOUND, CODE.ILLEGAL_GENERATION),
    (ApiKey.OFFSET_COMMIT, range(9, 11), CODE.GROUP_ID_NOT_FOUND, CODE.GROUP_ID_NOT_FOUND),
    (ApiKey.OFFSET_COMMIT, range(2, 9), CODE.STALE_MEMBER_EPOCH, CODE.UNSUPPORTED_VERSION),
    (ApiKey.OFFSET_COMMIT, range(9, 11), CODE.STALE_MEMBER_EPOCH, CODE.STALE_MEMBER_EPOCH),
    (ApiKey.OFFSET_FETCH, range(1, 10), CODE.COORDINATOR_NOT_AVAILABLE, CODE.NOT_COORDINATOR),
    (ApiKey.OFFSET_FETCH, range(10, 11), CODE.COORDINATOR_NOT_AVAILABLE, CODE.COORDINATOR_NOT_AVAILABLE),
    (ApiKey.OFFSET_FETCH, range(1, 11), CODE.KAFKA_STORAGE_ERROR, CODE.NOT_COORDINATOR),
    (ApiKey.JOIN_GROUP, range(10), CODE.KAFKA_STORAGE_ERROR, CODE.NOT_COORDINATOR),
    (ApiKey.JOIN_GROUP, range(10), CODE.NOT_ENOUGH_REPLICAS, CODE.COORDINATOR_NOT_AVAILABLE),
    (ApiKey.JOIN_GROUP, range(10), CODE.THROTTLING_QUOTA_EXCEEDED, CODE.COORDINATOR_NOT_AVAILABLE),
    (ApiKey.OFFSET_FETCH, range(1, 11), CODE.THROTTLING_QUOTA_EXCEEDED, CODE.COORDINATOR_LOAD_IN_PROGRESS),
)


@pytest.mark.parametrize(
    ("key", "version", "code", "answer"),
    [(key, version, code, answer) for key, versions, code, answer in TABLE for version in versions],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_version_gets_the_code_that_it_knows(key: ApiKey, version: int, code: ErrorCode, answer: ErrorCode) -> None:
    assert APIS[key].has(version)
    assert code_for(key, version, Refused(code, "")) == answer


@pytest.mark.parametrize(
    ("key", "version", "answer"),
    [
        (ApiKey.PRODUCE, 10, CODE.INVALID_TXN_STATE),
        (ApiKey.PRODUCE, 11, CODE.TRANSACTION_ABORTABLE),
        (ApiKey.TXN_OFFSET_COMMIT, 3, CODE.INVALID_TXN_STATE),
        (ApiKey.TXN_OFFSET_COMMIT, 4, CODE.TRANSACTION_ABORTABLE),
    ],
)
def test_what_is_not_in_the_transaction_asks_for_an_abort_where_clients_know_it(
    key: ApiKey, version: int, answer: ErrorCode
) -> None:
    assert code_for(key, version, NotInTransaction("")) == answer
    assert code_for(key, version, Refused(CODE.INVALID_TXN_STATE, "")) == CODE.INVALID_TXN_STATE


def test_the_table_has_every_version_of_the_codes_of_transactions() -> None:
    transactional = {
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.PRODUCE,
    }
    for wanted in (CODE.PRODUCER_FENCED, CODE.TRANSACTION_ABORTABLE):
        held = [(key, version) for key, versions, code, _answer in TABLE if code is wanted for version in versions]
        assert sorted(held) == [
            (key, version)
            for key in sorted(transactional)
            for version in range(APIS[key].lowest, APIS[key].highest + 1)
        ]


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        (ApiKey.PRODUCE, CODE.REQUEST_TIMED_OUT),
        (ApiKey.END_TXN, CODE.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.JOIN_GROUP, CODE.COORDINATOR_NOT_AVAILABLE),
        (ApiKey.OFFSET_FETCH, CODE.NOT_COORDINATOR),
    ],
)
def test_an_unknown_outcome_is_a_code_after_which_clients_repeat_the_call(key: ApiKey, answer: ErrorCode) -> None:
    assert code_for(key, APIS[key].highest, UnknownOutcome("the disk")) == answer
