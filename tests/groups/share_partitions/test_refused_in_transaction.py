"""Refusals of TxnShareAcknowledge: each leaves records and transaction as they were.

Source: spec groups 6.5, 4.4.
"""

from __future__ import annotations

from typing import Any

import pytest

from coordinator_protocol.errors import ErrorCode, Refused
from coordinator_runtime.ports import Committer, Permission, ResourceType
from tests.groups.share_partitions.transactional_worker import (
    ACCEPT,
    ALL_HELD,
    GROUP,
    OK,
    RELEASE,
    VERSION_1,
    Denying,
    Worker,
)
from tests.harness.group_world import group_world
from tests.harness.share_groups import ShareMember
from txn_coordinator.config import TwoPhase
from txn_coordinator.state import Identity


@pytest.fixture
def split() -> Worker:
    return Worker(group_world(topics={"t": 2}, two_phase=TwoPhase.SPLIT))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"types": (RELEASE,)}, ErrorCode.INVALID_REQUEST),
        ({"types": (ACCEPT,) * 3}, ErrorCode.INVALID_REQUEST),
        ({"committer": Committer("w", 7)}, ErrorCode.ILLEGAL_GENERATION),
        ({"committer": Committer("w", 0)}, ErrorCode.ILLEGAL_GENERATION),
        ({"committer": Committer("w")}, ErrorCode.ILLEGAL_GENERATION),
        ({"committer": Committer("x", 1)}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"committer": Committer()}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": "others"}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"identity": Identity(0, 5)}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"identity": Identity(44, 0)}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"identity": Identity(-1, 0)}, ErrorCode.INVALID_REQUEST),
        ({"context": VERSION_1}, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_refused_acknowledgement_adds_nothing_to_the_transaction(
    split: Worker, arguments: dict[str, Any], code: ErrorCode
) -> None:
    assert split.acknowledge("t-0", "t-1", **arguments) is code
    assert split.pictures == [ALL_HELD, ALL_HELD]
    assert not split.is_open
    split.check()


@pytest.mark.parametrize("other", ["x-0", "t-9", "t-0"], ids=["no topic", "no partition", "named twice"])
def test_one_bad_partition_refuses_all(split: Worker, other: str) -> None:
    code = split.acknowledge("t-0", other)
    assert code is (ErrorCode.INVALID_REQUEST if other == "t-0" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert split.pictures == [ALL_HELD, ALL_HELD]
    assert not split.is_open


def test_one_record_that_is_not_held_refuses_all_partitions_and_is_named(split: Worker) -> None:
    split.shares("t-1").acknowledge("w", (1, 1, [ACCEPT]))
    asked = split.acknowledging("t-0", "t-1")
    split.world.settle()
    with pytest.raises(Refused, match=r"partition t-1: ") as refused:
        asked.result()
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert split.pictures[0] == ALL_HELD
    assert not split.is_open


def test_nothing_to_acknowledge_opens_no_transaction(split: Worker) -> None:
    assert split.acknowledge() is OK
    assert not split.is_open


def test_the_epoch_before_the_last_answer_is_current_enough(split: Worker) -> None:
    missed = Committer("w", split.member.epoch)
    ShareMember(split.world, "v", group_id=GROUP).joins("t")
    split.member.beats()
    assert split.member.epoch > missed.generation_or_epoch
    assert split.acknowledge("t-0", committer=missed) is OK


@pytest.mark.parametrize(
    ("permission", "resource", "code"),
    [
        (Permission.WRITE, ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (Permission.READ, ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (Permission.READ, ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_each_permission_is_needed(permission: Permission, resource: ResourceType, code: ErrorCode) -> None:
    authorizer = Denying()
    worker = Worker(group_world(topics={"t": 2}, authorizer=authorizer))
    authorizer.missing = permission, resource
    assert worker.acknowledge("t-0") is code
    assert not worker.is_open
