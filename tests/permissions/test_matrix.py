"""Every procedure with no, with partial and with full rights: a caller without a right changes nothing and learns
nothing, one with it is served, and no right stands in for another."""

from __future__ import annotations

from itertools import chain, product

import pytest
from google.protobuf.message import Message

from coordinator_core.permissions import OF_BROKER, PERMISSIONS, Extent
from coordinator_protocol.acls import PERMISSIONS_OF, ResourceType
from coordinator_protocol.errors import ErrorCode
from coordinator_protocol.methods import Method
from coordinator_server.build import SERVICES
from coordinator_server.grpc_front.session import SERVICE as SESSION_SERVICE
from tests.permissions.cases import CASES, Case
from tests.permissions.guarded_front import (
    ABSENT,
    METHODS,
    REFUSALS,
    STRANGER,
    GuardedFront,
    Question,
    codes,
    response_to,
    without_names,
)

EVERYTHING: tuple[Question, ...] = tuple(
    (permission, resource) for resource in ResourceType for permission in PERMISSIONS_OF[resource]
)
EXPECTED: dict[str, set[ErrorCode]] = {
    "CreateTopics": {ErrorCode.TOPIC_ALREADY_EXISTS},
    "OffsetFetch": {ErrorCode.UNSTABLE_OFFSET_COMMIT},
    "OffsetFetch of all": {ErrorCode.UNSTABLE_OFFSET_COMMIT},
    "AbortHangingTransactions": {ErrorCode.INVALID_TXN_STATE},
    "WriteTxnMarkers": {ErrorCode.INVALID_REQUEST},
    "CreateBackup": {ErrorCode.INVALID_CONFIG},
    "ListBackups": {ErrorCode.INVALID_CONFIG},
    "SealMember with last_sequences": {ErrorCode.TRANSACTION_ABORTABLE},
}
"""Errors of calls that are allowed, and make no sense for another reason."""
BY_NAME = pytest.mark.parametrize("case", CASES, ids=[case.name.replace(" ", "_") for case in CASES])


def test_the_table_has_every_procedure_of_every_service() -> None:
    served = {method.name for service in (*SERVICES, SESSION_SERVICE) for method in service.methods}
    assert {method.value for method in PERMISSIONS} == served
    assert {case.method for case in CASES} == METHODS.keys()


def test_every_question_of_the_table_is_one_that_a_rule_can_answer() -> None:
    for method, asks in PERMISSIONS.items():
        assert all(ask.permission in PERMISSIONS_OF[ask.resource_type] for ask in asks), method


@pytest.fixture(scope="module", params=[False, True], ids=["general", "lane"])
def front(request: pytest.FixtureRequest) -> GuardedFront:
    """One server for all refusals, of which none may change anything."""
    return GuardedFront(lane=request.param)


def _told(front: GuardedFront, request: Message) -> Message:
    """Return the answer to the stranger, after which all must be as before."""
    before = front.snapshot()
    reply = front.ask(request, STRANGER)
    assert not front.world.flush(), "something was staged"
    assert reply.is_settled, "it waits for something"
    assert front.snapshot() == before
    response: Message = response_to(request, reply)
    return response


def _told_beyond(request: Message, response: Message, front: GuardedFront) -> list[str]:
    """The names of what is there that the response tells, and that the caller did not send."""
    return [name for name in front.names.all() if name in str(response) and name not in str(request)]


@BY_NAME
def test_who_may_do_nothing_changes_nothing_and_learns_nothing(front: GuardedFront, case: Case) -> None:
    front.let([])
    if not case.needs and not case.hidden:
        return
    request = case.make(front, front.names)
    response = _told(front, request)
    assert not _told_beyond(request, response, front)
    refused = {*map(ErrorCode, codes(response))} - {ErrorCode.OPERATION_NOT_ATTEMPTED}
    if case.needs:
        assert refused == {case.code(case.needs[0])}
        absent = _told(front, case.make(front, ABSENT))
        assert without_names(response, front.names) == without_names(absent, ABSENT), "it tells what exists"
    else:
        assert not refused


