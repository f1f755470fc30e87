"""D. Completion: markers from elsewhere, and the producers that they fence."""

from __future__ import annotations

import pytest

from coordinator_api.v1 import common_pb2, log_pb2
from coordinator_protocol.acls import CLUSTER_NAME
from coordinator_runtime.ports import (
    AllowAll,
    Authorizer,
    CallContext,
    Permission,
    ResourceType,
)
from tests.conformance.transactions.case_world import NOW, CaseWorld, Denies
from tests.conformance.transactions.cases import case
from tests.conformance.transactions.markers import marker, send
from txn_coordinator.state import Identity


def foreign(world: CaseWorld, *partitions: int, denies: Authorizer | None = None) -> list[int]:
    """Return each partition's answer to a marker over the wire, of a producer that has no transactional id here; or one
    number if the whole call is refused."""
    world.ongoing().commit()
    producer = world.told(world.init_plain(NOW))
    control = log_pb2.ControlMarker(committed=True, txn_epoch=0, next_epoch=1, coordinator_epoch=1, csn=1)
    request = log_pb2.WriteTxnMarkersRequest(
        markers=[
            log_pb2.TxnMarker(
                producer_id=producer.producer_id,
                marker=control,
                topics=[common_pb2.TopicPartitions(topic="t", partitions=partitions)],
            )
        ]
    )
    answer = world.asked(lambda: world.log_servicer(denies).WriteTxnMarkers(request, NOW))
    return [answer] if isinstance(answer, int) else [each.error_code for each in answer.results[0].partitions]


@case(153)
def test_markers_need_a_permission() -> None:
    world = CaseWorld()
    assert foreign(world, 1, denies=Denies({CLUSTER_NAME})) == [31]
    assert not world.markers("t-1")


class Only(AllowAll):
    """Allows one operation."""

    def __init__(self, permission: Permission) -> None:
        self._permission = permission

    def is_allowed(self, context: CallContext, permission: Permission, resource: ResourceType, name: str) -> bool:
        return permission is self._permission


@case(154)
@pytest.mark.parametrize("permission", [Permission.ALTER, Permission.CLUSTER_ACTION])
def test_one_of_two_permissions_is_enough(permission: Permission) -> None:
    world = CaseWorld()
    assert foreign(world, 1, denies=Only(permission)) == [0]
    assert len(world.markers("t-1")) == 1


@case(155)
def test_an_unknown_partition_beside_a_good_one() -> None:
    world = CaseWorld()
    assert foreign(world, 1, 9) == [0, 3]
    assert len(world.markers("t-1")) == 1


@case(157)
def test_an_old_coordinator_is_fenced() -> None:
    world = CaseWorld()
    assert send(world, marker(0, csn=1)) == 0
    assert send(world, marker(1, csn=2, coordinator_epoch=1)) == 52
    assert send(world, marker(1, csn=2, coordinator_epoch=2)) == 0
    assert send(world, marker(2, csn=3, coordinator_epoch=3)) == 0
    assert len(world.markers()) == 3


@case(158)
def test_an_old_coordinator_is_fenced_after_a_restart() -> None:
    world = CaseWorld()
    send(world, marker(0))
    world.crash()
    assert send(world, marker(1, csn=2, coordinator_epoch=1)) == 52


@case(159)
def test_an_old_coordinator_is_fenced_where_nothing_is_open() -> None:
    world = CaseWorld()
    assert [send(world, marker(0)), send(world, marker(0)), send(world, marker(0, coordinator_epoch=1))] == [0, 0, 52]


@case(161)
def test_a_marker_with_a_higher_epoch_starts_sequences_anew() -> None:
    world = CaseWorld()
    client = world.client()
    client.identity = Identity(77, 0)
    client.write("t-0", "a", "b", plain=True)
    send(world, marker(0))
    raised = Identity(77, 1)
    assert client.write("t-0", "c", shown=raised, sequence=2, plain=True) == 45
    assert client.write("t-0", "c", shown=raised, sequence=0, plain=True) == 0


@case(162)
def test_a_marker_fences_a_producer_that_never_wrote() -> None:
    world = CaseWorld()
    client = world.client()
    assert send(world, marker(1)) == 0
    assert client.write("t-0", "a", shown=Identity(77, 0), plain=True) == 47
    assert client.write("t-0", "a", shown=Identity(77, 2), sequence=17, plain=True) == 45
    assert client.write("t-0", "a", shown=Identity(77, 2), sequence=0, plain=True) == 0