@BY_NAME
def test_no_right_stands_in_for_another(front: GuardedFront, case: Case) -> None:
    for number, missing in enumerate(case.needs):
        # Rights that come with another one are taken away with it.
        others = [question for question in EVERYTHING if not _gives(question, missing)]
        before = [each[0] for each in case.needs[:number]]
        for allowed, denied in ((before, []), (others, []), (EVERYTHING, [*missing, *_stands_for(missing)])):
            front.let(allowed, denied)
            response = _told(front, case.make(front, front.names))
            refused = {*map(ErrorCode, codes(response))} - {ErrorCode.OPERATION_NOT_ATTEMPTED}
            may_describe = any(question == _SEE_TOPIC for question in allowed) and _SEE_TOPIC not in denied
            assert refused == {case.code(missing, may_describe=may_describe)}, (number, missing, denied, response)


_SEE_TOPIC = next(question for question in EVERYTHING if question[0] == "describe" and question[1] == "topic")
_WRITE_TOPIC = next(question for question in EVERYTHING if question[0] == "write" and question[1] == "topic")


def _stands_for(missing: tuple[Question, ...]) -> list[Question]:
    return [_WRITE_TOPIC] if any(permission == "idempotent_write" for permission, _ in missing) else []


def _gives(question: Question, missing: tuple[Question, ...]) -> bool:
    """Return whether a right is one of these, or comes with one."""
    implied = {"describe": {"read", "write", "delete", "alter"}, "describe_configs": {"alter_configs"}}
    permission, resource = question
    return any(
        resource is wanted_of and (permission is wanted or permission.value in implied.get(wanted.value, set()))
        for wanted, wanted_of in missing
    )


@BY_NAME
def test_who_may_is_served_and_every_question_is_asked(case: Case) -> None:
    asked: set[Question] = set()
    for lane, chosen in product([False, True], product(*case.needs)):
        front = GuardedFront(lane=lane)
        front.let([*chosen, *case.hidden])
        front.asked.clear()
        response = front.told(case.make(front, front.names), STRANGER)
        assert {*codes(response)} <= EXPECTED.get(case.name, set()), response
        asked |= front.asked
    assert asked >= {*chain(*case.needs), *case.hidden} - {_WRITE_TOPIC, *case.hidden}


def test_every_row_of_the_table_is_asked_by_some_case() -> None:
    for method in METHODS:
        asks = [ask for ask in PERMISSIONS[Method(method)] if ask.when != OF_BROKER]
        rows = {(ask.permission, ask.resource_type) for ask in asks}
        cases = [case for case in CASES if case.method == method]
        needed = {question for case in cases for question in (*chain(*case.needs), *case.hidden)}
        extra = {_WRITE_TOPIC} if method == "InitProducerId" else set()
        assert needed - extra == rows, method


@pytest.mark.parametrize("case", [case for case in CASES if case.hidden], ids=lambda case: case.name.replace(" ", "_"))
def test_what_may_not_be_seen_is_left_out(case: Case) -> None:
    front = GuardedFront()
    needed = [each[0] for each in case.needs]
    front.let([*needed, *case.hidden])
    whole = str(front.told(case.make(front, front.names), STRANGER))
    front = GuardedFront()
    front.let(needed)
    response = front.told(case.make(front, front.names), STRANGER)
    assert not {*codes(response)} & REFUSALS
    assert len(str(response)) < len(whole)
    assert not _told_beyond(case.make(front, front.names), response, front)


def test_extents_are_as_the_table_says() -> None:
    front = GuardedFront()
    for case in CASES:
        asks = {(ask.permission, ask.resource_type): ask.extent for ask in PERMISSIONS[Method(case.method)]}
        for missing in case.needs:
            front.let([question for question in EVERYTHING if not _gives(question, missing)])
            response = front.told(case.make(front, front.names), STRANGER)
            if asks[missing[-1]] is Extent.REQUEST:
                assert response.error_code, case.name  # type: ignore[attr-defined]
            elif asks[missing[-1]] is Extent.ITEM and case.method not in ("AddPartitionsToTxn", "AbortTransactions"):
                assert not response.error_code, case.name  # type: ignore[attr-defined]


def test_who_may_describe_the_server_sees_all_groups() -> None:
    front = GuardedFront()
    front.let([question for question in EVERYTHING if question[0] == "describe" and question[1] == "cluster"])
    (case,) = (case for case in CASES if case.name == "ListGroups")
    listed = front.told(case.make(front, front.names), STRANGER)
    assert len(listed.groups) == 6
